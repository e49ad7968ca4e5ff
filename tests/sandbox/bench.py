"""A backend under test, as the tests of the conformance suite and of the corpus share it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from sandbox.conformance.attacks.attack import Attack
from sandbox.conformance.probes import BY_FAMILIES
from sandbox.conformance.sandbox_page import Seen
from sandbox.conformance.subject import Subject

EVERYTHING = bool(os.environ.get("METAAGENT_TEST_SANDBOX"))
"""As `make test-sandbox` says: containers too, or why there are none, and what takes long."""
PAGE = os.environ.get("PAGE")
"""The page that what was seen is written into."""
SEEN: dict[str, Seen] = {}
"""By configuration: what was seen while it was tested. Summed up at the end."""


class Bench:
    def __init__(self, runner: asyncio.Runner, subject: Subject) -> None:
        self._runner, self.subject = runner, subject
        self.seen = SEEN.setdefault(subject.backend.name, Seen(subject.backend.name))

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float = 120) -> Any:
        async def within() -> Any:
            return await asyncio.wait_for(work, timeout_s)

        return self._runner.run(within())


def drawn(attacks: Sequence[Attack], draw: random.Random, share: Callable[[Attack], float]) -> list[Attack]:
    """A sample of some attacks, each with the probability `share`, and at least one for every wall that is seen by
    attacks: nothing is known of a wall that nothing was tried on."""
    order = draw.sample(attacks, len(attacks))
    needed = {next(a.id for a in order if a.family in families) for families in BY_FAMILIES.values()}
    return [attack for attack in attacks if draw.random() < share(attack) or attack.id in needed]
