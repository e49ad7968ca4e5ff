"""What changed between two evaluations: numbers worked by hand, and what must always hold of them."""

from __future__ import annotations

from dataclasses import fields

import pytest
from evaluation_folders import attempt, rows_of
from hypothesis import given
from hypothesis import strategies as st

from trainer.evaluate import Attempt
from viewer.evaluation.attempt_rows import Row
from viewer.evaluation.changes import DESIGNS, Counts, compare, match, paired

FLIP = {"structure": "reflection", "program": "another one"}
OTHER = {"program": "another one"}
NONE = {"structure": None, "program": None, "graph": None}


def changed(before: dict, after: dict, right: tuple[bool, bool] = (False, True)):
    one, other = (attempt("p", 0, correct, **more) for correct, more in zip(right, (before, after), strict=True))
    return paired(*rows_of([one, other]))


@pytest.mark.parametrize(
    ("before", "after", "design"),
    [
        ({}, {}, "same program"),
        ({}, OTHER, "same structure"),
        ({}, {"structure": "reflection"}, "designer flip"),
        ({}, FLIP, "designer flip"),
        (NONE, {}, "new program"),
        ({}, NONE, "lost program"),
        (NONE, NONE, "no program"),
        ({"program": None}, {"program": None}, "same structure"),  # nothing says that they are the same
        ({"structure": None}, {"structure": None}, "no program"),  # the same text, refused both times
    ],
)
def test_what_became_of_the_design(before: dict, after: dict, design: str) -> None:
    assert changed(before, after).design == design


def test_outcomes() -> None:
    found = [changed({}, {}, (one, other)).outcome for one in (False, True) for other in (False, True)]
    assert found == ["same wrong", "fixed", "broken", "same right"]


def test_a_comparison_by_hand() -> None:
    """Eight problems, one attempt each: three fixed (one by a flip), one broken by a flip, two right, two wrong."""
    before = [attempt(name, 0, name in "efg", task="t") for name in "abcdefgh"]
    after = [
        attempt("a", 0, True, task="t"),
        attempt("b", 0, True, task="t", **OTHER),
        attempt("c", 0, True, task="t", **FLIP),
        attempt("d", 0, False, task="t"),
        attempt("e", 0, True, task="t"),
        attempt("f", 0, True, task="t", **FLIP),
        attempt("g", 0, False, task="t", **FLIP),
        attempt("h", 0, False, task="t", **NONE),
    ]
    changes = compare(rows_of(before), rows_of(after))
    assert changes.all is not None
    assert changes.all.counts == Counts(fixed=3, broken=1, same_right=2, same_wrong=2)
    assert (changes.all.before.estimate, changes.all.after.estimate, changes.all.gain.mean) == (0.375, 0.625, 0.25)
    assert (changes.all.counts.right_before, changes.all.counts.right_after, changes.all.counts.net) == (3, 5, 2)
    # 1 of 4 that differ went down: 2 (1 + 4) / 16.
    assert changes.p_value == pytest.approx(0.625)
    assert {name: part.counts for name, part in changes.parts.items()} == {
        "same program": Counts(fixed=1, same_right=1, same_wrong=1),
        "same structure": Counts(fixed=1),
        "designer flip": Counts(fixed=1, broken=1, same_right=1),
        "lost program": Counts(same_wrong=1),
    }
    gains = {name: part.gain.mean for name, part in changes.parts.items()}
    assert gains == {"same program": 0.125, "same structure": 0.125, "designer flip": 0.0, "lost program": 0.0}
    assert {name: rate.estimate for name, rate in changes.fixed_by.items()} == pytest.approx(
        {"same program": 1 / 3, "same structure": 1 / 3, "designer flip": 1 / 3}
    )
    assert changes.same_pattern is not None
    assert changes.same_pattern.estimate == pytest.approx(2 / 3)
    # Wilson's interval for 2 of 3: (2/3 + z^2/6 -+ z sqrt((2/9 + z^2/12) / 3)) / (1 + z^2/3).
    assert (changes.same_pattern.low, changes.same_pattern.high) == pytest.approx((0.20765, 0.93851), abs=1e-5)
    assert changes.flows == {
        ("single", "single"): Counts(fixed=2, same_right=1, same_wrong=1),
        ("single", "reflection"): Counts(fixed=1, broken=1, same_right=1),
        ("single", "none"): Counts(same_wrong=1),
    }
    assert list(changes.by_task) == ["t"]
    assert changes.by_task["t"] == changes.all


def test_several_attempts_at_a_problem_count_as_its_pass_rate() -> None:
    before = [*(attempt("a", n, n < 1) for n in range(4)), *(attempt("b", n, n < 2) for n in range(2))]
    after = [*(attempt("a", n, n < 3) for n in range(4)), *(attempt("b", n, n < 1) for n in range(2))]
    changes = compare(rows_of(before), rows_of(after))
    assert changes.all is not None
    # a: 1/4 to 3/4, b: 1 to 1/2; two problems are drawn as two coins.
    assert (changes.all.gain.mean, changes.all.gain.low, changes.all.gain.high) == (0.0, -0.5, 0.5)
    assert [(each.problem, each.before, each.after, each.gain) for each in changes.problems] == [
        ("a", 1, 3, 0.5),
        ("b", 2, 1, -0.5),
    ]
    assert (changes.p_value, changes.attempts_each) == (None, 4)


