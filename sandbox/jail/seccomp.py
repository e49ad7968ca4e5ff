"""The system-call allowlists of a jail, as hand-assembled BPF for seccomp (x86_64 only).

Everything that is not listed fails with EPERM (ENOSYS for clone3, so that the C library falls back to clone, whose
flags a filter can see); some calls are allowed with harmless arguments only. Code may have threads, nobody processes.
Nothing here mounts, limits or runs anything.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from sandbox.jail.kernel import Step, prctl

AUDIT_ARCH_X86_64 = 0xC000003E
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
CLONE_THREAD = 0x00010000
CLONE_NEW_ANY = 0x7E020080
PROT_EXEC = 4
CLONE3 = 435

# Numbers from arch/x86/entry/syscalls/syscall_64.tbl.
_MEMORY = {"munmap": 11, "brk": 12, "mremap": 25, "madvise": 28}
_MMAP, _MPROTECT = 9, 10
_SIGNALS = {"rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "sigaltstack": 131, "restart_syscall": 219}
_SELF = {
    "getpid": 39, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110, "gettid": 186,
    "getrusage": 98, "times": 100, "exit": 60, "exit_group": 231, "getrlimit": 97, "sysinfo": 99, "uname": 63,
    "set_robust_list": 273, "rseq": 334, "arch_prctl": 158, "set_tid_address": 218,
}  # fmt: skip
_TIME = {"nanosleep": 35, "gettimeofday": 96, "time": 201}
_CLOCKS = {"clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230}
_OTHERS_CLOCK = 1 << 31
"""Clocks with negative numbers are those of other processes and threads, and would tell which there are, and how much
they compute."""
_SYNC = {"sched_yield": 24, "poll": 7, "ppoll": 271, "getrandom": 318}
_FUTEX, _FUTEX_PRIVATE, _FUTEX_WAITS = 202, 128, (0, 9, 9 | 256)
"""A futex that is not private belongs to the page: on a library's, which runs share, one run would wake another. The C
library waits so for the end of a thread, and is told to look again."""
_IO = {"read": 0, "write": 1, "close": 3, "fstat": 5, "lseek": 8}

PROGRAM = frozenset({**_MEMORY, **_SIGNALS, **_SELF, **_TIME, **_SYNC, **_IO}.values())
"""A program computes and talks on its channel: it opens nothing, and maps no new machine code."""

_FILES = {
    "stat": 4, "lstat": 6, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "access": 21, "open": 2,
    "dup": 32, "dup2": 33, "fsync": 74, "fdatasync": 75, "truncate": 76, "ftruncate": 77,
    "getdents": 78, "getcwd": 79, "chdir": 80, "fchdir": 81, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85,
    "unlink": 87, "readlink": 89, "umask": 95, "statfs": 137, "fstatfs": 138, "getdents64": 217, "openat": 257,
    "mkdirat": 258, "newfstatat": 262, "unlinkat": 263, "renameat": 264, "readlinkat": 267, "faccessat": 269,
    "fallocate": 285, "dup3": 292, "preadv": 295, "pwritev": 296, "renameat2": 316, "copy_file_range": 326,
    "statx": 332, "faccessat2": 439, "fadvise64": 221, "sendfile": 40,
}  # fmt: skip
_ATTRIBUTES = {"chmod": 90, "fchmod": 91, "utimes": 235, "fchmodat": 268, "utimensat": 280}
_EVENTS = {
    "select": 23, "pselect6": 270, "pipe": 22, "pipe2": 293, "recvfrom": 45,
    "shutdown": 48, "getsockname": 51, "getpeername": 52, "getsockopt": 55, "epoll_create": 213,
    "epoll_create1": 291, "epoll_ctl": 233, "epoll_wait": 232, "epoll_pwait": 281, "eventfd2": 290,
}  # fmt: skip
_CODE_EXTRAS = {
    "alarm": 37, "getitimer": 36, "setitimer": 38, "pause": 34, "getpgrp": 111,
    "sched_get_priority_max": 146, "sched_get_priority_min": 147,
    "getcpu": 309, "membarrier": 324, "rt_sigpending": 127, "rt_sigtimedwait": 128, "rt_sigsuspend": 130,
}  # fmt: skip

CODE = PROGRAM | frozenset({**_FILES, **_EVENTS, **_CODE_EXTRAS, "mmap": _MMAP, "mprotect": _MPROTECT}.values())
"""Unrestricted Python: files in its own root, pipes, socket pairs, timers, threads; no sockets, no processes."""

PR_SET_NAME = 15
_IOCTLS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Is it a terminal (TCGETS, TCGETS2, TIOCGWINSZ), FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
_FCNTLS = (0, 1, 2, 3, 4, 1030, 1032)
"""Duplicate, flags, pipe size. Not F_SETOWN and F_SETSIG (signals to others), not leases."""
_LOCKS = (5, 6, 7, 36, 37, 38)
"""Record locks. They seem to succeed and lock nothing: on files that runs share, such as a library's, they would tell
one run about another, and could keep the host from its own lock. So does flock."""
_FLOCK, _SOCKETPAIR, _AF_UNIX = 73, 53, 1
_OF_A_PROCESS = {"sched_getparam": 143, "sched_getscheduler": 145, "sched_getaffinity": 204}
_GETPRIORITY = 140
"""Asked of others, these would tell which processes there are."""
_PRLIMIT64, _PRCTL, _CLONE, _FCNTL, _IOCTL, _SENDTO = 302, 157, 56, 72, 16, 44

NAMES = frozenset(["mmap", "mprotect"]).union(
    _MEMORY, _SIGNALS, _SELF, _TIME, _CLOCKS, ["futex"], _SYNC, _IO, _FILES, _ATTRIBUTES, _EVENTS, _CODE_EXTRAS
)
"""What code may call, by name; the calls that are allowed with some arguments only are not among them."""

# BPF opcodes: load word, jump if equal / greater-or-equal / any bit set, return.
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH, _ARGS = 0, 4, 16


def _instruction(code: int, jump_true: int, jump_false: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, jump_true, jump_false, value)


_ALLOW = _instruction(_RET, 0, 0, 0x7FFF0000)
_REFUSE = _instruction(_RET, 0, 0, 0x00050000 | errno.EPERM)
_AGAIN = _instruction(_RET, 0, 0, 0x00050000 | errno.EAGAIN)
_MISSING = _instruction(_RET, 0, 0, 0x00050000 | errno.ENOSYS)
_PRETEND = _instruction(_RET, 0, 0, 0x00050000)
"""Returns 0 and does nothing."""


def _load(argument: int, *, high: bool = False) -> bytes:
    return _instruction(_LD, 0, 0, _ARGS + 8 * argument + 4 * high)


def _one_of(argument: int, values: tuple[int, ...], *, pretended: tuple[int, ...] = ()) -> list[bytes]:
    """Allow the call if an argument's low half, all that the kernel looks at here, is one of `values`."""
    following = len(values) + len(pretended)
    tests = [_instruction(_JEQ, following - at, 0, value) for at, value in enumerate(values)]
    tests += [_instruction(_JEQ, len(pretended) - at + 1, 0, value) for at, value in enumerate(pretended)]
    return [_load(argument), *tests, _REFUSE, _ALLOW, *([_PRETEND] if pretended else ())]


