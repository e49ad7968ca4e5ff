"""Names and numbers of the curves."""

from collections.abc import Iterator
from typing import Any, get_args

from trainer.evaluate.metrics import Diversity, Spread
from trainer.run.curves import scalars
from trainer.run.step_report import StepReport, Timings
from trainer.update.backend import UpdateReport
from workflow.completion import Usage
from workflow.failures import FailureKind

REPORT = StepReport(
    step=7,
    active=["executor"],
    questions=2,
    designs=4,
    executions=8,
    reward=0.5,
    reward_by_role={"designer": 0.25, "executor": 0.75},
    terms={"correct": 0.125},
    correct=0.375,
    solved=0.625,
    ready=0.875,
    structures={"single": 1.0},
    diversity=Diversity(designs=4, agents=9, role_names=3, unique_prompts=0.1, top_names={"Solver [1m": 2}),
    failures={"program_failed": 3},
    silent={"executor": 0.2},
    lengths={"executor": Spread(count=5, mean=6.0, p95=7.0, max=8.0)},
    usage={"executor": Usage(prompt_tokens=11, completion_tokens=13)},
    updates={"p0": UpdateReport(loss=-0.3, gradient_norm=1.5, steps=1, samples=8, computed_samples=6, tokens=50)},
    weights={"p0": 8},
    timings=Timings(rollout_s=2.5),
)


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield value


def test_numbers_are_named_by_their_place() -> None:
    flat = scalars(REPORT)
    assert flat["reward/mean"] == 0.5
    assert (flat["reward/designer"], flat["reward/executor"]) == (0.25, 0.75)
    assert flat["reward/terms/correct"] == 0.125
    assert (flat["rollout/correct"], flat["rollout/executions"]) == (0.375, 8)
    assert (flat["update/p0/loss"], flat["update/p0/gradient_norm"]) == (-0.3, 1.5)
    assert flat["lengths/executor/p95"] == 7.0
    assert flat["usage/executor/completion_tokens"] == 13
    assert (flat["learns/executor"], flat["learns/designer"]) == (1, 0)
    assert flat["timings/rollout_s"] == 2.5


def test_no_number_is_lost_and_no_text_of_a_model_is_a_name() -> None:
    flat = scalars(REPORT)
    report = REPORT.model_dump(exclude={"step": True, "diversity": {"top_names"}})
    added = len(get_args(FailureKind)) - 1 + 2  # kinds that did not occur, and who learns
    assert len(flat) == len(list(numbers(report))) + added
    assert not any("Solver" in name for name in flat)
    assert {"step", "rollout/step", "active"}.isdisjoint(flat)


def test_failures_that_did_not_occur_are_zero() -> None:
    flat = scalars(REPORT)
    failures = {name: flat[f"failures/{name}"] for name in get_args(FailureKind)}
    assert failures == dict.fromkeys(get_args(FailureKind), 0) | {"program_failed": 3}
