import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker_engine
import pytest
from bench import EVERYTHING, PAGE, SEEN, Bench
from grader import passed_tests
from jails import Jail, why_not

from sandbox import ProcessSandbox
from sandbox.conformance import backends
from sandbox.conformance.attacks import ATTACKS
from sandbox.conformance.attacks.attack import Attack
from sandbox.conformance.backend import PRELOAD, subject_of
from sandbox.conformance.contain import Verdict, contain
from sandbox.conformance.outside import Outside
from sandbox.conformance.report import Seen, written_into
from sandbox.jail import Mode
from sandbox.strength import CONFIGURATIONS


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest backend comes last: where the time for tests is short, it is what is left out."""
    items.sort(key=lambda item: "gvisor" in item.name)


@pytest.fixture(scope="session", params=["j", "j0"])
def mode(request: pytest.FixtureRequest) -> Mode:
    if reason := why_not(request.param):
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="session")
def any_mode() -> Mode:
    """A mode that this machine can run, for what does not depend on the mode."""
    modes: tuple[Mode, ...] = ("j", "j0")
    for mode in modes:
        if not why_not(mode):
            return mode
    pytest.skip(why_not("j0"))


@pytest.fixture(scope="session")
def outside() -> Iterator[Outside]:
    """What jails must not reach. Made before the sandboxes that hostile code runs in, since its secret is in the
    environment that they start from."""
    outside = Outside()
    yield outside
    outside.close()


@pytest.fixture(scope="session")
def jail(mode: Mode, outside: Outside) -> Iterator[Jail]:
    """A sandbox for all tests of a mode."""

    async def start() -> ProcessSandbox:
        return ProcessSandbox(mode=mode, preload=PRELOAD)

    with asyncio.Runner() as runner:
        jail = Jail(runner, runner.run(start()), mode)
        yield jail
        runner.run(jail.sandbox.close())


@pytest.fixture(scope="session")
def escaped(mode: Mode, outside: Outside) -> Iterator[Jail]:
    """A sandbox whose programs are unguarded Python: what the program jail is worth when the policy has failed."""

    async def start() -> ProcessSandbox:
        return backends.unguarded_j() if mode == "j" else backends.unguarded_j0()

    with asyncio.Runner() as runner:
        jail = Jail(runner, runner.run(start()), mode)
        yield jail
        runner.run(jail.sandbox.close())


@pytest.fixture(scope="session", params=backends.BACKENDS, ids=lambda backend: backend.name)
def bench(request: pytest.FixtureRequest, outside: Outside) -> Iterator[Bench]:
    """Every configuration in turn, with a sandbox for all its tests. What cannot run here says why."""
    if not (EVERYTHING or request.param.name.startswith("process/")):
        pytest.skip("part of make test-sandbox")
    docker, tier = request.param.name.startswith("docker/"), request.param.name.partition("/")[2]
    # An engine needs the image first.
    if reason := (docker and docker_engine.why_no(tier)) or backends.why_not(request.param):
        SEEN[request.param.name] = Seen(request.param.name, why_not=reason)
        pytest.skip(reason)
    with asyncio.Runner() as runner:
        context = subject_of(request.param)
        yield Bench(runner, runner.run(context.__aenter__()))
        runner.run(context.__aexit__(None, None, None))


def corpus(bench: Bench) -> list[Attack]:
    """All attacks; where every run waits for a container of its own, two of each family and kind, unless the page is
    written: all take docker/strict twenty minutes, docker/gvisor longer."""
    if PAGE or bench.subject.backend.name not in ("docker/strict", "docker/gvisor"):
        return [*ATTACKS]
    counts: Counter[tuple[str, str]] = Counter()
    chosen = []
    for attack in ATTACKS:
        counts[attack.family, attack.kind] += 1
        if counts[attack.family, attack.kind] <= 2:
            chosen.append(attack)
    return chosen


@pytest.fixture(scope="session")
def verdicts(bench: Bench, outside: Outside) -> dict[str, list[Verdict]]:
    """By family. All of them at once, since many last as long as their limits."""
    found: dict[str, list[Verdict]] = {}
    for verdict in bench.run(contain(bench.subject, corpus(bench), outside, passed_tests), 3000):
        found.setdefault(verdict.attack.family, []).append(verdict)
        bench.seen.verdicts.append(verdict)
    return found


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for seen in SEEN.values():
        terminalreporter.write_line(f"{seen.name}: {seen.summary()}")
    if PAGE:
        path = Path(PAGE)
        results = [
            SEEN.get(name) or Seen(name, why_not="left out when this page was written") for name in CONFIGURATIONS
        ]
        path.write_text(written_into(path.read_text(encoding="utf-8"), results), encoding="utf-8")
        terminalreporter.write_line(f"written to {PAGE}")
