"""The three tiers of the Docker backend as the suite sees them. The daemon is the one that DOCKER_HOST names.

docker-py is imported when a sandbox is made. Only a daemon that was started for tests may be killed:
METAAGENT_DOCKERD_PID names the file with its process id, METAAGENT_DOCKERD_RESTART the command that starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.conformance.subject import Backend

_HERE = "sandbox.conformance.docker_backends"
_OWN_PROCESSES = 2
"""Of a container: the relay and the zygote."""


def docker_warm(**options: Any) -> Any:
    return _docker("warm", **options)


def docker_strict(**options: Any) -> Any:
    return _docker("strict", **options)


def docker_gvisor(**options: Any) -> Any:
    return _docker("gvisor", **options)


def unguarded_warm() -> Any:
    return _unguarded("warm")


def unguarded_strict() -> Any:
    return _unguarded("strict")


def unguarded_gvisor() -> Any:
    return _unguarded("gvisor")


def _docker(tier: Any, **options: Any) -> Any:
    from sandbox.containers import DockerSandbox

    return DockerSandbox(tier=tier, **options)


def _unguarded(tier: Any) -> Any:
    """Its containers of programs preload what makes programs plain Python."""
    from sandbox.containers import Daemon, DockerSandbox

    class UnguardedDaemon(Daemon):
        def start(self, image: str, kind: Any, tier: Any, box: Any, preload: tuple[str, ...]) -> Any:
            extra = ("sandbox.conformance.unguarded",) if kind == "program" else preload
            return super().start(image, kind, tier, box, extra)

    sandbox = DockerSandbox(tier=tier)
    sandbox._daemon = UnguardedDaemon(sandbox._session)
    return sandbox


def _ids(sandbox: Any) -> list[str]:
    from sandbox.containers import SESSION_LABEL

    api = sandbox._daemon._api
    found = api.containers(filters={"label": f"{SESSION_LABEL}={sandbox._session}"}) if api is not None else []
    return [container["Id"] for container in found]


def _jails(sandbox: Any) -> int:
    """Processes in the sandbox's containers beside those that serve them."""
    found = 0
    for container in _ids(sandbox):
        with contextlib.suppress(Exception):  # it is just going
            processes = sandbox._daemon._api.top(container)["Processes"] or []
            found += max(0, len(processes) - _OWN_PROCESSES)
    return found


async def _kill(sandbox: Any) -> None:
    for container in _ids(sandbox):
        with contextlib.suppress(Exception):
            sandbox._daemon._api.kill(container)


async def _pause(sandbox: Any) -> Callable[[], None]:
    """Pause every container, when those that start or go have done so."""
    paused: set[str] = set()
    quiet = 0
    while quiet < 5:
        for container in set(_ids(sandbox)) - paused:
            with contextlib.suppress(Exception):  # it starts, or it is just going
                sandbox._daemon._api.pause(container)
                paused.add(container)
                quiet = 0
        quiet = quiet + 1 if set(_ids(sandbox)) <= paused else 0
        await asyncio.sleep(0.2)

    def go_on() -> None:
        for container in paused:
            with contextlib.suppress(Exception):
                sandbox._daemon._api.unpause(container)

    return go_on


def _left_behind(folder: str, host: int) -> list[str]:
    """Containers of the host process, and files in its temporary folder."""
    from sandbox.containers import OWNER_LABEL, connect

    api = connect()
    try:
        containers = api.containers(all=True, filters={"label": OWNER_LABEL})
    finally:
        api.close()
    owned = [each for each in containers if re.match(rf"{host}-", each["Labels"][OWNER_LABEL])]
    return [*(f"container {each['Id'][:12]}" for each in owned), *map(str, Path(folder).iterdir())]


async def _restart() -> None:
    os.kill(int(Path(os.environ["METAAGENT_DOCKERD_PID"]).read_text()), signal.SIGKILL)
    process = await asyncio.create_subprocess_exec(os.environ["METAAGENT_DOCKERD_RESTART"])
    assert await asyncio.wait_for(process.wait(), 120) == 0, "METAAGENT_DOCKERD_RESTART failed"


def _tier(tier: str) -> Backend:
    return Backend(
        name=f"docker/{tier}",
        make=f"{_HERE}:docker_{tier}",
        unguarded=f"{_HERE}:unguarded_{tier}",
        running=_jails,
        kill_workers=_kill,
        stop_workers=_pause,
        restart_daemon=_restart if {"METAAGENT_DOCKERD_PID", "METAAGENT_DOCKERD_RESTART"} <= set(os.environ) else None,
        left_behind=_left_behind,
    )


DOCKER = (_tier("warm"), _tier("strict"), _tier("gvisor"))
