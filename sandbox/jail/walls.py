"""Building one jail around this process: root, limits, privileges, landlock, seccomp, in that order.

Made ready before the fork, put up in the child before it does anything for anybody else, and never left again. The
zygote (`sandbox.jail.zygote`) forks; what then runs inside is in `sandbox.jail.run_program` and
`sandbox.jail.run_code`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import socket
import sys
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, pairwise
from typing import Literal, NamedTuple

from sandbox.jail import kernel, readable, seccomp
from sandbox.jail.kernel import Step

Kind = Literal["program", "code", "call"]
Mode = Literal["j", "j0"]

PER_RUN_NAMESPACES = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
"""Fresh for each run in mode j, which also has a network namespace of its own (see `zygote`)."""

MAX_MESSAGE = 1 << 16
"""Bytes of a control message."""
WORK = "/metaagent-work"
"""Working directory of code inside a mode-j jail."""

FIRST_OWN_FD = 64
"""Lowest descriptor of a zygote's own; below it a jail's descriptors find their places."""

FIRST_UID = 0x6D610000
"""As root: run n gets host user id FIRST_UID + n % UIDS, so that runs share no user either."""
UIDS = 4096
_USER_CAPABILITIES = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 7  # CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID
_RUNS_IN_ONE_COUNT = 64
_LANDLOCK_TRUNCATE = 3
"""First version that keeps a process from emptying files of its own user."""

WALL_FIX = (
    "run on a kernel with landlock (5.13 or later; 6.2 without root), or where user namespaces are allowed, or on "
    "gVisor (docker/gvisor); code that is trusted not to look around runs with ProcessSandbox(allow_weak=True) or "
    "--sandbox process/weak"
)

_PROGRAM_FILTER = seccomp.program_filter()
_CODE_FILTERS: dict[Mode, bytes] = {
    "j": seccomp.code_filter(own_files=True),
    "j0": seccomp.code_filter(own_files=False),
}


class JailLimits(NamedTuple):
    """Limits that the kernel keeps. The wall clock and output are the host's to keep."""

    cpu_s: int
    memory_mb: int
    disk_mb: int = 64
    files: int = 256
    threads: int = 64


