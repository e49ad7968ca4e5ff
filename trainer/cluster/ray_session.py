"""Ray, attached to or started for one run: nodes, placement groups, actors, and the one place that waits for them.

Every wait has a limit, and says which one struck. Ray restarts nothing by itself, so that whatever is lost is lost
loudly (`trainer.cluster.losses` decides what follows). Not here: what actors do (`trainer.cluster.actors`), and what
is to sit where (`trainer.cluster.layout`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.cluster.places import Bundle, Node
from trainer.config import ClusterConfig

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # The sandbox needs asyncio's own loop: uvloop, which vLLM brings, closes descriptors under files that it was given.
    "RAY_USE_UVLOOP": "0",
}
TOKEN_FILE = Path("~/.ray/auth_token")
"""What `ray start` has made on a head node, to be copied to all others."""
POLL_S = 0.2
CLOSE_S = 60.0
_LONGEST = 300
"""Characters of what Ray says that are told."""


class ClusterError(RuntimeError):
    """A cluster that cannot be had or has not what a run needs. The message says what to do."""


class ActorLost(ClusterError):
    """An actor's process, or its node, is gone."""

    def __init__(self, actor: str, reason: str) -> None:
        self.actor, self.reason = actor, reason
        super().__init__(f"{actor} is gone: {reason}")

    def __reduce__(self) -> tuple[type[ActorLost], tuple[str, str]]:
        return ActorLost, (self.actor, self.reason)


class NotStarted(ClusterError):
    """An actor that did not come up: `gone` if its process ended on the way, else it took too long."""

    def __init__(self, actor: str, error: Exception) -> None:
        self.gone = isinstance(error, ActorLost)
        super().__init__(
            f"{actor} did not start: {error}. Fix: see Ray's logs on its node (session_latest/logs) and the memory "
            "there, or raise cluster.start_timeout_s"
        )


class CallTimedOut(ClusterError):
    """A call took longer than its limit."""

    def __init__(self, actor: str, method: str, limit: str, seconds: float) -> None:
        self.actor, self.method, self.limit, self.seconds = actor, method, limit, seconds
        super().__init__(f"{actor} did not answer {method}() within {limit}={seconds:g} s")

    def __reduce__(self) -> tuple[type[CallTimedOut], tuple[str, str, str, float]]:
        return CallTimedOut, (self.actor, self.method, self.limit, self.seconds)


@dataclass(frozen=True)
class Limit:
    """A wait's limit, with the key of the configuration that sets it."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Actor:
    """A Ray actor under a name that people understand, such as `rank 1 of p0`. May be sent to other actors."""

    name: str
    handle: Any

    def wait(self, method: str, *arguments: Any, limit: Limit) -> Any:
        """What the method returns. Blocks; raises what it raised, `ActorLost` or `CallTimedOut`."""
        return waited(self, method, self.begin(method, *arguments), limit)

    def begin(self, method: str, *arguments: Any) -> Any:
        """Start a call; its reference is for `waited`."""
        try:
            return getattr(self.handle, method).remote(*arguments)
        except _ray().exceptions.RayActorError as error:
            raise ActorLost(self.name, _reason(error)) from None

    async def call(self, method: str, *arguments: Any, limit: Limit) -> Any:
        """As `wait`, on an event loop. Cancelling it cancels the call in an asynchronous actor."""
        reference = self.begin(method, *arguments)
        future = asyncio.wrap_future(reference.future())
        try:
            async with asyncio.timeout(limit.seconds):
                return await future
        except TimeoutError:
            _cancel(reference)
            raise CallTimedOut(self.name, method, limit.name, limit.seconds) from None
        except asyncio.CancelledError:
            _cancel(reference)
            raise
        except Exception as error:
            raise translated(self.name, error) from None


def waited(actor: Actor, method: str, reference: Any, limit: Limit) -> Any:
    """The result of a call that was begun: the only place that blocks on Ray."""
    try:
        return _ray().get(reference, timeout=limit.seconds)
    except _ray().exceptions.GetTimeoutError:
        raise CallTimedOut(actor.name, method, limit.name, limit.seconds) from None
    except Exception as error:
        raise translated(actor.name, error) from None


PATIENCE_S = 5.0
"""For the others to say why they failed, once one of several has: the cause is seldom what is noticed first."""


def gathered(actors: Sequence[Actor], method: str, references: Sequence[Any], limit: Limit) -> list[Any]:
    """The results of the same call to several actors, in their order. Of several failures that of an actor that is gone
    is raised, since the others follow from it."""
    ray = _ray()
    ends = time.monotonic() + limit.seconds
    results: dict[int, Any] = {}
    failures: list[BaseException] = []
    waiting = {reference: number for number, reference in enumerate(references)}
    while waiting and (left := ends - time.monotonic()) > 0:
        for reference in ray.wait(list(waiting), num_returns=1, timeout=left, fetch_local=True)[0]:
            number = waiting.pop(reference)
            try:
                results[number] = waited(actors[number], method, reference, Limit(limit.name, 60.0))
            except Exception as error:
                if not failures:
                    ends = min(ends, time.monotonic() + PATIENCE_S)
                failures.append(error)
    if failures:
        raise next((error for error in failures if isinstance(error, ActorLost)), failures[0])
    if waiting:
        late = ", ".join(actors[number].name for number in sorted(waiting.values()))
        raise CallTimedOut(late, method, limit.name, limit.seconds)
    return [results[number] for number in range(len(references))]


def translated(actor: str, error: Exception) -> BaseException:
    """An exception of Ray's as ours; one that the method raised as it was raised there."""
    errors = _ray().exceptions
    if isinstance(error, errors.RayTaskError):
        cause = getattr(error, "cause", None)
        return cause if isinstance(cause, BaseException) else RuntimeError(f"{actor}: {error}")
    if isinstance(error, errors.TaskCancelledError):
        return ActorLost(actor, "its call was cancelled")
    if isinstance(error, errors.RayError):
        return ActorLost(actor, _reason(error))
    return error


