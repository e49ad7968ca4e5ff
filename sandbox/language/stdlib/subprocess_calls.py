"""`subprocess` as programs see it: `run([python, "-c", code])` is served by the code runner, the rest is refused.

No process is started here: the code leaves the jail as a `CodeRun`, and a `CodeReply` comes back.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any, NoReturn

from sandbox.language.stdlib.safe_stdlib import picked
from workflow.requests import CodeReply, CodeRun

PYTHON = "python"
"""What programs see as `sys.executable`."""
ALLOWED = (
    'a program may only call subprocess.run([sys.executable, "-c", code]), also written with "python" or "python3", '
    "with capture_output, stdout, stderr, text, encoding, input, timeout and check"
)
_FLAGS = {"-B", "-E", "-I", "-s", "-u"}
_REFUSED = "Popen call check_call getoutput getstatusoutput"


def subprocess_values(run_code: Callable[[CodeRun], CodeReply], write: Callable[[str], None]) -> dict[str, object]:
    """The contents of the `subprocess` facade. Output that is not captured goes to `write`, the print sink."""

    def run(
        args: Any,
        *,
        input: Any = None,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        capture_output: bool = False,
        text: bool | None = None,
        universal_newlines: bool | None = None,
        encoding: str | None = None,
        errors: str | None = None,
        timeout: float | None = None,
        check: bool = False,
        **other: Any,
    ) -> subprocess.CompletedProcess[Any]:
        code = _code_of(args)
        if any(value not in (None, False) for value in other.values()):
            raise PermissionError(f"subprocess.run: {', '.join(other)} cannot be used; {ALLOWED}")
        if capture_output:
            if stdout is not None or stderr is not None:
                raise ValueError("stdout and stderr arguments may not be used with capture_output.")
            stdout = stderr = subprocess.PIPE
        if stdin not in (None, subprocess.PIPE, subprocess.DEVNULL):
            raise PermissionError(f"subprocess.run: stdin must be None, PIPE or DEVNULL; pass input=; {ALLOWED}")
        for name, stream in (("stdout", stdout), ("stderr", stderr)):
            if stream not in (None, subprocess.PIPE, subprocess.DEVNULL, subprocess.STDOUT):
                raise PermissionError(f"subprocess.run: {name} must be None, PIPE, DEVNULL or STDOUT; {ALLOWED}")
        as_text = bool(text or universal_newlines or encoding or errors)
        reply = run_code(CodeRun(code, _text_of(input), timeout))
        out, err = reply.stdout, reply.stderr
        if stderr == subprocess.STDOUT:
            out, err = out + err, ""
        results = [
            _delivered(out, stdout, as_text, write),
            None if stderr == subprocess.STDOUT else _delivered(err, stderr, as_text, write),
        ]
        if reply.limit in ("wall_s", "cpu_s"):
            raise subprocess.TimeoutExpired(args, timeout or 0.0, output=results[0], stderr=results[1])
        done = subprocess.CompletedProcess(args, reply.exit_status, *results)
        if check:
            done.check_returncode()
        return done

    def check_output(args: Any, **options: Any) -> Any:
        return run(args, stdout=subprocess.PIPE, check=True, **options).stdout

    values = dict(
        picked(subprocess, "PIPE DEVNULL STDOUT CompletedProcess CalledProcessError TimeoutExpired SubprocessError")
    )
    values |= {name: _refusal(name) for name in _REFUSED.split()}
    return values | {"run": run, "check_output": check_output}


def _code_of(args: Any) -> str:
    """The code in `[python, flags..., "-c", code]`. Raises PermissionError for every other command."""
    if isinstance(args, (list, tuple)) and len(args) >= 3 and all(isinstance(arg, str) for arg in args):
        python, *flags, switch, code = args
        known = python in (PYTHON, "python3") or python.endswith(("/python", "/python3"))
        if known and switch == "-c" and set(flags) <= _FLAGS:
            return code
    raise PermissionError(f"subprocess.run({_shown(args)}): {ALLOWED}")


def _shown(args: Any) -> str:
    text = repr(args)
    return text if len(text) <= 80 else text[:77] + "..."


def _text_of(data: Any) -> str:
    if data is None or isinstance(data, str):
        return data or ""
    if isinstance(data, (bytes, bytearray)):
        return bytes(data).decode(errors="replace")
    raise TypeError(f"subprocess.run: input must be str or bytes, not {type(data).__name__}")


def _delivered(output: str, target: int | None, as_text: bool, write: Callable[[str], None]) -> str | bytes | None:
    """Output as the caller asked for it: captured, dropped, or passed on to the program's own output."""
    if target == subprocess.PIPE:
        return output if as_text else output.encode()
    if target is None and output:
        write(output)
    return None


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise PermissionError(f"subprocess.{name} cannot be used; {ALLOWED}")

    return refuse
