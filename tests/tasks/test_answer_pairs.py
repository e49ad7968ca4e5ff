"""Pairs of gold and answer as agents write them, right and wrong, of many kinds: how many are graded right."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tasks.math.math_grader import equal_integers
from tasks.math.worker import compare

FILES = sorted(Path(__file__).parent.glob("answer_pairs*.jsonl"))


@pytest.mark.thorough
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_right_answers_are_accepted_and_wrong_ones_refused(file: Path) -> None:
    pairs = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    graded: Counter[tuple[bool, bool]] = Counter()
    missed = []
    for pair in pairs:
        at_sight = equal_integers(pair["gold"], pair["answer"])
        correct = compare(pair["gold"], pair["answer"], pair.get("percent", False)) == "correct"
        assert at_sight in (None, correct), pair
        graded[pair["right"], correct] += 1
        if correct != pair["right"]:
            missed.append(pair)
    accepted = graded[True, True] / (graded[True, True] + graded[True, False])
    refused = graded[False, False] / (graded[False, False] + graded[False, True])
    assert accepted >= 0.98, missed
    assert refused >= 0.98, missed
