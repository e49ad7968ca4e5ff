import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from jails import Jail
from outside import Outside

from sandbox import ProcessSandbox
from sandbox.hatchery import Hatchery
from sandbox.jail import Mode
from workflow.failures import SandboxUnavailable

PRELOAD = ("called_functions",)
_refused: dict[str, str] = {}
_contained: dict[str, list[bool]] = {}


def why_not(mode: Mode) -> str:
    """Why this machine cannot run a mode; empty where it can. Probed once."""

    async def probe() -> str:
        async with ProcessSandbox(mode=mode) as sandbox:
            try:
                result = await sandbox.run_code("print(1)")
            except SandboxUnavailable as error:
                return str(error)
        assert result.stdout == "1\n"
        return ""

    if mode not in _refused:
        _refused[mode] = asyncio.run(probe())
    return _refused[mode]


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
        sandbox = ProcessSandbox(mode=mode)
        hatchery = Hatchery("program", mode, ("unguarded",))
        await hatchery.start()
        sandbox._hatcheries["program"] = hatchery
        return sandbox

    with asyncio.Runner() as runner:
        jail = Jail(runner, runner.run(start()), mode)
        yield jail
        runner.run(jail.sandbox.close())


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "test_hostile_" in report.nodeid and not report.skipped:
        mode = "j0" if "[j0" in report.nodeid else "j"
        _contained.setdefault(mode, []).append(report.passed)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for mode, outcomes in sorted(_contained.items()):
        terminalreporter.write_line(f"hostile corpus, mode {mode}: {sum(outcomes)} of {len(outcomes)} contained")
