"""Reads the tests that an agent writes for a script: what it is given on stdin, and what it should print.

    **Test Input:**
    3
    **Test Output:**
    9

is the form of Stronger-MAS (Appendix C.2). Whether a test is right is for a reference solution to say.
"""

from __future__ import annotations

import re
from itertools import pairwise

from tasks.problems import StdinTest
from workflow.text import fences

_HEADING = re.compile(r"\*\*[ \t]*Test (Input|Output)[ \t]*:[ \t]*\*\*[ \t]*\n?", re.IGNORECASE)


def written_tests(text: str) -> list[StdinTest]:
    """All whole ones, in order: an input with an output behind it. A code fence around either is taken off, with what
    stands behind it; without one all counts up to the next heading, or to the end."""
    headings = list(_HEADING.finditer(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    parts = [
        (heading[1].lower(), text[heading.end() : end].strip()) for heading, end in zip(headings, ends, strict=False)
    ]
    return [
        StdinTest(stdin=_bare(given), stdout=_bare(expected))
        for (first, given), (second, expected) in pairwise(parts)
        if (first, second) == ("input", "output") and expected
    ]


def _bare(part: str) -> str:
    fenced = fences(part) if part.startswith("```") else []
    return (fenced[0][1] if fenced else part) + "\n"
