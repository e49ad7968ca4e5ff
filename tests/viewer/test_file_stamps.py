"""What is kept of files is kept no longer than the files are what they were."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from evaluation_folders import attempt, folder_of
from made_traces import events as run_events
from made_traces import write
from training_folders import events, report, training_folder, write_run

from viewer.evaluation import EvaluationSite
from viewer.reading import stamp
from viewer.run import KeptRuns
from viewer.runs.runs_site import RunsSite
from viewer.training import TrainingSite, step_traces, training_data
from viewer.training.step_traces import step_folder, version


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def replaced(path: Path) -> None:
    """By another file of the same size and time."""
    before = path.stat()
    beside = path.with_name(f"{path.name}.new")
    beside.write_bytes(path.read_bytes())
    os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
    beside.replace(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_another_file_has_another_stamp(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl")
    before = stamp(path.stat())
    assert stamp(path.stat()) == before
    replaced(path)
    assert stamp(path.stat()) != before


def versions(tmp_path: Path) -> list[tuple[Callable[[], str], Path]]:
    """What is asked, and the file on which it depends."""
    folder = training_folder(tmp_path / "rl", [report(0)])
    trace = write_run(folder, 0, 0, 0, 0, events())
    runs = RunsSite(tmp_path / "rl/traces")
    route = f"run/{trace.relative_to(folder / 'traces')}"
    design = trace.with_name("design-00.json")
    design.write_text("{}")
    scored = folder_of(tmp_path / "eval", [attempt("a", trace="traces/a.jsonl")])
    evaluation = EvaluationSite(scored)
    return [
        (lambda: training_data.version(folder), folder / "metrics.jsonl"),
        (lambda: version(step_folder(folder / "traces", 0)), trace),
        (lambda: runs.version(route), trace),
        (lambda: runs.version(route), design),
        (lambda: runs.version(f"tree/{Path(route).parent.relative_to('run')}"), trace),
        (lambda: evaluation.version("evaluation"), scored / "results.jsonl"),
        (lambda: evaluation.version("run/traces/a.jsonl"), scored / "traces/a.jsonl"),
    ]


def test_versions_tell_files_that_were_replaced(tmp_path: Path) -> None:
    for asked, path in versions(tmp_path):
        before = asked()
        assert asked() == before
        replaced(path)
        assert asked() != before, path


def test_a_kept_run_is_read_anew_where_its_file_was_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", run_events(words="It is 4."))
    kept = KeptRuns()
    first = kept.of(path)
    assert kept.of(path) is first
    replaced(path)
    assert kept.of(path) is not first


@pytest.mark.parametrize("again", [0, 5, 9])
def test_tool_calls_of_a_step_that_was_made_again(tmp_path: Path, again: int) -> None:
    training_folder(tmp_path, [report(0), report(1)])
    for execution in range(3):
        write_run(tmp_path, 1, 0, 0, execution, events(tools=3))
    site = TrainingSite(tmp_path)
    assert site._tool_calls(1, 24) == 3
    for execution in range(3):
        write_run(tmp_path, 1, 0, 0, execution, events(tools=again))
    assert site._tool_calls(1, 24) == again


def test_tool_calls_of_runs_that_had_not_ended(tmp_path: Path) -> None:
    training_folder(tmp_path, [report(0)])
    write_run(tmp_path, 0, 0, 0, 0, events(tools=3, ended=False))
    site = TrainingSite(tmp_path)
    assert site._tool_calls(0, 24) is None
    write_run(tmp_path, 0, 0, 0, 0, events(tools=3))
    assert site._tool_calls(0, 24) == 3


def test_tool_calls_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training_folder(tmp_path, [report(0)])
    write_run(tmp_path, 0, 0, 0, 0, events(tools=3))
    read: list[int] = []
    count = step_traces.tool_calls_in
    monkeypatch.setattr(step_traces, "tool_calls_in", lambda paths: read.append(1) or count(paths))
    site = TrainingSite(tmp_path)
    assert [site._tool_calls(0, 24) for _ in range(3)] == [3, 3, 3]
    assert read == [1]


def test_a_steps_page_follows_a_trace_of_the_same_length(tmp_path: Path) -> None:
    training_folder(tmp_path, [report(0)])
    path = write_run(tmp_path, 0, 0, 0, 0, events("What is 1?", reward=0.4))
    site = TrainingSite(tmp_path)
    before = site.version("step/000000")
    assert site.questions(0)[0].text == "What is 1?"
    size = path.stat().st_size
    write_run(tmp_path, 0, 0, 0, 0, events("What is 2?", reward=0.4))
    assert path.stat().st_size == size
    assert site.version("step/000000") != before
    assert site.questions(0)[0].text == "What is 2?"
