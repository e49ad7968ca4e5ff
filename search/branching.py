"""Where runs part: positions of one program, and the ways on from them.

A *decision* is one agent's call that has no reply yet. Any number of replies can be taken for it, and the run goes on
with each. A run that waits at a decision may be dropped at any time and made anew by replay, so that how many are open
at once changes no position. Which decision comes next, and which reply is the better one, is somebody else's business.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, replace

from engine.guarded import completed_within
from engine.protocol import Engine
from engine.session import Run
from search.held import HeldRun
from search.paths import Path
from search.programs import Program
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed, Failure, LimitExceeded, raise_infrastructure


@dataclass(frozen=True, slots=True)
class Decision:
    """A run that waits for a reply of one agent."""

    path: Path
    request: CompletionRequest
    differences: tuple[str, ...] = ()
    """Where code that was run again, so that its files are there, did something else than is recorded."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that is over."""

    path: Path
    run: Run
    differences: tuple[str, ...] = ()


Position = Decision | Ended


def candidate_seed(seed: int, decision: Decision, number: int) -> int:
    """Of a candidate for a decision's reply: from the run's seed, the call's key, the replies so far and its number."""
    said = repr((seed, decision.request.key, decision.path.digest, number))
    return int.from_bytes(hashlib.blake2b(said.encode(), digest_size=4).digest()) & 0x7FFFFFFF


class OpenRuns:
    """At most `most` runs at once, of all branchings that share it; those that are held the longest make room."""

    def __init__(self, most: int = 64) -> None:
        if most < 1:
            raise ValueError(f"most={most}: at least one run must be open")
        self.most = most
        self._permits = asyncio.Semaphore(most)
        self._waiting = 0
        self._held: dict[tuple[Branching, str], HeldRun] = {}
        """By the digest of the path to where they wait."""

    @property
    def has_room(self) -> bool:
        """Whether another run may be open, and nobody waits for that."""
        return not self._permits.locked() and not self._waiting

    async def enter(self) -> None:
        """Before a run is begun."""
        if self._permits.locked() and self._held:
            await self.drop(next(iter(self._held)))
        self._waiting += 1
        try:
            await self._permits.acquire()
        finally:
            self._waiting -= 1

    async def leave(self, run: HeldRun | None) -> None:
        """After a run that is not held, which is to end, or has."""
        try:
            if run is not None:
                await run.drop()
        finally:
            self._permits.release()

    async def hold(self, branching: Branching, run: HeldRun) -> None:
        """Keep a run that waits, unless others need its place, or another one waits there."""
        place = branching, run.path.digest
        if self._waiting or place in self._held:
            await self.leave(run)
        else:
            self._held[place] = run

    def take(self, branching: Branching, path: Path) -> HeldRun | None:
        """The run that waits at the end of a path, if there is one; it is not held any more."""
        return self._held.pop((branching, path.digest), None)

    async def drop(self, place: tuple[Branching, str]) -> None:
        if run := self._held.pop(place, None):
            await self.leave(run)

    async def drop_all(self, branching: Branching) -> None:
        for place in [place for place in self._held if place[0] is branching]:
            await self.drop(place)


class Branching:
    """Positions of one program. Safe to be asked from many tasks of one event loop at once."""

    def __init__(
        self, program: Program, *, engine: str = "search", open_runs: OpenRuns | None = None, spares: bool = False
    ) -> None:
        """`engine` is the name that Traces have for where replies come from. With `spares` another run is taken to each
        decision that one goes on from, while there is room: the next reply there need not wait for it."""
        self.program = program
        self._engine = engine
        self._open = open_runs or OpenRuns()
        self._spares: set[asyncio.Task[None]] | None = set() if spares else None
        if program.at_once is not None and self._open.most > program.at_once:
            raise ValueError(
                f"{self._open.most} runs may be open, and the sandbox has {program.at_once} jails: runs would wait for "
                "jails that held runs have. Fix: a sandbox with more (max_jails), or fewer open runs"
            )

    async def start(self) -> Position:
        """Where the program asks for the first time."""
        return await self.at(Path(program=self.program.digest))

    async def at(self, path: Path) -> Position:
        """Where the replies of a path lead. Raises `EngineFailed` where they do not fit the program, and what ends runs
        for infrastructure."""
        if path.program != self.program.digest:
            reason = f"the path was recorded with another program, question or seed ({path.program}, this is "
            raise EngineFailed(self._engine, f"{reason}{self.program.digest}). Fix: begin the search anew")
        await self._open.enter()
        return await self._forward(HeldRun(self.program, path, self._engine))

    async def go_on(self, decision: Decision, reply: Completion | Failure) -> Position:
        """Where the run comes with this reply. Raises what `at` raises."""
        run = self._open.take(self, decision.path)
        if run is not None and not run.is_alive:  # its jail has died
            await self._open.leave(run)
            run = None
        if run is None:
            await self._open.enter()
            run = HeldRun(self.program, decision.path, self._engine)
            try:
                if await run.forward() is None:
                    run.ends_before(decision.request, reply)
            except BaseException:
                await self._open.leave(run)
                raise
        if run.is_alive:
            run.decide(decision.request, reply)
        if self._spares is not None and self._open.has_room:
            task = asyncio.create_task(self._spare(decision))
            self._spares.add(task)
            task.add_done_callback(self._spares.discard)
        return await self._forward(run)

    async def _spare(self, decision: Decision) -> None:
        """Hold a run at a decision. One that does not come there is dropped: whoever goes there next is told why."""
        await self._open.enter()
        run = HeldRun(self.program, decision.path, self._engine)
        try:
            arrived = await run.forward() is not None
        except EngineFailed:
            arrived = False
        except BaseException:
            await self._open.leave(run)
            raise
        await (self._open.hold(self, run) if arrived else self._open.leave(run))

    async def candidate(self, decision: Decision, engine: Engine, number: int) -> Completion | Failure:
        """The reply with this number, from 0, to a decision; several are best asked for together. A `Failure` is a call
        that goes past a limit itself; `go_on` takes it, too. Raises `EngineFailed`; no reply is made up."""
        sampling = decision.request.sampling.with_seed(candidate_seed(self.program.seed, decision, number))
        try:
            return await completed_within(engine, replace(decision.request, sampling=sampling), self.program.reply_s)
        except LimitExceeded as error:
            return error.record()

    async def close(self) -> None:
        """Drop all runs that are held."""
        spares = list(self._spares or ())
        for task in spares:
            task.cancel()
        await asyncio.gather(*spares, return_exceptions=True)
        await self._open.drop_all(self)

    async def _forward(self, run: HeldRun) -> Position:
        """To the next decision, where the run is held, or to its end."""
        try:
            request = await run.forward()
            ended = run.result() if request is None else None
            if ended is not None:
                raise_infrastructure(ended.failure)
        except BaseException:
            await self._open.leave(run)
            raise
        path, differences = run.path, tuple(run.differences)
        if request is not None:
            await self._open.hold(self, run)
            return Decision(path, request, differences)
        await self._open.leave(None)
        assert ended is not None
        return Ended(path, ended, differences)
