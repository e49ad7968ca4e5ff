"""The reward of one turn of an agent: Stronger-MAS, Eq. 3, r = alpha * team + local, explained term by term.

The team's part is that of the turn's own state, also where the paper broadcasts that of the end: a candidate is scored
before the run goes on. Parts are in `trainer.credit.game_turns` (B.3 to B.6) and `trainer.credit.answer_turns` (B.1,
B.2); rewards of whole runs are in `trainer.credit.reward`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from sandbox.protocol import Sandbox
from search import Decision, Ended
from search.branching import Position
from tasks.problems import Problem
from trainer.credit.answer_turns import role_of, scored
from trainer.credit.game_turns import in_game
from trainer.credit.turn_parts import Shaping, TurnRole
from workflow.checks import nearest
from workflow.trace import Rewarded, RewardTerm

TurnReward = Callable[[Problem, Decision, Position, Sandbox], Coroutine[Any, Any, Rewarded]]


async def turn_reward(
    problem: Problem,
    decision: Decision,
    position: Position,
    sandbox: Sandbox,
    alpha: float = 1.0,
    shaping: Shaping = "dense",
    roles: Mapping[str, TurnRole] = {},
) -> Rewarded:
    """Of the reply to a decision that led to a position. `roles` says what agents are for whose name does not.

    Raises `SandboxUnavailable`, and nothing for what an agent wrote.
    """
    if problem.environment is not None:
        parts = in_game(problem, decision, position, shaping)
    else:
        parts = await scored(problem, decision, position, sandbox, shaping, roles)
    terms = [RewardTerm(name="team", value=parts.team, weight=alpha, reason=parts.seen), *parts.local]
    total = sum(term.value * term.weight for term in terms)
    ended = position.run.duration_s if isinstance(position, Ended) else 0.0
    return Rewarded(t=ended, total=round(total, 12), terms=terms, timed_out=parts.timed_out)


def check_turns(problems: Iterable[Problem], agents: Iterable[str], roles: Mapping[str, TurnRole]) -> None:
    """Raises ValueError where a turn of one of a program's agents could not be rewarded: it has no role in a kind of
    problem, or a tester's problem has no reference solution or no tests on stdin."""
    agents = [*agents]
    for name in roles:
        if name not in agents:
            meant = nearest(name, agents)
            fix = repr(meant) if meant else f"one of {', '.join(map(repr, agents[:20])) or 'none'}"
            raise ValueError(f"reward.roles: no agent of the program has the name {name[:100]!r}. Fix: {fix}")
    testers: dict[str, list[str]] = {}
    for problem in problems:
        if problem.environment is not None:
            continue
        if (kind := problem.domain) not in testers:
            testers[kind] = [agent for agent in agents if role_of(agent, kind, roles) == "tester"]
        if testers[kind] and (lack := _lacks(problem)):
            raise ValueError(
                f"problem {problem.id!r} has {lack}, so the turns of {testers[kind][0]!r}, who writes tests, earn "
                "nothing. Fix: leave it out, or use a program without a tester"
            )


def _lacks(problem: Problem) -> str:
    if problem.reference is None:
        return "no reference solution that tests can be tried on"
    return "" if problem.tests is not None and problem.tests.kind == "stdin" else "tests that are no scripts' stdin"
