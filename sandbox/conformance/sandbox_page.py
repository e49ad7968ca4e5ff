"""What the suite saw of each configuration, and the tables of docs/sandbox.md that are made of it.

Whoever runs suite and corpus fills in a `Seen`; nothing is run or written here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sandbox.conformance.attacks import ATTACKS
from sandbox.conformance.contain import Verdict
from sandbox.strength import CONFIGURATIONS, NOT_PROTECTED, WALLS

BEGIN, END = "<!-- written by make test-sandbox PAGE=docs/sandbox.md: begin -->", "<!-- end -->"


@dataclass
class Seen:
    """One configuration, on one machine."""

    name: str
    why_not: str = ""
    verdicts: list[Verdict] = field(default_factory=list)
    passed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def summary(self) -> str:
        """One line of counts, or why it did not run."""
        if self.why_not:
            return f"cannot run here: {self.why_not}"
        held = sum(verdict.contained for verdict in self.verdicts)
        of = "" if len(self.verdicts) in (0, len(ATTACKS)) else f" ({len(ATTACKS)} are in the corpus)"
        counts = [f"{held} of {len(self.verdicts)} attacks{of} contained", f"{self.passed} checks passed"]
        counts += [f"{len(self.failed)} FAILED"] if self.failed else []
        return ", ".join([*counts, f"{len(self.left_out)} left out"])


def strength_table() -> str:
    rows = [["wall", "meaning", *CONFIGURATIONS]]
    for wall in WALLS:
        rows.append([wall.name, wall.meaning, *(wall.by.get(name, "**no**") for name in CONFIGURATIONS)])
    notes = [f"- *{wall.name}*, where not enforced: {wall.otherwise}." for wall in WALLS if wall.otherwise]
    return "\n".join(
        [_table(rows), "", *notes, "", "Not protected against:", "", *(f"- {text}" for text in NOT_PROTECTED)]
    )


def result_table(results: list[Seen]) -> str:
    kinds = list(dict.fromkeys(attack.kind for attack in ATTACKS))
    rows = [["attacks contained / tried", *kinds, "all", "checks passed / made", "left out"]]
    notes = []
    for seen in results:
        if seen.why_not:
            rows.append([seen.name, *["-"] * len(kinds), "-", "-", "-"])
            notes.append(f"- `{seen.name}` did not run: {seen.why_not}")
            continue
        tried = [verdict for verdict in seen.verdicts if not verdict.left_out]
        counts = Counter(verdict.attack.kind for verdict in tried)
        held = Counter(verdict.attack.kind for verdict in tried if verdict.contained)
        rows.append(
            [
                seen.name,
                *(f"{held[kind]} / {counts[kind]}" for kind in kinds),
                f"{held.total()} / {counts.total()}",
                f"{seen.passed} / {seen.passed + len(seen.failed)}",
                str(len(seen.left_out) + len(seen.verdicts) - len(tried)),
            ]
        )
        if len(seen.verdicts) < len(ATTACKS):
            notes.append(f"- `{seen.name}` was put to {len(seen.verdicts)} of the corpus's {len(ATTACKS)} attacks")
        notes += [f"- `{seen.name}`, check `{name}` failed: {why}" for name, why in seen.failed.items()]
        notes += [f"- `{seen.name}`, check `{name}` left out: {why}" for name, why in seen.left_out.items()]
        notes += [
            f"- `{seen.name}` did not contain `{verdict.attack.id}`: {verdict.escapes[0][:200]!r}"
            for verdict in tried
            if not verdict.contained
        ]
    return "\n".join([_table(rows), "", *notes]).rstrip()


def written_into(page: str, results: list[Seen], commit: str) -> str:
    """The page with both tables between its two marks, and the commit whose code was seen."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no marks {BEGIN!r} and {END!r}")
    seen = ["## What was seen", f"At commit `{commit}`:", result_table(results)]
    body = "\n\n".join(["## What is enforced", strength_table(), *seen])
    return f"{before}{BEGIN}\n\n{body}\n\n{END}{after}"


def _table(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])
