"""New weights for all engines of a policy as one transaction: all serve them, with one version, or none does.

    1 close the gates: requests under way end on the old version, new ones wait
    2-4 the weights go out, and every engine takes them in and drops its caches
    5 every engine proves them: fingerprint received against sent, its version, the probe's log-probabilities
    6 commit: the engines serve

Fails 2 to 5 on one engine, it is shelved and the others go on, over a new group where they share one; it returns at a
later sync. Fails it on all, `SyncFailed` ends the run, with its checkpoints untouched. How an engine checks one update
is `engine.protocol.LiveEngine`'s business, and who replaces a lost one `trainer.cluster.runtime`'s.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.protocol import Probe
from trainer.cluster.losses import Limits
from trainer.cluster.parcels import packed
from trainer.cluster.ray_session import Actor, ActorLost, CallTimedOut, Limit, put
from trainer.run import SyncReport
from workflow.failures import EngineFailed

Ranks = Callable[..., Awaitable[list[Any]]]
"""`await ranks(function, *arguments, limit=Limit(...))`: what `function(rank, number, *arguments)` returns on every
rank of a policy at once, in their order. `rank` is what holds the policy there."""


class SyncFailed(EngineFailed):
    """No engine of a policy has taken its new weights."""

    def __init__(self, engine: str, reason: str, failures: Mapping[int, Exception]) -> None:
        super().__init__(engine, reason)
        self.failures = failures
        """By the engine's number."""


@dataclass
class Outcome:
    """How each engine took weights: the largest difference over the probe's tokens, or why it did not."""

    bytes: int
    gaps: dict[int, float] = field(default_factory=dict)
    failures: dict[int, Exception] = field(default_factory=dict)
    suspects: dict[int, Exception] = field(default_factory=dict)
    """Engines of which one has failed the others of its group; which one is not known."""


class Transport(Protocol):
    @property
    def name(self) -> str: ...

    async def send(self, version: int, engines: Mapping[int, Actor], probe: Probe) -> Outcome:
        """Take the ranks' weights to engines whose gates are closed. What fails in the ranks is raised. Engines of whom
        nothing is said are for another try."""
        ...


async def sync(
    policy: str, version: int, engines: Mapping[int, Actor], transport: Transport, probe: Probe, limits: Limits
) -> tuple[SyncReport, list[int], dict[int, Exception]]:
    """The transaction. Returns its report, the numbers of the engines that serve now, and why others do not."""
    began = time.perf_counter()
    failed: dict[int, Exception] = {}

    async def told(numbers: Sequence[int], method: str, *arguments: Any, limit: Limit) -> list[int]:
        """Those of the engines that did it."""
        results = await asyncio.gather(
            *(engines[number].call(method, *arguments, limit=limit) for number in numbers), return_exceptions=True
        )
        done = []
        for number, result in zip(numbers, results, strict=True):
            if isinstance(result, Exception):
                failed[number] = result
            elif isinstance(result, BaseException):
                raise result
            else:
                done.append(number)
        return done

    left = await told(sorted(engines), "close_gate", limit=limits.call)
    proven: dict[int, float] = {}
    sent = 0
    while left:
        outcome = await transport.send(version, {number: engines[number] for number in left}, probe)
        failed |= outcome.failures
        sent = outcome.bytes
        proven |= outcome.gaps
        left = [number for number in left if number not in failed and number not in proven]
    serving = await told(sorted(proven), "commit", version, limit=limits.heartbeat)
    for number, error in failed.items():
        await asyncio.gather(
            engines[number].call("shelve", f"weights {version} did not go in: {error}", limit=limits.heartbeat),
            return_exceptions=True,
        )
    if not serving:
        told_of = "; ".join(f"engine {number}: {error}" for number, error in sorted(failed.items())) or "there is none"
        raise SyncFailed(
            f"engines of {policy}", f"weights {version} went into none of {len(engines)}: {told_of}", failed
        )
    report = SyncReport(
        version=version,
        bytes=sent,
        seconds=round(time.perf_counter() - began, 3),
        gap=max(proven[number] for number in serving),
        engines=len(serving),
        transport=transport.name,
    )
    return report, serving, failed


