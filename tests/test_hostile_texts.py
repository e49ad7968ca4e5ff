"""The hostile texts of the corpus, and the old readers that they froze. Those of today: `test_readers.py`.

Old readers are kept as they were, to show that the texts are hostile.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator

import pytest

from sandbox.conformance.attacks import HOSTILE_TEXTS
from workflow.text import last_boxed

TEXTS = {name: eval(expression) for name, expression in HOSTILE_TEXTS.items()}
PATIENCE_S = 1.0


def peeled(text: str) -> str | None:
    found = last_boxed(text)
    while found is not None and re.match(r"\\(boxed|fbox)\b", found):
        found = last_boxed(found)
    return found


def searching(pattern: str, flags: int = 0, method: str = "search") -> Callable[[str], object]:
    return getattr(re.compile(pattern, flags), method)


OLD = {
    "a number that is none": searching(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", method="fullmatch"),
    "fences never closed": searching(
        r"^[ \t]*```[ \t]*(?P<language>[\w+-]*)[^\n]*\n(?P<body>.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE
    ),
    "boxes in boxes": peeled,
    "a final answer and asterisks": searching(
        r"^(?:_|[^\w\n])*(?:the )?final answer\b[*_]*(?: is)?[\s:*_]*+(?=\S)", re.IGNORECASE | re.MULTILINE
    ),
    "correct and slashes": searching(
        r"\b(?:correct|incorrect)\W*(?:or|/|\|)\W*(?:verdict\W*)?(?:correct|incorrect)\b", re.IGNORECASE
    ),
}
"""Readers as they were, by the text that froze them."""


@pytest.fixture
def impatient() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S, 1)  # again, should a callback have swallowed it
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.thorough
@pytest.mark.parametrize("name", OLD)
def test_the_text_freezes_the_old_reader(name: str, impatient: None) -> None:
    with pytest.raises(TimeoutError):
        OLD[name](TEXTS[name])
