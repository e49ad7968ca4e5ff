"""What all tests share: hypothesis without deadlines, samples of what is slow, and a summary that hides nothing.

How long a hypothesis example takes says something about the machine, not about the code. Of the tests of slow backends
(containers, gVisor, the real vLLM, Ray and DeepSpeed), of those marked `thorough`, and of those with many cases a part
is run with `--sample SHARE`, by a seed that the first lines of a run tell; properties then have as many times fewer
examples. Of the tests that `slow_tests.txt` names, as they take over `SLOW_S`, a larger part is; `--write-slow` writes
that file anew.
`.ci/run`, whose steps have tests in common, names a file of what has passed, and a time from which on tests are left
out.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("sandbox.conformance")
settings.register_profile("metaagent", parent=settings(), deadline=None)
settings.load_profile("metaagent")

# Taken out of the environment, since some tests run pytest themselves.
PASSED = os.environ.pop("METAAGENT_TESTS_PASSED", "")
"""File with the tests that have passed before: they are left out. Those that pass now are added."""
UNTIL = os.environ.pop("METAAGENT_TESTS_UNTIL", "inf")
"""Unix time from which on tests are skipped."""
SLOW = ["docker/", "strict", "gvisor", "vllm", "deepspeed"]
"""In what stands behind the name of a test: its backend is a slow one."""
if not os.environ.get("METAAGENT_TEST_SANDBOX"):  # where both modes of the process jail are to be seen whole
    SLOW.append("process/j0")
SLOW_FILES = (
    "cluster/test_kills.py",
    "cluster/test_whole_steps.py",
    "cluster/test_run_worker.py",
    "cluster/test_spread.py",
    "cluster/test_sync.py",
    "update/test_deepspeed_backend.py",
)
"""All of whose tests need one."""
MANY = 60
"""Cases of one test, of which a part is enough for one run: the others are seen in others."""
SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")
SLOW_S, SLOW_SHARE = 0.7, 0.25
"""From how many seconds on a test, with all its cases, is in that file; the share of those that is run at least."""
left_out: dict[str, int] = {}
"""Why tests were left out -> how many."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("metaagent")
    group.addoption("--sample", type=float, default=1.0, help="share of the slow tests that are run")
    group.addoption("--sample-seed", type=int, default=None, help="which; drawn where none is given")
    group.addoption("--write-slow", action="store_true", help="slow_tests.txt; with -n 0, on an idle machine")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {})  # by `pytest_configure_node`, for a worker of pytest-xdist
    if config.option.sample_seed is None:
        config.option.sample_seed = given.get("metaagent_seed", random.randrange(1_000_000))
    if config.option.sample < 1:
        examples = max(10, round(config.option.sample * settings().max_examples))
        settings.register_profile("sample", parent=settings(), max_examples=examples)
        settings.load_profile("sample")
    config.stash[_PASSED] = given.get("metaagent_passed", PASSED)
    config.stash[_UNTIL] = float(given.get("metaagent_until", UNTIL))


_PASSED, _UNTIL = pytest.StashKey[str](), pytest.StashKey[float]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """What was drawn, or taken out of the environment, for a worker of pytest-xdist."""
    seed = node.config.option.sample_seed
    node.workerinput |= {"metaagent_passed": PASSED, "metaagent_until": UNTIL, "metaagent_seed": seed}


def pytest_report_header(config: pytest.Config) -> str:
    share, seed = config.option.sample, config.option.sample_seed
    return (
        ""
        if share >= 1
        else f"slow tests: a sample of {share:g} of them; --sample-seed={seed} draws it again, SAMPLE=1 runs all"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    record = config.stash[_PASSED]
    passed = set(Path(record).read_text(encoding="utf-8").splitlines()) if record and Path(record).exists() else set()
    _leave_out(config, items, "passed in an earlier step", [item for item in items if _plain(item.nodeid) in passed])
    share, seed = config.option.sample, config.option.sample_seed
    if share < 1:
        cases = Counter(_function(item.nodeid) for item in items)
        long = set(SLOW_TESTS.read_text(encoding="utf-8").splitlines()) if SLOW_TESTS.exists() else set[str]()
        slow = [
            item
            for item in items
            if item.get_closest_marker("thorough") or _is_slow(item.nodeid) or cases[_function(item.nodeid)] > MANY
        ]
        shares = {item: max(share, SLOW_SHARE) for item in items if _function(item.nodeid) in long}
        shares |= dict.fromkeys(slow, share)
        _leave_out(
            config,
            items,
            f"slow: outside of the sample {seed}",
            [item for item, of in shares.items() if random.Random(f"{seed} {_plain(item.nodeid)}").random() >= of],
        )


def _function(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def _is_slow(nodeid: str) -> bool:
    file = nodeid.partition("::")[0]
    return any(word in nodeid.partition("[")[2] for word in SLOW) or file.endswith(SLOW_FILES)


def _plain(nodeid: str) -> str:
    """Without the group that pytest-xdist puts behind it."""
    name, _, _ = nodeid.rpartition("@")
    return name if name.endswith("]") else nodeid


def _leave_out(config: pytest.Config, items: list[pytest.Item], why: str, those: list[pytest.Item]) -> None:
    if those:
        left_out[why] = len(those)
        config.hook.pytest_deselected(items=those)
        gone = set(those)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture
def in_jail() -> Any:
    import one_jail

    return one_jail.in_jail


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > item.config.stash[_UNTIL]:
        pytest.skip("the time for tests is used up")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if PASSED and report.when == "call" and report.passed:  # with pytest-xdist: where all workers report to
        with Path(PASSED).open("a", encoding="utf-8") as file:
            file.write(_plain(report.nodeid) + "\n")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if "one_jail" in sys.modules:
        sys.modules["one_jail"].close()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["metaagent_left_out"] = left_out  # pyright: ignore


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    left_out.update(getattr(node, "workeroutput", {}).get("metaagent_left_out", {}))  # each worker collects all tests


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.option.write_slow:
        seconds: Counter[str] = Counter()
        for report in chain.from_iterable(terminalreporter.stats.values()):
            if isinstance(report, pytest.TestReport):
                seconds[_function(report.nodeid)] += report.duration  # pyright: ignore
        slow = sorted(name for name, of in seconds.items() if of > SLOW_S)
        SLOW_TESTS.write_text("".join(f"{name}\n" for name in slow), encoding="utf-8")
    for why, count in left_out.items():
        terminalreporter.write_line(f"{count} tests left out: {why}")
    late = [each.nodeid for each in terminalreporter.stats.get("skipped", []) if "time for tests" in str(each.longrepr)]
    if late:
        terminalreporter.write_line(f"{len(late)} tests were left out, as the time for them was used up:")
        terminalreporter.write_line(", ".join(sorted({each.partition("::")[0] for each in late})))
