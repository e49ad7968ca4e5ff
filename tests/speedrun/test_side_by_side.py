"""Jobs in the order of what they need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speedrun.side_by_side import DONE, LOG, in_order
from speedrun.side_by_side import PARENT as PARENT_ID

GRAPHS = st.lists(st.frozensets(st.integers(0, 11)), max_size=12).map(
    lambda needs: {job: frozenset(each for each in before if each < job) for job, before in enumerate(needs)}
)
"""Whatever needs what: a job needs some of those with smaller numbers."""


@given(GRAPHS, st.integers(1, 3))
def test_each_is_done_once_after_what_it_needs(needs: dict[int, frozenset[int]], workers: int) -> None:
    done: list[int] = []

    def do(job: int) -> None:
        assert needs[job] <= set(done)
        done.append(job)

    in_order(needs, do, workers)
    assert sorted(done) == sorted(needs)


def test_none_waits_for_one_that_it_does_not_need() -> None:
    """The slow one ends only when what comes after the quick one has begun."""
    begun = threading.Event()

    def do(job: str) -> None:
        if job == "slow":
            assert begun.wait(20)
        if job == "after quick":
            begun.set()

    in_order({"slow": [], "quick": [], "after quick": ["quick"], "after slow": ["slow"]}, do, 2)
    assert begun.is_set()


def test_what_fails_ends_it() -> None:
    done: list[str] = []

    def do(job: str) -> None:
        done.append(job)
        time.sleep(0.01)
        if job == "wrong":
            raise RuntimeError("wrong failed")

    with pytest.raises(RuntimeError, match="wrong failed"):
        in_order({"right": [], "wrong": [], **{f"{n}": [] for n in range(100)}, "after": ["wrong"]}, do, 1)
    assert done[:2] == ["right", "wrong"]
    assert len(done) < 100
    assert "after" not in done


def test_what_needs_itself_is_told() -> None:
    with pytest.raises(ValueError, match="one needs what is never done"):
        in_order({"one": ["other"], "other": ["one"]}, lambda _: None, 2)


PARENT = """
import sys
from pathlib import Path
from speedrun.side_by_side import run_in_process
run_in_process(Path(sys.argv[1]), "a job", [sys.executable, "-c", sys.argv[2]])
"""
CHILD = """
import os, sys, time
from speedrun.asked import asked
asked(["--one", "{}"], "m", None, [], None, "")
print(os.getpid(), flush=True)
time.sleep(120)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_does_not_outlive_who_waits_for_it(tmp_path: Path, how: signal.Signals) -> None:
    """Whoever gives the same command again would find its folder busy."""
    waiting = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), CHILD], cwd=Path(__file__).parents[2])
    try:
        until(lambda: (tmp_path / LOG).exists() and (tmp_path / LOG).read_text().strip().isdigit())
        job = int((tmp_path / LOG).read_text())
        os.kill(job, 0)
        waiting.send_signal(how)
        waiting.wait(30)
        until(lambda: not _lives(job))
        assert not (tmp_path / DONE).exists()
    finally:
        waiting.kill()


def test_a_job_that_begins_when_nobody_waits_any_more_ends_at_once() -> None:
    begun = subprocess.run(
        [sys.executable, "-c", CHILD],
        env=os.environ | {PARENT_ID: "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (begun.returncode, begun.stderr) == (1, "whoever started this is gone\n")


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
