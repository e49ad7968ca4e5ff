"""The measure of growth that readers of hostile text are held to does see what is quadratic."""

from collections.abc import Callable

import pytest
from growth import check_linear


def test_quadratic_time_is_noticed() -> None:
    def work(size: int) -> Callable[[], object]:
        data = bytes(size * size)
        return lambda: sum(data)

    # 64 times the work, far from the bound: noise in one of the tries must not let it pass.
    with pytest.raises(AssertionError, match="slow: 8 times the size takes more than 20 times the work"):
        check_linear("slow", work, 1000, factor=8)


def test_quadratic_memory_is_noticed() -> None:
    def work(size: int) -> Callable[[], object]:
        return lambda: b"x" * (size * size)

    with pytest.raises(AssertionError, match="big: 4 times the size takes more than 10 times the memory"):
        check_linear("big", work, 1000)


def test_what_is_linear_passes() -> None:
    check_linear("list", lambda size: lambda: [0] * size, 1_000_000)
