"""Advice quotes the problem truly: sentences, givens, questions, signatures, examples and limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from designer.features import features_of
from designer.guidance import (
    MOST_QUOTES,
    checks_for,
    examples_of,
    guidance_for,
    limits_of,
    sentences,
    shortened,
    signature_of,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tom has 3.5 kg. Mr. Smith has 2. How much?", ["Tom has 3.5 kg.", "Mr. Smith has 2.", "How much?"]),
        ("Let $x = 1. Y$ be odd. Find $x$.", ["Let $x = 1. Y$ be odd.", "Find $x$."]),
        ("Given \\[a = 1.\\]Find $a.$ Then stop.", ["Given \\[a = 1.\\]", "Find $a.$", "Then stop."]),
        (
            "It costs $30. His mother gave $6 more. How much?",
            ["It costs $30.", "His mother gave $6 more.", "How much?"],
        ),
        ("On a line.  $A$ is left of $B$.", ["On a line.", "$A$ is left of $B$."]),
        (
            "Solve\n\\begin{align*} a &= 1. \\\\ B &= 2. \\end{align*}",
            ["Solve \\begin{align*} a &= 1. \\\\ B &= 2. \\end{align*}"],
        ),
        ("First\n\nsecond", ["First", "second"]),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@given(st.text(max_size=300))
def test_sentences_lose_nothing_but_spaces(text: str) -> None:
    from designer.features import clean, without_figures

    assert "".join("".join(sentences(text)).split()) == "".join(without_figures(clean(text)).split())


def test_shortened_cuts_between_words() -> None:
    assert shortened("one  two\nthree", 100) == "one two three"
    assert shortened("one two three", 9) == "one two [...]"


def test_math_advice_names_given_asked_and_pitfalls() -> None:
    problem = "A fair die is rolled twice. The rolls are independent. Find the probability that the sum is $7$."
    advice = guidance_for(problem, features_of(problem)).splitlines()
    assert advice[:3] == [
        "- Given: A fair die is rolled twice.",
        "- Given: The rolls are independent.",
        "- Asked: Find the probability that the sum is $7$.",
    ]
    assert any("sample space" in line for line in advice)
    checks = checks_for(problem, features_of(problem))
    assert "- The answer is what was asked, in that form: Find the probability that the sum is $7$." in checks
    assert "between 0 and 1" in checks


def test_long_statements_are_quoted_in_part() -> None:
    problem = " ".join(f"Fact {number} holds." for number in range(9)) + " Find $x$."
    advice = guidance_for(problem, features_of(problem))
    assert advice.count("- Given:") == MOST_QUOTES
    assert "gives 4 more facts" in advice


TASK = '''from typing import List

def helper(x: int) -> int:
    return x

def top(values: List[int], k: int) -> int:
    """ Return the k-th largest of the values, 1 <= k <= len(values) <= 1000.
    >>> top([3, 1], 1)
    3
    >>> top([3, 1], 2)
    """
'''


def test_code_advice_quotes_signature_examples_and_limits() -> None:
    assert signature_of(TASK) == "def top(values: List[int], k: int) -> int"
    assert examples_of(TASK) == ["top([3, 1], 1) gives 3", "top([3, 1], 2)"]
    assert limits_of(TASK) == ['""" Return the k-th largest of the values, 1 <= k <= len(values) <= 1000.']
    features = features_of(TASK)
    advice = guidance_for(TASK, features)
    assert "with exactly this header: def top(values: List[int], k: int) -> int" in advice
    assert "- Limit: " in advice
    assert "- Example: top([3, 1], 1) gives 3\n" in checks_for(TASK, features)


def test_other_forms_of_examples() -> None:
    text = "add(1, 2) == 3\nassert add(0, 0) == 0\nInput: a = 1\nOutput: 2\nadd is easy"
    assert examples_of(text) == ["add(1, 2) == 3", "add(0, 0) == 0", "Input: a = 1 Output: 2"]


def test_large_inputs_ask_for_fast_algorithms() -> None:
    program = "Print the sum.\n\nInput\nn numbers, n <= {limit}.\n\nOutput\nThe sum."
    large, small = (program.format(limit=limit) for limit in ("10^5", "10"))
    assert "O(n log n)" in guidance_for(large, features_of(large))
    assert "O(n log n)" not in guidance_for(small, features_of(small))
    assert "reads standard input" in guidance_for(small, features_of(small))


@given(st.text(max_size=300))
def test_advice_is_lines_of_points(text: str) -> None:
    for advice in (guidance_for(text, features_of(text)), checks_for(text, features_of(text))):
        assert all(line.startswith("- ") for line in advice.split("\n")[:-1])
        assert advice == "" or advice.endswith("\n")
        advice.encode()
