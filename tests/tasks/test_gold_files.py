"""Golds of other benchmarks, out of rows made up after their public formats."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gold_files import FORMATS, read_golds
from tasks.math.worker import compare

ROWS: dict[str, list[dict[str, Any]]] = {
    "olympiadbench": [
        {"id": 1, "question": "q", "final_answer": ["$1$", "$-3$"], "is_multiple_answer": True, "unit": None},
        {"id": 2, "question": "q", "final_answer": ["$(1,2)$,$(2,1)$"], "is_multiple_answer": True, "unit": ""},
        {"id": 3, "question": "q", "final_answer": ["40"], "is_multiple_answer": False, "unit": "km"},
    ],
    "minerva": [{"problem": "p", "solution": r"So it is \boxed{4.2e-3} joules.", "type": "t", "idx": 0}],
    "amc23": [{"id": 0, "question": "q", "answer": 27.0, "url": "u"}],
    "gaokao": [{"question": "q", "answer": r"$[-1, 3)$"}],
    "carp": [{"content": "c", "answer": "$x = 2$"}],
}
ANSWERS = {
    "olympiadbench": ["-3, 1", "(2,1), (1,2)", r"40 \text{ km}"],
    "minerva": [r"4.2 \times 10^{-3}"],
    "amc23": ["27"],
    "gaokao": [r"\{x \mid -1 \le x < 3\}"],
    "carp": ["2"],
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("as_list", [False, True])
def test_golds_are_found_and_grade(kind: str, as_list: bool, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    rows = ROWS[kind]
    file.write_text(json.dumps(rows) if as_list else "\n".join(map(json.dumps, rows)), encoding="utf-8")
    golds = read_golds(kind, file)
    graded = [compare(gold, answer) for gold, answer in zip(golds, ANSWERS[kind], strict=True)]
    assert graded == ["correct"] * len(rows), golds


def test_a_row_of_another_format_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text('{"answer": "1"}\n{"gold": "2"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="row 2: carp has a field 'answer'"):
        read_golds("carp", file)
