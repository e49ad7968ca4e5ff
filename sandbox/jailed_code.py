"""What runs inside a code jail: one piece of unrestricted Python, as `python -c` would run it.

The jail is the only boundary here. This module imports little, since code runs in the same process.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import traceback
import types

OUT_OF_MEMORY = 121
"""Exit status that tells the host that a MemoryError ended the code (a hint about its own limit, no more)."""


def run(fds: list[int]) -> None:
    """Run the source in the file behind `fds[0]` as `__main__`, then exit with its status."""
    size = os.fstat(fds[0]).st_size
    source = os.pread(fds[0], size, 0)
    os.close(fds[0])
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    sys.argv = ["-c"]
    sys.path[0:0] = [""]
    status = _status_of(source, module)
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter itself does at its end
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        status = status or 1
    os._exit(status)


def _status_of(source: bytes, module: types.ModuleType) -> int:
    try:
        code = compile(source, "<string>", "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except SystemExit as stop:
        if stop.code is None:
            return 0
        if isinstance(stop.code, int):
            return stop.code & 0xFF
        print(stop.code, file=sys.stderr)
        return 1
    except MemoryError:
        _print_traceback()
        return OUT_OF_MEMORY
    except BaseException:
        _print_traceback()
        return 1
    return 0


def _print_traceback() -> None:
    kind, error, frames = sys.exc_info()
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    try:
        traceback.print_exception(kind, error, frames)
    except BaseException:
        os.write(2, b"(the traceback could not be printed)\n")
