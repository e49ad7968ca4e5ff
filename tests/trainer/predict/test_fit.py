"""A fit finds the costs that a run was made with, and says what it could not find."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicted import SIZE_8B, config, report_of

from trainer.predict.costs import PARAMETERS, Seen, costs_of
from trainer.predict.deviations import nonnegative_line, searched
from trainer.predict.fit import ROLLOUT, Fit, NotFittable, fit, on_gpus, read_run
from trainer.predict.observed import observed
from trainer.predict.workload import Lengths, Requests, Workload
from trainer.run.gpus import GPUS
from trainer.run.step_report import StepReport, SyncReport

pytestmark = pytest.mark.thorough

GPU, SIZES = GPUS["H100"], {"p0": SIZE_8B}
TRUE = {
    "token_s": 1.7, "request_token_s": 2.5, "prompt_token_s": 0.8, "run_s": 30.0, "update_s": 3.0,
    "update_token_s": 1.4, "sync_s": 2.0, "sync_rate": 0.5,
}  # fmt: skip


def content(agents: float, reply: float, prompt: float) -> Workload:
    """Equal lengths, so that a report tells all of a step."""
    asked = Requests(reply=Lengths(mean=reply), prompt=prompt, learned=0.75)
    return Workload(designer=asked, executor=asked, per_run=agents)


VARIED = [content(agents, reply, prompt) for agents, reply, prompt in (
    (1, 100, 50), (1, 800, 50), (8, 100, 50), (8, 400, 3000), (2, 50, 6000), (4, 200, 1000), (16, 50, 200),
    (3, 900, 400),
)]  # fmt: skip


def reports(contents: list[Workload], noise: float = 0.0, **changes: Any) -> tuple[Any, list[StepReport]]:
    sizes = {"questions": 4, "designs": 2, "executions": 2}
    run = config(**{"schedule": "executor-only", "rollout": sizes, **changes})
    found = []
    for step, each in enumerate(contents):
        spent = costs_of(run, SIZES, GPU, each, Seen(factors=TRUE)).model_copy(update={"failures_per_hour": 0.0})
        report = report_of(run, spent, each, step)
        report.timings.rollout_s *= 1 + (noise if step % 2 else -noise)
        found.append(report)
    return run, found


def test_costs_are_found_again() -> None:
    run, lines = reports(VARIED)
    found = fit(run, lines, SIZES, GPU, warm_up=0)
    assert found.deviation < 0.01
    assert found.assumed == []
    assert set(PARAMETERS) < set(found.fitted)
    for name, value in TRUE.items():
        assert found.seen.factors[name] == pytest.approx(value, rel=0.15), name


steps = st.tuples(
    st.sampled_from([1.0, 3, 6]),
    st.sampled_from([1.0, 200, 900]),
    st.sampled_from([0.0, 100, 4000]),
    st.sampled_from(["", "", "", "no designs", "none ready", "no lengths", "no usage", "no updates", "no seconds"]),
)


def strange(report: StepReport, how: str) -> StepReport:
    changes: dict[str, dict[str, Any]] = {
        "no designs": {"designs": 0},
        "none ready": {"ready": 0.0},
        "no lengths": {"lengths": {}},
        "no usage": {"usage": {}},
        "no updates": {"updates": {}},
        "no seconds": {"timings": report.timings.model_copy(update={"rollout_s": 0.0, "sync_s": 0.0})},
    }
    return report.model_copy(update=changes.get(how, {}))


@given(
    lines=st.lists(steps, min_size=2, max_size=5),
    repeated=st.booleans(),
    staleness=st.integers(0, 3),
    given_program=st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_any_run_is_fitted_or_told(
    lines: list[tuple[float, float, float, str]], repeated: bool, staleness: int, given_program: bool
) -> None:
    lines = lines[:1] * 3 if repeated else lines
    changes = {"program": Path("given.py")} if given_program else {}
    rollout = {"questions": 2, "designs": 2, "executions": 1, **changes}
    contents = [content(agents, reply, prompt) for agents, reply, prompt, _ in lines]
    contents = [each.model_copy(update={"designer": None} if given_program else {}) for each in contents]
    run, there = reports(contents, rollout=rollout, cluster={"staleness": staleness})
    there = [strange(report, how) for report, (*_, how) in zip(there, lines, strict=True)]
    if not any(report.designs for report in there):
        with pytest.raises(NotFittable, match="have no designs"):
            fit(run, there, SIZES, GPU, warm_up=0)
        return
    found = fit(run, there, SIZES, GPU, warm_up=0)
    assert math.isfinite(found.deviation)
    assert all(math.isfinite(value) and value >= 0 for value in found.seen.factors.values())


@pytest.mark.parametrize("factor", [1.0, 2.788])
def test_a_single_rollout_moves_all_its_factors_alike(factor: float) -> None:
    """One figure does not tell them apart."""
    run, lines = reports([content(3, 200, 100)] * 3, cluster={"staleness": 2})
    spent = costs_of(run, SIZES, GPU, content(3, 200, 100), Seen(factors=dict.fromkeys(TRUE, factor)))
    steady = spent.model_copy(update={"failures_per_hour": 0.0})
    lines[0].timings.rollout_s = report_of(run, steady, content(3, 200, 100), 2).timings.rollout_s
    found = fit(run, lines, SIZES, GPU, warm_up=0)
    assert found.deviation < 1e-6
    assert [found.seen.factors[name] for name in ROLLOUT] == [pytest.approx(factor, rel=0.01)] * 4


def test_a_step_that_was_held_up_moves_little() -> None:
    run, lines = reports(VARIED + VARIED[:4])
    lines[3].timings.rollout_s *= 5
    lines[5].updates["p0"].duration_s *= 5
    found = fit(run, lines, SIZES, GPU, warm_up=0).seen.factors
    for name, value in TRUE.items():
        assert found[name] == pytest.approx(value, rel=0.25), name


def test_what_a_run_does_not_show_stays_as_it_is_assumed() -> None:
    light = [content(1, reply, 0) for reply in (300, 400, 500, 600, 700)]
    run, lines = reports(light, rollout={"questions": 1, "designs": 1, "executions": 1})
    found = fit(run, lines, SIZES, GPU, warm_up=0)
    assert {"request_token_s", "prompt_token_s"} <= set(found.assumed)
    assert "token_s" in found.fitted
    assert found.seen.factors["token_s"] == pytest.approx(1.7, rel=0.1)
    for line in lines:
        line.updates = {}
    without = fit(run, lines, SIZES, GPU, warm_up=0)
    assert {"update_s", "update_token_s", "sync_s", "sync_rate"} <= set(without.assumed)


def test_the_first_step_does_not_count() -> None:
    run, lines = reports(VARIED)
    cold = lines[0].model_copy(update={"timings": lines[0].timings.model_copy(update={"rollout_s": 1e6})})
    lines = lines[:4]
    assert fit(run, [cold, *lines], SIZES, GPU) == fit(run, lines, SIZES, GPU, warm_up=0)
    assert fit(run, [cold, *lines], SIZES, GPU, warm_up=0) != fit(run, lines, SIZES, GPU, warm_up=0)


def test_with_staleness_a_line_has_the_seconds_of_a_later_rollout() -> None:
    run, lines = reports(VARIED, cluster={"staleness": 2})
    seconds = [line.timings.rollout_s for line in lines]
    for line, later in zip(lines, [*seconds[2:], 1.0, 1.0], strict=True):
        line.timings.rollout_s = later
    found = fit(run, lines, SIZES, GPU, warm_up=0)
    assert found.deviation < 0.02


def test_what_steps_were_like_is_observed() -> None:
    run, lines = reports([content(3, 200, 100), content(3, 400, 100)])
    lines[0].structures = {"single": 0.5, "pipeline": 0.5}
    lines[0].timings.prefix_tokens = 1000
    seen = observed(run, lines[:1])
    assert seen.designer is not None
    assert (seen.executor.reply.mean, seen.executor.prompt, seen.executor.learned) == (200, 100, 0.75)
    assert seen.per_run == 3
    assert seen.rounds == 0.5 + 0.5 * 3
    prompts = sum(usage.prompt_tokens for usage in lines[0].usage.values())
    assert seen.executor.fresh == seen.designer.fresh == pytest.approx(1 - 1000 / prompts)
    both = observed(run, lines)
    assert both.executor.reply.mean == pytest.approx(300)
    lines[0].ready = 0.5
    assert observed(run, lines[:1]).per_run == 6


def test_folders_without_a_run_are_told(tmp_path: Path) -> None:
    with pytest.raises(NotFittable, match=r"holds no run: .* Fix: the folder of a `metaagent train`"):
        read_run(tmp_path)
    (tmp_path / "config.toml").write_text(
        'policies.p0.model = "m"\n[[data]]\nformat = "aime"\npath = "x.jsonl"\n', encoding="utf-8"
    )
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    with pytest.raises(NotFittable, match=r"metrics\.jsonl, line 1, is no step: Field required"):
        read_run(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(NotFittable, match=r"line 1, is no step: .* Fix: "):
        read_run(tmp_path)
    run, lines = reports(VARIED[:2])
    cut_short = '{"step": 9, "rew'
    (tmp_path / "metrics.jsonl").write_text("".join(line.model_dump_json() + "\n" for line in lines) + cut_short)
    assert read_run(tmp_path)[1] == lines
    with pytest.raises(NotFittable, match="2 steps are too few: the first 1 do not count"):
        fit(run, lines, SIZES, GPU)


def test_lines_of_something_else_are_told() -> None:
    run, lines = reports(VARIED[:4])
    strange = lines[-1].model_copy(update={"updates": {"p7": next(iter(lines[-1].updates.values()))}})
    with pytest.raises(NotFittable, match="a step updates 'p7', and the run's policies are p0"):
        fit(run, [*lines, strange], SIZES, GPU)
    with pytest.raises(NotFittable, match="have no designs"):
        fit(run, [line.model_copy(update={"designs": 0}) for line in lines], SIZES, GPU)


@pytest.mark.parametrize(
    ("configured", "synced", "gpus"),
    [
        ("auto", ["cuda"], True),
        ("auto", ["cpu"], False),
        ("auto", [None, "cpu"], False),  # an earlier version began it
        ("cuda", [None], True),
        ("cpu", [], False),
        ("cpu", ["cuda"], True),  # resumed with another configuration
    ],
)
def test_a_run_of_one_process_says_what_it_was_on(configured: str, synced: list[str | None], gpus: bool) -> None:
    assert on_gpus(*one_process(configured, synced)) is gpus


def test_what_a_run_was_on_is_not_guessed() -> None:
    for synced in ([], [None]):
        with pytest.raises(NotFittable, match=r'device = "auto". Fix: "cpu" or "cuda" there'):
            on_gpus(*one_process("auto", synced))
    with pytest.raises(NotFittable, match="partly on GPUs and partly on CPUs"):
        on_gpus(*one_process("auto", ["cpu", "cuda"]))
    assert on_gpus(config(), [])
    assert not on_gpus(config(cluster={"gpus_per_node": 0}), [])


def one_process(device: str, synced: Sequence[str | None]) -> tuple[Any, list[StepReport]]:
    """With what the sync of each step says."""
    _, lines = reports(VARIED[: len(synced)])
    for line, each in zip(lines, synced, strict=True):
        line.syncs = {"p0": SyncReport(version=1, device=each)}
    policy = {"device": device, "update": {"backend": "torch"}}
    return config(policy=policy, cluster={"layout": "one-process"}), lines


def test_a_fit_can_be_written_down() -> None:
    run, lines = reports(VARIED[:4])
    found = fit(run, lines, SIZES, GPU)
    assert Fit.model_validate_json(found.model_dump_json()) == found


# The arithmetic


def test_a_line_of_least_deviations() -> None:
    points = [(1.0, b, 2 + 3 * b) for b in (1.0, 2, 3, 4, 5, 6)]
    assert nonnegative_line(points) == pytest.approx((2, 3), rel=1e-6)
    assert nonnegative_line([*points, (1.0, 3.5, 100.0)]) == pytest.approx((2, 3), rel=5e-3)
    assert nonnegative_line([(1.0, b, 10 - b) for b in (1.0, 2, 3)])[1] == 0
    assert nonnegative_line([(1.0, b, 3 * b - 2) for b in (1.0, 2, 3)])[0] == 0
    assert nonnegative_line([(1.0, 1.0, 4.0), (1.0, 1.05, 4.1)]) == pytest.approx((2, 2))


def test_factors_of_a_function_that_is_known_by_its_values() -> None:
    parts = [(1.0, 0.1), (0.5, 2.0), (3.0, 0.7), (0.2, 5.0)]

    def played(factors: Any) -> list[float]:
        return [math.log((a * factors["x"] + b * factors["y"]) / (4 * a + 0.3 * b)) for a, b in parts]

    found, left = searched(["x", "y"], played)
    assert found == {"x": pytest.approx(4, rel=0.01), "y": pytest.approx(0.3, rel=0.01)}
    assert max(map(abs, left)) < 0.01
    blind, _ = searched(["x", "y", "z"], played)
    assert set(blind) == {"x", "y"}
