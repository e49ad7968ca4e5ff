"""What `.ci/run` leaves out: tests that have passed before, and those that come too late. Never one that failed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = """
def test_good(): pass
def test_bad(): assert False
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_two.py").write_text(SOURCE)
    return tmp_path


PLAIN = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
"""What `.ci/run` adds when it tries again is not for the runs of pytest in here."""


def run(tests: Path, **environment: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tests), str(tests)]
    return subprocess.run(
        command, env=PLAIN | environment, capture_output=True, text=True, timeout=60, cwd=tests
    ).stdout


@pytest.mark.thorough
def test_what_has_passed_is_not_run_again_but_what_failed_is(tests: Path) -> None:
    passed = tests / "passed"
    assert "1 failed, 1 passed" in run(tests, METAAGENT_TESTS_PASSED=str(passed))
    assert passed.read_text() == "test_two.py::test_good\n"
    assert "1 failed, 1 deselected" in run(tests, METAAGENT_TESTS_PASSED=str(passed))


@pytest.mark.thorough
def test_what_comes_too_late_is_skipped_counted_and_not_taken_for_passed(tests: Path) -> None:
    passed = tests / "passed"
    said = run(tests, METAAGENT_TESTS_PASSED=str(passed), METAAGENT_TESTS_UNTIL=str(time.time() - 1))
    assert "2 skipped" in said
    assert "2 tests were left out, as the time for them was used up:" in said
    assert not passed.exists()
    assert "1 failed, 1 passed" in run(tests, METAAGENT_TESTS_UNTIL=str(time.time() + 3600))


@pytest.mark.thorough
def test_the_tests_of_the_slowest_sandbox_come_last_and_so_are_left_out_first() -> None:
    root = Path(__file__).parents[1]
    options = ["-p", "no:cacheprovider", "--collect-only", "-m", ""]
    command = [sys.executable, "-m", "pytest", *options, "tests/sandbox"]
    said = subprocess.run(command, env=PLAIN, capture_output=True, text=True, timeout=100, cwd=root).stdout
    slowest = ["gvisor" in line for line in said.splitlines() if "::" in line]
    assert 50 < sum(slowest) < len(slowest), said
    assert slowest == sorted(slowest)
