"""Asks an engine so that its defects are failures of the engine, and are not taken for the program's or the caller's.

Not here: a run's limits, its clock and its Trace (`engine.session`), and trying again.
"""

from __future__ import annotations

import asyncio

from engine.plausible import impossible
from engine.protocol import Engine
from engine.run_clock import no_reply
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed, MetaAgentError


def is_cancelled() -> bool:
    """Whether it is the caller that is being cancelled, and not just what it waits for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def completed(engine: Engine, request: CompletionRequest) -> Completion:
    """The engine's reply. Raises `EngineFailed` for whatever an engine raises that is no failure of ours, for a call
    that it cancels itself, and for a completion that cannot be."""
    try:
        completion = await engine.complete(request)
    except MetaAgentError:
        raise
    except Exception as failed:
        raise EngineFailed(engine.name, f"{type(failed).__name__}: {failed}") from failed
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise EngineFailed(engine.name, "it cancelled a call itself") from None
    if wrong := impossible(completion):
        raise EngineFailed(engine.name, f"a completion that cannot be: {wrong}. Fix: see the engine")
    return completion


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
