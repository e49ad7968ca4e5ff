# ruff: noqa: E501  (a table)
"""What each configuration of a sandbox enforces, and by what: one typed table, shown by `metaagent doctor` and the docs.

These are claims. A test compares them with what the probes of `sandbox.conformance` see on the machine it runs on, both
ways: a wall that is claimed must hold, and one that is not must be seen not to. Nothing here enforces anything.
"""

from __future__ import annotations

from dataclasses import dataclass

CONFIGURATIONS = ("process/j", "process/j0", "docker/warm", "docker/strict", "docker/gvisor")


@dataclass(frozen=True)
class Wall:
    name: str
    meaning: str
    by: dict[str, str]
    """Configuration -> what enforces it. A configuration that is not there does not enforce it."""
    otherwise: str = ""
    """What holds where it is not enforced."""

    def holds(self, configuration: str) -> bool:
        return configuration in self.by


def _all(process: str, docker: str = "", **others: str) -> dict[str, str]:
    """The same in each configuration of a backend, but for those named by their mode."""
    said = {name: process if name.startswith("process") else docker or process for name in CONFIGURATIONS}
    return said | {name: others[mode] for name in CONFIGURATIONS if (mode := name.partition("/")[2]) in others}


_FILTER = "seccomp"
_RLIMIT = "rlimit"
WALLS: tuple[Wall, ...] = (
    Wall(
        "file contents",
        "files outside are neither read nor changed",
        _all(
            "landlock",
            "container root, landlock",
            j="empty read-only root, landlock",
            gvisor="gVisor, a root without /proc",
        ),
    ),
    Wall(
        "file names",
        "names, sizes and times of files outside are not seen",
        {
            "process/j": "empty root",
            "docker/warm": "container root",
            "docker/strict": "container root",
            "docker/gvisor": "container root",
        },
        "contents stay unread, but `stat` answers",
    ),
    Wall("environment", "variables of the host process are not seen", _all("cleared, landlock", "never passed in")),
    Wall(
        "network",
        "no socket of any family, AF_VSOCK included",
        _all(_FILTER, "seccomp, no network", j="seccomp, own network namespace"),
    ),
    Wall(
        "other processes",
        "memory of other processes is neither read nor written, nothing is traced or shared",
        _all(
            "seccomp, not dumpable",
            "seccomp, pid namespace",
            j="seccomp, pid namespace",
            gvisor="seccomp, a root without /proc",
        ),
    ),
    Wall(
        "signals",
        "nobody outside can be signalled",
        _all(_FILTER, "seccomp, pid namespace", j="seccomp, pid namespace"),
    ),
    Wall("new processes", "no process is started and no daemon left", _all(_FILTER)),
    Wall(
        "privileges",
        "no namespaces, mounts, users, capabilities or raised limits",
        _all("seccomp, no_new_privs", "seccomp, no_new_privs, no capabilities"),
    ),
    Wall("kernel surface", "io_uring, bpf, perf, userfaultfd and their like are refused", _all("seccomp allowlist")),
    Wall("memory", "`memory_mb` of address space", _all(_RLIMIT, "rlimit; container limit for all its runs")),
    Wall("time", "`cpu_s` and `wall_s`, whatever is ignored or caught", _all("rlimit, the host's clock")),
    Wall("output", "`output_bytes`, `agent_calls`, `tokens`, `tool_calls`", _all("the host counts")),
    Wall("one file", "no file grows past `disk_mb`", _all(_RLIMIT)),
    Wall(
        "all files",
        "the files of a run or workspace together stay below `disk_mb`",
        {"process/j": "tmpfs of its own"},
        "j0: as much as the temporary folder holds; docker: the container's tmpfs, `Box.disk_mb` for all its runs",
    ),
    Wall("channel", "no answer, reply or failure can be forged", _all("the broker checks every frame")),
    Wall("policy", "programs get no class internals, frames, real modules", _all("RestrictedPython and guards")),
    Wall(
        "next run",
        "nothing that a run changed is there for the next one",
        _all("a fork per run", strict="a container per run", gvisor="a container per run"),
    ),
    Wall("grades", "a wrong solution cannot pass its tests", _all("compared outside its jail")),
    Wall(
        "own kernel",
        "system calls do not reach the machine's kernel",
        {"docker/gvisor": "gVisor"},
        "the machine's kernel serves what the filter lets through",
    ),
)

NOT_PROTECTED = (
    "A bug in the kernel, in what the filters let through, defeats every configuration but `docker/gvisor`; a bug in "
    "gVisor or in the container runtime defeats that one.",
    "In mode j0 names, sizes and times of the host's files can be asked for, and a run may fill the temporary folder "
    "with many files of up to `disk_mb` each.",
    "Work folders in memory (tmpfs: mode j and containers) count on top of `memory_mb`.",
    "Runs of a kind share the page cache, processor caches and, in `docker/warm`, a container: how long things take can "
    "tell one run about another. Nothing hides timing.",
    "Limits are for each run; on one machine as many runs as `max_jails` add up, except in containers, which have limits "
    "of their own.",
    "Whoever may talk to the Docker daemon is root on its machine; the host process is trusted.",
)


def summary(configuration: str) -> str:
    """One line for people."""
    missing = [wall.name for wall in WALLS if not wall.holds(configuration)]
    held = f"{len(WALLS) - len(missing)} of {len(WALLS)} walls"
    return f"{held}; not enforced: {', '.join(missing)}" if missing else held
