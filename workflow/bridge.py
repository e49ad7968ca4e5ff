"""Lets plain Python code ask for things without being a generator.

`as_steps(function)` turns a plain call into a generator of requests: inside it, `perform(request)` suspends the
call (with greenlet, so at any depth and without threads) until the reply arrives. The same imperative node thus
runs under every driver. Outside of any run, `perform` hands the request to the connected engine's driver.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from workflow.failures import NoEngineConnected
from workflow.requests import Request, Steps

_driver: Callable[[Request], Any] | None = None


class _Call(greenlet):
    """A plain call that may be suspended in `perform`.

    It has no part in the event loop that serves it, and may run one of its own, which is suspended with it.
    """

    _loop: Any = None

    def resumed(self, resume: Callable[..., Any], *args: Any) -> Any:
        """What it asks for next, or returns."""
        # It must switch back to whoever resumes it now, not to whoever created it.
        self.parent = getcurrent()
        outer = swap_event_loop(self._loop)
        try:
            return resume(*args)
        finally:
            self._loop = swap_event_loop(outer)


def swap_event_loop(running: Any = None) -> Any:
    """Make this event loop, by default none, the one that runs in this thread, with its hooks for asynchronous
    generators. Returns the one that did run, which has to wait, to be given back."""
    events: Any = sys.modules.get("asyncio.events")  # a jail has not loaded it
    if events is None:
        return None
    before = events._get_running_loop(), sys.get_asyncgen_hooks()
    loop, hooks = running or (None, (None, None))
    events._set_running_loop(loop)
    sys.set_asyncgen_hooks(*hooks)
    return before


def connect(driver: Callable[[Request], Any] | None) -> None:
    """Set what serves requests made outside of a run. Engines do this: `engine.connect(...)`."""
    global _driver
    _driver = driver


def perform(request: Request) -> Any:
    """Make a request from plain code and return its reply; raises what the request raised.

    Raises `NoEngineConnected` outside of a run when no engine is connected.
    """
    current = getcurrent()
    if isinstance(current, _Call) and current.parent is not None:
        return current.parent.switch(request)
    if _driver is None:
        raise NoEngineConnected(
            "no engine is connected, so agents have nobody to answer them. Add one line at the top of the file:\n"
            '    import engine; engine.connect("openai:MODEL@http://localhost:8000/v1")\n'
            'or run the file in the sandbox with: metaagent run FILE "question" --engine ...'
        )
    return _driver(request)


def as_steps(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Steps:
    """A generator that runs `function(*args, **kwargs)` and yields what it asks for through `perform`.

    A node or tool that calls `exit()` fails; it does not end whoever runs it.
    """

    def run() -> Any:
        try:
            return function(*args, **kwargs)
        except SystemExit as stop:
            raise RuntimeError(f"exit({stop.code!r}) was called inside a node or tool; return instead") from None

    call = _Call(run)
    outcome = call.resumed(call.switch)
    try:
        while not call.dead:
            try:
                reply = yield outcome
            except Exception as error:
                outcome = call.resumed(call.throw, error)
            else:
                outcome = call.resumed(call.switch, reply)
    finally:
        if not call.dead:  # the run was abandoned: unwind the suspended call
            call.resumed(call.throw)
    return outcome