def test_a_problem_that_was_fixed_twice_counts_once_in_the_shares() -> None:
    before = [*(attempt("a", n, False) for n in range(3)), attempt("b", 0, False)]
    after = [attempt("a", 0, True), attempt("a", 1, True), attempt("a", 2, True, **FLIP), attempt("b", 0, True, **FLIP)]
    changes = compare(rows_of(before), rows_of(after))
    assert changes.same_pattern is not None
    assert changes.same_pattern.estimate == pytest.approx((2 / 3 + 0) / 2)
    assert changes.fixed_by["designer flip"].estimate == pytest.approx((1 / 3 + 1) / 2)


def test_attempts_without_another_half_are_counted() -> None:
    before = rows_of([attempt("a"), attempt("b"), attempt("c", problem_digest="as it was")])
    after = rows_of([attempt("a", 1), attempt("b"), attempt("c"), attempt("d")])
    matched = match(before, after)
    assert [pair.after.problem for pair in matched.pairs] == ["b"]
    assert (matched.only_before, matched.only_after, matched.other_text) == (1, 2, 1)


def test_nothing_in_common() -> None:
    for before, after in ([], []), ([attempt("a")], [attempt("b")]), ([], [attempt("b")]):
        changes = compare(rows_of(before), rows_of(after))
        assert (changes.all, changes.p_value, changes.same_pattern) == (None, None, None)
        assert (changes.parts, changes.flows, changes.problems, changes.attempts_each) == ({}, {}, [], 0)


def test_nothing_was_fixed() -> None:
    changes = compare(rows_of([attempt("a")]), rows_of([attempt("a", 0, False)]))
    assert (changes.fixed_by, changes.same_pattern) == ({}, None)
    assert changes.parts["same program"].gain.mean == -1.0


HALVES = st.builds(
    lambda problem, number, correct, task, more: attempt(problem, number, correct, task=task, **more),
    st.sampled_from("abc"),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(["", "t", "u"]),
    st.sampled_from([{}, OTHER, FLIP, NONE, {"problem_digest": "another"}]),
)
EVALUATIONS = st.lists(HALVES, max_size=9, unique_by=lambda each: (each.problem, each.attempt))


def counts_of(counts: Counts) -> dict[str, int]:
    return {each.name: getattr(counts, each.name) for each in fields(counts)}


@given(EVALUATIONS, EVALUATIONS)
def test_counts_add_up(before: list[Attempt], after: list[Attempt]) -> None:
    changes = compare(rows_of(before), rows_of(after))
    matched = changes.matched
    assert len(matched.pairs) + matched.only_before + matched.other_text == len(before)
    assert len(matched.pairs) + matched.only_after + matched.other_text == len(after)
    if changes.all is None:
        assert not matched.pairs
        return
    for cut in ([part.counts for part in changes.parts.values()], list(changes.flows.values())):
        sums = [counts_of(each) for each in cut]
        assert {name: sum(each[name] for each in sums) for name in sums[0]} == counts_of(changes.all.counts)
    assert changes.all.counts.pairs == len(matched.pairs) == sum(each.attempts for each in changes.problems)
    assert changes.all.gain.mean == pytest.approx(changes.all.after.estimate - changes.all.before.estimate)
    assert sum(part.gain.mean for part in changes.parts.values()) == pytest.approx(changes.all.gain.mean)
    if changes.all.counts.fixed:
        assert sum(rate.estimate for rate in changes.fixed_by.values()) == pytest.approx(1.0)
    assert list(changes.parts) == [name for name in DESIGNS if name in changes.parts]


@given(EVALUATIONS, EVALUATIONS)
def test_the_other_way_round_fixed_and_broken_change_places(before: list[Attempt], after: list[Attempt]) -> None:
    there, back = compare(rows_of(before), rows_of(after)), compare(rows_of(after), rows_of(before))
    swapped = {"new program": "lost program", "lost program": "new program"}
    assert there.p_value == back.p_value
    for name, part in there.parts.items():
        other = back.parts[swapped.get(name, name)]  # pyright: ignore[reportArgumentType]
        assert (part.counts.fixed, part.counts.broken) == (other.counts.broken, other.counts.fixed)
        assert (part.counts.same_right, part.counts.same_wrong) == (other.counts.same_right, other.counts.same_wrong)
        assert part.gain.mean == pytest.approx(-other.gain.mean)
    if there.all is not None and back.all is not None:
        assert (there.all.before, there.all.after) == (back.all.after, back.all.before)


def test_an_evaluation_against_itself_changes_nothing() -> None:
    rows: list[Row] = rows_of([attempt("a"), attempt("b", 0, False), attempt("c", 0, False, **NONE)])
    changes = compare(rows, rows)
    assert changes.all is not None
    assert (changes.all.counts.fixed, changes.all.counts.broken, changes.p_value) == (0, 0, 1.0)
    assert set(changes.parts) == {"same program", "no program"}
