"""Trace files in every state: whole, torn, broken, too long, without an end, without anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import made, turn

from viewer.reading import traces
from viewer.reading.traces import ReadRun, read_run
from workflow.trace import AgentTurn, Printed, RunEnded, RunStarted, event_to_json

START = event_to_json(RunStarted(run_id="r", question="Q?", engine="e")) + "\n"
SAID = event_to_json(Printed(text="said")) + "\n"
END = event_to_json(RunEnded()) + "\n"


@pytest.fixture
def read(tmp_path: Path):
    def reading(text: str | bytes) -> ReadRun:
        path = tmp_path / "run.jsonl"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_run(path)

    return reading


def told(run: ReadRun) -> list[tuple[str, int]]:
    return [(problem.kind, problem.line) for problem in run.problems]


def test_a_whole_trace_has_no_problems(read) -> None:
    run = read(START + SAID + END)
    assert [type(event) for event in run.trace.events] == [RunStarted, Printed, RunEnded]
    assert run.problems == ()
    assert run.complete
    assert run.name == "run.jsonl"
    assert run.bytes == len(START + SAID + END)


def test_all_that_a_run_recorded_is_read_back(read) -> None:
    run = made(turn("w/A"), turn("w/B", text=None, error="gone"))
    again = read("".join(event_to_json(event) + "\n" for event in run.trace.events))
    assert again.trace.events == run.trace.events


def test_a_torn_last_line_is_told_and_what_stands_before_it_kept(read) -> None:
    run = read(START + SAID + END[:-9])
    assert told(run) == [("torn", 3), ("no_end", 0)]
    assert "cut short" in run.problems[0].reason
    assert run.torn
    assert not run.complete
    assert len(run.trace.events) == 2


def test_a_last_line_without_its_newline_is_good_where_it_is_whole(read) -> None:
    run = read(START + END[:-1])
    assert run.problems == ()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{broken\n", "it is no JSON"),
        ("[]\n", "it is no event"),
        ('{"type": "nothing"}\n', "there is no type 'nothing'"),
        ('{"type": "print"}\n', "at print.text"),
        ('{"type": "print", "text": "a", "more": 1}\n', "at print.more"),
        ('{"type": "print", "text": "\\ud800"}\n', "it is no JSON"),
        ("[" * 100_000 + "\n", "recursion limit"),
        ('{"type":"reward","total":"nan","terms":[]}\n', "teaches nothing"),
    ],
)
def test_events_after_a_broken_line_are_kept(read, line: str, reason: str) -> None:
    run = read(START + line + SAID + END)
    assert told(run) == [("broken", 2)]
    assert reason in run.problems[0].reason
    assert str(run.problems[0]).startswith("line 2: ")
    assert "line 1" not in run.problems[0].reason, "each line is read for itself"
    assert len(run.trace.events) == 3


def test_bytes_that_are_no_text_are_told(read) -> None:
    run = read(START.encode() + b"\xff\xfe\x00\n" + b'{"type":"print","text":"a\xffb"}\n' + END.encode())
    assert told(run) == [("broken", 2)]
    assert run.trace.events[1] == Printed(text="a\ufffdb")


def test_a_byte_order_mark_and_blank_lines_are_no_problem(read) -> None:
    assert read("\ufeff" + START + "\n  \n" + END).problems == ()


def test_a_line_over_the_limit_is_passed_over(read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "LONGEST_LINE", 1_000)
    monkeypatch.setattr(traces, "_CHUNK", 64)
    for length in (999, 1_000, 1_001, 5_000):
        run = read(START + "x" * length + "\n" + SAID + END)
        assert told(run) == [("long" if length > 999 else "broken", 2)], length
        assert len(run.trace.events) == 3
    assert told(read(START + "x" * 5_000)) == [("long", 2), ("no_end", 0)]


def said(number: int) -> str:
    return event_to_json(Printed(text=f"{number:05}")) + "\n"


def numbers(run: ReadRun) -> list[int]:
    return [int(event.text) for event in run.trace.events if isinstance(event, Printed)]


def test_of_a_very_large_file_beginning_and_end_are_read(read, monkeypatch: pytest.MonkeyPatch) -> None:
    one = len(said(0))
    monkeypatch.setattr(traces, "MOST_BYTES", len(START) + 29 * one + len(END))
    monkeypatch.setattr(traces, "LAST_BYTES", 9 * one + len(END))
    whole = START + "".join(map(said, range(29))) + END
    run = read(whole)
    assert (numbers(run), run.gap, run.problems) == ([*range(29)], None, ())
    run = read(START + "".join(map(said, range(50))) + "no event\n" + END)
    assert [event.type for event in (run.trace.events[0], run.trace.events[-1])] == ["run_started", "run_ended"]
    first, last = [each for each in numbers(run) if each < 25], [each for each in numbers(run) if each >= 25]
    assert first == [*range(20)]
    assert last == [*range(last[0], 50)]
    assert len(last) in (6, 7, 8)
    assert run.gap == 21
    assert numbers(run)[run.gap - 1] == last[0]
    broken, cut = run.problems
    assert (broken.line, cut.kind) == (0, "cut")
    assert str(broken).startswith(f"the line at byte {len(START) + 50 * one:,}: it is no JSON")
    size = len(START) + 50 * one + len("no event\n" + END)
    assert f"the first {len(START) + 20 * one:,} and the last " in cut.reason
    assert f" of {size:,} bytes are shown" in cut.reason
    assert run.bytes <= traces.MOST_BYTES


def test_of_very_many_events_beginning_and_end_are_read(read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_EVENTS", 10)
    assert read(START + SAID * 50 + END).problems == (), "the end is small enough"
    monkeypatch.setattr(traces, "LAST_BYTES", 5 * len(SAID))
    run = read(START + "".join(map(said, range(50))))
    assert told(run) == [("cut", 0), ("no_end", 0)]
    assert len(run.trace.events) in (14, 15)
    assert run.gap == 10
    assert numbers(run)[-1] == 49


@pytest.mark.parametrize("length", [50, 400, 4000])
def test_a_line_longer_than_all_that_is_read_leaves_its_ends(read, length: int, monkeypatch) -> None:
    for name, value in (("MOST_BYTES", 1_000), ("LAST_BYTES", 300), ("LONGEST_LINE", 500), ("_CHUNK", 64)):
        monkeypatch.setattr(traces, name, value)
    run = read(START + SAID + "x" * length + "\n" + END)
    assert [event.type for event in run.trace.events] == ["run_started", "print", "run_ended"]
    assert run.problems
    run = read(START + SAID + "x" * length)
    assert [event.type for event in run.trace.events] == ["run_started", "print"]
    assert run.problems[-1].kind == "no_end"


@given(
    lines=st.lists(
        st.integers(0, 300).map(lambda length: "x" * length + "\n") | st.integers(0, 9).map(said), max_size=40
    ),
    most=st.integers(500, 3000),
    last=st.integers(1, 199),
    longest=st.integers(50, 250),
)
def test_whatever_the_bounds_no_event_is_read_twice(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], most: int, last: int, longest: int
) -> None:
    lines = [said(number) if line.startswith("{") else line for number, line in enumerate(lines)]
    path = tmp_path_factory.mktemp("any") / "run.jsonl"
    path.write_text("".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("MOST_BYTES", most), ("LAST_BYTES", last), ("LONGEST_LINE", longest), ("_CHUNK", 16)):
            patch.setattr(traces, name, value)
        run = read_run(path)
    assert numbers(run) == sorted(set(numbers(run)))
    assert run.bytes <= most + 2 * 16
    if run.gap is None:
        assert len(numbers(run)) == sum(line.startswith("{") for line in lines)
    assert (run.gap is None) == all(problem.kind != "cut" for problem in run.problems)


def test_of_very_many_broken_lines_some_are_told_and_all_counted(read) -> None:
    run = read(START + "no\n" * 200 + END)
    assert len(run.problems) == traces.MOST_PROBLEMS + 1
    assert run.problems[-1].reason == "150 more lines cannot be read"


def test_nothing_is_told_as_nothing(read) -> None:
    assert told(read("")) == [("empty", 0)]
    assert told(read("no trace\n")) == [("broken", 1), ("empty", 0)]


def test_a_file_that_is_not_there_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_run(tmp_path / "gone.jsonl")
    with pytest.raises(IsADirectoryError):
        read_run(tmp_path)


@given(st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([START.encode(), SAID.encode(), END[:-4].encode()]))))
def test_no_file_makes_it_raise(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("any") / "run.jsonl"
    path.write_bytes(b"".join(parts))
    run = read_run(path)
    assert run.complete or run.problems


def test_a_reasonless_turn_is_read(read) -> None:
    run = read(START + event_to_json(turn("w/A", text=None)) + "\n" + END)
    assert isinstance(run.trace.events[1], AgentTurn)
