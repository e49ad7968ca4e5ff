import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflow.answers import code_answer, final_answer, game_answer, math_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"So \boxed{116}.", "116"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{5}, \boxed{7}, \boxed{5}", "5"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\fbox{3}", "3"),
        (r"\boxed 5", "5"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{7} but no, \boxed{\frac{1}{2}", "7"),  # never closed: cut off by the token limit
        (r"\boxed{\frac{1}{2}", None),
        (r"\boxed{}", None),
        ("the answer is 5", None),
        ("", None),
    ],
)
def test_math_answer_is_the_last_closed_box(text: str, answer: str | None) -> None:
    assert math_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<solution>\nx = 1\n</solution>", "x = 1"),
        ("<solution>x = 1</solution> better: <solution>x = 2</solution>", "x = 2"),
        ("<solution>\n```python\nx = 1\n```\n</solution>", "x = 1"),
        ("<solution>\nHere:\n```python\nx = 1\n```\nDone.\n</solution>", "x = 1"),
        ("<solution>\nx = 1\n</solution>\n<solution>\nx = 2", "x = 1"),
        ("```python\nx = 1\n```\nthen\n```py\nx = 2\n```", "x = 2"),
        ("```python\nx = 1\n```\n```bash\nls\n```", "x = 1"),
        ("```python\nx = 1", None),
        ("<solution>\n   \n</solution>", None),
        ("x = 1", None),
    ],
)
def test_code_answer_is_the_last_complete_block(text: str, code: str | None) -> None:
    assert code_answer(text) == code


def test_code_answer_keeps_indentation() -> None:
    assert code_answer("<solution>\n    return 1\n</solution>") == "    return 1"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('#### ["U"]', '["U"]'),
        ("#### one\nthen\n  #### two\n", "two"),
        ("####\n[1,\n2]", "[1,\n2]"),
        ("####[1]", "[1]"),
        ("It is\n####\n```json\n[1]\n```", "[1]"),
        ("<delivery>\n#### [1]\n</delivery>", "[1]"),
        ("#### Step 1\nAs above.\n<delivery>[1]</delivery> Done.", "[1]"),
        ("I say <delivery>[1]</delivery> and <delivery>[2]</delivery>", "[2]"),
        ("[1]", "[1]"),
        ("#####\n####.#\n[1]", "#####\n####.#\n[1]"),
        ("##### five [1]", "##### five [1]"),
        ("a #### [1]", "a #### [1]"),
        ("#### [1]\n####", None),
        ("", None),
        ("<delivery></delivery>", None),
    ],
)
def test_game_answer_stands_after_the_last_mark(text: str, answer: str | None) -> None:
    assert game_answer(text) == final_answer(text, "game") == answer


def test_final_answer_follows_the_domain() -> None:
    text = "\\boxed{3}\n<solution>\nx\n</solution>"
    assert final_answer(text, "math") == "3"
    assert final_answer(text, "code") == "x"


@given(st.recursive(st.text("abc0123+", min_size=1), lambda inner: st.builds("{{{}}}".format, inner)), st.text("xyz {"))
def test_any_balanced_content_comes_back(content: str, before: str) -> None:
    assert math_answer(f"{before} \\boxed{{{content}}} thanks") == content
