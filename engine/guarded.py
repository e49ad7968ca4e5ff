"""Asks an engine so that its defects are failures of the engine, and are not taken for the program's or the caller's.

Not here: a run's limits, its clock and its Trace (`engine.session`), and trying again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from engine.plausible import impossible
from engine.protocol import Engine
from engine.run_clock import no_reply
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed, MetaAgentError

MINDS_S = 1.0
"""How long an engine may take to end a call that is cancelled."""


async def completed(engine: Engine, request: CompletionRequest) -> Completion:
    """The engine's reply. Raises `EngineFailed` for whatever an engine raises that is no failure of ours, for a call
    that it cancels itself, and for a completion that cannot be. Who is cancelled waits `MINDS_S` at most for an engine
    that does not mind; its call is left behind then."""
    asked = asyncio.create_task(_asked(engine, request))
    try:
        await asyncio.wait({asked})
    except asyncio.CancelledError:
        asked.cancel()
        asked.add_done_callback(forgotten)
        await asyncio.wait({asked}, timeout=MINDS_S)
        raise
    try:
        completion = asked.result()
    except MetaAgentError:
        raise
    except Exception as failed:
        raise EngineFailed(engine.name, f"{type(failed).__name__}: {failed}") from failed
    except asyncio.CancelledError:
        raise EngineFailed(engine.name, "it cancelled a call itself") from None
    if wrong := impossible(completion):
        raise EngineFailed(engine.name, f"a completion that cannot be: {wrong}. Fix: see the engine")
    return completion


async def _asked(engine: Engine, request: CompletionRequest) -> Completion:
    """An engine that fails before there is anything to await has failed all the same."""
    return await engine.complete(request)


def forgotten(asked: asyncio.Future[Any]) -> None:
    """Nobody waits for the outcome any more; to look at it is to have nothing written about it."""
    if not asked.cancelled():
        asked.exception()


async def completed_within(engine: Engine, request: CompletionRequest, reply_s: float) -> Completion:
    """The same, of an engine that has failed where it takes longer than `reply_s` seconds, whether or not it minds
    being cancelled."""
    clock = asyncio.timeout(reply_s)
    try:
        async with clock:
            completion = await completed(engine, request)
    except TimeoutError:
        raise no_reply(engine.name, reply_s) from None
    except EngineFailed:
        if clock.expired():
            raise no_reply(engine.name, reply_s) from None
        raise
    if clock.expired():
        raise no_reply(engine.name, reply_s)
    return completion
