"""The conformance suite: what every sandbox backend must do, and the attacks that it must contain.

For whoever writes a backend: describe each of its configurations as a `Backend`, then make every one of `CHECKS` with a
`Subject` (`async with subject_of(backend) as subject`) and put it to `ATTACKS` with `contain`. Needs no test framework.
Not here: pytest, and walls. CONTRIBUTING.md shows it; docs/sandbox.md holds the results for this project's own
backends.
"""

from __future__ import annotations

from sandbox.conformance import check_code, check_life, check_limits, check_programs, check_workspaces
from sandbox.conformance.attacks import ATTACKS, HOSTILE_TEXTS, Attack
from sandbox.conformance.contain import Verdict, contain
from sandbox.conformance.outside import Outside
from sandbox.conformance.subject import Backend, Subject, subject_of
from sandbox.conformance.suite import CHECKS, Check

TOPICS = tuple(dict.fromkeys(check.topic for check in CHECKS))
_FILLED_BY = (check_code, check_life, check_limits, check_programs, check_workspaces)

__all__ = [
    "ATTACKS",
    "CHECKS",
    "HOSTILE_TEXTS",
    "TOPICS",
    "Attack",
    "Backend",
    "Check",
    "Outside",
    "Subject",
    "Verdict",
    "contain",
    "subject_of",
]
