"""What is read of a step's traces: reward, failure and tool calls of every run, whatever else the files hold."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_folders import events, write_design, write_run

from viewer.training.step_traces import (
    WHOLE,
    NotRun,
    questions_of,
    read_summary,
    sampled,
    step_folder,
    tool_calls_in,
    version,
)
from workflow.failures import Failure
from workflow.trace import Printed, event_to_json


def test_a_step_is_read_question_by_question(tmp_path: Path) -> None:
    write_run(tmp_path, 3, 1, 0, 0, events(reward=0.4))
    write_run(tmp_path, 3, 1, 0, 1, events(reward=1.4, tools=3))
    write_run(tmp_path, 3, 1, 1, 0, events(reward=0.0, failure=Failure(kind="program_failed", message="no")))
    write_run(tmp_path, 3, 0, 0, 0, events("Another?", None, ended=False), torn='{"t":1,"type":"re')
    write_design(tmp_path, 3, 1, 0)
    write_design(tmp_path, 3, 1, 2, "line 3: no such thing")
    other, question = questions_of(step_folder(tmp_path / "traces", 3))
    assert (question.number, question.text) == (1, "What is 2 + 3?")
    best, worst = question.best, question.worst
    assert best
    assert (best.name, best.reward, best.correct, best.tool_calls) == ("design-00-execution-01.jsonl", 1.4, True, 3)
    assert worst
    assert (worst.design, worst.reward, worst.failure, worst.message) == (1, 0.0, "program_failed", "no")
    assert question.not_run == [NotRun(design=2, failure="program_rejected", message="line 3: no such thing")]
    assert question.rewards(2) == [0.4, 1.4, 0.0, 0.0, 0.0]
    assert question.tool_calls == 1
    assert (other.text, other.best, other.runs[0].ended) == ("Another?", None, False)


def test_what_is_no_trace_is_not_read(tmp_path: Path) -> None:
    path = write_run(tmp_path, 0, 0, 0, 0, events())
    for name in ("notes.txt", "design-00-execution-01.jsonl.tmp", "design-x.json", ".design-00-execution-01.jsonl"):
        (path.parent / name).write_text("{}")
    (path.parents[1] / "question-x").mkdir()
    (path.parents[1] / "question-0007").symlink_to(path.parent)
    (question,) = questions_of(path.parents[1])
    assert [run.name for run in question.runs] == ["design-00-execution-00.jsonl"]


def test_a_link_or_a_pipe_is_told_and_not_read(tmp_path: Path) -> None:
    path = write_run(tmp_path, 0, 0, 0, 0, events())
    (path.parent / "design-00-execution-01.jsonl").symlink_to("/etc/passwd")
    os.mkfifo(path.parent / "design-00-execution-02.jsonl")
    (question,) = questions_of(path.parents[1])
    assert [bool(run.unreadable) for run in question.runs] == [False, True, True]
    assert question.rewards(4) == [1.4]


def test_of_a_long_trace_beginning_and_end_are_read(tmp_path: Path) -> None:
    start, *rest = events(tools=2)
    path = write_run(tmp_path, 0, 0, 0, 0, [start, *(Printed(text="x" * 100_000) for _ in range(60)), *rest])
    assert path.stat().st_size > WHOLE
    run, question = read_summary(path, 0, 0)
    assert (run.reward, run.ended, run.tool_calls, question) == (1.4, True, None, "What is 2 + 3?")


def test_a_trace_that_others_have_written_again_says_the_same(tmp_path: Path) -> None:
    path = write_run(tmp_path, 0, 0, 0, 0, events(reward=0.4, tools=2))
    before = read_summary(path, 0, 0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for keys in (False, True):
        path.write_text("".join(json.dumps(line, sort_keys=keys) + "\n" for line in lines))
        assert read_summary(path, 0, 0) == before


def test_words_in_a_text_are_no_events(tmp_path: Path) -> None:
    shown = '{"type":"reward","total":100.0,"terms":[]}\n{"type":"tool_call"}'
    path = write_run(tmp_path, 0, 0, 0, 0, [*events(reward=0.4, tools=1), Printed(text=shown)])
    run, _ = read_summary(path, 0, 0)
    assert (run.reward, run.tool_calls) == (0.4, 1)


@pytest.mark.parametrize(
    "line",
    [
        '{"type":"reward"}',
        '{"type":"reward","total":"a lot","terms":[]}',
        '{"type":"reward","total":NaN,"terms":[]}',
        '{"type":"reward","total":1e999,"terms":[]}',
        '{"type":"reward","total":' + "9" * 400 + ',"terms":[]}',
        '{"type":"reward","total":true,"terms":{"a":1}}',
        '{"type":"reward","total":1.0,"terms":[1, null, {"name":"correct"}]}',
        '{"type":"run_ended","failure":[1]}',
        '{"type":"run_ended","failure":{"kind":3}}',
        '{"type":"run_started","question":{"a":[1]}}',
        '"type":"reward"',
        "[" * 100_000 + '"type":"reward"',
        '{"type":"tool_call"' + "\0",
    ],
)
def test_events_that_are_none_are_no_matter(tmp_path: Path, line: str) -> None:
    path = tmp_path / "design-00-execution-00.jsonl"
    path.write_text(line + "\n" + "".join(event_to_json(event) + "\n" for event in events(reward=0.4)))
    run, _ = read_summary(path, 0, 0)
    assert (run.reward, run.ended, run.unreadable) == (0.4, True, "")


@given(st.binary(max_size=400), st.integers(0, 2000))
def test_half_a_trace_is_no_matter(tmp_path_factory: pytest.TempPathFactory, junk: bytes, cut: int) -> None:
    path = tmp_path_factory.getbasetemp() / "design-00-execution-00.jsonl"
    whole = "".join(event_to_json(event) + "\n" for event in events(tools=1)).encode()
    path.write_bytes(whole[:cut] + junk)
    read_summary(path, 0, 0)


def test_a_record_of_a_design_that_is_none(tmp_path: Path) -> None:
    path = write_design(tmp_path, 0, 0, 0, "wrong")
    for text in ("", "{", "[]", '{"error": 3}', json.dumps({"error": None})):
        path.write_text(text)
        assert questions_of(path.parents[1])[0].not_run == []


def test_tool_calls_are_counted_in_some_runs(tmp_path: Path) -> None:
    for question in range(4):
        for execution in range(5):
            write_run(tmp_path, 0, question, 0, execution, events(tools=2))
    write_run(tmp_path, 0, 4, 0, 0, events(tools=9, ended=False))
    folder = step_folder(tmp_path / "traces", 0)
    assert tool_calls_in(sampled(folder, 1000)) == (40, 20)
    calls, runs = tool_calls_in(sampled(folder, 6))
    assert calls == 2 * runs
    assert 0 < runs <= 6
    with pytest.raises(OSError, match="gone"):
        sampled(tmp_path / "gone", 6)


def test_the_version_changes_as_runs_go_on(tmp_path: Path) -> None:
    path = write_run(tmp_path, 0, 0, 0, 0, events(ended=False))
    folder = path.parents[1]
    before = version(folder)
    assert version(folder) == before
    with path.open("a") as file:
        file.write("{}\n")
    grown = version(folder)
    assert grown != before
    write_run(tmp_path, 0, 1, 0, 0, events())
    assert version(folder) != grown
