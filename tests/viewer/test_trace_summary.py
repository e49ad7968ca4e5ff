"""Summaries of traces: what they say, whatever state the file is in, and how little of it they read."""

from __future__ import annotations

import json
import os
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made_traces import HOSTILE, PROGRAM, events, failed, lines_of, write

from viewer.reading import line_ends, read_run, trace_summary
from viewer.reading.event_lines import kind_of
from viewer.reading.line_ends import Lines
from viewer.reading.trace_summary import beginning, digest, excerpt, summarise
from workflow.completion import Completion
from workflow.trace import AgentTurn, CandidateDrawn, Rewarded, RewardTerm, RunStarted, TurnRewarded, event_to_json


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def of(file: Path, data: bytes):
    file.write_bytes(data)
    return summarise(file)


def test_a_whole_trace(file: Path) -> None:
    found = summarise(write(file, events(answer="It is \\boxed{4}.")))
    assert found is not None
    assert repr(replace(found, size=0, mtime_ns=0)) == (
        "TraceSummary(size=0, mtime_ns=0, state='ended', wrong='', run_id='r0', question='What is 2 + 2?', "
        f"asked='{digest('What is 2 + 2?')}', program='{digest(PROGRAM)}', engine='tokens', seed='7', failure=None, "
        "message='', timed_out=False, answer='It is \\\\boxed{4}.', reward=1.4, correct=True, tokens=11, seconds=1.5, "
        "whole_question='What is 2 + 2?', whole_message='', said='It is \\\\boxed{4}. Solver Solver')"
    )
    assert (found.size, found.mtime_ns) == (file.stat().st_size, file.stat().st_mtime_ns)


def test_a_failure_and_its_time_limit(file: Path) -> None:
    struck = failed("limit_exceeded", "limit wall_s=1 exceeded", limit_kind="wall_s", limit=1, used=2)
    found = summarise(write(file, events(answer=None, failure=struck, reward=0.0)))
    assert found is not None
    assert (found.failure, found.message, found.timed_out) == ("limit_exceeded", "limit wall_s=1 exceeded", True)
    assert (found.answer, found.reward, found.correct) == (None, 0.0, False)


def test_without_a_reward_nothing_is_said_of_correctness(file: Path) -> None:
    found = summarise(write(file, events(reward=None)))
    assert found is not None
    assert (found.state, found.wrong, found.reward, found.correct) == ("ended", "", None, None)
    other = [*events(reward=None), Rewarded(t=2, total=3.0, terms=[RewardTerm(name="a", value=3, weight=1, reason="")])]
    found = summarise(write(file, other))
    assert found is not None
    assert (found.reward, found.correct) == (3.0, None)


def test_candidates_stand_between_the_end_and_the_reward(file: Path) -> None:
    made = events()
    ids = list(range(30_000))
    big = Completion(text="x" * 1000, token_ids=ids, prompt_token_ids=ids, logprobs=[-0.5] * len(ids))
    drawn = [
        CandidateDrawn(key="w/S#0", agent="S", number=n, chosen=n == 0, completion=big, reward=1.0, terms=[])
        for n in range(4)
    ]
    earned = TurnRewarded(key="w/S#0", agent="S", reward=1.0, terms=[])
    found = summarise(write(file, [*made[:-1], *drawn, earned, made[-1]]))
    assert found is not None
    assert found.size > line_ends.WHOLE
    assert (found.state, found.reward, found.tokens, found.answer) == ("ended", 1.4, 11, "\\boxed{4}")


def test_an_unfinished_run(file: Path) -> None:
    found = of(file, lines_of(events()[:2]))
    assert found is not None
    assert (found.state, found.wrong, found.seconds, found.tokens) == ("unfinished", "its run has not ended", 0.5, None)
    found = of(file, lines_of(events()[:1]))
    assert found is not None
    assert (found.state, found.question) == ("unfinished", "What is 2 + 2?")


@given(share=st.floats(0, 1), turns=st.integers(0, 3))
def test_a_trace_that_is_cut_anywhere_is_known_for_what_it_is(share: float, turns: int, tmp_path_factory) -> None:
    file = tmp_path_factory.mktemp("cut") / "run.jsonl"
    whole = lines_of(events(turns=turns))
    ends = [place for place, byte in enumerate(whole, 1) if byte == 10]
    cut = round(share * len(whole))
    found = of(file, whole[:cut])
    assert found is not None
    lines = sum(end <= cut for end in ends)
    torn = cut not in (0, *ends)
    if cut in (end - 1 for end in ends):
        return  # all but a newline: a whole line
    if cut == 0:
        assert found.wrong == "it is empty: nothing was recorded, or nothing yet"
    elif lines == 0:
        assert (found.state, found.wrong) == ("broken", "line 1: it is cut short")
    else:
        assert found.state == ("ended" if lines >= len(ends) - 1 else "unfinished")
        if torn:
            assert found.wrong == "its last line is cut short"


