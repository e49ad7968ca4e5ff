"""The sandbox in a run worker of a real Ray is the sandbox: it conforms, contains, and tells jails nothing of Ray."""

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("ray")

from trainer.cluster.actors import RunWorker, Work
from trainer.cluster.losses import Limits
from trainer.cluster.places import Bundle
from trainer.cluster.ray_session import Actor, Limit, Session
from trainer.config import ClusterConfig, RolloutConfig
from trainer.credit import paper_reward

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ATTACKS_TRIED = 40
LIMIT = Limit("a limit of this test", 300.0)


class Conforming(RunWorker):
    """A run worker that puts a sandbox of its process to the conformance suite."""

    async def checks(self, name: str) -> dict[str, str]:
        """By name, what each check says; empty if it holds."""
        from sandbox.conformance import CHECKS, subject_of

        said = {}
        async with subject_of(_backend(name)) as subject:
            for check in CHECKS:
                if not check.slow and not check.left_out(subject):
                    try:
                        await check.run(subject)
                        said[check.name] = ""
                    except Exception as error:
                        said[check.name] = f"{type(error).__name__}: {error}"
        return said

    async def attacks(self, name: str, ids: list[str]) -> dict[str, tuple[str, ...]]:
        from sandbox.conformance import ATTACKS, Outside, contain, subject_of

        outside = Outside()
        try:
            async with subject_of(_backend(name)) as subject:
                verdicts = await contain(subject, [each for each in ATTACKS if each.id in ids], outside)
        finally:
            outside.close()
        return {verdict.attack.id: verdict.escapes for verdict in verdicts}

    async def told_to_jails(self) -> list[str]:
        """What code in a jail finds of its environment and of what is open."""
        source = (
            "import os\nfor name, value in os.environ.items(): print(name, value)\n"
            "for fd in os.listdir('/proc/self/fd') if os.path.isdir('/proc/self/fd') else range(64):\n"
            "    try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))\n"
            "    except OSError:\n"
            "        try: print(fd, os.fstat(int(fd)).st_mode)\n"
            "        except OSError: pass\n"
        )
        result = await self.sandbox.run_code(source)
        assert result.ok, result.stderr
        return result.stdout.splitlines()

    async def told_to_this(self) -> dict[str, str]:
        import os

        return dict(os.environ)


def _backend(name: str) -> Any:
    from sandbox.conformance.backends import BACKENDS

    return next(each for each in BACKENDS if each.name == name)


def in_workers(address: str, *works: Callable[[Actor], Awaitable[Any]]) -> list[Any]:
    """What each returns, in a worker of its own, side by side."""
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    config = ClusterConfig(layout="disaggregated", address=address, gpus_per_node=0, start_timeout_s=120)
    told = Work(RolloutConfig(), paper_reward, None, None, False, "p0", "p0", {}, at_once=4, wait_s=10)

    async def run() -> Any:
        async with Session(config).opened() as session:
            [node] = session.nodes()
            group = await session.reserve([Bundle(node.id, 1.0) for _ in works])

            async def one(number: int, work: Callable[[Actor], Awaitable[Any]]) -> Any:
                worker = session.start(
                    Conforming, f"worker {number}", told, group=group, bundle=number, cpus=1.0, concurrency=100
                )
                await worker.call("start", limit=Limits.of(config).start)
                try:
                    return await work(worker)
                finally:
                    await worker.call("close", limit=LIMIT)

            return await asyncio.gather(*(one(number, work) for number, work in enumerate(works)))

    return asyncio.run(run())


def test_nothing_of_ray_reaches_a_jail(ray_address: str) -> None:
    async def work(worker: Actor) -> tuple[list[str], dict[str, str]]:
        return await worker.call("told_to_jails", limit=LIMIT), await worker.call("told_to_this", limit=LIMIT)

    [(lines, environment)] = in_workers(ray_address, work)
    secrets = [value for name, value in environment.items() if name.startswith("RAY_") and len(value) > 8]
    assert secrets
    assert "RAY_AUTH_TOKEN" in environment  # there is something to be kept
    text = "\n".join(lines)
    assert "RAY" not in text.upper().replace("ARRAY", "")
    assert not [value for value in secrets if value in text]
    assert not [line for line in lines if "socket" in line or "49663" in line.split()[-1:]], lines


def test_the_conformance_suite_passes_in_workers(ray_address: str) -> None:
    """Both modes of jail side by side, where this machine has both."""
    from sandbox.conformance import ATTACKS

    names = [name for name in ("process/j", "process/j0") if not asyncio.run(_backend(name).why_not())]
    assert names
    tried = random.Random().sample([each.id for each in ATTACKS if each.kind != "grade"], ATTACKS_TRIED)

    def of(name: str) -> Callable[[Actor], Awaitable[Any]]:
        async def work(worker: Actor) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
            checks = await worker.call("checks", name, limit=LIMIT)
            return checks, await worker.call("attacks", name, tried, limit=LIMIT)

        return work

    for name, (checks, attacks) in zip(names, in_workers(ray_address, *map(of, names)), strict=True):
        assert len(checks) > 50, name
        assert {check: said for check, said in checks.items() if said} == {}, name
        assert attacks == dict.fromkeys(tried, ()), name
