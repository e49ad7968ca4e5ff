"""Hypothesis without deadlines: how long an example takes says something about the machine, not about the code.

Also: failed assertions of the conformance suite are explained as those of tests are; and what `.ci/run` asks for, whose
steps have tests in common, and which has a limit of time.
"""

import os
import time
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("sandbox.conformance")
settings.register_profile("metaagent", parent=settings(), deadline=None)
settings.load_profile("metaagent")

PASSED = os.environ.pop("METAAGENT_TESTS_PASSED", "")
"""File with the tests that have passed before: they are left out. Those that pass now are added."""
UNTIL = float(os.environ.pop("METAAGENT_TESTS_UNTIL", "inf"))
"""Unix time from which on tests are skipped; the last line tells how many."""
too_late: list[str] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not PASSED or not Path(PASSED).exists():
        return
    passed = set(Path(PASSED).read_text(encoding="utf-8").splitlines())
    again = [item for item in items if item.nodeid in passed]
    if again:
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if item.nodeid not in passed]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > UNTIL:
        too_late.append(item.nodeid)
        pytest.skip("the time for tests is used up")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if PASSED and report.when == "call" and report.passed:
        with Path(PASSED).open("a", encoding="utf-8") as file:
            file.write(report.nodeid + "\n")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if too_late:
        terminalreporter.write_line(f"{len(too_late)} tests were left out, as the time for them was used up:")
        terminalreporter.write_line(", ".join(sorted({each.partition("::")[0] for each in too_late})))
