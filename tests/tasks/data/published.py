"""Rows as the three training sets publish them, made up here, and files of them in every form that is read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

POLARIS: dict[str, Any] = {"problem": "What is half of $1$?", "answer": r"\frac{1}{2}", "difficulty": "5/8"}
APPS: dict[str, Any] = {
    "problem_id": 2361,
    "question": "Print the sum of two numbers.",
    "solutions": json.dumps(["a, b = map(int, input().split())\nprint(a + b)\n"]),
    "input_output": json.dumps({"inputs": ["1 2\n", "5 6\n"], "outputs": ["3\n", "11\n"]}),
    "difficulty": "introductory",
    "url": "https://codeforces.com/problemset/problem/1/A",
    "starter_code": "",
}
CALLED: dict[str, Any] = {
    **APPS,
    "problem_id": 2362,
    "question": "Turn it around.",
    "solutions": json.dumps(["class Solution:\n    def turn(self, s):\n        return s[::-1]\n"]),
    "input_output": json.dumps({"fn_name": "turn", "inputs": [["ab"], ["xyz"]], "outputs": [["ba"], ["zyx"]]}),
    "starter_code": "class Solution:\n    def turn(self, s: str) -> str:\n        ",
}
CONTEST: dict[str, Any] = {
    "name": "76_B. Mice",
    "description": "Print one more than the number that you read.",
    "public_tests": {"input": ["3\n"], "output": ["4\n"]},
    "private_tests": {"input": ["9\n"], "output": ["10\n"]},
    "generated_tests": {"input": ["7\n", "8\n"], "output": ["8\n", "9\n"]},
    "source": 2,
    "difficulty": 8,
    "solutions": {"language": [2, 3], "solution": ["int main() {}", "print(int(input()) + 1)\n"]},
    "incorrect_solutions": {"language": [3], "solution": ["print(1)\n"]},
    "cf_contest_id": 76,
    "cf_index": "B",
    "cf_points": 0.0,
    "cf_rating": 2100,
    "cf_tags": ["greedy", "two pointers"],
    "is_description_translated": False,
    "untranslated_description": "",
    "time_limit": {"seconds": 0, "nanos": 500000000},
    "memory_limit_bytes": 256000000,
    "input_file": "",
    "output_file": "",
}
GOOD: dict[str, list[dict[str, Any]]] = {
    "polaris": [POLARIS, {**POLARIS, "problem": "What is $3 + 4$?", "answer": "7"}],
    "apps": [APPS, CALLED],
    "code_contests": [CONTEST, {**CONTEST, "name": "1_A. Sum"}],
}
FORMS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A file of these rows, in the form that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow.parquet").write_table(
            pytest.importorskip("pyarrow").Table.from_pylist(list(rows)), path
        )
        return path
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if path.suffix == ".zst":
        with pytest.importorskip("pyarrow").CompressedOutputStream(str(path), "zstd") as file:
            file.write(lines)
    else:
        path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    return path
