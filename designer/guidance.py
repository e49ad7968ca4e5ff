"""Advice on one problem, written from its text: what is given and asked, pitfalls of its topics, what to check.

Pure text functions that quote and select; they solve nothing and know no answers. `designer.bank` puts the result
into the `GUIDANCE` and `CHECKS` of a template.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import pairwise

from designer.features import FORMULA, LONGEST, Features, clean, without_figures

QUOTE = 240
"""Longest quotation of the problem in one line of advice, in characters."""
MOST_QUOTES = 5
"""Most conditions, examples or limits that are quoted; the agents read the whole problem anyway."""

_WHOLE = re.compile(FORMULA + r"|\b(?:Mr|Mrs|Ms|Dr|St|No|vs|i\.e|e\.g)\.", re.DOTALL)
_BREAK = re.compile(r"[.?!][\"')\]]*\s+(?=[\"'(\[]*[A-Z$\\\d])|\n\s*\n\s*")
_NEXT_SENTENCE = re.compile(r"\s*+(?=[A-Z])")
_BOUND = re.compile(
    r"(?:<=?|≤|\\leq?\b)\s*\S|\b(?:at most|up to|no more than|not exceed)\b[^.\d]{0,200}+\d", re.IGNORECASE
)
_ASKS = re.compile(
    r"\?\s*+[\"')\]]*+\s*+$|^(?:find|compute|calculate|determine|evaluate|simplify|solve|prove|show that|express|"
    r"convert|factor|expand|enter|give|what|how|which|write)\b|"
    r"\b(?:find|compute|determine|evaluate|prove that|show that|what is|how (?:many|much))\b",
    re.IGNORECASE,
)

_MATH_TIPS: dict[str, tuple[str, str]] = {
    # topic: (advice for those who solve, check for those who review)
    "counting": (
        "Say what makes two outcomes different (order, labels, symmetry) before you count; try a smaller case first.",
        "Nothing is counted twice and no case is left out; the same method gives the right count for a small case.",
    ),
    "probability": (
        "Fix the sample space and say why its outcomes are equally likely, or give their weights.",
        "The probability lies between 0 and 1, and numerator and denominator count the same kind of outcomes.",
    ),
    "number theory": (
        "Work with factorizations and residues; remember 0, 1, negative values and the end points of ranges.",
        "The result satisfies every divisibility or congruence when it is put in, and smaller candidates fail.",
    ),
    "geometry": (
        "Name points and lengths, list the known relations, and set up coordinates if angle chasing does not finish.",
        "The figure exists with these lengths, and its configuration (inside, outside, order) is the one meant.",
    ),
    "trigonometry": (
        "Keep exact values; mind degrees and radians, the signs in each quadrant, and all solutions in the range.",
        "The value holds numerically for the stated angles and range.",
    ),
    "complex numbers": (
        "Choose between a + bi, polar form and conjugates before you expand; keep modulus and argument apart.",
        "Modulus and conditions hold when the number is put in numerically.",
    ),
    "linear algebra": (
        "Write out rows and columns explicitly and mind the order of products.",
        "Dimensions fit, and the result satisfies the defining equation when it is multiplied out.",
    ),
    "sequences": (
        "Write down the first terms, find the pattern or recurrence, and prove it before you use it far out.",
        "The formula reproduces the first terms, and the first and last index are right.",
    ),
    "functions": (
        "Mind the domain, and which pieces or branches apply.",
        "The value is in the domain, and the right piece or branch was used.",
    ),
    "calculus": (
        "Check the conditions of the theorem you use, and the end points of the interval.",
        "The result agrees with a numerical estimate.",
    ),
    "equations": (
        "Find all solutions; squaring, multiplying and taking logarithms may add or lose some.",
        "Every solution satisfies the original equations, and no solution is missing.",
    ),
    "extremum": (
        "Prove the bound and show a case that attains it under all conditions.",
        "The extremal value is attained by an example that meets every condition, and nothing beyond it is possible.",
    ),
    "rates and money": (
        "Carry units through every step; take each percentage of the right base, and convert units first.",
        "Units and time spans are right, and each percentage is taken of the right base.",
    ),
}
_CODE_TIPS: dict[str, tuple[str, str]] = {
    "strings": (
        "Mind the empty string, letter case, spaces and punctuation, and characters that repeat.",
        "The empty string, one character, mixed case, spaces and repeated characters.",
    ),
    "sequences": (
        "Mind empty and one-element inputs and duplicates, and do not change the caller's data unless told to.",
        "Empty, one element, all equal, already sorted, reversed and negative values.",
    ),
    "sorting": (
        "Say what decides ties, and whether the order is stable, before you choose the sort key.",
        "Ties, and input that is already in order or reversed.",
    ),
    "floating point": (
        "Use exact integer arithmetic where possible; round only where and how the task says.",
        "Values at rounding boundaries, negative numbers, and integers given as floats.",
    ),
    "number theory": (
        "Treat 0, 1, 2 and negative numbers on purpose; reduce modulo at every step where a modulus is given.",
        "0, 1, 2, a large prime and a perfect square.",
    ),
    "graphs and trees": (
        "Avoid deep recursion; mind disconnected parts, self loops and a single node.",
        "One node, a long path, a disconnected graph and a cycle.",
    ),
    "optimisation": (
        "Argue why the greedy choice or the recurrence is right before you trust it.",
        "Several optimal choices at once, and comparison with exhaustive search on all small inputs.",
    ),
    "dynamic programming": (
        "Define the state, the transition and the base cases in words first.",
        "The base cases themselves, and inputs with no solution or with exactly one.",
    ),
    "matrices": (
        "Keep rows and columns apart; the matrix need not be square unless the task says so.",
        "One row, one column, and a matrix that is not square.",
    ),
    "parsing": (
        "Say which inputs are well formed and what must happen to the others.",
        "Nested, adjacent, empty and malformed input.",
    ),
}


def sentences(text: str) -> list[str]:
    """Sentences of a text, with spaces normalized. Full stops inside formulas and abbreviations do not count."""
    text = without_figures(clean(text[:LONGEST]))
    whole = list(_WHOLE.finditer(text))
    starts = [match.start() for match in whole]

    def is_inside(place: int) -> bool:
        index = bisect_right(starts, place) - 1
        return index >= 0 and place < whole[index].end()

    cuts = {match.end() for match in _BREAK.finditer(text) if not is_inside(match.start())}
    for match in whole:  # a formula may end a sentence, with the full stop inside
        if match[0][0] in "$\\" and match[0].rstrip("$)]}\\ \n").endswith((".", "?", "!")):
            follows = _NEXT_SENTENCE.match(text, match.end())
            cuts |= {follows.end()} if follows else set()
    parts = (" ".join(text[start:end].split()) for start, end in pairwise([0, *sorted(cuts), len(text)]))
    return [part for part in parts if part]


def shortened(text: str, limit: int = QUOTE) -> str:
    """One line of at most about `limit` characters, cut between words."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[:limit].rsplit(" ", 1)[0] + " [...]"


