"""The driver that needs no event loop: it serves one run over a pair of functions, as the jail of a program does.

Imports nothing but the scheduler, since jails are forked from a process that holds this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workflow.scheduler import Issued, Scheduler


def drive_sync(scheduler: Scheduler, send: Callable[[Issued], None], receive: Callable[[], tuple[str, Any]]) -> Any:
    """Advance a run over a channel: `send` every new request, then wait for any reply with `receive`.

    All open requests are out before the first wait, so whoever answers can answer them side by side. `receive`
    returns (key, reply) and bounds its own wait. What either raises ends the run and unwinds its nodes.
    """
    try:
        while True:
            for issued in scheduler.take():
                send(issued)
            if scheduler.done:
                return scheduler.result()
            key, reply = receive()
            scheduler.reply(key, reply)
    finally:
        scheduler.close()
