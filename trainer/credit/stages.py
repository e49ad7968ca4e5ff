"""Which roles learn at which step: the stages of MetaAgent-X (section 3.3, Eq. 9) and its ablations.

Pure arithmetic over step numbers. The trainer masks by it: samples of a role that does not learn are left out of the
loss, also where both roles share one policy.
"""

from __future__ import annotations

from typing import Literal, get_args

from workflow.usage import PolicyRole

Schedule = Literal["stagewise", "coupled", "designer-only", "executor-only"]
STAGE_LENGTH = 30
"""K of the paper's main experiments (section 4.1)."""


def active_roles(
    step: int, schedule: Schedule = "stagewise", stage_length: int = STAGE_LENGTH
) -> frozenset[PolicyRole]:
    """The roles whose trajectories contribute to the gradient at `step`, counted from 0.

    `stagewise` is Eq. 9: floor(step / K) even is an Executor stage, odd a Designer stage. `coupled` has both at every
    step (Table 4). Raises ValueError for a negative step, a stage of no steps, an unknown schedule.
    """
    if step < 0 or stage_length < 1:
        raise ValueError(f"step {step} must be at least 0, and stage_length {stage_length} at least 1")
    if schedule not in get_args(Schedule):
        raise ValueError(f"there is no schedule {schedule!r}. Fix: choose one of {', '.join(get_args(Schedule))}")
    if schedule == "coupled":
        return frozenset({"designer", "executor"})
    if schedule == "designer-only":
        return frozenset({"designer"})
    if schedule == "executor-only":
        return frozenset({"executor"})
    return frozenset({"executor"} if step // stage_length % 2 == 0 else {"designer"})
