"""What is asked of the Docker daemon, through docker-py: hardened containers to start, attach to and remove.

Blocking calls, each with a timeout; the pool makes them in threads. Every error becomes `SandboxUnavailable` with a
fix. What goes over an attached container is not looked at here.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from sandbox.containers.container import OUT_OF_MEMORY
from sandbox.containers.profile import seccomp_profile
from sandbox.host import owners
from sandbox.image import CODE_LABEL, DEVICES, JAIL_ROOT, code_hash
from sandbox.jail import Kind
from workflow.failures import SandboxUnavailable

Tier = Literal["warm", "strict", "gvisor"]
CALL_TIMEOUT_S = 30.0
OWNER_LABEL, SESSION_LABEL = "metaagent.owner", "metaagent.session"
KIND_LABEL, TIER_LABEL = "metaagent.kind", "metaagent.tier"
GVISOR = "runsc"
_USERS = range(61184, 65520)
"""Ids that distributions keep free for transient users. Each container takes one, so that none shares a count."""
_SPARE_PROCESSES = 64
INSTALL = 'pip install "metaagent[docker]"'
START = "start Docker (systemctl start docker), or set DOCKER_HOST to a daemon that runs"
ADD_GVISOR = "install gVisor and add the runtime to the daemon: dockerd --add-runtime runsc=/usr/bin/runsc"
BUILD = "build it: python -m sandbox.image (offline), or docker build as sandbox/image/Dockerfile says"


@dataclass(frozen=True)
class Box:
    """What one container may use."""

    memory_mb: int = 4096
    cpus: float = 2.0
    processes: int = 512
    disk_mb: int = 512
    """Of memory: the work folders of all its jails."""
    files: int = 4096


@dataclass
class Started:
    """A running container: its id and its attached stdio."""

    id: str
    socket: socket.socket
    since: float = field(default_factory=time.time)


class Daemon:
    def __init__(self, session: str) -> None:
        self._session = session
        self._owner = owners.own_tag()
        self._api: Any = None
        self.cpus = 1.0
        """Of the machine that the engine runs on, once it is open."""

    def open(self, image: str, tier: Tier) -> None:
        """Connect, and see that everything is there."""
        with explained("the daemon was asked what it has"):
            self._api = connect()
            info = self._api.info()
        self.cpus = float(info["NCPU"])
        if info.get("OSType") != "linux" or info.get("Architecture") not in ("x86_64", "amd64"):
            what = f"{info.get('OSType')} on {info.get('Architecture')}"
            raise SandboxUnavailable(f"the Docker daemon runs {what}", "use one on Linux on x86_64")
        if tier == "gvisor" and GVISOR not in info.get("Runtimes", {}):
            raise SandboxUnavailable(
                f"the Docker daemon has no runtime {GVISOR!r}, only {', '.join(sorted(info.get('Runtimes', {})))}",
                ADD_GVISOR,
            )
        check_image(self._api, image)

    def start(self, image: str, kind: Kind, tier: Tier, box: Box, preload: tuple[str, ...]) -> Started:
        """Create a container, attach to it, start it. What fails leaves none behind."""
        relay = {
            "kind": kind,
            "preload": list(preload),
            "folder": "/scratch",
            # gVisor's kernel has no landlock, and lets processes of one user look into each other's /proc.
            "chroot": JAIL_ROOT if tier == "gvisor" else "",
            "processes": box.processes - _SPARE_PROCESSES,
        }
        user = random.choice(_USERS)
        with explained(f"a {kind} container was started"):
            created = self._api.create_container(
                image,
                command=["python", "-m", "sandbox.containers.relay", json.dumps(relay)],
                entrypoint=[],
                user=f"{user}:{user}",
                working_dir="/",
                hostname="jail",
                stdin_open=True,  # and, as docker-py sets it, closed once the one that attached is gone
                network_disabled=True,
                environment={
                    "PYTHONHASHSEED": "0",
                    "LD_BIND_NOW": "1",
                    "PYTHONUTF8": "1",
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                },
                labels={
                    OWNER_LABEL: self._owner,
                    SESSION_LABEL: self._session,
                    KIND_LABEL: kind,
                    TIER_LABEL: tier,
                },
                host_config=self._hardened(box, tier),
            )["Id"]
            try:
                started = Started(created, self._attach(created))
                try:
                    self._api.start(created)
                except BaseException:
                    started.socket.close()
                    raise
                return started
            except BaseException:
                with suppress(Exception):
                    self._api.remove_container(created, force=True)
                raise

    def _hardened(self, box: Box, tier: Tier) -> Any:
        from docker.types import LogConfig, Ulimit

        limits = {"nofile": box.files, "nproc": box.processes, "core": 0}
        return self._api.create_host_config(
            network_mode="none",
            read_only=True,
            tmpfs={JAIL_ROOT + "/scratch": f"rw,nosuid,nodev,noexec,mode=1777,size={box.disk_mb}m"},
            binds=[f"{device}:{JAIL_ROOT}{device}" for device in DEVICES] if tier == "gvisor" else [],
            cap_drop=["ALL"],
            security_opt=["no-new-privileges", f"seccomp={seccomp_profile(may_change_root=tier == 'gvisor')}"],
            pids_limit=box.processes,
            mem_limit=box.memory_mb << 20,
            memswap_limit=box.memory_mb << 20,
            nano_cpus=int(min(box.cpus, self.cpus) * 1e9),
            ulimits=[Ulimit(name=name, soft=value, hard=value) for name, value in limits.items()],
            log_config=LogConfig(type="none"),
            ipc_mode="none",
            oom_score_adj=500,
            auto_remove=True,
            runtime=GVISOR if tier == "gvisor" else None,
        )

    def _attach(self, container: str) -> socket.socket:
        """The container's stdio. Before its start, so that nothing of it is in docker-py's buffers."""
        attached = self._api.attach_socket(container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        raw = getattr(attached, "_sock", None)
        if not isinstance(raw, socket.socket) or type(raw) is not socket.socket:
            raise SandboxUnavailable(
                f"DOCKER_HOST {self._api.base_url} cannot be attached to", "use unix:// or tcp:// without TLS"
            )
        ours = socket.socket(fileno=raw.detach())
        ours.setblocking(False)
        return ours

    def autopsy(self, started: Started) -> str:
        """Why a container has ended, from the daemon's record of events."""
        now = f"{time.time():.9f}"
        filters = {"container": started.id}
        events = list(self._api.events(since=f"{started.since - 5:.9f}", until=now, filters=filters, decode=True))
        actions = {event.get("Action") for event in events}
        if "oom" in actions:
            return OUT_OF_MEMORY
        codes = [event["Actor"]["Attributes"].get("exitCode") for event in events if event.get("Action") == "die"]
        return f"exit status {codes[-1]}" if codes else "the daemon does not say why"

    def remove(self, container: str) -> None:
        """Remove it, running or not, and see that it is gone."""
        remove_container(self._api, container)

    def close(self) -> None:
        if self._api is not None:
            self._api.close()


