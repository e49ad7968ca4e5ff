"""`utils.environments.math_env` as programs see it: a runner of Python code, which the published programs import.

The code leaves the jail as a `CodeRun`, as with `subprocess.run`; nothing is run here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workflow.requests import CodeReply, CodeRun


def math_env_values(run_code: Callable[[CodeRun], CodeReply]) -> dict[str, object]:
    """The contents of the module."""

    class MathEnvironment:
        """Runs each piece of code by itself. A working directory of one's own means nothing here."""

        __slots__ = ("timeout",)

        def __init__(self, timeout: float = 120, work_dir: object = None) -> None:
            self.timeout = _seconds(timeout)

        def execute(self, code: str) -> str:
            """What the code prints, or what went wrong, as text for an agent."""
            if type(code) is not str:
                raise TypeError(f"code must be text, not {type(code).__name__}")
            return _told(run_code(CodeRun(code, "", _seconds(self.timeout))))

    default: list[Any] = []

    def get_math_environment(timeout: float = 120) -> MathEnvironment:
        if not default:
            default.append(MathEnvironment(timeout))
        return default[0]

    def python_execute(code: str) -> str:
        return get_math_environment().execute(code)

    return {
        "MathEnvironment": MathEnvironment,
        "get_math_environment": get_math_environment,
        "python_execute": python_execute,
    }


def _seconds(timeout: Any) -> float:
    if type(timeout) not in (int, float) or not 0 < timeout < 1e6:
        raise ValueError(f"timeout must be a positive number of seconds, not {type(timeout).__name__} {timeout!r:.80}")
    return float(timeout)


def _told(reply: CodeReply) -> str:
    if reply.limit == "wall_s":
        return "Error: the code ran out of time"
    if reply.limit is not None:
        return f"Error: the code hit its limit {reply.limit}"
    if reply.exit_status != 0:
        return f"Error (exit status {reply.exit_status}):\n{reply.stderr.strip() or 'nothing was said'}"
    output = reply.stdout.strip()
    return f"Executed successfully.\nOutput: {output}" if output else "Executed successfully, without output."
