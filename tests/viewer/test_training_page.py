"""The page of a training run: what it reads of whatever is there, what it says of it, and that nothing on it does
anything."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inert import text_of
from training_folders import STAGE, lines_of, report, training_folder

from trainer.run import CONFIG, METRICS, StepReport
from trainer.run.agent_report import AgentReport
from trainer.run.step_report import Timings
from viewer.sites import Page
from viewer.training.step_page import step_page
from viewer.training.step_traces import NotRun, QuestionSummary, RunSummary
from viewer.training.training_charts import sections
from viewer.training.training_data import (
    LONGEST_LINE,
    MOST_NAMED,
    Metrics,
    TrainingRun,
    read_metrics,
    read_run,
    version,
    windows,
)
from viewer.training.training_page import failure_rows, stage_rows, took, tool_calls, training_page, warnings
from viewer.training.training_panels import MOST_SERIES, MOST_STAGES, Panels

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m\x00"


def no_traces(step: int) -> Sequence[QuestionSummary]:
    raise FileNotFoundError(step)


def page_of(run: TrainingRun) -> Page:
    return training_page(run, no_traces, lambda step, runs: None)


def metrics(folder: Path, text: bytes) -> Metrics:
    (folder / METRICS).write_bytes(text)
    return read_metrics(folder / METRICS)


def specs(page: Page) -> list[dict[str, Any]]:
    return [json.loads(text) for text in re.findall(r'application/json">(.*?)</script>', str(page.body), re.DOTALL)]


def changed(*path: Any) -> bytes:
    """A report in which the value at a path is another one, the last of what is given."""
    sys.set_int_max_str_digits(0)
    values: Any = json.loads(report(0).model_dump_json())
    at = values
    for name in path[:-2]:
        at = at[name]
    at[path[-2]] = path[-1]
    line = json.dumps(values).encode()
    sys.set_int_max_str_digits(sys.int_info.default_max_str_digits)
    return line


# metrics.jsonl


def test_reports_are_read_as_they_were_written(tmp_path: Path) -> None:
    reports = [report(step) for step in range(4)]
    assert metrics(tmp_path, lines_of(reports)) == Metrics(steps=reports)


def test_a_torn_last_line_is_passed_over_and_told(tmp_path: Path) -> None:
    whole = lines_of([report(0), report(1)])
    for cut in (1, 100):
        found = metrics(tmp_path, whole[:-cut])
        assert [each.step for each in found.steps] == [0]
        assert found.torn
        assert found.passed_in_all == 0
    training_folder(tmp_path, [report(0)])
    (tmp_path / METRICS).write_bytes(whole[:-30])
    assert "The last line of metrics.jsonl has no end" in text_of(page_of(read_run(tmp_path)).body)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "Invalid JSON"),
        (b'{"step": 3}', "Field required at active"),
        (b"[]", "object"),
        (b"\xff\xfe", "Invalid JSON"),
        (b'{"step": "x"}', "at step"),
        (b"[" * 100_000, "Invalid JSON"),
        (b"", "Invalid JSON"),
        (changed("failures", {"engine_failed": 10**400}), "2^53 or more is no count at failures.engine_failed"),
        (changed("designs", 10**400), "2^53 or more is no count at designs"),
        (changed("diversity", "agents", 2**53), "no count at diversity.agents"),
        (changed("usage", "designer", "prompt_tokens", 10**60), "no count at usage.designer.prompt_tokens"),
        (changed("syncs", "executor", "bytes", 10**400), "no count at syncs.executor.bytes"),
        (changed("weights", "designer", 10**400), "no count at weights.designer"),
        (changed("step", -1), "a negative number is no count at step"),
        (changed("executions", -(10**400)), "a negative number is no count at executions"),
        (changed("timings", "prefix_tokens", 10**5000), "Invalid JSON"),
    ],
)
def test_a_line_that_is_no_report_is_named(tmp_path: Path, line: bytes, reason: str) -> None:
    found = metrics(tmp_path, lines_of([report(0)]) + line + b"\n" + lines_of([report(1)]))
    assert [each.step for each in found.steps] == [0, 1]
    assert [each.line for each in found.passed] == [2]
    assert reason in found.passed[0].reason


def test_of_many_wrong_lines_the_first_are_named(tmp_path: Path) -> None:
    training_folder(tmp_path, [])
    (tmp_path / METRICS).write_bytes(b"x\n" * 1000)
    run = read_run(tmp_path)
    assert (len(run.metrics.passed), run.metrics.passed_in_all) == (MOST_NAMED, 1000)
    text = text_of(page_of(run).body)
    assert "1,000 lines of metrics.jsonl are no reports of steps" in text
    assert "line 1: Invalid JSON" in text
    assert "and 980 more" in text
    assert "No step is done yet." in text


def test_a_line_without_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewer.training.training_data.LONGEST_LINE", 10_000)
    found = metrics(tmp_path, lines_of([report(0)]) + b'{"x": "' + b"y" * 50_000 + b'"}\n' + lines_of([report(1)]))
    assert [each.step for each in found.steps] == [0, 1]
    assert found.passed[0].reason == "it has more than 10,000 bytes"
    assert LONGEST_LINE > 1_000_000


def test_unknown_keys_and_keys_of_earlier_versions_are_no_matter(tmp_path: Path) -> None:
    values = json.loads(report(3).model_dump_json()) | {"silent_agents": {}, "new": [1]}
    for later in ("agents", "turns_to_solve", "syncs", "outgrown", "age"):
        del values[later]
    found = metrics(tmp_path, json.dumps(values).encode() + b"\n")
    assert [each.step for each in found.steps] == [3]


def test_what_was_not_finite_is_a_gap(tmp_path: Path) -> None:
    bad = report(0)
    bad.updates["executor"].kl = math.nan
    bad.reward_by_role["designer"] = math.inf
    line = lines_of([bad])
    assert b'"kl":null' in line
    run = read_run(training_folder(tmp_path, [bad, report(1)]))
    assert run.metrics.passed_in_all == 0
    assert math.isnan(run.steps[0].updates["executor"].kl)
    assert windows(run.steps).mean(lambda each: each.updates["executor"].kl)[0] is None
    page_of(run)


def test_a_run_that_went_back_shows_what_it_made_again(tmp_path: Path) -> None:
    first, again = [report(step) for step in range(5)], [report(step, reward=9.0) for step in (3, 4, 5)]
    found = metrics(tmp_path, lines_of([*first, *again]))
    assert [each.step for each in found.steps] == [0, 1, 2, 3, 4, 5]
    assert [each.reward for each in found.steps[3:]] == [9.0, 9.0, 9.0]
    assert found.made_again == 2


# The folder


def test_a_run_that_has_just_begun(tmp_path: Path) -> None:
    training_folder(tmp_path, [])
    (tmp_path / METRICS).unlink()
    run = read_run(tmp_path)
    assert (run.done, run.total, run.steps) == (0, 20, [])
    text = text_of(page_of(run).body)
    assert "0 of 20 steps are done. At the next one the executor learns." in text
    assert "No step is done yet." in text


def test_a_folder_without_anything(tmp_path: Path) -> None:
    run = read_run(tmp_path)
    assert run.config_problems == ["there is no config.toml"]
    assert "0 steps are done." in text_of(page_of(run).body)
    with pytest.raises(OSError, match="gone"):
        version(tmp_path / "gone")


def test_a_configuration_of_another_version_is_shown_as_it_is(tmp_path: Path) -> None:
    training_folder(tmp_path, [report(0)])
    (tmp_path / CONFIG).write_text(f'steps = 7\nfuture = "{"x" * 10}"\n', encoding="utf-8")
    run = read_run(tmp_path)
    assert (run.config, run.total) == (None, 7)
    text = text_of(page_of(run).body)
    assert "1 of 7 steps are done." in text
    assert "unknown key future" in text
    assert 'future = "xxxxxxxxxx"' in text


@pytest.mark.parametrize("text", ["steps = 'many'", "steps = -1", "= nonsense", "a = " + "[" * 10_000, "\0"])
def test_a_configuration_that_is_none(tmp_path: Path, text: str) -> None:
    training_folder(tmp_path, [report(0)])
    (tmp_path / CONFIG).write_text(text, encoding="utf-8")
    run = read_run(tmp_path)
    assert (run.config, run.total) == (None, None)
    assert run.config_problems
    text_of(page_of(run).body)


def test_a_pipe_in_the_place_of_metrics_is_not_waited_for(tmp_path: Path) -> None:
    training_folder(tmp_path, [])
    (tmp_path / METRICS).unlink()
    os.mkfifo(tmp_path / METRICS)
    with pytest.raises(OSError, match="no plain file"):
        read_run(tmp_path)


def test_the_version_changes_with_the_run(tmp_path: Path) -> None:
    training_folder(tmp_path, [report(0)])
    before = version(tmp_path)
    assert version(tmp_path) == before
    with (tmp_path / METRICS).open("ab") as file:
        file.write(lines_of([report(1)]))
    after = version(tmp_path)
    assert after != before
    (tmp_path / "traces" / "step-000002").mkdir(parents=True)
    assert version(tmp_path) != after


# Steps and stages


def test_many_steps_are_drawn_a_few_at_a_time() -> None:
    steps = [report(step, reward=float(step)) for step in range(1000)]
    found = windows(steps, most=240)
    assert found.size == 5
    assert found.spans[:2] == [(0, 4), (5, 9)]
    assert found.mean(lambda each: each.reward)[:2] == [2.0, 7.0]
    assert found.largest(lambda each: each.reward)[:2] == [4.0, 9.0]
    assert found.mean(lambda each: each.reward if each.step > 3 else None)[:2] == [4.0, 7.0]


def test_steps_without_a_report_are_a_gap() -> None:
    found = windows([report(step) for step in (0, 1, 5)])
    assert found.spans == [(0, 0), (1, 1), (2, 4), (5, 5)]
    assert [value is None for value in found.mean(lambda each: each.reward)] == [False, False, True, False]


@given(count=st.integers(0, 3000), most=st.integers(1, 300))
def test_windows_cover_all_steps_once(count: int, most: int) -> None:
    empty = StepReport.model_construct
    found = windows([empty(step=step) for step in range(count)], most)
    assert len(found.spans) <= most
    assert [step for part in found.parts for step in (each.step for each in part)] == list(range(count))
    assert [(part[0].step, part[-1].step) for part in found.parts] == list(found.spans)


def test_stages_are_steps_at_which_the_same_roles_learned(tmp_path: Path) -> None:
    rewards = [1.0] * STAGE + [2.0] * STAGE + [1.5]
    run = read_run(training_folder(tmp_path, [report(step, reward=reward) for step, reward in enumerate(rewards)]))
    rows = stage_rows(run)
    assert [(row.stage.first, row.stage.last, row.stage.roles) for row in rows] == [
        (0, 4, ["executor"]),
        (5, 9, ["designer"]),
        (10, 10, ["executor"]),
    ]
    assert [row.change for row in rows] == [None, 1.0, -0.5]
    levels = specs(page_of(run))[0]["layer"][1]["data"]["values"]
    assert [(row["x"], row["x2"], row["y"]) for row in levels] == [(-0.5, 4.5, 1.0), (4.5, 9.5, 2.0), (9.5, 10.5, 1.5)]


def test_warnings_of_steps_in_a_row_are_told_once() -> None:
    silent = {"designer": 1.0, "executor": 1.0}
    steps = [report(step, silent=silent if step in (0, 1, 2, 4) else {"executor": 0.0}) for step in range(5)]
    told = warnings(steps)
    assert [(each.first, each.last) for each in told] == [(0, 2), (4, 4)]
    assert told[0].text.startswith("the executor learned nothing from rewards")


# The page


def test_the_page_has_a_chart_for_every_figure(tmp_path: Path) -> None:
    reports = [
        report(step, agents=["Planner", "Tool"], timed_out=step == 3, timings=Timings(rollout_s=1, idle_s={"ranks": 1}))
        for step in range(12)
    ]
    run = read_run(training_folder(tmp_path, reports))
    found = sections(Panels(run), {2: 0.5})
    assert {section.id: [panel.title for panel in section.panels] for section in found} == {
        "rewards": ["Reward", "Correct, solved, ready", "Reward, term by term", "Reward by agent"],
        "designs": ["Structures", "Agents per design", "Prompts of their own"],
        "replies": ["Lengths", "Tokens generated", "Tokens of prompts", "Tool calls", "Turns to solve"],
        "signal": ["Without variance", "Without variance, by agent", "Entropy by agent", "Left out"],
        "updates": [
            *("Gradient norm", "Ratio, mean", "Ratio, largest", "KL", "Log-probability gap"),
            *("Clipped, truncated", "Entropy", "Loss"),
        ],
        "time": ["Seconds of a step", "Idle"],
        "failing": ["Failures"],
    }
    text = text_of(page_of(run).body)
    assert "12 of 20 steps are done. At the next one the executor learns." in text
    assert "stagewise, stages of 5 steps; credit tree" in text
    assert "Agents at step 11" in text
    assert "3 1 of 8 runs were ended by rollout.limits.wall_s" in text


def test_roles_have_their_colours_and_nothing_else_has(tmp_path: Path) -> None:
    run = read_run(training_folder(tmp_path, [report(step) for step in range(8)]))
    for spec in specs(page_of(run)):
        for layer in spec["layer"]:
            scale = layer["encoding"].get("color", {}).get("scale", {"domain": [], "range": []})
            for name, colour in zip(scale["domain"], scale["range"], strict=True):
                assert (colour == "#c4722a") == (name == "designer")
                assert (colour == "#3f83cc") == (name == "executor")


def test_what_a_role_did_not_have_is_a_gap(tmp_path: Path) -> None:
    run = read_run(training_folder(tmp_path, [report(step) for step in range(2 * STAGE)]))
    updates = next(section for section in sections(Panels(run), {}) if section.id == "updates")
    norms = updates.panels[0].spec["layer"][-2]["data"]["values"]
    assert [row["y"] is None for row in norms if row["name"] == "executor"] == [False] * STAGE + [True] * STAGE


def test_a_run_of_one_agent_has_no_empty_charts(tmp_path: Path) -> None:
    bare = {"structures": {}, "failures": {}, "updates": {}, "silent": {}, "usage": {}, "lengths": {}, "terms": {}}
    run = read_run(training_folder(tmp_path, [report(0, reward_by_role={}, timings=Timings(), **bare)]))
    assert [section.id for section in sections(Panels(run), {})] == ["rewards", "designs"]
    assert "A click on a step" not in text_of(page_of(run).body)


def test_names_beyond_the_first_are_left_out_and_counted(tmp_path: Path) -> None:
    agents = [f"agent {number}" for number in range(60)]
    run = read_run(training_folder(tmp_path, [report(0, agents=agents)]))
    panel = next(p for s in sections(Panels(run), {}) for p in s.panels if p.title == "Reward by agent")
    assert len(panel.spec["layer"][-2]["encoding"]["color"]["scale"]["domain"]) == MOST_SERIES
    assert panel.about.endswith(" 50 more are left out.")
    assert "10 more are left out." in text_of(page_of(run).body)


@pytest.mark.thorough
def test_thousands_of_steps_stay_small(tmp_path: Path) -> None:
    run = read_run(training_folder(tmp_path, [report(step) for step in range(3000)], steps=5000))
    page = page_of(run)
    assert len(page.body) < 2_000_000
    text = text_of(page.body)
    assert "There are many steps: 13 in a row are drawn as one" in text
    assert "The last 40 of 3,000." in text
    assert 3000 / STAGE > MOST_STAGES
    assert "The stages are too many to be told apart by the background." in text
    assert "Of steps that are drawn together the largest." in text
    assert text.count("earlier stages are left out") == 1


def test_hostile_names_and_texts_do_nothing(tmp_path: Path) -> None:
    agent = AgentReport(replies=1, reward=0.5, terms={HOSTILE: 1.0}, entropy=1.0, silent=0.0)
    one = report(
        0,
        terms={HOSTILE: 0.5, "x" * 100_000: 0.5},
        structures={HOSTILE: 1.0},
        weights={HOSTILE: 1},
        timings=Timings(rollout_s=1.0, idle_s={HOSTILE: 1.0}),
    )
    one = one.model_copy(update={"agents": {HOSTILE: agent}, "updates": {HOSTILE: one.updates["executor"]}})
    folder = training_folder(tmp_path / "<b>bold", [one])
    (folder / CONFIG).write_text(f"# {HOSTILE}\nsteps = 3\n'{'</script>'}' = 1\n", encoding="utf-8")
    with (folder / METRICS).open("ab") as file:
        file.write(json.dumps({HOSTILE: 1}).encode() + b"\n")
    page = page_of(read_run(folder))
    assert "<b>bold" in text_of(page.body)
    assert "\\u202e\\x1b[31m" in text_of(page.body)


# Failures and tools


def summary(number: int, *failures: str, not_run: str = "") -> QuestionSummary:
    runs = [
        RunSummary(name=f"design-00-execution-{place:02}.jsonl", design=0, execution=place, failure=kind, message=kind)
        for place, kind in enumerate(failures)
    ]
    designs = [NotRun(design=1, failure=not_run, message="no program")] if not_run else []
    return QuestionSummary(number=number, runs=runs, not_run=designs)


def failing(tmp_path: Path, kept: Sequence[int]) -> TrainingRun:
    failures = [{"program_failed": 2}, {"program_failed": 1, "program_rejected": 4}, {}]
    run = training_folder(tmp_path, [report(step, failures=each) for step, each in enumerate(failures)])
    for step in kept:
        (run / "traces" / f"step-{step:06}").mkdir(parents=True)
    return read_run(run)


def test_failures_have_examples_of_the_newest_steps(tmp_path: Path) -> None:
    read: list[int] = []

    def traces(step: int) -> Sequence[QuestionSummary]:
        read.append(step)
        return [summary(0, "", "program_failed", "program_failed"), summary(4, not_run="program_rejected")]

    run = failing(tmp_path, [0, 1, 2])
    rejected, failed = failure_rows(run, traces)
    assert (rejected.kind, rejected.runs, rejected.steps) == ("program_rejected", 4, 1)
    assert [(each.route, each.message) for each in rejected.examples] == [
        ("tree/step-000001/question-0004", "no program")
    ]
    assert (failed.kind, failed.runs, failed.steps) == ("program_failed", 3, 2)
    assert [each.route for each in failed.examples] == [
        "run/step-000001/question-0000/design-00-execution-01.jsonl",
        "run/step-000000/question-0000/design-00-execution-01.jsonl",
    ]
    assert 2 not in read
    text = text_of(training_page(run, traces, lambda step, runs: None).body)
    assert "step 1, question 0, design 0, execution 1" in text


def test_failures_whose_traces_are_gone_have_no_examples(tmp_path: Path) -> None:
    run = failing(tmp_path, [])
    assert [row.examples for row in failure_rows(run, no_traces)] == [[], []]
    assert "no trace of one is kept" in text_of(page_of(run).body)
    vanished = failing(tmp_path, [1])
    assert [row.examples for row in failure_rows(vanished, no_traces)] == [[], []]


def test_tools_are_counted_in_some_of_the_steps_that_are_done(tmp_path: Path) -> None:
    run = training_folder(tmp_path, [report(step) for step in range(50)])
    for step in range(60):
        (run / "traces" / f"step-{step:06}").mkdir(parents=True)
    asked: list[int] = []

    def count(step: int, runs: int) -> float | None:
        asked.append(step)
        return None if step == 49 else 0.5

    found = tool_calls(read_run(run), count)
    assert asked[0] == 49
    assert len(asked) <= 20
    assert max(asked) < 50
    assert set(found) == set(asked) - {49}


def test_what_was_not_finite_is_shown_as_no_number(tmp_path: Path) -> None:
    folder = training_folder(tmp_path, [report(step) for step in range(4 * STAGE)])
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    for line in lines[2:]:  # within the first stage
        line |= {"correct": None, "reward": None, "solved": None, "silent": {"designer": None}}
        line["timings"]["update_s"] = None
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read_run(folder)
    assert len(run.steps) == 4 * STAGE
    for page in (page_of(run), step_page(run, 7, [])):
        shown = " ".join(text_of(page.body).split())
        assert "nan" not in shown.lower().split()
        assert not re.search(r"[+]nan|nan %", shown)
        assert "correct –, solved –" in shown
    first, second, _, _ = stage_rows(run)
    assert first.reward == pytest.approx((run.steps[0].reward + run.steps[1].reward) / 2)
    assert (second.reward, second.change) == (None, None)


# The time that steps took


def timed(step: int, rollout_s: float, update_s: float, age: int) -> StepReport:
    return report(step, age=age, timings=Timings(rollout_s=rollout_s, update_s=update_s, save_s=1.0, sync_s=2.0))


@pytest.mark.parametrize(
    ("rollout_s", "update_s", "one_by_one", "side_by_side"),
    [(10.0, 10.0, 23.0, 13.0), (30.0, 10.0, 43.0, 33.0), (0.0, 7.0, 10.0, 10.0), (math.nan, 7.0, 10.0, 10.0)],
)
def test_of_what_went_on_side_by_side_the_longer_one_counts(
    rollout_s: float, update_s: float, one_by_one: float, side_by_side: float
) -> None:
    made = timed(0, rollout_s, update_s, 0)
    assert (took(made, False), took(made, True)) == (one_by_one, side_by_side)


def test_no_number_of_seconds_at_all() -> None:
    made = report(0, timings=Timings(rollout_s=math.nan, update_s=math.inf))
    assert (took(made, False), took(made, True)) == (0.0, 0.0)


CLUSTER = {"layout": "disaggregated", "staleness": 2}


@pytest.mark.parametrize("configured", [True, False])
@pytest.mark.parametrize("stale", [True, False])
def test_the_time_so_far_and_for_the_rest(tmp_path: Path, stale: bool, configured: bool) -> None:
    steps = [timed(step, 40.0, 30.0, min(step, 2) if stale else 0) for step in range(10)]
    training_folder(tmp_path, steps, **({"cluster": CLUSTER} if stale else {}))
    if not configured:  # or by a version whose configuration cannot be read
        (tmp_path / CONFIG).write_text("steps = 20\nx = 1\n")
    run = read_run(tmp_path)
    assert (run.config is not None) is configured
    told = text_of(page_of(run).body)
    each, whole = ("43 s", "7 min 10 s") if stale else ("73 s", "12 min 10 s")
    assert f"{whole} so far; at the pace of the last steps, about {whole} for the rest" in told
    assert told.count(each) >= 10
    assert ("Rollouts went on beside updates" in told) is stale
    assert ("add up to more than the step took" in told) is stale
    assert ("beside the update" in text_of(step_page(run, 3, []).body)) is stale


def test_a_budget_of_tokens_ends_a_run(tmp_path: Path) -> None:
    steps = [timed(step, 40.0, 30.0, 0) for step in range(4)]
    each = sum(step.usage[role].completion_tokens for step in steps[:1] for role in step.active)
    assert each > 0
    training_folder(tmp_path, steps, generated_tokens=6 * each)
    run = read_run(tmp_path)
    assert (run.done, run.total, run.generated) == (4, 20, 4 * each)
    told = text_of(page_of(run).body)
    assert f"4 of at most 20 steps are done. {4 * each:,} of {6 * each:,} tokens are generated." in told
    assert "4 min 52 s so far; at the pace of the last steps, about 2 min 26 s for the rest" in told
    training_folder(tmp_path, steps, generated_tokens=4 * each)
    run = read_run(tmp_path)
    assert (run.done, run.total) == (4, 4)
    told = text_of(page_of(run).body)
    assert "4 of 4 steps are done." in told
    assert "for the rest" not in told
    assert "At the next one" not in told


@pytest.mark.parametrize("steps", ["1" + "0" * 400, "0", "-3", "true", "2.5"])
def test_a_number_of_steps_that_is_none(tmp_path: Path, steps: str) -> None:
    training_folder(tmp_path, [report(0)])
    (tmp_path / CONFIG).write_text(f"steps = {steps}\nunknown = 1\n")
    run = read_run(tmp_path)
    assert run.total is None
    assert "1 steps are done." in text_of(page_of(run).body)
