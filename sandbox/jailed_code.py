"""What runs inside a code jail: one piece of unrestricted Python, as `python -c` would run it.

The jail is the only boundary here. This module imports little, since code runs in the same process.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import os
import signal
import sys
import threading
import types
from typing import Any

OUT_OF_MEMORY = 121
"""Exit status that tells the host that a MemoryError ended the code (a hint about its own limit, no more)."""
_OURS = ("sandbox", "engine", "workflow")


def run(fds: list[int]) -> None:
    """Run the source in the file behind `fds[0]` as `__main__`, then exit with its status."""
    size = os.fstat(fds[0]).st_size
    source = os.pread(fds[0], size, 0)
    os.close(fds[0])
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    module = types.ModuleType("__main__")
    module.__dict__.update(__builtins__=builtins, __annotations__={})
    _look_like_python(module)
    status = _status_of(source, module)
    os._exit(_finish(module) or status)


def _look_like_python(module: types.ModuleType) -> None:
    """Replace what the zygote's interpreter was started with by what `python -c` has."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
        del sys.modules[name]
    sys.modules["__main__"] = module
    sys.argv, sys.orig_argv = ["-c"], ["python", "-c"]
    sys.path[:] = ["", *(path for path in sys.path[1:] if path.startswith((sys.prefix, sys.base_prefix)))]
    # The old ones believe that they are /dev/null, where one can seek.
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _status_of(source: bytes, module: types.ModuleType) -> int:
    try:
        code = compile(source, "<string>", "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except SystemExit as stop:
        return _exit_status(stop.code)
    except BaseException as error:
        _print_traceback(error)
        return OUT_OF_MEMORY if isinstance(error, MemoryError) else 1
    return 0


def _exit_status(code: Any) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    try:
        text = str(code)
    except BaseException:
        text = ""
    print(text, file=sys.stderr)
    return 1


def _finish(module: types.ModuleType) -> int:
    """What the interpreter does at its end: threads, exit functions, open files. Returns 0 if all went well."""
    status = 0
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # the interpreter's own first step
        atexit._run_exitfuncs()
        if threading.active_count() == 1:  # daemon threads may be using it
            module.__dict__.clear()
            gc.collect()
    except BaseException:
        status = 1
    for stream in {id(stream): stream for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)}.values():
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            status = 120  # as Python does
    return status


def _print_traceback(error: BaseException) -> None:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(frames), frames)
    except BaseException:
        os.write(2, b"(the traceback could not be printed)\n")
