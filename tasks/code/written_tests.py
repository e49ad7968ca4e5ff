"""Reads the tests that an agent writes for a script: what it is given on stdin, and what it should print.

    **Test Input:**
    3
    **Test Output:**
    9

is the form of Stronger-MAS (Appendix C.2). Whether a test is right is for a reference solution to say.
"""

from __future__ import annotations

import re
from itertools import islice, pairwise

from tasks.problems import StdinTest
from workflow.text import fences

_HEADING = re.compile(
    r"^[ \t]*+(?:#{1,6}+[ \t]*+)?\*{0,3}+[ \t]*+Test (Input|Output)[ \t]*+\d{0,3}+[ \t]*+"
    r"\*{0,3}+[ \t]*+:[ \t]*+\*{0,3}+[ \t]*+",
    re.IGNORECASE | re.MULTILINE,
)


def written_tests(text: str, most: int) -> list[StdinTest]:
    """The first whole ones, in order: an input with an output behind it, each under a heading that begins a line. A
    code fence around either is taken off, with what stands behind it, and so are single backticks; else all counts up
    to the next heading, or to the end."""
    headings = list(islice(_HEADING.finditer(text), 2 * most + 1))
    found: list[StdinTest] = []
    for heading, behind in pairwise([*headings, None]):
        if heading is None or behind is None or (heading[1].lower(), behind[1].lower()) != ("input", "output"):
            continue
        after = _HEADING.search(text, behind.end())
        expected = _bare(text[behind.end() : len(text) if after is None else after.start()])
        if expected.strip():
            found.append(StdinTest(stdin=_bare(text[heading.end() : behind.start()]), stdout=expected))
    return found[:most]


def _bare(part: str) -> str:
    part = part.strip()
    fenced = fences(part) if part.startswith("```") else []
    if fenced:
        return fenced[0][1] + "\n"
    inline = len(part) > 2 and part[0] == part[-1] == "`" and part.count("`") == 2
    return (part[1:-1] if inline else part) + "\n"
