"""The same work on many things: results in order, the first failure, work side by side."""

from __future__ import annotations

import threading
import time

import pytest

from engine.threads import mapped


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_results_come_in_the_order_of_the_items(threads: int | None) -> None:
    def late(number: int) -> int:
        time.sleep(0.001 * (7 - number % 7))
        return number * number

    assert mapped(late, iter(range(30)), threads) == [number * number for number in range(30)]
    assert mapped(late, [], threads) == []


def test_as_many_work_at_the_same_time_as_there_are_threads() -> None:
    together = threading.Barrier(4)
    mapped(lambda _: together.wait(10), range(8), threads=4)


def test_the_first_failed_item_is_raised_and_the_rest_left_out() -> None:
    begun: list[int] = []

    def fail(number: int) -> None:
        begun.append(number)
        time.sleep(0.01)
        if number in (2, 3):
            raise ValueError(number)

    with pytest.raises(ValueError, match="2"):
        mapped(fail, range(1000), threads=2)
    assert len(begun) < 100