BASE = lines_of(events())


@given(data=st.one_of(st.binary(max_size=400), st.text(max_size=200).map(lambda text: text.encode(errors="replace"))))
@example(data=b"\x00" * 4096)
@example(data=b'{"t":0.0,"type":"run_started"}\n')
@example(data=b'{"t":1e400,"type":"run_ended"}\n')
@example(data=b"[" * 100_000)
@example(data=b'{"t":0,"type":"run_started","run_id":"' + b"\\ud800" * 3 + b'","question":"","engine":""}\n')
def test_no_bytes_make_it_fail(data: bytes, tmp_path_factory) -> None:
    file = tmp_path_factory.mktemp("bytes") / "run.jsonl"
    head, *_, tail = BASE.splitlines(keepends=True)
    for whole in (data, head + data, head + data + b"\n" + tail, BASE + data):
        found = of(file, whole)
        if found is not None:
            assert found.state in ("ended", "unfinished", "broken")
            assert found.state == "ended" or found.wrong
            assert len(found.wrong) <= 310
            assert "\n" not in found.wrong or found.state == "broken"


@given(place=st.integers(0, len(BASE) - 1), byte=st.integers(0, 255))
def test_a_byte_that_was_changed(place: int, byte: int, tmp_path_factory) -> None:
    file = tmp_path_factory.mktemp("byte") / "run.jsonl"
    found = of(file, BASE[:place] + bytes([byte]) + BASE[place + 1 :])
    assert found is None or found.state in ("ended", "unfinished", "broken")


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"", "it is empty"),
        (b"\x00\x01\x02\xff" * 100, "line 1: it holds zero bytes"),
        (b"\xff\xfe garbage\n", "line 1: it is no JSON"),
        (b"hello\n", "line 1: it is no JSON"),
        (lines_of(events())[:-200].partition(b"\n")[2], "line 1: it is of agent_call, and a trace begins with"),
        (b'{"t":0.0,"type":"run_started","run_id":"r"}\n', "line 1: Field required at run_started.question"),
        (lines_of(events()[:1]) + b"\x00" * 50 + b"\n", "line 2: it holds zero bytes"),
        (lines_of(events()[:1]) + b"nonsense\n" + lines_of(events()[1:]), "line 2: it is no JSON"),
        (lines_of(events()[:-1]) + b'{"t":1,"type":"reward","total":"much","terms":[]}\n', "line 5: "),
        (lines_of(events()[:1]) + b'{"t":1,"type":"sung"}\n', "line 2: it is no event, as there is no type 'sung'"),
    ],
)
def test_what_is_broken_is_said_with_its_line(data: bytes, wrong: str, file: Path) -> None:
    found = of(file, data)
    assert found is not None
    assert found.state == "broken"
    assert found.wrong.startswith(wrong)


@pytest.mark.parametrize(
    "data", [b'{"step": 0}\n', b'{"type": "message", "text": "hi"}\n', b"[1, 2]\n", b'{"agent": "A", "reply": "x"}\n']
)
def test_other_json_lines_are_no_traces(data: bytes, file: Path) -> None:
    assert of(file, data) is None


def test_a_large_trace_is_read_at_its_ends_alone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = events(turns=400, words="word " * 300)
    write(file, whole)
    assert file.stat().st_size > 4 * line_ends.WHOLE
    read = array("q")
    plain = os.pread

    def counted(descriptor: int, count: int, start: int) -> bytes:
        data = plain(descriptor, count, start)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    found = summarise(file)
    assert found is not None
    assert (found.state, found.reward) == ("ended", 1.4)
    assert sum(read) < 3 * line_ends.CHUNK


def test_a_hole_in_the_middle_of_a_large_trace_is_left_to_the_page_of_the_run(file: Path) -> None:
    made = lines_of(events(turns=400, words="word " * 300))
    found = of(file, made[:500_000] + b"\0" * 100 + made[500_100:])
    assert found is not None
    assert found.state == "ended"
    found = of(file, made + b"\0" * 4000)  # after a crash of the machine
    assert found is not None
    assert (found.state, found.wrong) == ("ended", "its last line is cut short")


def test_texts_of_any_length_are_kept_short(file: Path) -> None:
    question = "begins " + "q" * 3_000_000 + " ends"
    found = summarise(write(file, events(question, "a" * 1_000_000 + "\\boxed{9}")))
    assert found is not None
    assert found.answer is not None
    assert (len(found.question), len(found.answer)) == (600, 400)
    assert found.question.startswith("begins ")
    assert found.question.endswith(" ends")
    assert found.answer.endswith("\\boxed{9}")
    assert found.asked == digest(question)


