"""What each agent's replies were like, by numbers worked out by hand."""

from __future__ import annotations

from array import array

import pytest

from tasks.problems import Problem
from trainer.run.agent_report import AgentReport, agent_reports, turns_to_solve
from trainer.samples import Coordinates, Trajectory
from trainer.trees import Candidate, DesignResult, Execution, QuestionTree
from workflow.trace import Rewarded, RewardTerm


def candidate(agent: str, turn: int, point: str, number: int, team: float, own: float | None, *logprobs: float,
              late: bool = False) -> Candidate:  # fmt: skip
    """A reply of tokens with these log-probabilities, behind a prompt of two."""
    terms = [RewardTerm(name="team", value=team, weight=1.0, reason="")]
    if own is not None:
        terms.append(RewardTerm(name="format", value=own, weight=0.1, reason=""))
    trajectory = Trajectory(
        role="executor",
        coordinates=Coordinates(
            question="q", design=0, execution=number, agent=agent, path=agent, turn=turn, point=point
        ),
        token_ids=array("i", [1, 2, *range(len(logprobs))]),
        loss_mask=array("b", [0, 0, *[1] * len(logprobs)]),
        behaviour_logprobs=array("f", [0.0, 0.0, *logprobs]),
    )
    reward = Rewarded(total=sum(term.value * term.weight for term in terms), terms=terms, timed_out=late)
    return Candidate(trajectory=trajectory, reward=reward, chosen=number == 0)


def tree(*runs: tuple[bool, list[Candidate]]) -> QuestionTree:
    executions = [
        Execution(
            index=index,
            reward=Rewarded(total=correct, terms=[RewardTerm(name="correct", value=correct, weight=1, reason="")]),
            candidates=candidates,
        )
        for index, (correct, candidates) in enumerate(runs)
    ]
    design = DesignResult(index=0, program="", graph=None, failure=None, trajectories=[], executions=executions)
    return QuestionTree(problem=Problem(id="q", question="?", domain="math", gold="1"), designs=[design])


ANN = [
    candidate("Ann", 0, "a", 0, 1.0, 1.0, -0.5, -1.5),
    candidate("Ann", 0, "a", 1, 0.0, 0.0, -4.0),
    candidate("Ann", 1, "b", 0, 0.5, None, -1.0),
    candidate("Ann", 1, "b", 1, 0.5, None, -1.0),
]
BOB = [candidate("Bob", 0, "c", 0, 1.0, 1.0, -2.0), candidate("Bob", 0, "c", 1, 0.0, 1.0, -9.0, late=True)]


def test_every_figure_of_an_agent() -> None:
    found = agent_reports([tree((True, [*ANN, *BOB]))], "at-grpo")
    assert found["Ann"].model_dump() == {
        "replies": 4,
        "reward": pytest.approx((1.1 + 0 + 0.5 + 0.5) / 4),
        # the replies at the second turn have no format
        "terms": pytest.approx({"team": 2 / 4, "format": 1 / 2}),
        "entropy": pytest.approx((0.5 + 1.5 + 4 + 1 + 1) / 5),
        "silent": 1 / 2,
    }
    alone = AgentReport(replies=1, reward=1.1, terms={"team": 1.0, "format": 1.0}, entropy=2.0, silent=1.0)
    assert found["Bob"] == alone, "what the clock ended is not learned from"
    assert list(found) == ["Ann", "Bob"]


def test_whole_runs_have_none() -> None:
    assert agent_reports([tree((True, []))], "tree") == {}
    assert agent_reports([tree((True, []))], "at-grpo") == {}


def test_turns_of_runs_that_do_not_part_have_theirs() -> None:
    found = agent_reports([tree((True, ANN))], "tree")
    assert list(found) == ["Ann"]
    assert found["Ann"].silent == 0, "one group, of the question, in which replies differ"


def test_turns_count_in_runs_that_solved_their_problem() -> None:
    once = [candidate("Ann", 0, "a", 0, 1.0, None, -1.0), *BOB]
    assert turns_to_solve([tree((True, [*ANN, *BOB]), (True, once), (False, ANN), (True, []))]) == (2 + 1) / 2
    assert turns_to_solve([tree((False, ANN), (True, []))]) is None