def guidance_for(problem: str, features: Features) -> str:
    """Advice for those who solve: one line of text per point, each starting with `- `. Reads `LONGEST` characters."""
    problem = problem[:LONGEST]
    points = _code_points(problem, features) if features.domain == "code" else _math_points(problem, features)
    return _lines([*points, *(tip for tip, _ in _tips(features))])


def checks_for(problem: str, features: Features) -> str:
    """What reviewers and testers must check, in the same form."""
    problem = problem[:LONGEST]
    checks = _code_checks(problem) if features.domain == "code" else _math_checks(problem, features)
    return _lines([*checks, *(check for _, check in _tips(features))])


def _lines(points: list[str]) -> str:
    return "".join(f"- {point}\n" for point in points)


def _tips(features: Features) -> list[tuple[str, str]]:
    """Pitfalls of at most three topics; features list the most telling ones first."""
    tips = _CODE_TIPS if features.domain == "code" else _MATH_TIPS
    return [tips[topic] for topic in features.topics if topic in tips][:3]


def _given_and_asked(problem: str) -> tuple[list[str], list[str]]:
    parts = sentences(problem)
    asked = [part for part in parts if _ASKS.search(part)] or parts[-1:]
    return [part for part in parts if part not in asked], asked


def _math_points(problem: str, features: Features) -> list[str]:
    given, asked = _given_and_asked(problem)
    points = [f"Given: {shortened(part)}" for part in given[:MOST_QUOTES]]
    if len(given) > MOST_QUOTES:
        points.append(f"The statement gives {len(given) - MOST_QUOTES} more facts; use them all.")
    points += [f"Asked: {shortened(part)}" for part in asked[-2:]]
    if features.answer == "proof":
        points.append("A complete proof is wanted: justify every step, and box the statement that was proved.")
    elif features.answer == "choice":
        points.append("The answer is the letter of one option: put the letter alone in the box.")
    elif features.answer == "integer":
        points.append("The answer is a whole number: put it alone in the box, without units.")
    if features.heavy_arithmetic:
        points.append("The numbers are large: keep every intermediate value exact.")
    return points