def test_a_first_line_that_is_too_long_still_says_what_was_asked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (line_ends, trace_summary):
        monkeypatch.setattr(module, "LONGEST_LINE", 200_000)
    found = summarise(write(file, events("begins " + "q" * 500_000)))
    assert found is not None
    assert (found.state, found.run_id, found.question[:8], found.reward) == ("ended", "r0", "begins q", 1.4)


def test_hostile_texts_are_kept_as_they_are(file: Path) -> None:
    found = summarise(write(file, events(HOSTILE, HOSTILE)))
    assert found is not None
    assert found.question == found.answer == HOSTILE


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    (tmp_path / "link.jsonl").symlink_to(write(tmp_path / "run.jsonl"))
    for name, why in (("pipe", "no plain file"), ("link", "symbolic links"), ("gone", "No such file")):
        with pytest.raises(OSError, match=why):
            summarise(tmp_path / f"{name}.jsonl")


def test_a_file_that_shrinks_while_it_is_read(file: Path) -> None:
    write(file, events(turns=400, words="word " * 300))
    with Lines(file) as lines:
        os.truncate(file, 1000)
        assert list(lines.backwards()) == []
        assert len(lines.first()[0]) < 1000


def test_lines_from_the_last_one(file: Path) -> None:
    data = b"one\n\ntwo two\n" + b"x" * 300_000 + b"\nlast"
    file.write_bytes(data)
    with Lines(file) as lines:
        found = list(lines.backwards())
        assert [lines.read(line, 10) for line in found] == [b"last", b"x" * 10, b"two two", b"one"]
        assert [line.ends for line in found] == [False, True, True, True]
        assert lines.first() == (b"one", True)


def test_the_beginning_of_a_trace(file: Path) -> None:
    started = beginning(write(file))
    assert isinstance(started, RunStarted)
    assert started.program == PROGRAM
    file.write_text("{", encoding="utf-8")
    assert beginning(file) is None


def test_the_kind_of_a_line() -> None:
    for event in events():
        assert kind_of(event_to_json(event).encode()) == event.type
    assert kind_of(b'{"type": "answer", "text": "4", "t": 1}') == "answer"
    assert kind_of(b'{"t":1,"type":"reward') is None
    assert kind_of(b'{"t":1e+-,"type":"reward"}') is None
    assert kind_of(b'{"t":1,"type":"nothing"}') is None


@pytest.mark.parametrize("keys", [str, lambda event: dict(sorted(event.items()))], ids=["spaces", "sorted"])
def test_a_trace_that_others_have_written_again_says_the_same(keys: Any, file: Path, monkeypatch: Any) -> None:
    made = [json.loads(line) for line in lines_of(events("Where is İstanbul?")).splitlines()]
    file.write_text("".join(json.dumps(event if keys is str else keys(event)) + "\n" for event in made))
    plain = summarise(write(file.with_name("plain.jsonl"), events("Where is İstanbul?")))
    for most in (line_ends.WHOLE, 100):  # and as a large one
        monkeypatch.setattr(line_ends, "WHOLE", most)
        found = summarise(file)
        assert found is not None
        assert plain is not None
        assert replace(found, size=0, mtime_ns=0) == replace(plain, size=0, mtime_ns=0)


@pytest.mark.parametrize("length", [1, 40])
def test_garbage_amid_a_trace_is_found_as_its_page_finds_it(length: int, file: Path) -> None:
    lines = lines_of(events(turns=length, words="word " * 300)).splitlines(keepends=True)
    middle = len(lines) // 2
    joined = [*lines[:middle], lines[middle][:-60] + lines[middle + 1], *lines[middle + 2 :]]
    for spoilt in ([*lines[:middle], b"GARBAGE\n", *lines[middle:]], joined):
        found = of(file, b"".join(spoilt))
        assert found is not None
        assert found.state == "broken"
        (told,) = [problem for problem in read_run(file).problems if problem.line]
        assert found.wrong.partition(":")[0] == str(told).partition(":")[0] == f"line {middle + 1}"


def test_an_answer_and_all_agents_can_be_searched_for(file: Path) -> None:
    made = events("Q" * 2000, "a" * 1000 + "zebra")
    made.insert(2, AgentTurn(t=0.6, key="w/Ann#0", path="w/Ann", agent="Ann", messages=[]))
    found = summarise(write(file, made))
    assert found is not None
    assert found.whole_question == "Q" * 2000
    assert found.said.split() == ["a" * 1000 + "zebra", "Solver", "Solver", "Ann"]


@given(st.text(max_size=80), st.integers(20, 40))
def test_an_excerpt_has_both_ends(text: str, most: int) -> None:
    short = excerpt(text, most)
    assert len(short) == min(len(text), most)
    assert short == text or (text.startswith(short[:8]) and text.endswith(short[-7:]))
