"""One engine for each agent: what an agent is asked goes to the engine of the policy that plays it.

Which policy plays whom is the configuration's; nothing here knows a policy.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from engine.known_engines import identity
from engine.protocol import Engine
from workflow.completion import Completion, CompletionRequest


class ByAgent:
    """Satisfies `engine.protocol.Engine`. `others` is asked for agents that have no engine of their own."""

    def __init__(self, engines: Mapping[str, Engine], others: Engine) -> None:
        self._engines, self._others = dict(engines), others

    @property
    def name(self) -> str:
        return " + ".join(dict.fromkeys(engine.name for engine in (*self._engines.values(), self._others)))

    @property
    def digest(self) -> str:
        """See `engine.protocol.KnownEngine`; "" where one of them cannot tell."""
        engines = {"": self._others, **self._engines}
        found = [(agent, identity(engine).digest) for agent, engine in sorted(engines.items())]
        said = repr(found).encode(errors="replace")
        return hashlib.blake2b(said, digest_size=16).hexdigest() if all(digest for _, digest in found) else ""

    def each(self, change: Callable[[Engine], Engine]) -> ByAgent:
        """The same agents, each with what its engine is changed to."""
        return ByAgent({agent: change(engine) for agent, engine in self._engines.items()}, change(self._others))

    async def complete(self, request: CompletionRequest) -> Completion:
        return await self._engines.get(request.agent, self._others).complete(request)

    async def close(self) -> None:
        """Whoever made the engines closes them: several agents may share one."""
