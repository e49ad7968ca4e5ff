"""A real Docker engine for the tests, where one answers: the image built for it, and containers to look at."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from sandbox.containers.daemon import GVISOR, OWNER_LABEL, SESSION_LABEL, connect, explained
from sandbox.host.owners import own_tag
from sandbox.image.__main__ import build
from workflow.failures import SandboxUnavailable

TIERS = ("warm", "strict", "gvisor")


@cache
def why_no(tier: str) -> str:
    """Why containers of a tier cannot run here; empty where they can. Builds the image when it is missing."""
    if not os.environ.get("DOCKER_HOST") and not Path("/var/run/docker.sock").exists():
        return "no Docker engine: DOCKER_HOST is not set (make test-sandbox starts one)"
    try:
        api = connect()
        with explained("the tests looked for an engine"):
            runtimes = api.info()["Runtimes"]
            build(api)
        api.close()
    except SandboxUnavailable as error:
        return str(error)
    return "" if tier != "gvisor" or GVISOR in runtimes else f"the Docker engine has no runtime {GVISOR}"


def containers(**labels: str) -> list[dict[str, Any]]:
    """Containers of this process's sandboxes, or with other labels."""
    wanted = labels or {OWNER_LABEL: own_tag()}
    api = connect()
    try:
        return api.containers(all=True, filters={"label": [f"{name}={value}" for name, value in wanted.items()]})
    finally:
        api.close()


def of_session(sandbox: Any) -> list[dict[str, Any]]:
    return containers(**{SESSION_LABEL: sandbox._session})
