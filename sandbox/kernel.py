"""Linux system calls that Python does not offer, through ctypes: namespaces, mounts, capabilities, landlock.

Thin and literal: every function raises OSError with the call's name, and none of them decides anything. x86_64 only.
"""

from __future__ import annotations

import ctypes
import os
import struct

# PyDLL keeps the GIL: after a raw clone only the calling thread exists, so the lock must not change hands.
libc = ctypes.PyDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
MNT_DETACH = 2
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SYS_CLONE, _SYS_PIVOT_ROOT, _SYS_CAPSET, _SYS_MOUNT_SETATTR = 56, 155, 126, 442
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_SIGCHLD = 17
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_LAST_CAP = 63
MAY_DELETE = 1 << 1 | 1 << 3
"""Capabilities to delete files of other users: DAC_OVERRIDE, FOWNER."""
_CAPABILITY_HEADER = struct.pack("<Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process


def _check(result: int, call: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def syscall(call: str, number: int, *args: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    converted = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _check(libc.syscall(ctypes.c_long(number), *converted), call)


def prctl(option: int, *args: int) -> None:
    padded = [*args, 0, 0, 0, 0][:4]
    _check(libc.prctl(ctypes.c_int(option), *(ctypes.c_ulong(arg) for arg in padded)), f"prctl({option})")


def unshare(flags: int) -> None:
    _check(libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def clone(flags: int) -> int:
    """Fork into new namespaces, as `os.fork` does: with the interpreter's own steps before and after.

    Returns the child's pid, or 0 in the child; call from a single thread only.
    """
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    child = False
    try:
        pid = syscall("clone", _SYS_CLONE, flags | _SIGCHLD, 0, 0, 0, 0)
        child = pid == 0
        return pid
    finally:
        (python.PyOS_AfterFork_Child if child else python.PyOS_AfterFork_Parent)()


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    result = libc.mount(
        source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), data.encode() or None
    )
    _check(result, f"mount({source} on {target})")


def set_read_only(path: str, *, nodev: bool = True) -> None:
    """Make a mount and all below it read-only and nosuid."""
    attributes = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | (_MOUNT_ATTR_NODEV if nodev else 0)
    packed = struct.pack("<QQQQ", attributes, 0, 0, 0)
    syscall("mount_setattr", _SYS_MOUNT_SETATTR, _AT_FDCWD, path.encode(), _AT_RECURSIVE, packed, len(packed))


def enter_root(path: str) -> None:
    """Make `path`, which must be a mount point, the root directory and drop the old one."""
    os.chdir(path)
    syscall("pivot_root", _SYS_PIVOT_ROOT, b".", b".")
    _check(libc.umount2(b".", ctypes.c_int(MNT_DETACH)), "umount2(old root)")
    os.chdir("/")


def change_root(path: str) -> None:
    """Make `path` the root directory of this process, without privileges: in a user namespace, where its user keeps its
    id. For gVisor's kernel; Linux would have `setgroups` denied first.
    """
    ids = {"uid_map": os.getuid(), "gid_map": os.getgid()}
    unshare(CLONE_NEWUSER)
    for name, number in ids.items():
        with open(f"/proc/self/{name}", "w") as file:
            file.write(f"{number} {number} 1")
    os.chroot(path)
    os.chdir("/")


def unmount(path: str) -> None:
    _check(libc.umount2(path.encode(), ctypes.c_int(MNT_DETACH)), f"umount2({path})")


def drop_bounding_set(capabilities: int = -1) -> None:
    """Give up for good the capabilities in a mask, for this process and whatever it may execute."""
    for capability in range(_LAST_CAP + 1):
        if capabilities >> capability & 1 and libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break  # past the kernel's last capability, or not privileged: then there is nothing to give up


def drop_capabilities() -> None:
    """Give up every capability that this process has. An unprivileged one has none to give up."""
    syscall("capset", _SYS_CAPSET, _CAPABILITY_HEADER, bytes(24))


_READ = 1 << 2 | 1 << 3  # READ_FILE, READ_DIR
_WRITE = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8  # WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG
_TRUNCATE = 1 << 14
_ALL_V1 = (1 << 13) - 1
_FILE = 1 << 2 | 1 << 1 | _TRUNCATE
"""What there is to allow on a file that is no folder."""
_SCOPES = 3  # abstract unix sockets, signals


def landlock_version() -> int:
    """The kernel's landlock ABI, 0 where there is none."""
    result = libc.syscall(ctypes.c_long(_SYS_LANDLOCK_CREATE), None, ctypes.c_long(0), ctypes.c_long(1))
    return max(result, 0)


class Landlock:
    """A landlock domain, all but finished: paths that may be read and written, opened once and used by many processes.

    Raises OSError where there is no landlock.
    """

    def __init__(self, readable: list[str], writable: list[str]) -> None:
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
        self.fds = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path, _ in rules]
        self._rules = [
            struct.pack("<Qi", access if os.path.isdir(path) else access & _FILE, fd)
            for (path, access), fd in zip(rules, self.fds, strict=True)
        ]

    def restrict(self, work: str | None = None) -> None:
        """Confine this process for good to the paths, and to the folder `work`. Needs no_new_privs."""
        ruleset = syscall("landlock_create_ruleset", _SYS_LANDLOCK_CREATE, self._attributes, len(self._attributes), 0)
        try:
            for rule in self._rules:
                syscall("landlock_add_rule", _SYS_LANDLOCK_ADD, ruleset, 1, rule, 0)
            if work is not None:
                fd = os.open(work, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    rule = struct.pack("<Qi", self._write, fd)
                    syscall("landlock_add_rule", _SYS_LANDLOCK_ADD, ruleset, 1, rule, 0)
                finally:
                    os.close(fd)
            syscall("landlock_restrict_self", _SYS_LANDLOCK_RESTRICT, ruleset, 0)
        finally:
            os.close(ruleset)
