"""A step's report for tests of what is shown and drawn of it."""

from trainer.evaluate.metrics import Diversity
from trainer.run.step_report import StepReport, Timings


def reported(step: int, correct: float = 0.5, reward: float = 0.75) -> StepReport:
    return StepReport(
        step=step,
        active=["executor"],
        questions=2,
        designs=6,
        executions=24,
        reward=reward,
        reward_by_role={},
        terms={},
        correct=correct,
        solved=1.0,
        ready=1.0,
        structures={},
        diversity=Diversity(),
        failures={},
        silent={},
        lengths={},
        usage={},
        updates={},
        weights={},
        timings=Timings(tokens_per_s=1234.4),
    )
