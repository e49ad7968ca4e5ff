import asyncio
import pickle
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker_engine
import pytest
from bench import EVERYTHING, PAGE, SEEN, Bench, drawn
from grader import passed_tests
from jails import Jail, why_not

from sandbox import ProcessSandbox
from sandbox.conformance import backends
from sandbox.conformance.attacks import ATTACKS, FAMILIES
from sandbox.conformance.attacks.attack import Attack
from sandbox.conformance.contain import Verdict, contain
from sandbox.conformance.outside import Outside
from sandbox.conformance.sandbox_page import Seen, written_into
from sandbox.conformance.subject import PRELOAD, subject_of
from sandbox.jail.walls import Mode
from sandbox.strength import CONFIGURATIONS

MODES = [backend for backend in backends.BACKENDS if backend.name.startswith("process/")]
"""Mode j, and j0 as programs meet it where no namespaces can be had."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest backend comes last: where the time for tests is short, it is what is left out. A backend's tests
    share one sandbox and one run of the corpus, and so one worker of pytest-xdist."""
    items.sort(key=lambda item: "gvisor" in item.name)
    for item in items:
        if isinstance(item, pytest.Function) and "bench" in getattr(getattr(item, "callspec", None), "params", ()):
            item.add_marker(pytest.mark.xdist_group(item.callspec.params["bench"].name))


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


def corpus(bench: Bench, config: pytest.Config) -> list[Attack]:
    """All attacks. Of a sample a part in containers, and where one is started for every run a part of one of each
    family and kind; and `make test` shares a part out between the two modes of the process jail, anew each time."""
    draw = random.Random(config.option.sample_seed)
    if not EVERYTHING and not any(map(backends.why_not, MODES)):
        first, share = bench.subject.backend.name == MODES[0].name, config.option.sample
        return drawn(ATTACKS, draw, lambda _: share * ((draw.random() < 0.5) is first))
    if config.option.sample >= 1 or not bench.subject.backend.name.startswith("docker/"):
        return [*ATTACKS]
    if bench.subject.backend.name == "docker/warm":
        return drawn(ATTACKS, draw, lambda attack: 2 * config.option.sample)
    groups: dict[tuple[str, str], list[Attack]] = {}
    for attack in ATTACKS:
        groups.setdefault((attack.family, attack.kind), []).append(attack)
    return drawn([draw.choice(group) for group in groups.values()], draw, lambda attack: 2 * config.option.sample)


@pytest.fixture(scope="session")
def verdicts(bench: Bench, outside: Outside, request: pytest.FixtureRequest) -> dict[str, list[Verdict]]:
    """By family. All of them at once, since many last as long as their limits."""
    found: dict[str, list[Verdict]] = {family: [] for family in FAMILIES}
    for verdict in bench.run(contain(bench.subject, corpus(bench, request.config), outside, passed_tests), 3000):
        found[verdict.attack.family].append(verdict)
        bench.seen.verdicts.append(verdict)
    return found


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["seen"] = pickle.dumps(SEEN)  # pyright: ignore


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """What the tests of a worker saw. A backend's are all on one worker; elsewhere it was seen to be missing, if at
    all."""
    for name, seen in pickle.loads(getattr(node, "workeroutput", {}).get("seen", pickle.dumps({}))).items():
        if name not in SEEN or seen.verdicts or seen.passed:
            SEEN[name] = seen


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for seen in SEEN.values():
        terminalreporter.write_line(f"{seen.name}: {seen.summary()}")
    if PAGE:
        path = Path(PAGE)
        results = [
            SEEN.get(name) or Seen(name, why_not="left out when this page was written") for name in CONFIGURATIONS
        ]
        path.write_text(written_into(path.read_text(encoding="utf-8"), results, _commit()), encoding="utf-8")
        terminalreporter.write_line(f"written to {PAGE}")


def _commit() -> str:
    """Of the code that was tested; `-dirty` where it was changed since."""
    described = ["git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=7"]
    done = subprocess.run(described, capture_output=True, text=True, timeout=20, cwd=Path(__file__).parent, check=False)
    return done.stdout.strip() or "unknown"
