"""The search for slow patterns finds those that readers of hostile text once had."""

import re
import signal
from collections.abc import Iterator

import pytest

from benchmarks.patterns import Found, interrupt, slowest

SLOW = [
    (r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", 0, "fullmatch"),
    (r"^[ \t]*((?:async )?def \w+\s*\([^)]*\)[^:\n]*):", re.MULTILINE, "findall"),  # needs its own line each time
    (r"\b(?:at most|up to)\b[^.]*\d", re.IGNORECASE, "search"),  # needs its own word each time
    (r"^\W*Workflow Pattern\W*:\W*(\S.*)$", re.MULTILINE, "search"),
    (r"x(?=(?:a+)+b)", 0, "search"),  # looked at, and not passed
    (r"(?:a+)+b", 0, "search"),
]


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.thorough
@pytest.mark.parametrize(("pattern", "flags", "method"), SLOW)
def test_a_slow_pattern_is_named(pattern: str, flags: int, method: str) -> None:
    assert slowest(Found("here", re.compile(pattern, flags), frozenset({method}))) is not None


@pytest.mark.parametrize("pattern", [r"(?<![0-9])[0-9]++x", r"\\\[[^\\]{1,1000}+\\\]", r"\bdef \w{1,40}+\("])
def test_a_linear_pattern_is_not(pattern: str) -> None:
    assert slowest(Found("here", re.compile(pattern), frozenset({"search"})), 5_000) is None
