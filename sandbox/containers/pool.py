"""Chooses, starts and removes containers: warm ones that are shared, or one-shot ones that are ready beforehand.

At most `max_containers` exist at any time, those that start or go included. A container that was spoiled (a run timed
out in it, it was out of memory, it broke the protocol) gets no new work and is removed when its runs have ended. What
happens inside is for `sandbox.containers.container`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from sandbox.containers.container import Connection
from sandbox.jail import Kind
from workflow.failures import SandboxUnavailable

KINDS: tuple[Kind, ...] = ("program", "code", "call")
BUSY, CROWDED = 4, 12
"""Jails in every container of a kind from which on another one is started ahead of need: while there are cores for it,
and after that, so that they do not share too little memory."""


@dataclass(eq=False)
class Container:
    """One container and how many hold it; `remove` makes it go away for sure."""

    connection: Connection
    remove: Callable[[], Awaitable[None]]
    held: int = 0
    used: bool = False


class Pool:
    def __init__(
        self,
        start: Callable[[Kind, Callable[[Connection], None]], Awaitable[Container]],
        *,
        max_containers: int,
        jails_each: int,
        spares: int | None,
    ) -> None:
        """`start(kind, on_lost)` brings up one container. `spares` makes them one-shot: so many are kept ready.

        `self.enough` is how many of a kind use all cores; whoever knows sets it. More only come for a crowd: containers
        that fight for cores stop each other for tenths of a second.
        """
        if max_containers < len(KINDS):
            raise ValueError(f"max_containers={max_containers} is below {len(KINDS)}: each kind of work needs one")
        self._start = start
        self._max, self._each, self._spares = max_containers, jails_each, spares
        self.enough = max_containers
        self._containers: dict[Kind, list[Container]] = {kind: [] for kind in KINDS}
        self._starting: dict[Kind, int] = dict.fromkeys(KINDS, 0)
        self._waiting: dict[Kind, deque[asyncio.Future[Container]]] = {kind: deque() for kind in KINDS}
        self._removing = 0
        self._unremoved: list[Container] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def counts(self, kind: Kind | None = None) -> int:
        """Containers that exist, of a kind or in all."""
        kinds = KINDS if kind is None else (kind,)
        return sum(len(self._containers[k]) + self._starting[k] for k in kinds) + (0 if kind else self._removing)

    @property
    def containers(self) -> list[Container]:
        return [container for kind in KINDS for container in self._containers[kind]]

    async def acquire(self, kind: Kind) -> Container:
        """A container with room for one more; waits for one if need be. To be given back with `release`."""
        container = None if self._waiting[kind] else self._pick(kind)
        if container is None:
            place: asyncio.Future[Container] = asyncio.get_running_loop().create_future()
            self._waiting[kind].append(place)
            self._grow(kind)
            try:
                return await place
            except asyncio.CancelledError:
                if place.done() and not place.cancelled() and place.exception() is None:
                    self.release(place.result())
                raise
            finally:
                with suppress(ValueError):
                    self._waiting[kind].remove(place)
        self._grow(kind)
        return container

    def release(self, container: Container) -> None:
        container.held -= 1
        if self._spares is not None:
            container.connection.spoil("it has been used")
        self._look_after(container)

    def _pick(self, kind: Kind) -> Container | None:
        """The least busy container that takes one more; it is held from now on."""
        best: Container | None = None
        for container in self._containers[kind]:
            room = not container.used if self._spares is not None else container.held < self._each
            if room and not container.connection.spoiled and (best is None or container.held < best.held):
                best = container
        if best is not None:
            best.held += 1
            best.used = True
        return best

    def _grow(self, kind: Kind) -> None:
        """Start what is needed now, or soon, as far as the cap allows."""
        waiting, starting = len(self._waiting[kind]), self._starting[kind]
        usable = [one for one in self._containers[kind] if not one.connection.spoiled]
        if self._spares is not None:
            wanted = waiting + self._spares - starting - sum(not one.used for one in usable)
        else:
            many = BUSY if len(usable) < self.enough else CROWDED
            wanted = 0 if starting else int(waiting > 0 or all(one.held >= many for one in usable))
        while wanted > 0 and self._may_start(kind):
            wanted -= 1
            self._starting[kind] += 1
            self._run(self._bring_up(kind))

    def _may_start(self, kind: Kind) -> bool:
        """Under the cap, with a place left for each other kind, and for the code that programs wait for."""
        if self._closed:
            return False
        missing = sum(1 for other in KINDS if other != kind and not self.counts(other))
        if kind == "program" and self._spares is not None and self.counts(kind) >= max(1, self._max // 2):
            return False
        return self.counts() + 1 + missing <= self._max

    async def _bring_up(self, kind: Kind) -> None:
        container: Container | None = None
        failure = SandboxUnavailable("")
        try:
            container = await self._start(kind, self._lost)
        except SandboxUnavailable as error:
            failure = error
        except Exception as error:
            failure = SandboxUnavailable(f"a container could not be started: {type(error).__name__}: {error}")
        finally:
            self._starting[kind] -= 1
        if container is not None:
            self._containers[kind].append(container)
            self._look_after(container)
        elif not self._containers[kind]:  # nobody else will serve them
            for place in self._waiting[kind]:
                if not place.done():
                    place.set_exception(failure)

    def _serve(self, kind: Kind) -> None:
        """Give room to those who wait, and start more if that is not enough."""
        waiting = self._waiting[kind]
        while waiting:
            if waiting[0].done():
                waiting.popleft()
                continue
            container = self._pick(kind)
            if container is None:
                break
            waiting.popleft().set_result(container)
        if waiting:
            self._grow(kind)

    def _lost(self, connection: Connection) -> None:
        connection.spoil(connection.lost or "")
        for container in self._containers[connection.kind]:
            if container.connection is connection:
                self._look_after(container)
                return

    def _look_after(self, container: Container) -> None:
        """After a change: remove it if it is spoiled and free, or lost; else it may serve whoever waits."""
        kind = container.connection.kind
        over = container.connection.lost is not None or (container.connection.spoiled and not container.held)
        if (over or self._closed) and container in self._containers[kind]:
            self._containers[kind].remove(container)
            self._removing += 1
            self._run(self._take_down(container))
        if not self._closed:
            self._serve(kind)

    async def _take_down(self, container: Container) -> None:
        container.connection.close()
        try:
            await container.remove()
        except Exception:  # of a daemon that is down
            self._unremoved.append(container)
        self._removing -= 1
        for kind in KINDS:  # one more may start now
            if not self._closed and (self._waiting[kind] or (self._spares and self.counts(kind))):
                self._grow(kind)

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Remove every container, those that are being started included."""
        self._closed = True
        for places in self._waiting.values():
            for place in places:
                if not place.done():
                    place.set_exception(SandboxUnavailable("the sandbox is closed", "build another one"))
        for container in self.containers:
            self._look_after(container)
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        # What the daemon does not remove now either is left for `metaagent doctor --clean`.
        again, self._unremoved = self._unremoved, []
        await asyncio.gather(*(container.remove() for container in again), return_exceptions=True)