@dataclass
class StoreTransport:
    """By way of Ray's object store: each layer is gathered, copied and put there; every engine reads it. For any
    engine. What one engine does not take concerns no other."""

    ranks: Ranks
    limits: Limits
    name: str = "store"

    async def send(self, version: int, engines: Mapping[int, Actor], probe: Probe) -> Outcome:
        found = await self.ranks(exported, limit=self.limits.call)
        references, fingerprint, size = found[0]
        outcome = Outcome(size)
        results = await asyncio.gather(
            *(
                engine.call("receive", version, references, fingerprint, probe, limit=self.limits.call)
                for engine in engines.values()
            ),
            return_exceptions=True,
        )
        for number, result in zip(engines, results, strict=True):
            if isinstance(result, Exception):
                outcome.failures[number] = result
            elif isinstance(result, BaseException):
                raise result
            else:
                outcome.gaps[number] = result
        return outcome


def exported(rank: Any, number: int) -> tuple[list[Any], str, int]:
    """References to a rank's weights in the store, their fingerprint and their bytes; only the first rank has any, and
    all take part."""
    from engine.vllm import Tally

    tally, references = Tally(), []
    for parcel, tensors in packed(rank.stream()):
        if number == 0:
            for _ in tally.passing(tensors.items()):
                pass
            references.append(put(parcel))
    return references, tally.fingerprint, tally.bytes


@dataclass
class GroupTransport:
    """vLLM's own weight transfer: the first rank sends to all engines' workers through one group (`gloo`, `nccl`), or
    each rank hands over on its own GPU (`ipc`). A group that lost a member is made anew."""

    transfer: Any
    ranks: Ranks
    address: Callable[[], Awaitable[tuple[str, int]]]
    """Of the first rank, with a port that is free."""
    workers: int
    """Of each engine: its tensor parallelism."""
    limits: Limits
    received: Callable[[Sequence[Actor]], Awaitable[None]] | None = None
    """What is to be done when the engines have taken weights in, before they prove them."""
    _members: tuple[int, ...] = ()
    _metadata: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.transfer

    async def send(self, version: int, engines: Mapping[int, Actor], probe: Probe) -> Outcome:
        outcome = await self._tried(version, engines, probe)
        if len(engines) > 1:
            for number in outcome.suspects:  # whoever fails alone was it
                alone = await self._tried(version, {number: engines[number]}, probe)
                outcome.bytes = outcome.bytes or alone.bytes
                outcome.gaps |= alone.gaps
                outcome.failures |= alone.failures | alone.suspects
        else:
            outcome.failures |= outcome.suspects
        return outcome

    async def _tried(self, version: int, engines: Mapping[int, Actor], probe: Probe) -> Outcome:
        outcome, whole = Outcome(0), False
        try:
            whole = self._members == tuple(engines) or await self._joined(engines, outcome)
            whole = whole and await self._transferred(version, engines, probe, outcome)
        finally:
            if not whole or outcome.failures:
                self._members = ()
        return outcome

    async def _joined(self, engines: Mapping[int, Actor], outcome: Outcome) -> bool:
        """Whether the group is there."""
        host, port = await self.address()
        world, limit = 1 + self.workers * len(engines), self.limits.collective
        joining = [
            engine.call(
                "vllm",
                "join_transfer",
                host,
                port,
                1 + place * self.workers,
                world,
                limit.seconds,
                limit=self.limits.call,
            )
            for place, engine in enumerate(engines.values())
        ]
        sender = self.ranks(
            joined, self.transfer, host, port, world, limit.seconds, dict(engines), limit=self.limits.call
        )
        [metadata, *results] = await _all(sender, *joining)
        if not await self._all_well(outcome, engines, metadata, results):
            return False
        self._metadata, self._members = metadata[0], tuple(engines)
        return True

    async def _transferred(self, version: int, engines: Mapping[int, Actor], probe: Probe, outcome: Outcome) -> bool:
        """Whether all have taken the weights in; then it is noted who has proven them."""
        if self.transfer != "ipc":
            begun = [
                engine.call("vllm", "begin_receiving", version, self._metadata, limit=self.limits.call)
                for engine in engines.values()
            ]
            outcome.failures |= _failures(engines, await _all(*begun))
            if outcome.failures:
                return False
        receiving = (
            [engine.call("take", self._metadata, limit=self.limits.call) for engine in engines.values()]
            if self.transfer != "ipc"
            else []
        )
        [sent, *results] = await _all(self.ranks(sending, version, limit=self.limits.call), *receiving)
        if not await self._all_well(outcome, engines, sent, results):
            return False
        outcome.bytes = sent[0].bytes
        if self.received is not None:
            await self.received(list(engines.values()))
        results = await _all(
            *(
                engine.call("prove", version, sent[0].fingerprint, probe, limit=self.limits.call)
                for engine in engines.values()
            )
        )
        outcome.failures |= _failures(engines, results)
        outcome.gaps = {
            number: result for number, result in zip(engines, results, strict=True) if number not in outcome.failures
        }
        return True

    async def _all_well(
        self, outcome: Outcome, engines: Mapping[int, Actor], sender: Any, results: Sequence[Any]
    ) -> bool:
        """Whether nobody of a group failed. Where one does, all others fail, too: it is noted who is gone, or else who
        is suspect, and raised what the ranks say where it does not follow from engines."""
        if isinstance(sender, ActorLost):
            raise sender
        failed = _failures(engines, results)
        gone = {number: error for number, error in failed.items() if isinstance(error, (ActorLost, CallTimedOut))}
        if failed and not gone:
            limit = self.limits.heartbeat
            signs = await _all(
                *(engines[number].call("alive", limit.seconds, limit=self.limits.call) for number in failed)
            )
            gone = {number: failed[number] for number, sign in zip(failed, signs, strict=True) if _is_failure(sign)}
        if gone:
            outcome.failures |= gone
            return False
        if _is_failure(sender) and (not failed or isinstance(sender, CallTimedOut)):
            raise sender
        outcome.suspects |= failed
        return not failed