def build_root(root: str, kind: Kind, extra: list[str]) -> None:
    """Fill the mount point `root` with what a kind of jail may read, and make it all read-only.

    Programs see an empty folder. Code sees Python, its libraries, three harmless devices and the packages in `extra`.
    """
    kernel.take([kernel.mount("none", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")])
    os.mkdir(root + WORK)
    if kind != "program":
        packages = readable.packages() if kind == "call" else []
        covered = [*readable.libraries(), *packages]
        for path in covered:
            _bind(path, root + path)
        hidden = [path for path in readable.package_folders_inside() if path not in packages]
        for path in hidden:
            kernel.take([kernel.mount("none", root + path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m")])
        seen = [path for path in covered if not any(other.startswith(f"{path}/") for other in hidden)]
        for path in extra:
            if not any(path.startswith(f"{other}/") for other in seen):
                _bind(path, root + path)
        for path in readable.packages():
            os.makedirs(root + path, exist_ok=True)
        for path in hidden:
            kernel.take([kernel.set_read_only(root + path, nodev=True)])
        _keep_links(root)
        os.mkdir(root + "/dev")
        for device in ("null", "zero", "urandom"):
            _bind(f"/dev/{device}", f"{root}/dev/{device}", nodev=False)
        if not os.path.lexists(root + "/tmp"):
            os.symlink(WORK, root + "/tmp")
    flags = kernel.MS_REMOUNT | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.take([kernel.mount("none", root, None, flags)])


_MOUNT_POINT = "/proc"
"""Where mode j builds its root: in the zygote's own mount namespace, on a folder that is always there, so that no other
folder has to be made and removed. What lies beneath is needed no more."""


def enter_namespaces(control: socket.socket, kind: Kind, extra: list[str]) -> bool:
    """Mode j: give the zygote its own namespaces and a root that holds only the jail's. True if it has many user ids.

    The network namespace is shared by this zygote's jails and holds nothing but an unused loopback; their seccomp
    filters allow no sockets.
    """
    new = kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWCGROUP
    kernel.take([kernel.unshare(kernel.CLONE_NEWUSER | new)])
    # Only the host can map more than one id; it answers whether it did.
    control.send(json.dumps({"op": "map_ids", "pid": os.getpid()}).encode())
    many = json.loads(control.recv(MAX_MESSAGE))["mapped"]
    if not many:
        uid, gid = json.loads(os.environ["METAAGENT_IDS"])
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    socket.sethostname("jail")
    tmpfs = kernel.mount("none", _MOUNT_POINT, "tmpfs", kernel.MS_NOSUID, "size=1m,mode=755")
    kernel.take([kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE), tmpfs])
    for name in ("jail", "workspaces"):
        os.mkdir(f"{_MOUNT_POINT}/{name}")
    build_root(f"{_MOUNT_POINT}/jail", kind, extra)
    kernel.take(kernel.enter_root(_MOUNT_POINT))
    return many


@lru_cache
def work_folder(path: str, disk_mb: int) -> Step:
    """Mode j: a file system of a limited size, for any user to write to."""
    data = f"size={disk_mb}m,nr_inodes=4096,mode=777"
    return kernel.mount("none", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, data)


def _bind(source: str, target: str, *, nodev: bool = True) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "x"):
            pass
    flags = kernel.MS_BIND | kernel.MS_REC
    kernel.take([kernel.mount(source, target, None, flags), kernel.set_read_only(target, nodev=nodev)])


def _keep_links(root: str) -> None:
    """Links such as /lib -> usr/lib and a virtual environment's paths must lead to the same places inside."""
    for path in ("/lib", "/lib64", "/usr/lib64"):
        if os.path.islink(path) and not os.path.lexists(root + path):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            os.symlink(os.readlink(path), root + path)
    for path in (sys.prefix, sys.base_prefix):
        real = os.path.realpath(path)
        if real != path and not os.path.lexists(root + path):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            os.symlink(real, root + path)


def may_change_users() -> bool:
    """Whether this process may give files and processes to the users of runs, and take them back.

    Root of a container often lacks the users (they are not mapped) or the capabilities.
    """
    if kernel.effective_capabilities() & _USER_CAPABILITIES != _USER_CAPABILITIES:
        return False
    for name in ("uid_map", "gid_map"):
        with open(f"/proc/self/{name}") as lines:
            ranges = [tuple(map(int, line.split())) for line in lines]
        if not any(first <= FIRST_UID and first + count >= FIRST_UID + UIDS for first, _, count in ranges):
            return False
    return True


def shared_files_reachable(extra: list[str]) -> bool:
    """Whether any user may read what code needs, so that a jail without a root of its own may change its user."""
    for path in [*readable.libraries(), *readable.packages(), *extra]:
        parts = [path]
        while parts[-1] != "/":
            parts.append(os.path.dirname(parts[-1]))
        if not all(os.stat(part).st_mode & 0o001 for part in parts if os.path.isdir(part)):
            return False
    return True


class Walls:
    """The walls of one zygote's jails, with all that does not depend on the run made ready once.

    `own_users` says that each run gets a user id of its own. Raises OSError when a wall that is needed cannot be had:
    nothing may run then, unless `allow_weak`; `missing` names that wall. In mode j the zygote's root must already hold
    the jail's at `root`. With `chrooted` a jail's root holds nothing that it may not read, so landlock is not needed.
    `work` holds all folders that jails may write to, in mode j0.
    `extra` are the packages that the jails may read: some of them for code, folders beside them for calls.
    `base_mb` is the address space of the zygote, which a run's `memory_mb` comes on top of.
    `processes` caps the processes and threads of all jails together, for a zygote that has a user id (that of a
    container) to itself.
    """

    def __init__(
        self,
        mode: Mode,
        kind: Kind,
        *,
        own_users: bool,
        root: str,
        work: str,
        extra: list[str],
        base_mb: int,
        allow_weak: bool = False,
        chrooted: bool = False,
        processes: int | None = None,
    ) -> None:
        top = root if mode == "j" else ""
        files: list[str] = []
        writable: list[str] = []
        listed: list[str] = []
        if kind != "program":
            files = [*readable.libraries(), *extra, *(readable.packages() if kind == "call" else ())]
            files = [top + path for path in [*files, "/dev/zero", "/dev/urandom"]]
            writable = [f"{top}/dev/null"]
            listed = [*([root] if mode == "j" else ()), *(top + path for path in readable.packages())]
        version = kernel.landlock_version()
        needed = 0 if mode == "j" or kind == "program" or chrooted else 1 if own_users else _LANDLOCK_TRUNCATE
        self.missing = (
            f"landlock version {version}: below {needed}, a {kind} jail in mode j0 could reach the host's files"
        )
        if version >= needed:
            self.missing = ""
        elif not allow_weak:
            raise OSError(errno.ENOSYS, self.missing)
        # Counted per user and user namespace: where runs have no users of their own, all of a zygote's share one
        # count. In mode j0 the host's other processes would count too.
        self._threads = 1 if own_users else _RUNS_IN_ONE_COUNT if mode == "j" else None
        self._processes = processes
        # The only program that is ever executed is the zygote's `rm`, for what runs leave behind in mode j0.
        last_capabilities = kernel.MAY_DELETE if mode == "j0" else 0
        kernel.take(kernel.drop_bounding_set(~last_capabilities))
        self._privileges = [
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1),
            *kernel.drop_bounding_set(last_capabilities),
        ]
        self._last = [
            kernel.drop_capabilities(),
            # Changing the user id has cleared the death signal.
            kernel.prctl(kernel.PR_SET_PDEATHSIG, 9),
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0),
        ]
        if version:
            outer: list[Step] = []
            if kind == "code" and mode == "j0":
                # Two domains. One is made once, for all runs: it has many rules, which leave out packages inside the
                # standard library; in mode j those are not there. So each run's own has only to keep others' folders
                # out. It comes first, since a domain takes over all rules of the one around it.
                names = [*readable.standard_library(), *readable.packages()]
                exact = [*readable.parts(), *files[len(readable.libraries()) :]]
                outer = [kernel.Landlock(exact, [work, *writable], names).made(FIRST_OWN_FD)]
                files, listed = _around([*exact, *names], work), []
            landlock = kernel.Landlock(files, writable, listed)
            self._last += [("landlock", landlock.restrict, ("." if kind != "program" else None,)), *outer]
        self._seccomp = [seccomp.install(_PROGRAM_FILTER if kind == "program" else _CODE_FILTERS[mode])]
        hard = {name: resource.getrlimit(name)[1] for name in range(resource.RLIMIT_MSGQUEUE + 1)}
        self._hard = {name: value for name, value in hard.items() if value != resource.RLIM_INFINITY}
        self._base_mb = base_mb
        self._limits = lru_cache(self._set_limits)

    def steps(self, limits: JailLimits, uid: int | None, work: str, closing: list[Step]) -> Iterable[Step]:
        """What confines a process for good. In mode j, and with `chrooted`, its root is already the jail's.

        `uid` is the user id to become, None to stay; `work` is the writable folder; `closing` is what `close_all_but`
        says. If a step fails, the process must exit without running anything.
        """
        entering: list[Step] = [("chdir", os.chdir, (work,))]
        user: list[Step] = []
        if uid is not None:
            user.append(("setgroups", os.setgroups, ([],)))
            user.append(("setresgid", os.setresgid, (uid, uid, uid)))
            user.append(("setresuid", os.setresuid, (uid, uid, uid)))
        return chain(self._limits(limits), entering, self._privileges, user, self._last, closing, self._seccomp)

    def grow(self, base_mb: int) -> None:
        """The zygote takes up more than it did."""
        self._base_mb = base_mb
        self._limits.cache_clear()

    def _set_limits(self, limits: JailLimits) -> list[Step]:
        values = {
            resource.RLIMIT_AS: (self._base_mb + limits.memory_mb) << 20,
            # Hard and soft alike: a pid namespace's init ignores SIGXCPU, and so may code; nobody ignores SIGKILL.
            resource.RLIMIT_CPU: limits.cpu_s,
            resource.RLIMIT_FSIZE: limits.disk_mb << 20,
            resource.RLIMIT_NOFILE: limits.files,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 0,
        }
        if self._threads is not None:
            values[resource.RLIMIT_NPROC] = limits.threads * self._threads
        elif self._processes is not None:
            values[resource.RLIMIT_NPROC] = self._processes
        lowest = {name: min(value, self._hard.get(name, value)) for name, value in values.items()}
        return [("setrlimit", resource.setrlimit, (name, (value, value))) for name, value in lowest.items()]


def _around(paths: list[str], work: str) -> list[str]:
    """As few folders as hold all of the paths and do not hold `work`. Raises OSError where a path itself holds it."""
    avoided = f"{os.path.realpath(work)}/"
    found: set[str] = set()
    for path in paths:
        ends = [at for at in range(1, len(path) + 1) if path[at : at + 1] in ("/", "")]
        outermost = next((path[:end] for end in ends if not avoided.startswith(f"{path[:end]}/")), None)
        if outermost is None:
            raise OSError(
                errno.EINVAL, f"code would work in {work}, inside of {path}, which all code reads; set TMPDIR"
            )
        found.add(outermost)
    return sorted(found)


def go_first() -> None:
    """When the container is out of memory, a jail goes, not what serves it."""
    with contextlib.suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        os.write(fd, b"900")
        os.close(fd)


def close_all_but(kept: list[int]) -> list[Step]:
    """Close every descriptor but these, which are in ascending order."""
    gaps = [(low + 1, high) for low, high in pairwise((-1, *kept, os.sysconf("SC_OPEN_MAX"))) if low + 1 < high]
    return [("closerange", os.closerange, gap) for gap in gaps]