def _reason(error: Exception) -> str:
    """The telling line of Ray's long messages."""
    text = str(error)
    for telling in ("out of memory", "OOM", "node has died", "node died", "Worker unexpectedly exits", "Segmentation"):
        for line in text.splitlines():
            if telling.lower() in line.lower():
                return _cut(line.strip())
    return _cut((text.strip().splitlines() or [type(error).__name__])[0])


def _cut(line: str) -> str:
    """Whole sentences of it, where there are some."""
    return line if len(line) <= _LONGEST else line[:_LONGEST].rpartition(". ")[0] or f"{line[:_LONGEST]}..."


def _cancel(reference: Any) -> None:
    with contextlib.suppress(Exception):
        _ray().cancel(reference, recursive=False)


def _keep_off_stdout() -> None:
    """Ray prints what its nodes report, such as a killed actor, on the driver's standard output, which is the
    command's; here it goes to the log. Ray has no setting for it (2.60)."""

    def logged(data: Mapping[str, Any], **_: Any) -> None:
        for line in data["lines"]:
            logging.getLogger("metaagent").info("Ray: %s", line)

    importlib.import_module("ray._private.worker").print_to_stdstream = logged  # pyright: ignore[reportAttributeAccessIssue]


def _ray() -> Any:
    return importlib.import_module("ray")


