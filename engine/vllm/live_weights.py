"""Which weights vLLM serves, and whether it may: new ones as one checked step, sleep and waking.

Requests pass a gate. A step shuts it and waits until they are out. It opens when the new weights are proven, or with an
error that every request gets until an update succeeds. What the workers do with the bytes is in
`engine.vllm.weight_loader` and `engine.vllm.weight_receiver`; requests are made in `engine.vllm.in_process`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.gate import Gate
from engine.protocol import Probe
from engine.vllm.weight_file import places, written
from workflow.failures import EngineFailed

MEMORY = ("kv_cache", "weights")
"""What sleeps, in vLLM's words."""
_PATIENCE_S = 5.0
"""How long vLLM may take to go on after a step that failed, and a worker to say that it waited too long."""


@dataclass
class _Coming:
    """Weights that come in, or are in and not proven."""

    version: int
    received: str = ""
    """Their fingerprint, once all have come."""


class _Wrong(Exception):
    """Why weights did not go in, in words for people."""


class LiveWeights:
    """All calls take vLLM's `AsyncLLM`, take turns, and raise `EngineFailed`, at the latest after `timeout_s`.

    `off_by` says what is wrong with the log-probabilities that vLLM now gives to a probe; empty if nothing is.
    """

    def __init__(self, name: str, timeout_s: float, off_by: Callable[[Any, Probe], Awaitable[str]]) -> None:
        self.version = 0
        self.is_paused = False
        """Whether vLLM makes no tokens, as it is updated, joins a group or sleeps."""
        self.pauses = 0
        self.places = places()
        """Where files of weights are, for the time of an update."""
        self._name = name
        self._timeout_s = timeout_s
        self._off_by = off_by
        self._broken = ""
        self._gate = Gate()
        self._is_shut = False
        self._asleep: set[str] = set()
        self._coming: _Coming | None = None
        self._turn = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def serving(self, check: Callable[[], None]) -> AsyncIterator[None]:
        """A request's stay inside the gate. `check` raises where the engine may not serve for reasons of its own."""
        async with self._gate.passing():
            check()
            if self._broken:
                raise EngineFailed(self._name, self._broken)
            yield

    def release(self) -> None:
        """Let those in who wait, to be told that the engine is closed."""
        self._gate.open()

    def check_awake(self, version: int, probe: Probe | None) -> None:
        """Weights cannot go in while theirs sleep, nor a probe be asked while its cache does."""
        needed = {"weights"} if probe is None else set(MEMORY)
        if asleep := sorted(self._asleep & needed):
            fix = f"wake() its {' and '.join(asleep)} first"
            raise EngineFailed(self._name, f"weights {version} did not go in: it sleeps. Fix: {fix}", 0)

    async def update(self, llm: Any, version: int, tensors: Mapping[str, Any], meant: str, probe: Probe | None) -> None:
        """The whole step, by a file that the workers read."""
        async with self._step(f"weights {version} did not go in"):
            self.check_awake(version, probe)
            await self._shut()
            async with self._going_in(llm, version):
                async with written(tensors, self.places) as path:
                    await self._pause(llm, version)
                    read = await tell(llm, "load_weights_from", path)
                await self._drop_caches(llm)
                await self._prove(llm, version, read, meant, probe)

    async def join(self, llm: Any, info: Mapping[str, Any], timeout_s: float, where: str) -> None:
        """Have the workers join a sender's group, and leave the one before. They compute nothing meanwhile."""
        late = f"it did not join {where} within timeout_s={timeout_s:g}"
        try:
            async with asyncio.timeout(timeout_s + _PATIENCE_S), self._turn:
                before = self.is_paused
                self._note_pause()
                try:
                    await tell(llm, "join_transfer", dict(info))
                finally:
                    self.is_paused = before
        except TimeoutError as error:
            raise EngineFailed(self._name, f"{late}. Fix: raise it, or see whether the sender is there") from error
        except Exception as error:
            raise EngineFailed(self._name, f"it did not join {where}: {_reason(error)}") from error

    async def begin(self, llm: Any, version: int) -> None:
        """The first of four parts of the step: requests end, and the workers wait for weights."""
        async with self._step(f"weights {version} did not go in"):
            self.check_awake(version, None)
            await self._shut()
            async with self._going_in(llm, version):
                await self._pause(llm, version)
                await tell(llm, "begin_receiving")
                self._coming = _Coming(version)

    async def receive(self, llm: Any, info: Mapping[str, Any]) -> None:
        async with self._step("weights did not go in"):
            coming = self._begun()
            async with self._going_in(llm, coming.version):
                await tell(llm, "receive", dict(info))

    async def finish(self, llm: Any) -> str:
        """All have come. Returns the fingerprint; nothing is served before `verify`."""
        async with self._step("weights did not go in"):
            coming = self._begun()
            async with self._going_in(llm, coming.version):
                received = await tell(llm, "finish_receiving")
                if len(set(received)) != 1:
                    raise _Wrong(f"the workers received different ones: {received}")
                await llm.update_weight_version(str(coming.version))
                await self._drop_caches(llm)
                coming.received = received[0]
            return coming.received

    async def verify(self, llm: Any, version: int, sent: str, probe: Probe | None) -> None:
        async with self._step(f"weights {version} were not verified"):
            coming = self._coming
            if coming is None or coming.version != version or not coming.received:
                fix = "receive all of them first"
                raise EngineFailed(self._name, f"there are no weights {version} to verify. Fix: {fix}", 0)
            self.check_awake(version, probe)
            async with self._going_in(llm, version):
                said = await llm.get_weight_version()
                if said != str(version):
                    raise _Wrong(f"vLLM has weights {said!r}")
                await self._prove(llm, version, [coming.received], sent, probe)

    async def sleep(self, llm: Any, level: int) -> None:
        async with self._step("it did not go to sleep"):
            if self._asleep:
                return
            if self._coming is not None:
                fix = "verify them first, or update again"
                raise EngineFailed(self._name, f"weights {self._coming.version} are not verified. Fix: {fix}", 0)
            await self._shut()
            self._note_pause()
            self._asleep = set(MEMORY)
            async with self._changing("did not go to sleep"):
                await llm.sleep(level)
            if level == 2:
                self._broken = "its weights were dropped when it slept. Fix: update the weights"

    async def wake(self, llm: Any, tags: Sequence[str] | None) -> None:
        if unknown := set(tags or ()) - set(MEMORY):
            raise ValueError(f"nothing called {sorted(unknown)} sleeps. Fix: tags of {list(MEMORY)}")
        async with self._step("it did not wake up"):
            waking = self._asleep & set(MEMORY if tags is None else tags)
            if not waking:
                return
            async with self._changing("did not wake up"):
                await llm.wake_up(sorted(waking))
            self._asleep -= waking
            if not self._asleep:
                self.is_paused = False
                self._open()

    @contextlib.asynccontextmanager
    async def _step(self, late: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._timeout_s), self._turn:
                yield
        except TimeoutError as error:
            fix = "raise it, or see what still runs, sleeps or does not answer"
            raise EngineFailed(self._name, f"{late} within timeout_s={self._timeout_s:g}. Fix: {fix}") from error

    @contextlib.asynccontextmanager
    async def _going_in(self, llm: Any, version: int) -> AsyncIterator[None]:
        """Whoever fails or is cancelled here opens the gate: what waits behind it learns what `_broken` says."""
        try:
            yield
        except BaseException as error:
            self._coming = None
            if isinstance(error, Exception):
                self._broken = f"weights {version} did not go in: {_reason(error)}"
                if self.is_paused and not self._asleep:
                    with contextlib.suppress(Exception):
                        await asyncio.wait_for(self._give_up(llm), _PATIENCE_S)
            self._open()
            if isinstance(error, Exception):
                raise EngineFailed(self._name, self._broken) from error
            raise

    @contextlib.asynccontextmanager
    async def _changing(self, failure: str) -> AsyncIterator[None]:
        """The same where memory goes or comes, after which nothing helps."""
        try:
            yield
        except BaseException as error:
            self._asleep.clear()
            self._broken = f"it {failure}: {_reason(error)}. Fix: make a new engine"
            self._open()
            if isinstance(error, Exception):
                raise EngineFailed(self._name, self._broken) from error
            raise

    async def _prove(self, llm: Any, version: int, read: Sequence[str], meant: str, probe: Probe | None) -> None:
        """Serve the weights, if they are what was meant."""
        if set(read) != {meant}:
            raise _Wrong(f"they came as {sorted(set(read))}, not as {meant!r}")
        if probe is not None and (wrong := await self._off_by(llm, probe)):
            raise _Wrong(wrong)
        self._broken = ""
        self.version = version
        self._coming = None
        self._open()

    async def _pause(self, llm: Any, version: int) -> None:
        self._coming = None
        self._broken = f"weights {version} did not go in. Fix: update the weights again, or start anew"
        self._note_pause()
        await llm.pause_generation(mode="wait", clear_cache=True)

    def _note_pause(self) -> None:
        self.is_paused = True
        self.pauses += 1

    async def _drop_caches(self, llm: Any) -> None:
        if await llm.reset_prefix_cache() is False:
            raise _Wrong("vLLM did not drop its prefix cache. Fix: update again, or start anew")
        if not self._asleep:  # else it goes on when all of it is awake
            await self._resume(llm)

    async def _give_up(self, llm: Any) -> None:
        """Let vLLM compute again, if only to show that it lives."""
        await tell(llm, "abandon")
        await self._resume(llm)

    async def _resume(self, llm: Any) -> None:
        await llm.resume_generation()
        self.is_paused = False

    async def _shut(self) -> None:
        if not self._is_shut:
            await self._gate.close()
            self._is_shut = True

    def _open(self) -> None:
        if self._is_shut and not self._asleep and self._coming is None:
            self._is_shut = False
            self._gate.open()

    def _begun(self) -> _Coming:
        if self._coming is None or self._coming.received:
            raise EngineFailed(self._name, "it does not wait for weights. Fix: begin_receiving() first", 0)
        return self._coming


async def tell(llm: Any, method: str, *arguments: Any) -> list[str]:
    """Each worker's answer to a method of `engine.vllm.weight_loader`, whose `told` says why none of them raises."""
    answers = await llm.collective_rpc(method, args=arguments)
    wrong = [f"worker {rank}: {error}" for rank, (_, error) in enumerate(answers) if error]
    if wrong:
        raise _Wrong("; ".join(wrong))
    return [answer for answer, _ in answers]


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, _Wrong | EngineFailed) else f"{type(error).__name__}: {error}"