def _of_itself(argument: int) -> list[bytes]:
    """Allow the call if it asks about the caller (0). Else it seems missing, which C libraries can live with."""
    return [_load(argument), _instruction(_JEQ, 0, 1, 0), _ALLOW, _MISSING]


def _null(argument: int) -> list[bytes]:
    """Allow the call if a pointer argument is null."""
    low, high = _load(argument), _load(argument, high=True)
    return [low, _instruction(_JEQ, 0, 3, 0), high, _instruction(_JEQ, 0, 1, 0), _ALLOW, _REFUSE]


def _without(argument: int, bits: int) -> list[bytes]:
    """Allow the call if an argument has none of `bits`."""
    return [_load(argument), _instruction(_JSET, 0, 1, bits), _REFUSE, _ALLOW]


_OF_BOTH = {
    **{call: _without(0, _OTHERS_CLOCK) for call in _CLOCKS.values()},
    _FUTEX: [
        _load(1),
        _instruction(_JSET, 0, 1, _FUTEX_PRIVATE),
        _ALLOW,
        *(step for wait in _FUTEX_WAITS for step in (_instruction(_JEQ, 0, 1, wait), _AGAIN)),
        _REFUSE,
    ],
}


def program_filter() -> bytes:
    rules = _OF_BOTH | {call: _without(2, PROT_EXEC) for call in (_MMAP, _MPROTECT)}
    return _assemble(PROGRAM, {**rules, _OF_A_PROCESS["sched_getaffinity"]: _of_itself(0)})


