"""MATH by its own train and test; what of it stands in MATH-500 is known without that file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from growth import cpu_s
from hypothesis import given
from hypothesis import strategies as st

from tasks import DatasetError, Problem, asked_in_math500, in_math500, normal_form, read_task
from tasks.data.math_files import DIGESTS, digest, read_math, write_digests

DATA = Path(os.environ.get("METAAGENT_DATA") or Path(__file__).parents[4] / "shared" / "data")
ROW: dict[str, Any] = {
    "problem": "Halve $1$.",
    "level": "Level 1",
    "type": "Algebra",
    "solution": "First $\\boxed{2}$ came to mind, then $\\boxed{\\frac{1}{2}}$.",
}
DIVISORS = "How many positive whole-number divisors does 196 have?"
"""Of MATH-500."""


def written(folder: Path, name: str, row: object) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(row))


def test_a_split_is_a_folder_of_subjects(tmp_path: Path) -> None:
    train = tmp_path / "MATH" / "train"
    for name in ("geometry/2.json", "algebra/10.json", "algebra/9.json"):
        written(train, name, ROW)
    problems = read_task(f"math:{train}")
    assert [each.id for each in problems] == [
        "math/train/algebra/9.json", "math/train/algebra/10.json", "math/train/geometry/2.json",
    ]  # fmt: skip
    assert (problems[0].question, problems[0].gold) == ("Halve $1$.", "\\frac{1}{2}")
    with pytest.raises(DatasetError, match=r"MATH holds both splits. Fix: name .*MATH/train or .*MATH/test"):
        read_task(f"math:{tmp_path / 'MATH'}")


def test_json_lines_have_the_same_rows(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text("\n".join(json.dumps(ROW) for _ in range(2)))
    half = "\\frac{1}{2}"
    assert [(each.id, each.gold) for each in read_math(file)] == [("math/1", half), ("math/2", half)]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"solution": "It is 2."}, r"1.json, field solution: no \\boxed{} with an answer"),
        ({"problem": ""}, r"1.json, field problem: "),
        ({"solution": None}, r"1.json, field solution: "),
    ],
)
def test_a_row_that_is_none_is_named(tmp_path: Path, change: dict[str, Any], wrong: str) -> None:
    written(tmp_path, "algebra/1.json", {**ROW, **change})
    with pytest.raises(DatasetError, match=wrong):
        read_math(tmp_path)


def test_a_file_that_is_no_json_is_named(tmp_path: Path) -> None:
    written(tmp_path, "algebra/1.json", [])
    (tmp_path / "algebra" / "1.json").write_text("{")
    with pytest.raises(DatasetError, match=r"algebra/1.json: not JSON"):
        read_math(tmp_path)


def asked(question: str) -> Problem:
    return Problem(id=question[:20], question=question, domain="math", gold="9")


def test_a_question_of_math500_is_known_however_it_is_written() -> None:
    same = [DIVISORS, f"\n  {DIVISORS.lower()} ", "How many positive whole-number\ndivisors does $196$ have?"]
    assert in_math500(asked(each) for each in same) == [asked(each) for each in same]
    other = [
        DIVISORS.replace("196", "197"),
        DIVISORS.replace("196", "$196!$"),
        "How many divisors does 196 have?",
        "Halve $1$.",
    ]
    assert in_math500(asked(each) for each in other) == []
    assert digest("$\\dfrac12 x$") == digest("\\frac12x")
    beside = [f"Solve this. {DIVISORS}", f"{DIVISORS}\nPut the answer into a box.", f"A riddle: {DIVISORS} Think!"]
    assert len(in_math500(map(asked, beside))) == 3
    for one, other in (
        (r"$x \leq \theta$", "x ≤ θ"), (r"\(x \ge 2\pi\)", r"$x\quad\geq 2 π$"), (r"$a \gt b$", "a &gt; b"),
        (r"f\big(1\big)\hspace{2em}2", "f(1) 2"), (r"\displaystyle \frac12", r"\tfrac 12"), (r"60^\circ", "60^°"),
    ):  # fmt: skip
        assert digest(one) == digest(other), (one, other)
    for one, other in (
        (r"$\frac{3x-2}{x-2}$", r"${3x-2 \over x-2}$"), (r"$\frac12$", "1/2"), (r"\frac{\frac{1}{2}}{3}", "1/2/3"),
        (r"\frac{x^{2}}{y_{1}}", r"{x^2 \over y_1}"), ("1,000 or 2.5", "1{,}000 or $2.5$"), ("caf\u00e9", "cafe\u0301"),
        ("Ann\u2019s \u201cage\u201d", "Ann's \"age\""), ("a<b", "a &lt; b"), ("$2*3$", "2 * 3"),
        ("x³ + 1", "$x^{3}+1$"), ("x**3", "x^3"), ("x<sup>12</sup>", "$x^{12}$"), ("10⁻³", "$10^{-3}$"),
        ("whole\u2010number", "whole-number"),
        (r"f^{\prime\prime}(x)", "f''(x)"), (r"$f^\prime(x)$", "f\u2019(x)"), ("dogs' ``tails''", "dogs’ “tails”"),
    ):  # fmt: skip
        assert digest(one) == digest(other), (one, other)
    for one, other in (
        ("$1.5$", "$15$"), ("(1, 23)", "(12, 3)"), (r"\frac{1}{23}", r"\frac{12}{3}"), ("2*3", "2+3"),
        ("a < b", "a > b"), ("$196!$", "196"), ("$n!!$", "$n!$"), ("$f'(x)$", "f(x)"), ("f''(x)", "f'(x)"),
        ("$A'B$", "AB"), ("$x^3$", "x3"),
    ):  # fmt: skip
        assert digest(one) != digest(other), (one, other)
    assert digest(r"$\sin 60$") != digest(r"$\cos 60$")
    assert digest("$x + 1$") != digest("$x - 1$")


@pytest.mark.parametrize(
    "form", ["**{}**", "*{}*", "<p>{}</p>", '<p class="q">{}<br/></p>', "(1) {}", "12. {}", "b) {}", "### {}", "> {}",
             "- {}", "Q7: {}", "<b>1.</b> {} <i>Think.</i>", r"\textbf{{{}}}"]
)  # fmt: skip
def test_markup_and_numbers_do_not_hide_a_question(form: str) -> None:
    assert len(in_math500([asked(form.format(DIVISORS))])) == 1


def test_a_question_is_found_among_any_number_of_sentences_and_not_beside_words_of_its_own() -> None:
    assert in_math500([asked("It is so. " * 40 + DIVISORS + " That is all." * 40)])
    for other in (f"Tell me, {DIVISORS}", DIVISORS.replace("?", ", please?")):
        assert in_math500([asked(other)]) == []


@given(st.text(alphabet="ab12 .,?<>/p*${}\\(fracover)-+", max_size=60))
def test_a_normal_form_is_that_of_what_is_marked_up(question: str) -> None:
    assert normal_form(f"\n{question} ") == normal_form(question)
    assert normal_form(f"<p>{question}</p>") == normal_form(question)


@pytest.mark.parametrize(
    "unit", ['<p a="', "<p ", "\\frac{", "{", "\\frac{a", "*a", "a. ", "[asy]", "\\hspace{", "(1) "]
)
def test_hostile_questions_take_time_in_proportion_to_their_length(unit: str) -> None:
    def takes(size: int) -> float:
        return min(cpu_s(lambda: asked_in_math500(unit * (size // len(unit)))) for _ in range(2))

    assert takes(40_000) < 8 * takes(10_000) + 0.05


@pytest.mark.skipif(not (DATA / "math500.json").exists(), reason="math500.json is not here")
def test_all_of_math500_is_known_and_no_other_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert len(in_math500(read_task(f"math500:{DATA / 'math500.json'}"))) == 500
    assert in_math500(read_task(f"gsm8k:{DATA / 'gsm8k_test.jsonl'}")) == []
    shipped = DIGESTS.read_text()
    monkeypatch.setattr("tasks.data.math_files.DIGESTS", tmp_path / "digests.txt")
    write_digests(DATA / "math500.json")
    assert (tmp_path / "digests.txt").read_text() == shipped