class Session:
    """Ray for one run. Use `opened`."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self._groups: list[Any] = []
        self._leaving = threading.Event()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Session]:
        await asyncio.to_thread(self._connect)
        try:
            yield self
        finally:
            await asyncio.to_thread(self._close)

    def _connect(self) -> None:
        address = self.config.address
        patience = {"RAY_raylet_start_wait_time_s": f"{self.config.start_timeout_s:.0f}"}
        if address != "local" and TOKEN_FILE.expanduser().is_file():
            patience["RAY_AUTH_MODE"] = "token"
        for name, value in (QUIET | patience).items():  # Ray reads some of it when it is imported
            os.environ.setdefault(name, value)
        try:
            ray = _ray()
        except ModuleNotFoundError:
            raise ClusterError('ray is not installed. Fix: pip install "metaagent[cluster]"') from None
        if ray.is_initialized():
            raise ClusterError("this process is attached to a Ray already. Fix: one run per process")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "namespace": "metaagent"}
        if address == "local":
            options |= {
                "address": "local",
                "include_dashboard": False,
                "_node_ip_address": "127.0.0.1",
            }
        else:
            options["address"] = address
        raised: list[BaseException] = []
        connected = threading.Event()

        def hold() -> None:
            """Attach, and stay: what Ray starts here dies with the thread that started it."""
            try:
                _keep_off_stdout()
                ray.init(**options)
            except BaseException as error:
                raised.append(error)
            connected.set()
            if not raised:
                self._leaving.wait()
                ray.shutdown()

        self._holder = threading.Thread(target=hold, daemon=True, name="ray")
        self._holder.start()
        if not connected.wait(self.config.start_timeout_s):
            looked = "its logs (/tmp/ray/session_latest/logs)" if address == "local" else "`ray status` there"
            raise ClusterError(
                f"Ray at {address!r} did not answer within cluster.start_timeout_s={self.config.start_timeout_s:g}. "
                f"Fix: see {looked}, or raise it"
            )
        if raised:
            said = str(raised[0]).strip().partition("\n")[0]
            raise ClusterError(
                f"no Ray at cluster.address={address!r}: {type(raised[0]).__name__}: {said}. Fix: start one with "
                "`ray start --head`, name its HOST:PORT, share its token file, or use local"
            )

    def _close(self) -> None:
        for group in self._groups:
            self.release(group)
        self._leaving.set()
        self._holder.join(CLOSE_S)

    def nodes(self) -> list[Node]:
        """Nodes that are alive, the driver's first."""
        ray = _ray()
        here = ray.get_runtime_context().get_node_id()
        found = [each for each in ray.nodes() if each["Alive"]]
        return [
            Node(
                id=each["NodeID"],
                address=each["NodeManagerAddress"],
                cpus=each["Resources"].get("CPU", 0.0),
                gpus=int(each["Resources"].get("GPU", 0)),
                memory_bytes=int(each["Resources"].get("memory", 0)),
            )
            for each in sorted(found, key=lambda each: (each["NodeID"] != here, each["NodeManagerAddress"]))
        ]

    async def enough_nodes(self, gpus: int, told: Callable[[str], None]) -> list[Node]:
        """All nodes, once as many as the configuration says have `gpus` GPUs each. They are waited for, unless this
        session has started Ray: then none can join."""
        wanted, said = self.config.nodes, ""
        ends = time.monotonic() + (0 if self.config.address == "local" else self.config.start_timeout_s)
        while (fit := sum(node.gpus >= gpus for node in self.nodes())) < wanted:
            there = f"{fit} of cluster.nodes={wanted} nodes" + (f" with {gpus} GPUs" if gpus else "")
            if time.monotonic() > ends:
                if len(self.nodes()) >= wanted or self.config.address == "local":
                    break  # the layout knows what would do with these
                raise ClusterError(
                    f"{there} were there within cluster.start_timeout_s={self.config.start_timeout_s:g}. "
                    "Fix: `ray start --address HEAD:PORT` on the others, or lower cluster.nodes"
                )
            if said != there:
                told(f"waiting for nodes: {there} are there")
                said = there
            await asyncio.sleep(POLL_S)
        return self.nodes()

    async def reserve(self, bundles: Sequence[Bundle]) -> Any:
        """Room for each bundle on its node, as one placement group. Raises `ClusterError` where there is none in
        time."""
        util = importlib.import_module("ray.util")
        group = util.placement_group(
            [bundle.resources for bundle in bundles],
            strategy="PACK",
            bundle_label_selector=[{"ray.io/node-id": bundle.node} for bundle in bundles],
        )
        self._groups.append(group)
        ends = time.monotonic() + self.config.start_timeout_s
        while not await asyncio.to_thread(group.wait, 1):
            if time.monotonic() > ends:
                self.release(group)
                wanted = "; ".join(f"{bundle.resources} on {bundle.node[:8]}" for bundle in bundles)
                raise ClusterError(
                    f"there was no room for {wanted} within cluster.start_timeout_s={self.config.start_timeout_s:g}. "
                    "Fix: see what else uses the nodes (`ray status`)"
                )
        return group

    def release(self, group: Any) -> None:
        """Give room back; what still sits in it is killed."""
        with contextlib.suppress(Exception):
            importlib.import_module("ray.util").remove_placement_group(group)

    def start(
        self,
        kind: type,
        name: str,
        *arguments: Any,
        group: Any,
        bundle: int,
        cpus: float,
        gpus: float = 0.0,
        environment: Mapping[str, str] | None = None,
        concurrency: int = 4,
    ) -> Actor:
        """A new actor of a plain class. It may not be up yet: ask it for something with a limit."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        strategy = strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)
        threads = str(max(1, int(cpus)))
        handle = (
            _ray()
            .remote(kind)
            .options(
                num_cpus=cpus,
                num_gpus=gpus,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=concurrency,
                scheduling_strategy=strategy,
                runtime_env={"env_vars": {"OMP_NUM_THREADS": threads, **QUIET, **(environment or {})}},
            )
            .remote(*arguments)
        )
        return Actor(name, handle)

    def kill(self, actors: Sequence[Actor]) -> None:
        """Tell Ray to end actors; that their processes are gone is for a `NodeKeeper` to see."""
        for actor in actors:
            with contextlib.suppress(Exception):
                _ray().kill(actor.handle, no_restart=True)


def put(value: Any) -> Any:
    """A reference into the object store of this node."""
    return _ray().put(value)