def connect(timeout_s: float = CALL_TIMEOUT_S) -> Any:
    """A client of the daemon that DOCKER_HOST names. Raises `SandboxUnavailable` without docker-py."""
    try:
        import docker
    except ImportError:
        raise SandboxUnavailable("the Docker backend needs the package docker", INSTALL) from None
    with explained("DOCKER_HOST was read"):
        return docker.from_env(timeout=timeout_s).api  # pyright: ignore[reportArgumentType]


def check_image(api: Any, image: str) -> None:
    """Raises `SandboxUnavailable` when the image is missing, or holds other code than this."""
    from docker.errors import ImageNotFound

    try:
        labels = api.inspect_image(image)["Config"].get("Labels") or {}
    except ImageNotFound:
        raise SandboxUnavailable(f"there is no image {image}", BUILD) from None
    built = labels.get(CODE_LABEL)
    if built != code_hash():
        what = f"was built from other code ({built})" if built else f"has no label {CODE_LABEL}"
        raise SandboxUnavailable(f"the image {image} {what}; this code is {code_hash()}", BUILD)


def remove_container(api: Any, container: str) -> None:
    from docker.errors import APIError, NotFound

    deadline = time.monotonic() + CALL_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            api.remove_container(container, force=True, v=True)
            return
        except NotFound:
            return
        except APIError as error:
            if error.status_code != 409:  # the daemon is at it
                raise
            time.sleep(0.05)
    raise SandboxUnavailable(f"the container {container[:12]} could not be removed in {CALL_TIMEOUT_S:g} s")


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Whatever goes wrong is `SandboxUnavailable`, with what was being done."""
    try:
        yield
    except SandboxUnavailable:
        raise
    except Exception as error:  # of docker-py, requests, urllib3 or the socket
        reason = " ".join(str(error).split())[:500]
        raise SandboxUnavailable(f"{type(error).__name__} when {doing}: {reason}", START) from None
