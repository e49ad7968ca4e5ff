"""A backend under test, as the tests of the conformance suite and of the corpus share it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

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
