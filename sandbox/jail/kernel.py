"""Linux system calls that Python does not offer, through ctypes: namespaces, mounts, capabilities, landlock.

Thin and literal: most functions make a call ready (`Step`), `take` makes it, and none of them decides anything. x86_64
only.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterable
from typing import Any

# PyDLL keeps the GIL: after a raw clone only the calling thread exists, so the lock must not change hands.
libc = ctypes.PyDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SYS_CLONE, _SYS_CAPGET, _SYS_CAPSET, _SYS_PIVOT_ROOT, _SYS_MOUNT_SETATTR = 56, 125, 126, 155, 442
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_SIGCHLD, _F_DUPFD_CLOEXEC = 17, 1030
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 23, 24, 38
_CAP_SETPCAP = 8
_REHEARSALS = 20
"""How often to do in a parent what its children will do, so that the interpreter has adapted its code to it before."""
MAY_DELETE = 1 << 1 | 1 << 3
"""Capabilities to delete files of other users: DAC_OVERRIDE, FOWNER."""
_CAPABILITY_HEADER = struct.pack("<Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process

Step = tuple[str, Callable[..., object], tuple[object, ...]]
"""A call made ready before the fork of the process that makes it: its name, what raises OSError or returns -1 and sets
errno, its arguments.

A child shares its parent's memory until one of them writes, and Python writes to whatever it so much as looks at: the
less of it they run, the fewer pages are copied, which is most of what a run costs.
"""


def take(steps: Iterable[Step]) -> None:
    """Make the calls, one after the other. Raises OSError that names the first one to fail."""
    for name, call, args in steps:
        if call(*args) == -1:
            raise _error(name)


def _error(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{name}: {os.strerror(number)}")


def syscall(name: str, number: int, *args: object) -> Step:
    """Of the arguments, ints are passed as longs."""
    converted = (ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args)
    return (name, libc.syscall, (ctypes.c_long(number), *converted))


def prctl(option: int, *args: object) -> Step:
    """Of the arguments, ints are passed as longs."""
    padded = [*args, 0, 0, 0, 0][:4]
    converted = (ctypes.c_ulong(arg) if isinstance(arg, int) else arg for arg in padded)
    return (f"prctl({option})", libc.prctl, (ctypes.c_int(option), *converted))


def unshare(flags: int) -> Step:
    return (f"unshare({flags:#x})", libc.unshare, (ctypes.c_int(flags),))


def clone(flags: int) -> int:
    """Fork into new namespaces, as `os.fork` does: with the interpreter's own steps before and after.

    Returns the child's pid, or 0 in the child; call from a single thread only.
    """
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    child = False
    try:
        pid: int = libc.syscall(*(ctypes.c_long(arg) for arg in (_SYS_CLONE, flags | _SIGCHLD, 0, 0, 0, 0)))
        if pid == -1:
            raise _error("clone")
        child = pid == 0
        return pid
    finally:
        (python.PyOS_AfterFork_Child if child else python.PyOS_AfterFork_Parent)()


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> Step:
    args = (source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags))
    return (f"mount({source} on {target})", libc.mount, (*args, data.encode() or None))


def set_read_only(path: str, *, nodev: bool = True) -> Step:
    """Make a mount and all below it read-only and nosuid."""
    attributes = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | (_MOUNT_ATTR_NODEV if nodev else 0)
    packed = struct.pack("<QQQQ", attributes, 0, 0, 0)
    args = (_AT_FDCWD, path.encode(), _AT_RECURSIVE, packed, len(packed))
    return syscall(f"mount_setattr({path})", _SYS_MOUNT_SETATTR, *args)


def enter_root(path: str) -> list[Step]:
    """Make `path`, which must be a mount point, the root directory and drop the old one."""
    return [
        (f"chdir({path})", os.chdir, (path,)),
        syscall("pivot_root", _SYS_PIVOT_ROOT, b".", b"."),
        unmount("."),
        ("chdir(/)", os.chdir, ("/",)),
    ]


def change_root(path: str) -> None:
    """Make `path` the root directory of this process, without privileges: in a user namespace, where its user keeps its
    id. For gVisor's kernel; Linux would have `setgroups` denied first.
    """
    ids = {"uid_map": os.getuid(), "gid_map": os.getgid()}
    take([unshare(CLONE_NEWUSER)])
    for name, number in ids.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(f"{number} {number} 1")
    os.chroot(path)
    os.chdir("/")


def unmount(path: str) -> Step:
    return (f"umount2({path})", libc.umount2, (path.encode(), ctypes.c_int(MNT_DETACH)))


def move_descriptor(fd: int, lowest: int) -> int:
    """Its new number, which is free so far; no program that is executed inherits it.

    The module `fcntl` would be one more library whose memory each fork has to set up again.
    """
    moved: int = libc.fcntl(ctypes.c_int(fd), ctypes.c_int(_F_DUPFD_CLOEXEC), ctypes.c_int(lowest))
    if moved == -1:
        raise _error(f"fcntl({fd}, F_DUPFD_CLOEXEC)")
    os.close(fd)
    return moved


def effective_capabilities() -> int:
    """The capabilities of this process, a bit for each."""
    said = ctypes.create_string_buffer(24)
    take([syscall("capget", _SYS_CAPGET, _CAPABILITY_HEADER, said)])
    words = struct.unpack("<6I", said.raw)
    return words[0] | words[3] << 32


def drop_bounding_set(capabilities: int = -1) -> list[Step]:
    """Give up for good the capabilities in a mask, for this process and whatever it may execute.

    No steps where this process may not: then it has none to give up.
    """
    if not effective_capabilities() >> _CAP_SETPCAP & 1:
        return []
    wanted = (capability for capability in range(64) if capabilities >> capability & 1)
    return [
        prctl(PR_CAPBSET_DROP, capability)
        for capability in wanted
        if libc.prctl(PR_CAPBSET_READ, ctypes.c_ulong(capability), 0, 0, 0) == 1
    ]


def drop_capabilities() -> Step:
    """Give up every capability that this process has. An unprivileged one has none to give up."""
    return syscall("capset", _SYS_CAPSET, _CAPABILITY_HEADER, bytes(24))


_LONGEST_VARIABLE = 8192


class Variable:
    """An environment variable that has another value for each run. The C library keeps for ever what it is given: it
    gets one place, where the values follow each other."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()
        self._place = ctypes.create_string_buffer(self._name + b"=", _LONGEST_VARIABLE)
        take([("putenv", libc.putenv, (self._place,))])

    def set(self, value: str) -> None:
        environment: Any = os.environ
        encoded = environment.encodevalue(value)
        self._place.value = self._name + b"=" + encoded
        environment._data[self._name] = encoded