def _math_checks(problem: str, features: Features) -> list[str]:
    given, asked = _given_and_asked(problem)
    checks = [f"The answer is what was asked, in that form: {shortened(part)}" for part in asked[-2:]]
    if given:
        checks.append("The given facts are used as they are stated: none is changed, left out or added.")
    if features.answer == "integer":
        checks.append("The answer is a whole number of a plausible size.")
    return checks


def signature_of(problem: str) -> str:
    """The last function header of the text, which is the one to write (earlier ones are given helpers); or ''."""
    headers = re.findall(r"^[ \t]*((?:async )?def \w+\s*+\([^)]{0,1000}+\)[^:\n]*+):", problem, re.MULTILINE)
    return " ".join(headers[-1].split()) if headers else ""


def examples_of(problem: str) -> list[str]:
    """Worked examples of a programming task that fit on one line, or on an input line and an output line."""
    lines = problem.splitlines()
    found = []
    for number, line in enumerate(lines):
        text = line.strip()
        if text.startswith(">>> "):
            following = lines[number + 1].strip() if number + 1 < len(lines) else ""
            shown = following and not following.startswith((">>>", '"""', "'''"))
            found.append(f"{text[4:]} gives {following}" if shown else text[4:])
        elif text.startswith("assert ") or re.match(r"\w+\(.*\) ?(?:==|=>|->|➞|→|=) ?\S", text):
            found.append(text.removeprefix("assert "))
        elif re.match(r"input\b\W*\S", text, re.IGNORECASE) and number + 1 < len(lines):
            found.append(f"{text} {lines[number + 1].strip()}")
    return found


def limits_of(problem: str) -> list[str]:
    """Lines or sentences that state a numeric bound."""
    parts = [part for line in problem.splitlines() for part in sentences(line)]
    return [part for part in parts if _BOUND.search(part) and re.search(r"\d", part) and ">>>" not in part]


def _code_points(problem: str, features: Features) -> list[str]:
    text = clean(problem)
    points = []
    header = signature_of(text)
    if header:
        points.append(f"Write this function, with exactly this header: {shortened(header)}")
    elif features.answer == "program":
        points.append("Write a complete program that reads standard input and prints to standard output.")
    else:
        points += [f"Asked: {shortened(part)}" for part in _given_and_asked(text)[1][:2]]
    points += [f"Limit: {shortened(part)}" for part in limits_of(text)[:MOST_QUOTES]]
    if features.limit_exponent >= 5:
        points.append("With inputs of this size, aim for O(n log n) or better; a quadratic algorithm is too slow.")
    elif features.limit_exponent >= 3:
        points.append("With inputs of this size, a quadratic algorithm is about the slowest that will do.")
    return points


def _code_checks(problem: str) -> list[str]:
    examples = examples_of(clean(problem))
    checks = [f"Example: {shortened(example)}" for example in examples[:MOST_QUOTES]]
    return checks or ["Every example and every sentence of the task, one test for each."]
