"""Lets plain Python code ask for things without being a generator.

`as_steps(function)` turns a plain call into a generator of requests: inside it, `perform(request)` suspends the
call (with greenlet, so at any depth and without threads) until the reply arrives. The same imperative node thus
runs under every driver. Outside of any run, `perform` hands the request to the connected engine's driver.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from workflow.failures import NoEngineConnected
from workflow.requests import Request, Steps

_driver: Callable[[Request], Any] | None = None


class _Call(greenlet):
    """A plain call that may be suspended in `perform`."""


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
    # The greenlet must switch back to whoever resumes it now, not to whoever created it.
    call.parent = getcurrent()
    outcome = call.switch()
    try:
        while not call.dead:
            try:
                reply = yield outcome
            except Exception as error:
                call.parent = getcurrent()
                outcome = call.throw(error)
            else:
                call.parent = getcurrent()
                outcome = call.switch(reply)
    finally:
        if not call.dead:  # the run was abandoned: unwind the suspended call
            call.parent = getcurrent()
            call.throw()
    return outcome
