"""The system-call allowlists of a jail, as hand-assembled BPF for seccomp (x86_64 only).

Everything that is not listed fails with EPERM (ENOSYS for clone3, so that the C library falls back to clone, whose
flags a filter can see). Threads are allowed, processes are not. Nothing here mounts, limits or runs anything.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from sandbox.kernel import prctl

AUDIT_ARCH_X86_64 = 0xC000003E
X32_BIT = 0x40000000
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
CLONE_THREAD = 0x00010000
CLONE3 = 435

# Numbers from arch/x86/entry/syscalls/syscall_64.tbl.
_MEMORY = {"mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "mremap": 25, "madvise": 28}
_SIGNALS = {"rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "sigaltstack": 131, "restart_syscall": 219}
_SELF = {
    "getpid": 39, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110, "gettid": 186,
    "getrusage": 98, "times": 100, "exit": 60, "exit_group": 231, "getrlimit": 97, "sysinfo": 99, "uname": 63,
    "set_robust_list": 273, "rseq": 334, "arch_prctl": 158, "set_tid_address": 218, "sched_getaffinity": 204,
}  # fmt: skip
_TIME = {"nanosleep": 35, "gettimeofday": 96, "time": 201, "clock_gettime": 228, "clock_getres": 229,
         "clock_nanosleep": 230}  # fmt: skip
_SYNC = {"sched_yield": 24, "futex": 202, "poll": 7, "ppoll": 271, "getrandom": 318}
_IO = {"read": 0, "write": 1, "close": 3, "fstat": 5, "lseek": 8}

PROGRAM = frozenset({**_MEMORY, **_SIGNALS, **_SELF, **_TIME, **_SYNC, **_IO}.values())
"""A program computes and talks on its channel: it opens nothing."""

_FILES = {
    "stat": 4, "lstat": 6, "pread64": 17, "pwrite64": 18, "readv": 19, "writev": 20, "access": 21, "open": 2,
    "dup": 32, "dup2": 33, "fcntl": 72, "fsync": 74, "fdatasync": 75, "truncate": 76, "ftruncate": 77,
    "getdents": 78, "getcwd": 79, "chdir": 80, "fchdir": 81, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85,
    "unlink": 87, "readlink": 89, "chmod": 90, "fchmod": 91, "umask": 95, "statfs": 137, "fstatfs": 138,
    "getdents64": 217, "utimes": 235, "openat": 257, "mkdirat": 258, "newfstatat": 262, "unlinkat": 263,
    "renameat": 264, "readlinkat": 267, "fchmodat": 268, "faccessat": 269, "utimensat": 280, "fallocate": 285,
    "dup3": 292, "preadv": 295, "pwritev": 296, "renameat2": 316, "copy_file_range": 326, "statx": 332,
    "faccessat2": 439, "flock": 73, "fadvise64": 221, "sendfile": 40, "ioctl": 16,
}  # fmt: skip
_EVENTS = {
    "select": 23, "pselect6": 270, "pipe": 22, "pipe2": 293, "socketpair": 53, "sendto": 44, "recvfrom": 45,
    "shutdown": 48, "getsockname": 51, "getpeername": 52, "setsockopt": 54, "getsockopt": 55, "epoll_create": 213,
    "epoll_create1": 291, "epoll_ctl": 233, "epoll_wait": 232, "epoll_pwait": 281, "eventfd2": 290,
}  # fmt: skip
_CODE_EXTRAS = {
    "alarm": 37, "getitimer": 36, "setitimer": 38, "pause": 34, "getpgrp": 111, "getpriority": 140,
    "sched_getparam": 143, "sched_getscheduler": 145, "sched_get_priority_max": 146, "sched_get_priority_min": 147,
    "getcpu": 309, "membarrier": 324, "rt_sigpending": 127, "rt_sigtimedwait": 128, "rt_sigsuspend": 130,
}  # fmt: skip

CODE = PROGRAM | frozenset({**_FILES, **_EVENTS, **_CODE_EXTRAS}.values())
"""Unrestricted Python: files in its own root, pipes, socket pairs, timers, threads; no sockets, no processes."""

PR_SET_NAME = 15
_PRLIMIT64, _PRCTL, _CLONE = 302, 157, 56

# BPF opcodes: load word, jump if equal / greater-or-equal / any bit set, return.
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NR, _ARCH, _ARG0_LOW, _ARG2_LOW, _ARG2_HIGH = 0, 4, 16, 32, 36


def _instruction(code: int, jump_true: int, jump_false: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, jump_true, jump_false, value)


def assemble(allowed: frozenset[int], threads: bool) -> bytes:
    """The filter program: 8 bytes per instruction, jumps relative to the next one."""
    allow = _instruction(_RET, 0, 0, _ALLOW)
    refuse = _instruction(_RET, 0, 0, _ERRNO | errno.EPERM)
    missing = _instruction(_RET, 0, 0, _ERRNO | errno.ENOSYS)
    code = [
        _instruction(_LD, 0, 0, _ARCH),
        _instruction(_JEQ, 1, 0, AUDIT_ARCH_X86_64),
        refuse,
        _instruction(_LD, 0, 0, _NR),
        _instruction(_JGE, 0, 1, X32_BIT),
        refuse,
    ]
    for number in sorted(allowed):
        code += [_instruction(_JEQ, 0, 1, number), allow]
    code += [_instruction(_JEQ, 0, 1, CLONE3), missing]
    # prlimit64 may read limits (new_limit is a null pointer), never change them.
    code += [
        _instruction(_JEQ, 0, 6, _PRLIMIT64),
        _instruction(_LD, 0, 0, _ARG2_LOW),
        _instruction(_JEQ, 0, 3, 0),
        _instruction(_LD, 0, 0, _ARG2_HIGH),
        _instruction(_JEQ, 0, 1, 0),
        allow,
        refuse,
    ]
    code += [
        _instruction(_JEQ, 0, 4, _PRCTL),
        _instruction(_LD, 0, 0, _ARG0_LOW),
        _instruction(_JEQ, 0, 1, PR_SET_NAME),
        allow,
        refuse,
    ]
    if threads:
        code += [
            _instruction(_JEQ, 0, 4, _CLONE),
            _instruction(_LD, 0, 0, _ARG0_LOW),
            _instruction(_JSET, 0, 1, CLONE_THREAD),
            allow,
            refuse,
        ]
    code.append(refuse)
    return b"".join(code)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]  # noqa: RUF012 - ctypes wants a list


def install(program: bytes) -> None:
    """Load a filter into this process for good. Needs no_new_privs. Raises OSError."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // 8, ctypes.addressof(buffer))
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(header))
