"""The values of a model as rewards of single turns: what a reply was worth to the run, whoever wrote it."""

from __future__ import annotations

from sandbox.protocol import Sandbox
from search import Decision, Ended
from search.branching import Position
from search.scoring import ScoredState, Scorer, scored
from tasks.problems import Problem
from trainer.credit import Correctness, TurnReward, correctness
from workflow.trace import Rewarded, RewardTerm


def value_reward(scorer: Scorer) -> TurnReward:
    """Of the reply to a decision: V of the state after it (MASPRM, section 3), in [-1, 1]; where the run has ended with
    it the grader says R, 1 or -1, and the model is not asked. Raises `SandboxUnavailable`, and `SearchRefused` for what
    is no value."""

    async def reward(problem: Problem, decision: Decision, position: Position, sandbox: Sandbox) -> Rewarded:
        if isinstance(position, Ended):
            run = position.run
            failure = run.failure
            found = Correctness(0.0, failure.kind) if failure else await correctness(problem, run, sandbox)
            term = RewardTerm(
                name="outcome", value=1.0 if found.value == 1.0 else -1.0, weight=1.0, reason=found.reason
            )
            return Rewarded(t=run.duration_s, total=term.value, terms=[term], timed_out=found.timed_out)
        [score] = await scored(scorer, [ScoredState(problem.question, position.path.decisions)])
        term = RewardTerm(name="value", value=score.value, weight=1.0, reason=f"V of {scorer.name}")
        return Rewarded(total=score.value, terms=[term])

    return reward
