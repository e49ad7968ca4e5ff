"""Signs of life, and what follows when one does not come: engines and run workers are replaced while the run goes on;
where a rank or a node is lost, the steps since the newest checkpoint are.

What strikes while nobody waits is kept as the run's *doom*, which ends whatever is awaited next. Not here: how a
process is ended for good and started anew (`trainer.cluster.seats`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from trainer.cluster.assembly import Cast
from trainer.cluster.engine_pool import PoolTable
from trainer.cluster.losses import Limits, Restarts
from trainer.cluster.ray_session import Actor, ActorLost, CallTimedOut, Limit, NotStarted
from trainer.cluster.run_pool import RunPool
from trainer.cluster.seats import Seat, Seats
from trainer.run import StepsLost

Result = TypeVar("Result")
POLL_S = 0.05


class Watched(Protocol):
    """What is watched over: `trainer.cluster.assembly.Assembly`, or what trains nothing (`trainer.cluster.spread`)."""

    limits: Limits
    casts: dict[str, Cast]
    workers: list[Seat]
    seats: Seats

    @property
    def tables(self) -> dict[str, PoolTable]: ...


class Watching:
    """Over all seats of an assembly. `catch_up` gives one engine of a policy, which came later, the weights that serve
    now, or leaves it to wait for the next ones."""

    def __init__(
        self,
        assembly: Watched,
        runs: RunPool,
        restarts: Restarts,
        catch_up: Callable[[Cast, int], Awaitable[Any]],
    ) -> None:
        self._assembly, self._runs, self._restarts, self._catch_up = assembly, runs, restarts, catch_up
        self._tasks: set[asyncio.Task[None]] = set()
        self._doom: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def forget_losses(self) -> None:
        """Of steps, once what was lost is made anew. What ends the run is kept."""
        if self._doom.done() and isinstance(self._doom.exception(), StepsLost):
            self._doom = asyncio.get_running_loop().create_future()

    def begin(self, seats: Sequence[Seat]) -> None:
        """Watch over these."""
        for seat in seats:
            self._in_background(self._over(seat))

    async def end(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def until_doom(self, work: Awaitable[Result]) -> Result:
        """What work returns, unless something strikes meanwhile."""
        task, doom = asyncio.ensure_future(work), self._doom
        try:
            await asyncio.wait({task, doom}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                doom.result()
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=POLL_S)

    def _strike(self, error: BaseException) -> None:
        if not self._doom.done():
            self._doom.set_exception(error)
            self._doom.exception()  # it may be that nobody asks

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._strike(error)

        task.add_done_callback(ended)

    async def _over(self, seat: Seat) -> None:
        """Ask for signs of life until there is none."""
        actor, limit = seat.here, self._assembly.limits.heartbeat
        method, arguments = ("alive", (limit.seconds,)) if seat.process.kind == "engine" else ("identity", ())
        while seat.actor == actor:
            await asyncio.sleep(limit.seconds)
            if seat.actor != actor:
                return
            try:
                found = await actor.call(method, *arguments, limit=Limit(f"2 x {limit.name}", 2 * limit.seconds))
            except Exception as error:
                if seat.actor == actor:
                    await self._noticed(seat, actor, error)
                return
            if found is not None and seat.actor == actor:
                seat.identity = found

    async def _noticed(self, seat: Seat, actor: Actor, error: Exception) -> None:
        if seat.process.kind == "keeper":
            await self._check_node(seat)
            await self._anew(seat, error)
            self._in_background(self._over(seat))
        elif seat.process.kind == "engine":
            await self.engine_lost(self._assembly.casts[seat.process.policy], seat, actor, error)
        elif seat.process.kind == "run_worker":
            await self.worker_lost(seat.process.number, actor, error)
        else:
            await self._check_node(seat)
            if seat.actor == actor:  # else it is known
                self._strike(StepsLost(str(error)))

    async def _check_node(self, seat: Seat) -> None:
        """Raise `StepsLost` where it is the whole node that is gone."""
        if await asyncio.to_thread(self._assembly.seats.node_is_gone, seat):
            raise StepsLost(f"node {seat.process.node[:8]} is gone, with {seat.name}")

    async def worker_lost(self, number: int, actor: Actor, error: Exception) -> None:
        """Replace a run worker; what it was at is done anew by whoever gave it."""
        if self._runs.remove(number, actor):
            self._in_background(self._replace_worker(self._assembly.workers[number], error))

    async def _replace_worker(self, seat: Seat, error: Exception) -> None:
        await self._check_node(seat)
        await self._anew(seat, error)
        await self._runs.put(seat.process.number, seat.here)
        await self.tell_workers()  # those that are in the pool, which learn of all that changes
        self._in_background(self._over(seat))

    async def _anew(self, seat: Seat, error: Exception) -> None:
        """Another one in its place. One that dies while it starts is replaced, too, as often as all may be."""
        while True:
            self._restarts.count(str(error))
            await self._assembly.seats.fence(seat)
            await self.tell_workers()
            try:
                await self._assembly.seats.up(seat)
                return
            except NotStarted as again:
                if not again.gone:
                    raise
                await self._check_node(seat)
                error = again

    def engine_is_lost(self, cast: Cast, number: int, actor: Actor, error: Exception) -> None:
        """Replace an engine, in the background. `actor` is who was lost: another one may be in its place by now."""
        seat = cast.engines[number]
        if seat.actor == actor:
            seat.is_up = False
            self._in_background(self.engine_lost(cast, seat, actor, error))

    async def engine_lost(self, cast: Cast, seat: Seat, actor: Actor, error: Exception) -> None:
        """Replace an engine."""
        number = cast.engines.index(seat)
        if seat.actor == actor:
            cast.serving.discard(number)
            await self._check_node(seat)
        if seat.actor != actor:  # somebody else has noticed
            return
        await self._anew(seat, error)
        self._in_background(self._over(seat))
        await self._catch_up(cast, number)

    async def tell_workers(self) -> None:
        """Who serves."""

        async def tell(actor: Actor) -> None:
            with contextlib.suppress(ActorLost, CallTimedOut):  # whoever gives it work learns of that
                await actor.call("engines", self._assembly.tables, limit=self._assembly.limits.heartbeat)

        await asyncio.gather(*map(tell, self._runs.workers.values()))
