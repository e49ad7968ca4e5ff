"""Whether a run's answer was right, and whose doing its end was: in heading, colour and graph, as in lists."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from evaluation_folders import attempt, folder_of
from inert import text_of
from made_traces import events, failed, write

from trainer.disk import line_of
from trainer.evaluate import RESULTS, SETTINGS
from viewer.evaluation import EvaluationSite
from viewer.reading import STOPPED, outcome_of, read_run, summarise
from viewer.run import compare_page, run_page
from viewer.runs import RunsSite
from viewer.runs.trace_filter import TraceFilter
from viewer.training.step_traces import read_summary
from workflow.failures import Failure, ProgramFailed, stopped
from workflow.trace import Rewarded, RewardTerm


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def heading(page: str) -> tuple[str, str]:
    """Class and text."""
    found = re.search(r"<h1(?: class=\"(\w+)\")?>(.*?)</h1>", page)
    assert found is not None
    return found[1] or "", found[2]


def page_of(path: Path) -> str:
    return str(run_page(read_run(path)).body)


def terms(*values: float, name: str = "correct") -> list[RewardTerm]:
    return [RewardTerm(name=name, value=value, weight=1.0, reason="because") for value in values]


@pytest.mark.parametrize(
    ("given", "told", "box", "correct"),
    [
        (terms(1.0), ("good", "The run answered correctly"), ["right answer", "4"], True),
        (terms(0.0), ("bad", "The run answered wrongly"), ["wrong answer", "4"], False),
        (terms(0.5), ("bad", "The run answered wrongly"), ["wrong answer", "4"], False),
        (terms(0.0, 1.0), ("good", "The run answered correctly"), ["right answer", "4"], True),
        (terms(1.0, name="format"), ("", "The run answered"), ["answer", "4"], None),
        (None, ("", "The run answered"), ["answer", "4"], None),
    ],
)
def test_a_page_says_what_the_list_says(
    tmp_path: Path,
    given: list[RewardTerm] | None,
    told: tuple[str, str],
    box: list[str],
    correct: bool | None,
) -> None:
    made = events(reward=None, words="\\boxed{4}")
    made += [Rewarded(t=2.0, total=0.3, terms=given)] if given is not None else []
    path = write(tmp_path / "run.jsonl", made)
    page = page_of(path)
    assert heading(page) == told
    assert f'"lines":{json.dumps(box, separators=(",", ":"))}' in page
    assert ("ran answered wrong" in page) == (correct is False)
    summary = summarise(path)
    assert summary is not None
    assert summary.correct is correct


def test_what_an_evaluation_says_is_on_the_pages_of_its_runs(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "eval", [attempt("a", 0, False, trace="traces/a.jsonl")])
    write(folder / "traces/a.jsonl", events(reward=None))
    write(folder / "traces/b.jsonl", events(reward=None))
    site = EvaluationSite(folder)
    assert heading(str(site.page("run/traces/a.jsonl").body)) == ("bad", "The run answered wrongly")
    assert heading(str(site.page("run/traces/b.jsonl").body)) == ("", "The run answered")
    version, other = site.version("run/traces/b.jsonl"), site.version("run/traces/a.jsonl")
    with (folder / RESULTS).open("a", encoding="utf-8") as file:  # as it goes on: the trace was there before
        file.write(line_of(attempt("b", 0, True, trace="traces/b.jsonl")))
    assert site.version("run/traces/b.jsonl") != version
    assert site.version("run/traces/a.jsonl") == other
    assert heading(str(site.page("run/traces/b.jsonl").body)) == ("good", "The run answered correctly")
    both = text_of(site.page("compare?left=traces/a.jsonl&right=traces/b.jsonl").body)
    assert "how it ended The run answered wrongly The run answered correctly" in both


def test_two_runs_side_by_side_follow_their_traces(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "eval", [attempt("a", 0, False, trace="traces/a.jsonl")])
    write(folder / "traces/a.jsonl", events(reward=None))
    site = EvaluationSite(folder)
    route = "compare?left=traces/a.jsonl&right=traces/a.jsonl"
    before = site.version(route)
    write(folder / "traces/a.jsonl", events(reward=None, turns=3))
    assert site.version(route) != before


def test_what_an_evaluation_says_is_on_the_pages_of_a_folder_above_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "all/eval", [attempt("a", 0, False, trace="traces/a.jsonl")])
    write(folder / "traces/a.jsonl", events(reward=None))
    (folder / SETTINGS).unlink()
    site = RunsSite(tmp_path / "all")
    assert site.index.wait(30)
    route = "run/eval/traces/a.jsonl"
    assert heading(str(site.page(route).body)) == ("bad", "The run answered wrongly")
    assert site.version(route).endswith(" False")
    assert "The run answered wrongly" in str(
        site.page("compare?left=eval/traces/a.jsonl&right=eval/traces/a.jsonl").body
    )
    site.close()


def test_what_the_trace_says_counts_before_what_an_evaluation_says(tmp_path: Path) -> None:
    outcome = outcome_of(read_run(write(tmp_path / "run.jsonl", events(reward=0.2))))
    assert outcome.graded_as(True) is outcome
    late = failed("limit_exceeded", "limit", limit_kind="wall_s")
    outcome = outcome_of(read_run(write(tmp_path / "late.jsonl", events(answer=None, failure=late, reward=None))))
    assert outcome.graded_as(True).headline == "The run hit a limit"


# Stopped from outside


@pytest.mark.parametrize(
    ("failure", "is_stop"),
    [
        (stopped().record(), True),
        (ProgramFailed("Cancelled", "the run was cancelled", 3).record(), False),
        (ProgramFailed("Cancelled", "by my own program").record(), False),
        (ProgramFailed("CancelledError", "the run was cancelled").record(), False),
        (Failure(kind="engine_failed", message=str(stopped()), fields=stopped().record().fields), False),
    ],
)
def test_a_run_that_was_stopped_is_not_called_a_failure_of_its_program(
    tmp_path: Path, failure: Failure, is_stop: bool
) -> None:
    path = write(tmp_path / "runs/run.jsonl", events(answer=None, reward=None, failure=failure))
    page = page_of(path)
    assert (heading(page)[0] == "warn") is is_stop
    assert ("The run was stopped" in heading(page)[1]) is is_stop
    assert ("The program failed" in page) is (failure.kind == "program_failed" and not is_stop)
    assert ('"lines":["stopped"]' in page) is is_stop
    summary = summarise(path)
    assert summary is not None
    assert (summary.failure == STOPPED) is is_stop
    assert (read_summary(path, 0, 0)[0].failure == STOPPED) is is_stop
    told = "The run was stopped" if is_stop else "failed"
    assert told in text_of(compare_page(read_run(path), read_run(path)).body)


def test_stopped_runs_are_a_kind_of_their_own_in_the_list(tmp_path: Path) -> None:
    write(tmp_path / "runs/stop.jsonl", events(answer=None, reward=None, failure=stopped().record()))
    write(tmp_path / "runs/fail.jsonl", events(answer=None, reward=None, failure=failed("program_failed", "no")))
    site = RunsSite(tmp_path / "runs")
    assert site.index.wait(30)
    assert {kind.name: kind.count for kind in site.index.kinds(TraceFilter())} == {STOPPED: 1, "program_failed": 1}
    page = str(site.page("list?failure=stopped").body)
    assert "1 trace<" in page
    assert "stopped from outside, as by Ctrl-C" in page
    assert "program_failed" not in page.partition('<ol class="runs">')[2]
    site.close()
