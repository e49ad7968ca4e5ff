"""The agents of a fixed program, and whether policies and rewards of single agents fit them.

What a program is made of is said by the sandbox, which runs it without agents. Agents that a program builds only while
it runs are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.protocol import Sandbox
from tasks.data import read_as
from tasks.problems import Problem
from trainer.config import Roles, TrainConfig
from trainer.credit import check_turns
from workflow.checks import nearest


async def check_program(config: TrainConfig, sandbox: Sandbox) -> None:
    """Raises ValueError where agents of the fixed program have no policy, or turns that cannot be rewarded, or where
    the configuration speaks of agents that it does not have; and what reading the problems raises."""
    program, turns = fixed_program(config), config.reward.kind == "turns"
    problems = [each for source in config.data for each in read_as(source.format, source.path)] if turns else []
    check_has_program(config, problems)
    if program is None or not (config.roles.agents or turns):
        return
    cast = await cast_of(program, sandbox)
    check_policies(config.roles, cast)
    if turns:
        check_turns(problems, cast, config.reward.roles)


def fixed_program(config: TrainConfig) -> str | None:
    """The text of the fixed program; None where programs are designed. Raises ValueError where it cannot be read."""
    path = config.rollout.program
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is not UTF-8 text (byte {error.start})"
        raise ValueError(f"rollout.program {path}: {why}. Fix: name the file of a program") from None


def check_has_program(config: TrainConfig, problems: Iterable[Problem]) -> None:
    """Raises ValueError where turns of math or code are rewarded without a fixed program."""
    other = next((problem for problem in problems if problem.environment is None), None)
    if config.reward.kind == "turns" and config.rollout.program is None and other is not None:
        raise ValueError(
            f'problem {other.id!r} is no game, and reward.kind = "turns" has to know what its agents are for. Fix: a '
            'fixed program (rollout.program), or reward.kind = "run" and rollout.branching.score = "end"'
        )


async def cast_of(source: str, sandbox: Sandbox) -> list[str]:
    """The names of a program's agents."""
    graph = (await sandbox.describe(source)).graph
    return [*dict.fromkeys(node.name for node in (graph.walk() if graph else []) if node.base == "AgentNode")]


def check_policies(roles: Roles, cast: Sequence[str]) -> None:
    """Raises ValueError for a policy of an agent that the program does not have, and where `roles.executor` is left
    out, for an agent without a policy."""
    if not roles.agents:
        return
    for name in roles.agents:
        if name not in cast:
            meant = nearest(name, cast)
            fix = f"{meant!r}" if meant else f"one of {', '.join(cast)}" if cast else "an agent that the program has"
            raise ValueError(f"roles.agents.{name}: no agent of the program has this name. Fix: {fix}")
    for name in cast:
        if name not in roles.agents and not roles.has_others:
            raise ValueError(
                f"agent {name!r} of the program has no policy. Fix: name it in roles.agents, or roles.executor, which "
                "plays all agents that are not named"
            )