_READ_DIR = 1 << 3
_READ = 1 << 2 | _READ_DIR  # READ_FILE
_WRITE = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8  # WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG
_TRUNCATE = 1 << 14
_ALL_V1 = (1 << 13) - 1
_FILE = 1 << 2 | 1 << 1 | _TRUNCATE
"""What there is to allow on a file that is no folder."""
_SCOPES = 3  # abstract unix sockets, signals


_RULE, _PATH_BENEATH = struct.Struct("<Qi"), 1
"""What may be done, and with what lies in which folder."""


def landlock_version() -> int:
    """The kernel's landlock ABI, 0 where there is none."""
    result = libc.syscall(ctypes.c_long(_SYS_LANDLOCK_CREATE), None, ctypes.c_long(0), ctypes.c_long(1))
    return max(result, 0)


class Landlock:
    """A landlock domain, all but finished: paths that may be read, written, or listed with no more than
    the names below them, opened once and used by many processes.

    Raises OSError where there is no landlock.
    """

    def __init__(self, readable: list[str], writable: list[str], listed: list[str]) -> None:
        version = landlock_version()
        handled = _ALL_V1
        if version >= 2:
            handled |= 1 << 13  # REFER
        if version >= 3:
            handled |= _TRUNCATE
        if version >= 5:
            handled |= 1 << 15  # IOCTL_DEV
        packed = struct.pack("<QQQ", handled, 3 if version >= 4 else 0, _SCOPES if version >= 6 else 0)
        self._attributes = packed[: 8 if version < 4 else 16 if version < 6 else 24]
        self._write = _READ | _WRITE | ((1 << 13 | _TRUNCATE) & handled)
        rules = [*((path, _READ) for path in readable), *((path, self._write) for path in writable)]
        rules += [(path, _READ_DIR) for path in listed]
        self.fds = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path, _ in rules]
        packed_rules = [
            _RULE.pack(access if os.path.isdir(path) else access & _FILE, fd)
            for (path, access), fd in zip(rules, self.fds, strict=True)
        ]
        # Ready but for two numbers, which each process fills in: its ruleset's and, in the last rule, its folder's.
        self._ruleset, self._last_rule = ctypes.c_long(), ctypes.create_string_buffer(_RULE.size)
        size = len(self._attributes)
        self._create = syscall("landlock_create_ruleset", _SYS_LANDLOCK_CREATE, self._attributes, size, 0)
        self._add = [self._adding(rule) for rule in packed_rules]
        self._add_last = [self._adding(self._last_rule)]
        self._restrict = [syscall("landlock_restrict_self", _SYS_LANDLOCK_RESTRICT, self._ruleset, 0)]
        for _ in range(_REHEARSALS):
            self._make("/")
            os.close(self._ruleset.value)

    def _adding(self, rule: object) -> Step:
        return syscall("landlock_add_rule", _SYS_LANDLOCK_ADD, self._ruleset, _PATH_BENEATH, rule, 0)

    def _make(self, folder: str | None) -> None:
        name, call, args = self._create
        ruleset: Any = call(*args)
        if ruleset == -1:
            raise _error(name)
        self._ruleset.value = ruleset
        take(self._add)
        if folder is not None:
            fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            _RULE.pack_into(self._last_rule, 0, self._write, fd)
            take(self._add_last)
            os.close(fd)

    def made(self, lowest: int) -> Step:
        """Confining to the paths alone, with a ruleset that is made now, for good, with a descriptor from `lowest` on:
        for many rules, which each process would have to make anew."""
        self._make(None)
        self._ruleset.value = move_descriptor(self._ruleset.value, lowest)
        for fd in self.fds:
            os.close(fd)
        return self._restrict[0]

    def restrict(self, folder: str | None = None) -> None:
        """Confine this process for good to the paths, and to `folder` if there is one. Needs no_new_privs."""
        self._make(folder)
        take(self._restrict)
        os.close(self._ruleset.value)
