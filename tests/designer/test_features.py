"""What is read off a problem's text, on problems labelled by hand, and on any text at all."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from designer.features import clean, count_examples, domain_of, features_of, limit_exponent


@pytest.mark.parametrize(
    ("problem", "domain"),
    [
        ("Find $x$ such that $x^2 = 2$.", "math"),
        ("Tom has three apples and buys 4 more. How many apples does he have?", "math"),
        ("Prove that the square root of two is irrational.", "math"),
        ("Let f be the function f(x) = 2x. What is the value of f(3)?", "math"),
        ("What is the area? [asy] for (int i = 0; i < 3; ++i) { draw((i,0)--(i,1)); } def f(x): [/asy]", "math"),
        ("Write a function that adds two numbers.", "code"),
        ("def add(a, b):\n    '''Return the sum.'''\n", "code"),
        ("Reverse the list.\n>>> rev([1, 2])\n[2, 1]", "code"),
        ("Print n.\n\nInput\nOne integer n.\n\nOutput\nThe integer.", "code"),
        ("Read n from standard input and print n squared.", "code"),
        ("Who wrote Faust?", "unclear"),
        ("What is the capital of France?", "unclear"),
        ("", "unclear"),
    ],
)
def test_domain(problem: str, domain: str) -> None:
    assert domain_of(problem) == domain
    assert features_of(problem).domain == domain


@pytest.mark.parametrize(
    ("problem", "answer"),
    [
        ("Prove that $n^2 \\ge n$ for all integers $n$.", "proof"),
        ("Which is largest?\n(A) $1$\n(B) $2$\n(C) $3$", "choice"),
        ("Then $P = \\frac{m}{n}$ where $m$ and $n$ are relatively prime. Find $m+n$.", "integer"),
        ("In how many ways can 5 people be seated in a row? How many ways?", "integer"),
        ("How many hours does the trip of 90 miles take at 60 miles per hour?", "value"),
        ("Points A. and B are joined. Let C. be 3.", "value"),
    ],
)
def test_answer_form(problem: str, answer: str) -> None:
    assert features_of(problem).answer == answer


@pytest.mark.parametrize(
    ("problem", "topic"),
    [
        ("Find the remainder when $7^{5}$ is divided by 4.", "number theory"),
        ("A fair coin is tossed twice. Find the probability of $2$ heads.", "probability"),
        ("Let triangle $ABC$ have area 6. Find its perimeter.", "geometry"),
        ("Find the maximum of $x(1-x)$.", "extremum"),
    ],
)
def test_topics(problem: str, topic: str) -> None:
    assert topic in features_of(problem).topics


def test_the_form_of_the_answer_is_no_topic() -> None:
    problem = "The ratio is $\\frac{m}{n}$, where $m$ and $n$ are relatively prime positive integers. Find $m+n$."
    assert features_of(problem).topics == ()
    assert "extremum" not in features_of("An equation $x^2=4$ has at least one root. Find it.").topics


def test_difficulty_grows_with_demands() -> None:
    levels = [
        features_of("What is $2 + 3$?"),
        features_of("Find the maximum value of $xy$ over all positive real numbers $x, y$ with $x + y = 4$."),
        features_of(
            "Let $ABC$ be a triangle inscribed in a circle. Suppose that tangents at $B$ and $C$ meet at $D$, where "
            "$AB = 5$ and $BC = 9$. If $AP = \\frac{m}{n}$, where $m$ and $n$ are relatively prime, find $m + n$."
        ),
    ]
    assert [level.difficulty for level in levels] == ["easy", "medium", "hard"]


@pytest.mark.parametrize(
    ("problem", "heavy"),
    [
        ("Compute $123456 \\cdot 654321$.", True),
        ("Find the last digit of $7^{2024}$.", True),
        ("Compute $30!/28!$.", True),
        ("Compute $12 \\cdot 13$.", False),
        ("He pays $15,000 and then $20,000. How much in all?", False),
    ],
)
def test_heavy_arithmetic(problem: str, heavy: bool) -> None:
    assert features_of(problem).heavy_arithmetic is heavy


@pytest.mark.parametrize(
    ("text", "power"),
    [
        ("1 <= n <= 2 * 10^5", 5),
        ("$1 \\le n \\le 10^{6}$", 6),
        ("n is at most 1000", 3),
        ("n ≤ 200,000", 5),
        ("n <= 1e5 and a_i <= 10^9", 5),
        ("the year 2024", 0),
        ("no bound here: 10^5", 0),
    ],
)
def test_limit_exponent(text: str, power: int) -> None:
    assert limit_exponent(text) == power


@pytest.mark.parametrize(
    ("text", "examples"),
    [
        (">>> f(1)\n2\n>>> f(2)\n3", 2),
        ("f([1, 2]) == 3\nf([]) => 0", 2),
        ("assert f(1) == 2", 1),
        ("Input\nan integer\nOutput\nan integer\nInput\n3\nOutput\n4", 1),
        ("Sample Input 1\n3\nSample Input 2\n4", 2),
        ("Input: n = 3\nOutput: 4", 1),
        ("nothing", 0),
    ],
)
def test_count_examples(text: str, examples: int) -> None:
    assert count_examples(text) == examples


def test_clean_keeps_text_and_drops_what_cannot_be_encoded() -> None:
    assert clean("a\r\nb\tc\x00\ud800\u2028d é ∑") == "a\nb\tc d é ∑"


@given(st.text(max_size=400))
def test_any_text_has_features(text: str) -> None:
    features = features_of(text)
    assert features == features_of(text)
    clean(text).encode()


@pytest.mark.parametrize(
    "unit",
    [
        "A. B. ",
        "f() ",
        "$",
        "$$",
        "\\[",
        "\\( .",
        "\n \n",
        "a. A",
        "#",
        "[asy]",
        "f(" * 20,
        "find a + ",
        "1 <= ",
        "\\begin{a}",
    ],
)
def test_long_odd_texts_take_no_time(unit: str) -> None:
    from designer.bank import design_from_bank

    started = time.perf_counter()
    design_from_bank(unit * (60_000 // len(unit)))
    assert time.perf_counter() - started < 3
