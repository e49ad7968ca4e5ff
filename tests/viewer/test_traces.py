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


def test_of_a_file_without_end_a_part_is_read(read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_EVENTS", 10)
    run = read(START + SAID * 50)
    assert told(run) == [("cut", 11), ("no_end", 0)]
    assert len(run.trace.events) == 10
    monkeypatch.setattr(traces, "MOST_BYTES", len(START + SAID * 3))
    run = read(START + SAID * 50)
    assert len(run.trace.events) == 4
    assert "bytes" in run.problems[0].reason


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