def _failures(engines: Mapping[int, Actor], results: Sequence[Any]) -> dict[int, Exception]:
    """Of which engines the result is one; without those that were not asked."""
    return {number: result for number, result in zip(engines, results, strict=False) if _is_failure(result)}


async def _all(*work: Awaitable[Any]) -> list[Any]:
    """What each returns or raises."""
    return list(await asyncio.gather(*work, return_exceptions=True))


def _is_failure(result: Any) -> bool:
    if isinstance(result, BaseException) and not isinstance(result, Exception):
        raise result
    return isinstance(result, Exception)


_SENDERS: dict[int, Any] = {}
"""In a rank's process: the sender of each policy's rank there, by the identity of what holds it."""


def joined(
    rank: Any, number: int, transfer: Any, host: str, port: int, world: int, timeout_s: float, engines: dict
) -> dict:
    """On every rank: open the group; returns what engines are told of the weights."""
    from engine.vllm import ControlClient, Sender, ZeroSource

    client = None
    if transfer == "ipc":

        def asking(actor: Actor) -> Callable[[str, dict[str, Any]], Any]:
            return lambda method, arguments: actor.begin("vllm_named", method, arguments).future()

        client = ControlClient({f"engine {each}": asking(actor) for each, actor in engines.items()}, timeout_s)
    if (before := _SENDERS.pop(id(rank), None)) is not None:
        before.leave()
    sender = _SENDERS[id(rank)] = Sender(transfer, ZeroSource(rank.stream), rank=number, client=client)
    metadata = sender.metadata()
    sender.join(host, port, world, timeout_s)
    return metadata


def sending(rank: Any, _number: int, version: int) -> Any:
    """On every rank: send, or take part in it."""
    return _SENDERS[id(rank)].send(version)
