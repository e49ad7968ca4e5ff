"""One line of `results.jsonl`: the attempt in it, or what is wrong with it, and the short row that is kept of one.

Which lines there are is `viewer.evaluation.evaluation_data`'s business.
"""

from __future__ import annotations

import hashlib
import math
from sys import intern
from typing import NamedTuple

from pydantic import ValidationError

from trainer.evaluate import NO_PROGRAM, Attempt
from viewer.means import no_count
from workflow.answers import Domain
from workflow.failures import FailureKind
from workflow.graph import Structure

LONGEST_LINE = 1 << 26
"""Bytes of one attempt; a longer line counts as broken."""
MOST_NUMBER = 2**53
LONGEST_NAME = 300
"""Characters of a problem's id, a task's name or a verdict that are kept; what is longer ends in a digest instead."""
LONGEST_PATH = 500


class Row(NamedTuple):
    """What is kept of one attempt; the rest is in its line."""

    line: int
    """Of `results.jsonl`, from 1."""
    offset: int
    """The byte at which that line begins."""
    problem: str
    attempt: int
    digest: str
    """Of the problem."""
    task: str
    domain: Domain
    correct: bool
    answered: bool
    verdict: str
    failure: FailureKind | None
    structure: Structure | None
    program: bytes
    """Equal where two programs are equal; empty where there is none."""
    tokens: int
    """Prompt and completion tokens of Designer and agents."""
    calls: int
    """Of agents."""
    cost_usd: float | None
    seconds: float
    trace: str | None

    @property
    def structure_name(self) -> str:
        return self.structure or NO_PROGRAM


def attempt_of(line: bytes) -> Attempt | str:
    """The attempt of a line, or why it holds none."""
    if len(line) > LONGEST_LINE:
        return f"it is longer than {LONGEST_LINE:,} bytes"
    try:
        attempt = Attempt.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))[:80]
        return first["msg"] + (f" ({place})" if place else "")
    return _not_plausible(attempt) or attempt


def _not_plausible(attempt: Attempt) -> str:
    """What no attempt can have taken, and no sum could be made of."""
    if not (math.isfinite(attempt.duration_s) and attempt.duration_s >= 0):
        return f"{attempt.duration_s} is no number of seconds (duration_s)"
    for tally in attempt.usage.values():
        if tally.usage.cost_usd is not None and not 0 <= tally.usage.cost_usd < MOST_NUMBER:
            return f"{tally.usage.cost_usd} is no cost (usage)"
    counts = {name: getattr(attempt, name) for name in ("attempt", "turns", "reply_tokens", "usage", "search")}
    return no_count(counts)


def name_of(text: str) -> str:
    """What a row has of it. Two texts have two names."""
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 20]}…{_digest(text).hex()}"


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()


def row_of(attempt: Attempt, line: int, offset: int) -> Row:
    program = attempt.program
    tallies = attempt.usage.values()
    costs = [tally.usage.cost_usd for tally in tallies if tally.usage.cost_usd is not None]
    executor = attempt.usage.get("executor")
    return Row(
        line=line,
        offset=offset,
        problem=name_of(attempt.problem),
        attempt=attempt.attempt,
        digest=attempt.problem_digest,
        task=intern(name_of(attempt.task)),
        domain=attempt.domain,
        correct=attempt.correct,
        answered=attempt.answered,
        verdict=intern(name_of(attempt.verdict)),
        failure=attempt.failure,
        structure=attempt.structure,
        program=b"" if program is None else _digest(program),
        tokens=sum(tally.usage.total_tokens for tally in tallies),
        calls=0 if executor is None else executor.calls,
        cost_usd=sum(costs) if costs else None,
        seconds=attempt.duration_s,
        trace=attempt.trace if attempt.trace and len(attempt.trace) <= LONGEST_PATH else None,
    )
