"""The agents of a fixed program, and whether policies of single agents name them.

What a program is made of is said by the sandbox, which runs it without agents.
"""

from __future__ import annotations

from sandbox.protocol import Sandbox
from trainer.config import Roles
from workflow.checks import nearest


async def check_cast(roles: Roles, source: str, sandbox: Sandbox) -> None:
    """Raises ValueError for a policy of an agent that the program does not have, and where `roles.executor` is left
    out, for an agent without a policy. Agents that a program builds only while it runs are not seen."""
    if not roles.agents:
        return
    described = await sandbox.describe(source)
    graph = described.graph
    cast = dict.fromkeys(node.name for node in (graph.walk() if graph else []) if node.base == "AgentNode")
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
