"""Gold answers of benchmarks that the project has no reader for, out of their public files: OlympiadBench, Minerva's
OCWCourses, AMC 2023, Gaokao 2023 (English), CARP (English). JSON lines or a JSON list.

Only golds, for measuring graders; problems that can be run are read in `tasks.data`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workflow.answers import math_answer

Row = dict[str, Any]


def _answer(row: Row) -> str:
    return str(row["answer"])


def _boxed(row: Row) -> str:
    return math_answer(row["solution"]) or ""


def _final_answers(row: Row) -> str:
    """OlympiadBench has a list; where it has more than one, or they stand in one text, all are the answer."""
    golds = row["final_answer"] if isinstance(row["final_answer"], list) else [row["final_answer"]]
    gold = ", ".join(str(part).strip().strip("$") for part in golds)
    unit = str(row.get("unit") or "").strip().strip("$")
    return rf"{gold} \text{{ {unit}}}" if unit and "\\" not in unit else f"{gold} {unit}".strip()


FORMATS: dict[str, Callable[[Row], str]] = {
    "olympiadbench": _final_answers,
    "minerva": _boxed,
    "amc23": _answer,
    "gaokao": _answer,
    "carp": _answer,
}


def read_golds(kind: str, path: Path) -> list[str]:
    """The golds of `path`, a file of the benchmark `kind` of `FORMATS`. Raises ValueError naming a row without one."""
    text = path.read_text(encoding="utf-8").strip()
    rows = (
        json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines() if line.strip()]
    )
    golds = []
    for number, row in enumerate(rows, 1):
        try:
            golds.append(FORMATS[kind](row))
        except KeyError as missing:
            raise ValueError(
                f"{path}, row {number}: {kind} has a field {missing}; this row has {sorted(row)}"
            ) from None
    return golds
