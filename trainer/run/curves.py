"""A `StepReport` as flat numbers with names such as `reward/mean` or `update/p0/kl`, for tools that draw curves.

A pure function; it writes nothing and knows no such tool.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from trainer.run.step_report import StepReport
from workflow.failures import FailureKind

PLACES = {"reward": "reward/mean", "reward_by_role": "reward", "terms": "reward/terms", "updates": "update"}
"""Where a part of the report goes if not under its own name; single numbers otherwise go under `rollout/`."""
LEFT_OUT = {"step": True, "active": True, "diversity": {"top_names"}, "agents": True}
"""The names of agents are a model's, and as many as it likes."""


def scalars(report: StepReport) -> dict[str, float]:
    """Every number of the report by its name; `learns/designer` and `learns/executor` are 1 where the role learned.

    The same names at every step, but for what a step did not have (roles without trajectories, structures that nobody
    designed, policies that learned nothing). Kinds of failure that did not occur are 0.
    """
    values = report.model_dump(exclude=LEFT_OUT)
    values["failures"] = dict.fromkeys(get_args(FailureKind), 0) | values["failures"]
    values["learns"] = {role: role in report.active for role in ("designer", "executor")}
    flat: dict[str, float] = {}
    for name, value in values.items():
        below = isinstance(value, Mapping)
        flat.update(_flat(value, PLACES.get(name, name if below else f"rollout/{name}")))
    return flat


def _flat(value: Any, name: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}/{key}")
    elif isinstance(value, bool | int | float):
        yield name, float(value)