def code_filter(*, own_files: bool) -> bytes:
    """`own_files` says that nothing but the run's own files can be changed anyway, as with a root of its own.

    Without it, modes and times of files cannot be set (landlock does not cover them): such calls do nothing.
    """
    thread = [
        _load(0),
        _instruction(_JSET, 2, 0, CLONE_NEW_ANY),
        _instruction(_JSET, 0, 1, CLONE_THREAD),
        _ALLOW,
        _REFUSE,
    ]
    rules = {
        **_OF_BOTH,
        _CLONE: thread,
        _FCNTL: _one_of(1, _FCNTLS, pretended=_LOCKS),
        _FLOCK: [_PRETEND],
        _SOCKETPAIR: _one_of(0, (_AF_UNIX,)),
        _GETPRIORITY: _of_itself(1),
        **{call: _of_itself(0) for call in _OF_A_PROCESS.values()},
        _IOCTL: _one_of(1, _IOCTLS),
        # With an address it would reach sockets of others, even from a socket pair.
        _SENDTO: _null(4),
        **{call: [_ALLOW if own_files else _PRETEND] for call in _ATTRIBUTES.values()},
    }
    return _assemble(CODE, rules)


def _assemble(allowed: frozenset[int], rules: dict[int, list[bytes]]) -> bytes:
    """The filter program: 8 bytes per instruction, jumps relative to the next one.

    A search tree over ranges of numbers, since the kernel compiles and tries out a filter each time it is installed.
    """
    decisions = {
        **{number: [_ALLOW] for number in allowed},
        **rules,
        CLONE3: [_MISSING],
        # May read its own limits, never set them.
        _PRLIMIT64: [_load(0), _instruction(_JEQ, 1, 0, 0), _REFUSE, *_null(2)],
        _PRCTL: _one_of(0, (PR_SET_NAME,)),
    }
    ranges = [(0, [_REFUSE])]
    for number in range(max(decisions) + 2):  # the last one refuses whatever is above
        if ranges[-1][1] != (decision := decisions.get(number, [_REFUSE])):
            ranges.append((number, decision))
    start = [_instruction(_LD, 0, 0, _ARCH), _instruction(_JEQ, 1, 0, AUDIT_ARCH_X86_64), _REFUSE]
    return b"".join([*start, _instruction(_LD, 0, 0, _NR), *_search(ranges)])


def _search(ranges: list[tuple[int, list[bytes]]]) -> list[bytes]:
    """Find the range that a system call's number is in, and decide as it says. Each starts where the last one ends."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    return [_instruction(_JGE, len(below), 0, ranges[middle][0]), *below, *above]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.POINTER(ctypes.c_char))]


def install(program: bytes) -> Step:
    """Load a filter into a process for good. Needs no_new_privs."""
    header = _Program(len(program) // 8, ctypes.create_string_buffer(program, len(program)))
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.pointer(header))
