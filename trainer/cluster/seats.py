"""The processes of a run, each in its place: started, watched over, fenced, and started anew.

A seat is a place of the layout with the actor that sits there now. Not here: what a loss means for the run
(`trainer.cluster.runtime`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.cluster.actors import NodeKeeper
from trainer.cluster.losses import FENCE, Limits
from trainer.cluster.places import Layout, Process
from trainer.cluster.processes import Identity
from trainer.cluster.ray_session import Actor, ActorLost, CallTimedOut, ClusterError, Limit, NotStarted, Session

POLL_S = 0.2


def threads_told(placed: Layout, process: Process) -> dict[str, str]:
    """How many threads a process computes with: its share of the node, unless this shell says otherwise. Ray gives one
    to whoever takes less than a CPU."""
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(placed.threads(process))}


def engine_environment(placed: Layout, process: Process) -> dict[str, str]:
    """Of an engine: on GPUs nothing. On CPUs vLLM would bind every engine of a node to the same cores, and has no way
    to bind one of several parts to a node with one memory; without binding they share."""
    if process.gpus:
        return {}
    binding = {"VLLM_CPU_OMP_THREADS_BIND": os.environ.get("VLLM_CPU_OMP_THREADS_BIND") or "nobind"}
    return {"CUDA_VISIBLE_DEVICES": "", **threads_told(placed, process), **binding}


async def all_done(work: Sequence[Coroutine[Any, Any, object]]) -> None:
    """All of it, side by side. Where one part fails the others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(eq=False)
class Seat:
    """A place, and who sits there."""

    process: Process
    name: str
    kind: type
    arguments: Sequence[Any] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    concurrency: int = 4
    first: str = "identity"
    """The method that says that the actor is up, and who it is."""
    actor: Actor | None = None
    identity: Identity | None = None
    is_up: bool = False
    """Whether it has said so."""

    @property
    def here(self) -> Actor:
        """The actor. Raises `ActorLost` while there is none."""
        if self.actor is None:
            raise ActorLost(self.name, "it is being replaced")
        return self.actor


class Seats:
    """All of a run's, in one placement group."""

    def __init__(self, session: Session, placed: Layout, limits: Limits) -> None:
        self.session, self.placed, self.limits = session, placed, limits
        self.seated: list[Seat] = []
        self._group: Any = None

    async def reserve(self) -> None:
        """Take the layout's room, with a keeper on every node."""
        self._group = await self.session.reserve(self.placed.bundles)
        for process in self.placed.of("keeper"):
            await self.up(Seat(process, f"the keeper of node {process.number}", NodeKeeper, concurrency=8))

    def keeper(self, node: str) -> Actor | None:
        for seat in self.seated:
            if seat.kind is NodeKeeper and seat.process.node == node:
                return seat.actor
        return None

    async def up(self, seat: Seat) -> None:
        """Start an actor there, and wait until it says that it is up."""
        process = seat.process
        assert process.bundle is not None
        actor = self.session.start(
            seat.kind,
            seat.name,
            *seat.arguments,
            group=self._group,
            bundle=process.bundle,
            cpus=process.cpus,
            gpus=process.gpus,
            environment=seat.environment,
            concurrency=seat.concurrency,
        )
        if seat not in self.seated:
            self.seated.append(seat)
        seat.actor = actor
        try:
            seat.identity = await actor.call("identity", limit=self.limits.start)
            if seat.first != "identity":
                seat.identity = await actor.call(seat.first, limit=self.limits.start)
            seat.is_up = True
        except BaseException as error:
            await self.fence(seat, closing=True)
            if isinstance(error, (ActorLost, CallTimedOut)):
                raise NotStarted(seat.name, error) from None
            raise

    async def all_up(self, seats: Sequence[Seat]) -> None:
        """The same for several: side by side on GPUs, and on CPUs as many at a time as there are, as each imports for
        seconds on one of them."""
        on_gpus = any(bundle.gpus for bundle in self.placed.bundles)
        cpus = int(sum(node.cpus for node in self.placed.nodes))
        turns = asyncio.Semaphore(len(seats) if on_gpus else max(1, cpus))

        async def up(seat: Seat) -> None:
            async with turns:
                await self.up(seat)

        await all_done([up(seat) for seat in seats])

    async def check_folder(self, out: Path) -> None:
        """That all nodes see the run's folder."""
        token, path = secrets.token_hex(8), out / f".seen-{os.getpid()}"
        path.write_text(token, encoding="utf-8")
        try:
            for seat in self.seated:
                if seat.kind is NodeKeeper:
                    wrong = await seat.here.call("sees", path, token, limit=self.limits.start)
                    if wrong:
                        raise ClusterError(
                            f"{seat.name} does not see --out {out}: {wrong}. Fix: a folder that all nodes share"
                        )
        finally:
            path.unlink(missing_ok=True)

    async def fence(self, seat: Seat, *, closing: bool = False) -> None:
        """See to it that whoever sits there is gone, with all that it would leave. Waits for another keeper, where its
        node's is gone. Raises `ClusterError` where something stays, unless all is `closing`."""
        actor, who = seat.actor, seat.identity
        seat.actor, seat.identity, seat.is_up = None, None, False
        if actor is None:
            return
        self.session.kill([actor])
        if who is None or seat.kind is NodeKeeper:
            return
        ends = time.monotonic() + (0 if closing else self.limits.start.seconds)
        while True:
            keeper = self.keeper(seat.process.node)
            left = "its node has no keeper"
            if keeper is not None:
                try:
                    left = await keeper.call("fence", who, FENCE.seconds, limit=Limit(FENCE.name, 2 * FENCE.seconds))
                    break
                except (ActorLost, CallTimedOut) as error:
                    left = str(error)
            if time.monotonic() > ends or self.node_is_gone(seat):
                break
            await asyncio.sleep(POLL_S)
        if left and not closing and not self.node_is_gone(seat):
            raise ClusterError(f"{seat.name} could not be ended: {left}. Fix: end it on its node, then --resume")

    async def clear(self) -> None:
        """Fence all, keepers last, and give the room back."""
        others = [seat for seat in self.seated if seat.kind is not NodeKeeper]

        async def close(actor: Actor) -> None:
            with contextlib.suppress(ActorLost, CallTimedOut):
                await actor.call("close", limit=FENCE)

        # Those that were told to start have something to close.
        await asyncio.gather(
            *(close(seat.actor) for seat in others if seat.actor is not None and seat.first == "start")
        )
        await asyncio.gather(*(self.fence(seat, closing=True) for seat in others))
        await asyncio.gather(*(self.fence(seat, closing=True) for seat in self.seated))
        self.seated.clear()
        if self._group is not None:
            self.session.release(self._group)
            self._group = None

    def node_is_gone(self, seat: Seat) -> bool:
        return seat.process.node not in {node.id for node in self.session.nodes()}
