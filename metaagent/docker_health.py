"""What `metaagent doctor` says of the Docker backend, and `doctor --clean`: leftovers of killed processes removed.

It looks and tells how to mend; it builds no image and starts no container.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from metaagent.terminal import ExitCode, Item, fields
from sandbox.containers import daemon, leftovers
from sandbox.image import image_tag
from sandbox.strength import summary
from workflow.failures import SandboxUnavailable


class Cleaned(BaseModel):
    """What `doctor --clean` found: removed, left since it may be in use, failed to remove (with why)."""

    removed: list[str] = []
    kept: list[str] = []
    failed: list[str] = []


def docker_items(timeout_s: float) -> Iterator[Item]:
    """The client library, the daemon, the image, the tiers; the first gap hides what is behind it."""
    try:
        import docker

        yield Item(area="Docker", name="client", state="ok", detail=f"docker-py {docker.__version__}")
    except ImportError:
        detail, fix = "docker-py is not installed", f"{daemon.INSTALL}; the process jail needs none"
        yield Item(area="Docker", name="client", state="gap", detail=detail, fix=fix)
        return
    try:
        api = daemon.connect(timeout_s)
        with daemon.explained("the daemon was asked what it has"):
            info = api.info()
    except SandboxUnavailable as error:
        yield _gap("daemon", error)
        return
    runtimes = sorted(info.get("Runtimes", {}))
    yield Item(area="Docker", name="daemon", state="ok", detail=f"version {info.get('ServerVersion')}")
    try:
        with daemon.explained("the image was looked for"):
            daemon.check_image(api, image_tag())
        yield Item(area="Docker", name="image", state="ok", detail=image_tag())
    except SandboxUnavailable as error:
        yield _gap("image", error)
    tiers = ["docker/warm", "docker/strict", "docker/gvisor"]
    if daemon.GVISOR in runtimes:
        yield Item(area="Docker", name="tiers", state="ok", detail=", ".join(tiers))
    else:
        detail = f"{', '.join(tiers[:2])}; no docker/gvisor: the daemon has no runtime {daemon.GVISOR}"
        yield Item(area="Docker", name="tiers", state="gap", detail=detail, fix=daemon.ADD_GVISOR)
        tiers.remove("docker/gvisor")
    for tier in tiers:
        yield Item(
            area="Docker", name=tier.partition("/")[2], state="ok", detail=f"{tier}: {summary(tier)} (docs/sandbox.md)"
        )


def leftover_item(timeout_s: float) -> Item:
    found = [one for one in _found(timeout_s)[0] if one.owner_lives is False]
    if not found:
        return Item(area="Leftovers", name="found", state="ok", detail="none of killed processes")
    counts = [f"{sum(one.what == what for one in found)} {what}s" for what in ("container", "folder")]
    fix = "metaagent doctor --clean"
    return Item(
        area="Leftovers", name="found", state="gap", detail=f"{' and '.join(counts)} of killed processes", fix=fix
    )


def _gap(name: str, error: SandboxUnavailable) -> Item:
    detail = str(error).removeprefix("sandbox unavailable: ").partition(" Fix: ")[0]
    return Item(area="Docker", name=name, state="gap", detail=detail, fix=error.fix)


def _found(timeout_s: float) -> tuple[list[leftovers.Found], Any]:
    """Everything that sandboxes have made and that is still there, and the daemon's client if there is one."""
    found = leftovers.folders()
    try:
        api = daemon.connect(timeout_s)
        return found + leftovers.containers(api), api
    except SandboxUnavailable:
        return found, None


def clean(timeout_s: float) -> Cleaned:
    found, api = _found(timeout_s)
    cleaned = Cleaned()
    for one in found:
        name = f"{one.what} {one.name} ({one.detail})"
        if one.owner_lives is None:
            cleaned.kept.append(f"{name}: whether its owner lives cannot be seen from here")
        elif one.owner_lives:
            cleaned.kept.append(f"{name}: in use")
        else:
            try:
                leftovers.remove(one, api)
                cleaned.removed.append(name)
            except Exception as error:
                cleaned.failed.append(f"{name}: {error}")
    return cleaned


def print_cleaned(console: Console, cleaned: Cleaned) -> None:
    for what, style in (("removed", "green"), ("kept", "dim"), ("failed", "bold red")):
        for name in getattr(cleaned, what):
            fields(console, [(what, Text(name, style=style))])
    if not cleaned.removed and not cleaned.failed:
        console.print("Nothing was left behind.")


def cleaned_exit_code(cleaned: Cleaned) -> ExitCode:
    return ExitCode.BAD if cleaned.failed else ExitCode.OK
