"""The runtime of a cluster: ranks, engines and run workers in Ray's actors, for the same loop as one process has.

    driver    the loop, credit, samples; placement, watching, replacing
    ranks     one backend per policy (`trainer.cluster.ranks`)
    engines   one pool per policy; run workers ask them directly (`trainer.cluster.engine_pool`)
    workers   grow the trees (`trainer.cluster.run_pool`)

Not here: who sits where (`trainer.cluster.assembly`), how weights reach engines (`trainer.cluster.sync`), and what is
noticed between the steps (`trainer.cluster.watching`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from sandbox.named import named_sandbox
from tasks.problems import Problem
from trainer.cluster.assembly import Assembly, Cast
from trainer.cluster.losses import FENCE, Limits, Restarts, is_loss
from trainer.cluster.ray_session import Actor, ActorLost, CallTimedOut, ClusterError, Session
from trainer.cluster.run_pool import RunPool
from trainer.cluster.sync import SyncFailed, sync
from trainer.cluster.turns import asleep, take_turns, to_both, to_ranks
from trainer.cluster.watching import POLL_S, Watching
from trainer.config import TrainConfig
from trainer.credit import RewardFunction, paper_reward
from trainer.disk import Written
from trainer.run import PROBE_TOKENS, Lesson, Phase, StepsLost, SyncReport, Watch, check_program, write_each
from trainer.trees import QuestionTree
from trainer.update import Snapshot, UpdateReport

Result = TypeVar("Result")


class ClusterRuntime:
    """See `trainer.run.Runtime`. `reward` is Eq. 10 unless given; it is sent to the run workers."""

    def __init__(self, config: TrainConfig, *, reward: RewardFunction | None = None) -> None:
        self.config = config
        self._limits = Limits.of(config.cluster)
        self._reward = reward or partial(paper_reward, format_weight=config.format_weight)
        self._restarts = Restarts(config.cluster.restarts_per_hour)
        self._asked_at = time.monotonic()

    def check(self) -> None:
        if self.config.cluster.layout == "one-process":
            raise ValueError('cluster.layout = "one-process" is not for a cluster. Fix: use the runtime of one process')
        needed = {"ray", "torch", "transformers"}
        for policy in self.config.policies.values():
            needed |= {"deepspeed"} if policy.update.backend == "deepspeed" else set()
            needed |= {"vllm"} if policy.engine.kind == "vllm" else set()
        missing = sorted(name for name in needed if importlib.util.find_spec(name) is None)
        if missing:
            extras = '"metaagent[cluster]"' + (' "metaagent[vllm]"' if "vllm" in missing else "")
            raise ClusterError(f"{', '.join(missing)} not installed. Fix: pip install {extras} on every node")

    @asynccontextmanager
    async def opened(self, watch: Watch, out: Path) -> AsyncIterator[None]:
        self._watch, self._out = watch, out.absolute()
        async with named_sandbox(self.config.rollout.sandbox, ("designer.check",)) as sandbox:
            await check_program(self.config, sandbox)
        async with Session(self.config.cluster).opened() as self._session:
            try:
                await self._assemble()
                yield
            finally:
                await self._dissolve()

    async def _assemble(self) -> None:
        def told(doing: str, lines: Sequence[str]) -> None:
            self._watch(Phase(0, doing, lines=lines))

        self._assembly = Assembly(self.config, self._limits, self._reward, self._out, told)
        await self._assembly.make(self._session)

        async def worker_lost(number: int, actor: object, error: Exception) -> None:
            await self._watching.worker_lost(number, actor, error)  # pyright: ignore[reportArgumentType]

        self._runs = RunPool(self._assembly.units, self._assembly.unit_limit, worker_lost)
        self._watching = Watching(
            self._assembly,
            self._runs,
            self._restarts,
            self._catch_up,
        )
        for number, seat in enumerate(self._assembly.workers):
            await self._runs.put(number, seat.here)
        self._watching.begin(self._assembly.seats.seated)

    async def _dissolve(self) -> None:
        if hasattr(self, "_watching"):
            await self._watching.end()
        if hasattr(self, "_assembly"):
            await self._assembly.clear()

    async def recover(self, lost: StepsLost) -> None:
        """New ranks, with the weights of the start; everything new where a node is gone."""
        self._restarts.count(str(lost))
        assembly = self._assembly
        if not self._a_node_is_gone():
            try:
                await asyncio.gather(*(assembly.seats.fence(seat) for seat in assembly.ranks))
                for cast in assembly.casts.values():
                    if take_turns(self.config, cast.name):  # new ranks need the memory
                        await asleep(list(cast.up.values()), self._limits.call)
                await assembly.start_ranks()
            except Exception as error:
                raise _meaning("making ranks anew", error) from error
            self._watching.forget_losses()  # whoever asked the old ranks meanwhile
            self._watching.begin(assembly.ranks)
        if self._a_node_is_gone():
            await self._dissolve()
            await self._assemble()

    def _a_node_is_gone(self) -> bool:
        seats = self._assembly.seats
        return any(seats.node_is_gone(seat) for seat in seats.seated)

    # The parts of a step

    async def load(self, folder: Path) -> None:
        for cast in self._assembly.casts.values():
            async with cast.using:
                await self._in_ranks(cast, "loading", partial(cast.backend.load, folder.absolute() / cast.name))
                cast.ahead = True

    async def rollout(self, problems: Sequence[Problem], seed: int, folder: Path) -> list[QuestionTree]:
        return await self._watching.until_doom(self._runs.rollout(problems, seed, folder.absolute(), self._watch))

    async def update(self, lessons: Mapping[str, Lesson]) -> dict[str, UpdateReport]:
        """Policies learn at the same time, each in its ranks."""

        async def one(cast: Cast, lesson: Lesson) -> UpdateReport:
            def work() -> UpdateReport:
                cast.backend.learning_rate = lesson.learning_rate
                return cast.backend.update(lesson.samples, lesson.objective)

            async with cast.using:
                report = await self._in_ranks(cast, "an update", work)
                cast.ahead = cast.ahead or report.steps > 0
                if take_turns(self.config, cast.name) and not report.steps:  # the engines have dropped what they had
                    await self._to_engines(cast, cast.version)
                return report

        casts = self._assembly.casts
        reports = await _each_done([one(casts[name], lesson) for name, lesson in lessons.items()])
        return dict(zip(lessons, reports, strict=True))

    async def sync(self, versions: Mapping[str, int]) -> dict[str, SyncReport]:
        async def one(cast: Cast, version: int) -> SyncReport:
            async with cast.using:
                return await self._to_engines(cast, version)

        casts = self._assembly.casts
        reports = await _each_done([one(casts[name], version) for name, version in versions.items()])
        return dict(zip(versions, reports, strict=True))

    async def _to_engines(self, cast: Cast, version: int) -> SyncReport:
        """The transaction with all engines of a policy; where all are lost, with those that come in their place. The
        caller holds `cast.using`."""
        while True:
            await self._guarded(cast, "waiting for an engine", self._an_engine(cast))
            engines = cast.up
            try:
                return await self._transaction(cast, version, engines)
            except SyncFailed as error:
                lost = [self._is_lost(cast, number, engines[number], why) for number, why in error.failures.items()]
                if not all(lost):
                    raise

    async def _an_engine(self, cast: Cast) -> None:
        """Until one is up: those that are lost are being replaced, or that fails, which ends the run."""
        seconds = self._limits.start.seconds + 2 * FENCE.seconds
        try:
            async with asyncio.timeout(seconds):
                while not cast.up:
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ClusterError(
                f"no engine of {cast.name} was up again within {self._limits.start.name} + {2 * FENCE.seconds:g} = "
                f"{seconds:g} s. Fix: see Ray's logs on the nodes, or raise it; then --resume"
            ) from None

    async def _catch_up(self, cast: Cast, number: int) -> None:
        """See `Watching`. What is lost meanwhile is noticed by whoever waits for it."""
        async with cast.using:
            if number in cast.serving or number not in cast.up:
                return
            if cast.ahead:  # a sync follows, unless a rollout needs weights that the ranks no longer have
                if self.config.cluster.staleness and not cast.serving:
                    raise StepsLost(f"all engines of {cast.name} were lost, and its ranks have other weights now")
                return
            all_of_them = take_turns(self.config, cast.name)
            engines = cast.up if all_of_them else {number: cast.up[number]}
            try:
                await self._transaction(cast, cast.version, engines)
            except SyncFailed as error:  # where others serve, it is out until the next weights
                lost = [self._is_lost(cast, number, engines[number], why) for number, why in error.failures.items()]
                if not all(lost) and (all_of_them or not cast.serving):
                    raise

    async def _transaction(self, cast: Cast, version: int, engines: Mapping[int, Actor]) -> SyncReport:
        probe = await self._in_ranks(cast, "a probe", partial(cast.backend.probe, list(range(PROBE_TOKENS))))
        if take_turns(self.config, cast.name):
            await self._guarded(cast, "a sync", to_both(cast.backend, list(engines.values()), self._limits.call))
        work = sync(cast.name, version, engines, cast.transport, probe, self._limits)
        report, serving, failed = await self._guarded(cast, "a sync", work)
        still = {number for number in serving if cast.engines[number].actor == engines[number]}
        cast.serving = still | (cast.serving - engines.keys())
        cast.version, cast.ahead = version, False
        await self._watching.tell_workers()
        for number, error in failed.items():
            self._is_lost(cast, number, engines[number], error)
        return report

    def _is_lost(self, cast: Cast, number: int, actor: Actor, error: Exception) -> bool:
        """Whether that engine is gone, and is to be replaced, or has been."""
        if isinstance(error, (ActorLost, CallTimedOut)):
            self._watching.engine_is_lost(cast, number, actor, error)
            return True
        return False

    async def snapshot(self) -> Callable[[Path], Iterable[Written]]:
        async def one(cast: Cast) -> Snapshot:
            async with cast.using:
                copy = await self._in_ranks(cast, "a snapshot", cast.backend.snapshot)
                if take_turns(self.config, cast.name) and not cast.ahead:  # the engines have dropped what they had
                    await self._to_engines(cast, cast.version)
                return copy

        casts = self._assembly.casts
        copies = dict(zip(casts, await _each_done([one(cast) for cast in casts.values()]), strict=True))

        def write(folder: Path) -> list[Written]:
            try:
                return write_each(copies, folder.absolute())
            except Exception as error:
                raise _meaning("saving", error) from error

        return write

    async def idle_s(self) -> dict[str, float]:
        now = time.monotonic()
        passed, self._asked_at = now - self._asked_at, now
        assembly = self._assembly
        pools = {"ranks": assembly.ranks, "engines": assembly.engines, "run_workers": assembly.workers}
        idle = {}
        for name, seats in pools.items():
            actors = [seat.actor for seat in seats if seat.actor is not None]
            calls = [actor.call("busy_s", limit=self._limits.heartbeat) for actor in actors]
            busy = [each for each in await asyncio.gather(*calls, return_exceptions=True) if isinstance(each, float)]
            if busy:
                idle[name] = round(max(0.0, passed - sum(busy) / len(busy)), 3)
        return idle

    async def _in_ranks(self, cast: Cast, doing: str, work: Callable[[], Result]) -> Result:
        """What blocking work with a policy's ranks, whose turn it is then, returns. The caller holds `cast.using`."""
        if take_turns(self.config, cast.name):
            await self._guarded(cast, "taking turns", to_ranks(cast.backend, list(cast.up.values()), self._limits.call))
        return await self._guarded(cast, doing, asyncio.to_thread(work))

    async def _guarded(self, cast: Cast, doing: str, work: Awaitable[Result]) -> Result:
        try:
            return await self._watching.until_doom(work)
        except Exception as error:
            raise _meaning(f"{doing} of {cast.name}", error) from error


def _meaning(doing: str, error: Exception) -> Exception:
    """What an exception means for the run: `StepsLost` where a process is gone."""
    return StepsLost(f"in {doing}: {error}") if is_loss(error) else error


async def _each_done(work: Sequence) -> list:
    """What each returns, when all have ended. Of several failures `StepsLost` goes first."""
    results = await asyncio.gather(*work, return_exceptions=True)
    failures = [each for each in results if isinstance(each, BaseException)]
    if failures:
        raise next((each for each in failures if isinstance(each, StepsLost)), failures[0])
    return list(results)
