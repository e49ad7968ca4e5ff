"""Jobs in the order of what they need."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speedrun.side_by_side import in_order

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
