"""Every token that is learned from must come from the weights that its step was to be rolled out with."""

from __future__ import annotations

import re
from array import array

import pytest

from tasks.problems import Problem
from trainer.run.loop import _check_versions
from trainer.samples import Coordinates, Trajectory
from trainer.trees import Candidate, DesignResult, Execution, QuestionTree
from workflow.trace import Rewarded
from workflow.usage import PolicyRole

NOTHING = Rewarded(total=0.0, terms=[])


def trajectory(role: PolicyRole, version: int) -> Trajectory:
    return Trajectory(
        role=role,
        coordinates=Coordinates(question="q", design=0, agent=f"of {version}"),
        token_ids=array("i", [1]),
        loss_mask=array("b", [1]),
        behaviour_logprobs=array("f", [0.0]),
        weights_version=version,
    )


def tree(designer: int, executor: int, candidate: int) -> QuestionTree:
    run = Execution(
        index=0,
        reward=NOTHING,
        trajectories=[trajectory("executor", executor)],
        candidates=[Candidate(trajectory=trajectory("executor", candidate), reward=NOTHING, chosen=True)],
    )
    design = DesignResult(
        index=0,
        program="",
        graph=None,
        failure=None,
        trajectories=[trajectory("designer", designer)],
        executions=[run],
    )
    return QuestionTree(problem=Problem(id="q", question="?", domain="math", gold="1"), designs=[design])


def test_what_other_weights_have_drawn_is_an_error_wherever_it_stands() -> None:
    def versions(role: str, agent: str) -> int:
        return {"designer": 3, "executor": 7}[role]

    _check_versions([tree(3, 7, 7)], versions)
    for wrong, said in (((4, 7, 7), (4, 3)), ((3, 6, 7), (6, 7)), ((3, 7, 5), (5, 7))):
        told = re.compile(rf"of {said[0]}.* was drawn with {said[0]}, not with weights {said[1]}")
        with pytest.raises(RuntimeError, match=told):
            _check_versions([tree(3, 7, 7), tree(*wrong)], versions)
