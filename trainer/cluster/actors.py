"""What runs in Ray's processes: ranks, engines, run workers, a keeper per node. Thin shells, plain classes without Ray
in them; what they hold works, and is tested, without Ray.

Not here: where they sit (`trainer.cluster.layout`), who starts and watches them (`trainer.cluster.runtime`), and what
a transaction of weights is (`trainer.cluster.sync`).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import importlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from designer.sample import Design
from engine import Gate
from engine.by_agent import ByAgent
from engine.protocol import Probe
from engine.vllm import Transfer, VLLMEngine
from sandbox.named import named_sandbox
from tasks import MATH_WORKER
from tasks.problems import Problem
from trainer.cluster.engine_pool import EnginePool, NotServing, PoolTable, engine_of_run
from trainer.cluster.fencing import fenced
from trainer.cluster.parcels import unpacked
from trainer.cluster.processes import Busy, Identity, identity
from trainer.config import PolicyConfig, RolloutConfig
from trainer.credit import RewardFunction, TurnReward
from trainer.disk import Written
from trainer.rollout import Question, Rollout
from trainer.run import local_engine
from trainer.trees import DesignResult
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed


class RankActor:
    """A process in which ranks of policies compute. All they do is done on one thread; others answer, and write,
    meanwhile."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._made: dict[str, Any] = {}
        self._snapshots: dict[str, Any] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rank")
        self._busy = Busy()

    def identity(self) -> Identity:
        return identity()

    def address(self) -> tuple[str, int]:
        """Of this node, with a port that is free now."""
        from ray.util import get_node_ip_address

        host = get_node_ip_address()
        with socket.socket() as probing:
            probing.bind((host, 0))
            return host, probing.getsockname()[1]

    def join(self, ranks: int, host: str, port: int, timeout_s: float, device: str) -> None:
        """Meet the other ranks at `host:port` of the first one."""
        from trainer.update import join

        if interface := _interface_of(importlib.import_module("ray.util").get_node_ip_address()):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        self._on_thread(join, self._number, ranks, host, port, timeout_s, device)

    def make(self, key: str, make: Callable[..., Any], *arguments: Any) -> None:
        """Hold `make(*arguments)` under a key."""
        self._made[key] = self._on_thread(make, *arguments)

    def do(self, key: str, method: str, *arguments: Any) -> Any:
        """What a method of the object under a key returns; an attribute's value where it is none."""
        return self._on_thread(_asked, self._made[key], method, arguments)

    def set(self, key: str, name: str, value: Any) -> None:
        self._on_thread(setattr, self._made[key], name, value)

    def on(self, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """`function(object, number of this rank, *arguments)`, for what an object cannot do by itself."""
        return self._on_thread(function, self._made[key], self._number, *arguments)

    def snapshot(self, key: str) -> None:
        """Keep a snapshot of the object under a key, for `write`."""
        self._snapshots[key] = self._on_thread(self._made[key].snapshot)

    def write(self, key: str, folder: Path) -> list[Written]:
        """Write the snapshot, and keep it no longer; beside whatever is done meanwhile."""
        return self._snapshots.pop(key).write(folder)

    def drop(self, key: str) -> None:
        self._snapshots.pop(key, None)
        if key in self._made:
            self._on_thread(self._made.pop(key).close)

    def busy_s(self) -> float:
        return self._busy.taken()

    def _on_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._busy.working():
            return self._thread.submit(function, *arguments).result()


def _interface_of(address: str) -> str:
    """The network interface that has an address; empty where that cannot be found out."""
    try:
        interfaces = importlib.import_module("psutil").net_if_addrs()
    except ModuleNotFoundError:
        return ""
    return next((name for name, all_of in interfaces.items() if address in {each.address for each in all_of}), "")


def _asked(held: Any, method: str, arguments: Sequence[Any]) -> Any:
    found = getattr(held, method)
    return found(*arguments) if callable(found) else found


class EngineActor:
    """One engine of a policy. It serves nobody before its first weights are committed, nor after it was shelved. Where
    nothing is trained, those are the weights that it was loaded with: `commit(0)`."""

    def __init__(
        self, policy: PolicyConfig, context: int | None, reply_s: float, transfer: Transfer | None = None
    ) -> None:
        self._make = partial(local_engine, policy, context, reply_s, transfer)
        self._engine: Any = None
        self._gate = Gate()
        self._shut = False
        self._out = "it has no weights yet"
        self._busy = Busy()
        self._completed = 0
        self._seen = -1

    async def start(self) -> Identity:
        """Load the model; returns when it has completed a token."""
        self._engine = self._make()
        await self._one_token()
        return await self.identity()

    async def identity(self) -> Identity:
        if isinstance(self._engine, VLLMEngine):
            return identity(self._engine.pids(), self._engine.leftovers())
        return identity()

    async def complete(self, request: CompletionRequest) -> Completion:
        async with self._gate.passing():
            if self._out:
                raise NotServing(self._out)
            with self._busy.working():
                completion = await self._engine.complete(request)
            self._completed += 1
            return completion

    async def alive(self, timeout_s: float) -> None:
        """An engine lives if it completes: something since this was last asked, or else one token in time."""
        if self._completed == self._seen and not self._shut:
            async with asyncio.timeout(timeout_s):
                await self._one_token()
        self._seen = self._completed

    async def _one_token(self) -> None:
        if isinstance(self._engine, VLLMEngine):
            await self._engine.alive(self._engine.start_timeout_s)
            return
        token = CompletionRequest(
            token_ids=[0], agent="alive", key="alive", sampling=Sampling(max_tokens=1, temperature=0.0)
        )
        await self._engine.complete(token)

    async def close_gate(self) -> None:
        """Requests under way end on the weights that they began with; new ones wait."""
        if not self._shut:
            await self._gate.close()
            self._shut = True

    async def receive(self, version: int, parcels: Sequence[Any], sent: str, probe: Probe) -> float:
        """Weights by way of the object store: taken over, found to be those that were sent, and tried. Returns the
        largest difference over the probe's tokens."""
        tensors = await unpacked([await each for each in parcels], sent)
        await self._engine.update_weights(version, tensors, probe)
        return self._engine.probe_gap

    async def vllm(self, method: str, *arguments: Any) -> Any:
        """A call of vLLM's engine alone, such as joining a group through which weights come."""
        return await getattr(self._engine, method)(*arguments)

    async def vllm_named(self, method: str, arguments: Mapping[str, Any]) -> Any:
        """The same with named arguments."""
        return await getattr(self._engine, method)(**arguments)

    async def take(self, metadata: Mapping[str, Any]) -> None:
        """Take in what the group's sender sends."""
        await self._engine.receive(metadata)
        await self._engine.finish_receiving()

    async def prove(self, version: int, sent: str, probe: Probe) -> float:
        """What was taken in, as `receive` has it."""
        await self._engine.verify(version, sent, probe)
        return self._engine.probe_gap

    async def commit(self, version: int) -> None:
        """Serve, with these weights."""
        if self._engine.weights_version != version:
            raise EngineFailed(self._engine.name, f"it has weights {self._engine.weights_version}, not {version}")
        self._out = ""
        self._open()

    async def shelve(self, reason: str) -> None:
        """Serve nobody, and send away who waits."""
        self._out = reason
        self._open()

    def _open(self) -> None:
        if self._shut:
            self._shut = False
            self._gate.open()

    async def busy_s(self) -> float:
        return self._busy.taken()

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()


@dataclass(frozen=True)
class Work:
    """What a run worker is told once."""

    rollout: RolloutConfig
    reward: RewardFunction
    turn_reward: TurnReward | None
    program: str | None
    single_turns: bool
    designer: str
    """The policy that plays this role."""
    executor: str
    agents: Mapping[str, str]
    """The policies of agents that have one of their own, by their names."""
    at_once: int
    """Runs of one worker."""
    wait_s: float
    """For an engine to be there, when none is."""


@dataclass
class RunWorker:
    """A sandbox with an event loop: it grows parts of rollout trees, and asks the engines itself."""

    work: Work
    tasks: dict[str, asyncio.Task[Any]] = field(default_factory=dict)
    busy: Busy = field(default_factory=Busy)

    async def start(self) -> Identity:
        work = self.work
        self.sandbox = named_sandbox(work.rollout.sandbox, ("designer.check", MATH_WORKER))
        self.turns = asyncio.Semaphore(work.at_once)
        self.pools = {
            name: EnginePool(name, wait_s=work.wait_s, reply_s=work.rollout.limits.reply_s)
            for name in {work.designer, work.executor, *work.agents.values()}
        }
        own = {agent: self.pools[name] for agent, name in work.agents.items()}
        self.rollout = Rollout(
            config=work.rollout,
            designer=self.pools[work.designer],
            executor=ByAgent(own, self.pools[work.executor]) if own else self.pools[work.executor],
            sandbox=self.sandbox,
            reward=work.reward,
            turn_reward=work.turn_reward,
            program=work.program,
            single_turns=work.single_turns,
            engine_of_run=engine_of_run,
        )
        return identity()

    async def identity(self) -> Identity:
        return identity()

    async def engines(self, tables: Mapping[str, PoolTable]) -> None:
        """Who serves each policy from now on."""
        for name, table in tables.items():
            if name in self.pools:
                self.pools[name].serve(table)

    async def designs(self, key: str, problem: Problem, seed: int, folder: Path) -> list[Design]:
        return await self._task(key, self._question(problem, seed, folder).designs())

    async def design(self, key: str, problem: Problem, seed: int, folder: Path, design: Design) -> DesignResult:
        return await self._task(key, self._question(problem, seed, folder).design(design))

    def _question(self, problem: Problem, seed: int, folder: Path) -> Question:
        return Question(self.rollout, problem, seed, folder, self.turns)

    async def _task(self, key: str, work: Any) -> Any:
        """Some work under a name, so that it can be given up."""
        task = self.tasks[key] = asyncio.ensure_future(work)
        try:
            with self.busy.working():
                return await task
        except asyncio.CancelledError:
            task.cancel()
            raise
        except BaseExceptionGroup as failures:
            from trainer.rollout import first_failure

            raise first_failure(failures) from None
        finally:
            self.tasks.pop(key, None)

    async def abandon(self) -> None:
        """Stop all that is under way; when this returns, nothing of it writes any more."""
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def busy_s(self) -> float:
        return self.busy.taken()

    async def close(self) -> None:
        await self.abandon()
        await self.sandbox.close()


class NodeKeeper:
    """One per node: sees to it that what is ended there is gone, and tries what a run needs of the node."""

    def identity(self) -> Identity:
        return identity()

    def fence(self, who: Identity, within_s: float) -> str:
        """End a process with its group, see both gone, and remove what it leaves; what is left after that is told."""
        return fenced(who.pid, who.group, who.children, who.leftovers, within_s)

    def sees(self, path: Path, token: str) -> str:
        """What is wrong with a file that the driver wrote; empty if nothing is. Leaves an answer beside it."""
        try:
            if path.read_text(encoding="utf-8") != token:
                return f"{path} has other contents"
            answer = path.with_name(f"{path.name}.{os.getpid()}")
            answer.write_text(token, encoding="utf-8")
            answer.unlink()
        except OSError as error:
            return f"{path}: {error.strerror}"
        return ""
