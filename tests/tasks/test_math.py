from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sandbox.protocol import Sandbox
from tasks import MathPair, equal_numbers, gold_is_readable, grade_math, grade_math_batch
from workflow.failures import LimitExceeded, SandboxUnavailable

InJail = Callable[[Callable[[Sandbox], Awaitable[Any]]], Any]


def test_one_answer(in_jail: InJail) -> None:
    grade = in_jail(lambda sandbox: grade_math(sandbox, r"\frac{14}{3}", r"\dfrac{28}{6}"))
    assert grade.correct
    assert (grade.verdict, grade.gold, grade.answer) == ("correct", r"\frac{14}{3}", r"\dfrac{28}{6}")


def test_an_answer_that_never_ends_is_killed_and_costs_the_others_nothing(
    in_jail: InJail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.math.math_grader.CPU_S", 1)
    pairs = [
        MathPair(gold="5", answer="5"),
        MathPair(gold="5", answer="10^{10^{10^{10^{10}}}}"),
        MathPair(gold="5", answer=None),
        MathPair(gold="{{", answer="5"),
        MathPair(gold="5", answer="6"),
    ]
    grades = in_jail(lambda sandbox: grade_math_batch(sandbox, pairs))
    verdicts = [grade.verdict for grade in grades]
    assert verdicts[0] == "correct"
    assert verdicts[1] in ("timeout", "memory", "wrong")
    assert verdicts[2:] == ["no_answer", "gold_unparseable", "wrong"]


@pytest.mark.parametrize(
    ("gold", "readable"), [(r"\frac{1}{2}", True), (r"\text{east}", True), ("{{", False), ("", False)]
)
def test_golds_can_be_checked_beforehand(in_jail: InJail, gold: str, readable: bool) -> None:
    assert in_jail(lambda sandbox: gold_is_readable(sandbox, gold)) is readable


class _SlowOn:
    """Answers at once unless a pair's answer is `slow`, which takes longer than allowed."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def call(self, target: str, payload: Any, **limits: Any) -> Any:
        self.sizes.append(len(payload))
        if any(pair["answer"] == "slow" for pair in payload):
            raise LimitExceeded("cpu_s", limits["cpu_s"], limits["cpu_s"])
        return [["correct", ""]] * len(payload)


def test_pairs_share_a_fork_until_one_hits_a_limit(in_jail: InJail) -> None:
    fake: Any = _SlowOn()
    pairs = [MathPair(gold="x", answer=str(number)) for number in range(70)]
    assert all(grade.correct for grade in in_jail(lambda _: grade_math_batch(fake, pairs)))
    assert fake.sizes == [64, 6]
    fake.sizes.clear()
    grades = in_jail(lambda _: grade_math_batch(fake, [pairs[0], MathPair(gold="x", answer="slow"), pairs[1]]))
    assert [grade.verdict for grade in grades] == ["correct", "timeout", "correct"]
    assert fake.sizes == [3, 1, 1, 1]


def test_a_machine_that_is_too_busy_to_grade_gives_no_verdict(in_jail: InJail) -> None:
    class Busy:
        async def call(self, target: str, payload: Any, **limits: Any) -> Any:
            raise LimitExceeded("wall_s", 60, 60)

    busy: Any = Busy()
    with pytest.raises(SandboxUnavailable, match=r"too little of the processor.* Fix: run less"):
        in_jail(lambda _: grade_math_batch(busy, [MathPair(gold="x", answer="y")]))


def test_plain_integers_need_no_fork_and_keep_their_places(in_jail: InJail) -> None:
    fake: Any = _SlowOn()
    pairs = [
        MathPair(gold="-12", answer=" -012 "),
        MathPair(gold="7", answer="8"),
        MathPair(gold="1/2", answer="0.5"),
        MathPair(gold="2, -3", answer="-3,2"),
        MathPair(gold="7", answer=None),
        MathPair(gold="2,3", answer="2,4"),
    ]
    grades = in_jail(lambda _: grade_math_batch(fake, pairs))
    assert [grade.verdict for grade in grades] == ["correct", "wrong", "correct", "correct", "no_answer", "wrong"]
    assert [(grade.gold, grade.answer) for grade in grades] == [(pair.gold, pair.answer) for pair in pairs]
    assert fake.sizes == [1]


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        ("1/3", "0.3333333", True),
        ("1/3", "0.333", False),
        ("5", "5.000001", True),
        ("5", "5.00001", False),
        ("1000000", "1000001", True),  # relative to what is above 1
        ("1000000", "1000002", False),
        ("0", "0.000001", True),
        ("0", "0.0000011", False),
        ("-7", "7", False),
        (r"5\text{ cm}", "x = 5", True),
        (r"\frac{\pi}{2}", "1.570796", True),
        ("5", "five", False),
        ("5", "", False),
        ("5", "10^{10^{10}}", False),  # takes too long
        ("5", "1,000", False),
        ("x + 1", "x + 1", None),
        ("(1, 2)", "(1, 2)", None),
        ("i", "i", None),
    ],
)
def test_numbers_that_differ_by_a_millionth_at_most(
    in_jail: InJail, gold: str, answer: str, equal: bool | None
) -> None:
    """NumEq of Stronger-MAS, Appendix B.1."""
    assert in_jail(lambda sandbox: equal_numbers(sandbox, gold, answer)) is equal
