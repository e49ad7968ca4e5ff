"""What runs inside a code jail: one piece of unrestricted Python, as `python -c` would run it.

The jail is the only boundary here. This module imports little, since code runs in the same process.
"""

from __future__ import annotations

import atexit
import builtins
import errno
import gc
import importlib
import os
import sys
import types
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from typing import Any

OUT_OF_MEMORY = 121
"""Exit status that tells the host that a MemoryError ended the code (a hint about its own limit, no more)."""
DISK_FULL = 122
"""The same for an OSError that says that a file or the disk is full."""
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
_OURS = ("sandbox", "engine", "workflow")
_USUAL = ("collections", "copy", "functools", "itertools", "math", "operator", "re", "string", "typing")
"""Imported before any run: what the solutions of MBPP and HumanEval import most, except for `heapq` (1 to 2 in 100).
A module that is a shared library costs every run that forks it; others are there to import, at their price."""
_LOADERS: tuple[tuple[Any, list[str]], ...] = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)
"""Python's own."""
_TRIES = 20
"""How often to run some code before any run, so that the interpreter has done what it does the first few times."""
_main = types.ModuleType("__main__")
_hidden: list[types.ModuleType] = []
"""Modules that code does not find; kept, since taking them apart would cost every run."""


def run(fds: list[int]) -> None:
    """Run the source in the file behind `fds[0]` as `__main__`, then exit with its status."""
    os._exit(_status_of(fds[0], _main))


def _status_of(fd: int, module: types.ModuleType) -> int:
    source = os.pread(fd, os.lseek(fd, 0, os.SEEK_END), 0)
    os.close(fd)
    status = _executed(source, module)
    return _finish(module) or status


def warm() -> None:
    """Once, in the zygote: replace what its interpreter was started with by what `python -c` has."""
    for path in sys.path:
        if path.endswith(("/site-packages", "/dist-packages")):
            sys.path_importer_cache[path] = _Readable(path, *_LOADERS)
    for name in _USUAL:
        importlib.import_module(name)
    _main.__dict__.update(__builtins__=builtins, __annotations__={})
    ours = [name for name in sys.modules if name.partition(".")[0] in _OURS]
    _hidden.extend(sys.modules.pop(name) for name in ours)
    sys.modules["__main__"] = _main
    sys.argv, sys.orig_argv = ["-c"], ["python", "-c"]
    sys.path[:] = ["", *(path for path in sys.path[1:] if path.startswith((sys.prefix, sys.base_prefix)))]
    _open_streams()
    # Where the interpreter's start has loaded it (a `.pth` file may), its end must not come before any run's.
    threading = sys.modules.pop("threading", None)
    for _ in range(_TRIES):
        fd = os.memfd_create("source")
        os.write(fd, b"value = [1, 2.5, 'text']\nprint(len(value), end='')\nsys = None\n")
        _status_of(fd, types.ModuleType("__main__"))
    if threading is not None:
        sys.modules["threading"] = threading


class _Readable(FileFinder):
    """Finds no package that is installed but closed to code. Others that can do without it ask in this way whether it
    is there, and would take a refusal for a broken one."""

    def find_spec(self, fullname: str, target: Any = None) -> Any:
        spec = super().find_spec(fullname, target)
        if spec is not None and spec.has_location:
            try:
                os.close(os.open(spec.origin or "", os.O_RDONLY))
            except PermissionError:
                return None
        return spec


def _open_streams() -> None:
    """Streams on 0 to 2, where each run finds its own. They learn here that these are pipes, where nobody can seek."""
    silence = [os.dup(fd) for fd in range(3)]
    pipe = os.pipe()
    try:
        for fd, end in enumerate((pipe[0], pipe[1], pipe[1])):
            os.dup2(end, fd)
        sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    finally:
        for fd, end in enumerate(silence):
            os.dup2(end, fd)
        for fd in (*silence, *pipe):
            os.close(fd)


def _executed(source: bytes, module: types.ModuleType) -> int:
    try:
        code = compile(source, "<string>", "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except SystemExit as stop:
        return _exit_status(stop.code)
    except BaseException as error:
        _print_traceback(error)
        if isinstance(error, MemoryError):
            return OUT_OF_MEMORY
        return DISK_FULL if isinstance(error, OSError) and error.errno in _FULL else 1
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
        threading: Any = sys.modules.get("threading")
        if threading is not None:
            threading._shutdown()  # the interpreter's own first step
        atexit._run_exitfuncs()
        if threading is None or threading.active_count() == 1:  # daemon threads may be using it
            module.__dict__.clear()
            gc.collect(2 if _any_old() else 1)
    except BaseException:
        status = 1
    for stream in {id(stream): stream for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)}.values():
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            status = 120  # as Python does
    return status


def _any_old() -> bool:
    """Whether a full collection would find more than one of what is young. It also empties the interpreter's lists of
    spare objects, which would take longer than most of the code that is run."""
    try:
        return bool(gc.get_objects(generation=2))
    except MemoryError:
        return True


def _print_traceback(error: BaseException) -> None:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(frames), frames)
    except BaseException:
        os.write(2, b"(the traceback could not be printed)\n")
