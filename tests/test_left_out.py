"""What `.ci/run` leaves out: tests that have passed before, and those that come too late. Never one that failed."""

from __future__ import annotations

import os
import re
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

CASES = """
import pytest
@pytest.mark.parametrize("n", range(300))
def test_many(n): pass
@pytest.mark.parametrize("n", range(60))
def test_few(n): pass
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
def test_of_many_cases_a_part_is_run_which_a_seed_draws_again(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_cases.py").write_text(CASES)
    sampled = ["--sample=0.2", "--sample-seed=1"]
    first = run(tmp_path, PYTEST_ADDOPTS=" ".join(sampled))
    found = re.search(r"(\d+) passed, (\d+) deselected", first)
    assert found is not None, first
    passed, left = map(int, found.groups())
    assert passed + left == 360
    assert 60 + 30 <= passed <= 60 + 90, "those of few cases, and about a fifth of 300"
    assert f"{passed} passed, {left} deselected" in run(tmp_path, PYTEST_ADDOPTS=" ".join(sampled))
    assert "360 passed" in run(tmp_path)


@pytest.mark.thorough
def test_the_tests_of_the_slowest_sandbox_come_last_and_so_are_left_out_first() -> None:
    root = Path(__file__).parents[1]
    options = ["-p", "no:cacheprovider", "--collect-only", "-m", ""]
    command = [sys.executable, "-m", "pytest", *options, "tests/sandbox"]
    said = subprocess.run(command, env=PLAIN, capture_output=True, text=True, timeout=100, cwd=root).stdout
    slowest = ["gvisor" in line for line in said.splitlines() if "::" in line]
    assert 50 < sum(slowest) < len(slowest), said
    assert slowest == sorted(slowest)


@pytest.mark.thorough
def test_of_what_takes_long_a_larger_part_is_run_and_the_list_is_made_anew(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_cases.py").write_text(CASES + "import time\ndef test_slow(): time.sleep(1.1)\n")
    assert "361 passed" in run(tmp_path, PYTEST_ADDOPTS="--write-slow")
    assert (tmp_path / "slow_tests.txt").read_text() == "test_cases.py::test_slow\n"
    (tmp_path / "slow_tests.txt").write_text("test_cases.py::test_few\n")
    said = run(tmp_path, PYTEST_ADDOPTS="--sample=0.01 --sample-seed=1 -k few")
    found = re.search(r"(\d+) passed", said)
    assert found is not None, said
    assert 6 <= int(found[1]) <= 26, "about a quarter of 60"


def test_what_takes_long_is_there() -> None:
    """Names of tests that are gone would sample nothing."""
    root = Path(__file__).parents[1]
    for name in (root / "tests" / "slow_tests.txt").read_text().splitlines():
        file, function = name.split("::")[0], name.split("::")[-1]
        assert f"def {function}(" in (root / file).read_text(), name
