import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workflow import text as text_module
from workflow.text import (
    DELIVERY_EXCERPT,
    blocks,
    delivery,
    last_boxed,
    solution_block,
    strip_echo,
    verdict,
)
from workflow.tools import parse_tool_calls

# Boxes


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{7}", "7"),
        (r"\boxed{ 7 }", "7"),
        (r"\boxed {7}", "7"),
        (r"\fbox{7}", "7"),
        (r"\boxed{5}, \boxed{7}, \boxed{5}", "5"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\boxed{5}}", r"\boxed{5}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{a} then \boxed{b", "a"),  # cut off by the token limit
        (r"\boxed{x \boxed{3}", "3"),  # the outer box is never closed
        (r"f = { \boxed{3}", "3"),
        (r"} } \boxed{3} }", "3"),
        (r"\boxed 5", "5"),
        (r"\boxed 5.", "5"),
        (r"\boxed12", "12"),
        (r"\boxed x", "x"),
        (r"\boxed{5}. As asked, it is in \boxed{}.", "5"),
        (r"\boxed{5}. As asked, it is in \boxed{...} notation.", "5"),
        (r"\boxed{5}. As asked, it is in \boxed notation.", "5"),
        (r"\boxed{}", None),
        (r"\boxed{ \ldots }", None),
        (r"\boxed.", None),
        (r"\boxed{", None),
        (r"\boxed", None),
        (r"\unboxed{5}", None),
        ("5", None),
        ("", None),
    ],
)
def test_last_boxed(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


balanced = st.recursive(
    st.text("abc01+\\,.^ ", max_size=4).filter(lambda text: not text.endswith("\\")),
    lambda inner: st.builds("{}{{{}}}{}".format, inner, inner, inner),
    max_leaves=8,
)


@given(balanced, st.text("ab {\n$."), st.text("ab }\n$."))
def test_any_balanced_content_comes_back(content: str, before: str, after: str) -> None:
    content = f"x{content}".replace("\\,", "\\, ")
    assert last_boxed(f"{before}\\boxed{{{content}}}{after}") == content.strip()


@given(st.text())
@example("\\boxed{" * 3 + "}" * 3)
def test_readers_never_fail_and_never_invent(text: str) -> None:
    for found in (last_boxed(text), solution_block(text), delivery(text)[0].removeprefix("[...] ")):
        assert found is None or found.removeprefix("<solution>\n").removesuffix("\n</solution>") in text
    assert verdict(text) in (True, False, None)
    assert len(parse_tool_calls(text)) == len(blocks("tool_call", text))
    assert strip_echo(text, []) == text


# Blocks and deliveries


def test_blocks() -> None:
    assert blocks("x", "<x>1</x> <X>2</X>") == ["1", "2"]
    assert blocks("x", "<x>1 <x>2</x> 3</x>") == ["2"]  # an opening tag without its end is skipped
    assert blocks("x", "</x><x>1") == []
    assert blocks("x", "<xy>1</xy>") == []


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<solution>\nx = 1\n</solution>", "x = 1"),
        ("<solution>\n    return 1\n</solution>", "    return 1"),
        ("<solution>x = 1</solution> or <solution>x = 2</solution>", "x = 2"),
        ("<solution>```python\nx = 1\n```</solution>", "x = 1"),
        ("<solution>\n\n```\nx = 1\n```\n\n</solution>", "x = 1"),
        ("<solution>x = 1</solution>, inside <solution>...</solution> as told", "x = 1"),
        ("<solution>x = 1</solution> <solution>x = 2", "x = 1"),
        ("<solution>...</solution>", None),
        ("<solution>x = 1", None),
        ("```python\nx = 1\n```", None),
    ],
)
def test_solution_block(text: str, code: str | None) -> None:
    assert solution_block(text) == code


ALL_FOUR = (
    "Some words.\n<solution>\nx = 1\n</solution>\nFinal answer: 7\n<delivery>the sum is 7</delivery>\nMore words."
)


def test_delivery_falls_back_in_the_contract_s_order() -> None:
    text = ALL_FOUR
    assert delivery(text) == ("the sum is 7", "delivery")
    text = text.replace("<delivery>the sum is 7</delivery>\n", "")
    assert delivery(text) == ("7\nMore words.", "final_answer")
    text = text.replace("Final answer: 7\n", "")
    assert delivery(text) == ("<solution>\nx = 1\n</solution>", "solution")
    text = re.sub("<solution>.*</solution>\n", "", text, flags=re.DOTALL)
    assert delivery(text) == ("Some words.\nMore words.", "excerpt")
    assert delivery("") == ("", "excerpt")


@pytest.mark.parametrize(
    ("text", "handed_on", "source"),
    [
        ("<delivery>a</delivery><delivery>b</delivery>", "b", "delivery"),
        ("<delivery>a</delivery><delivery> </delivery>", "a", "delivery"),
        ("<delivery>a</delivery>, inside <delivery>...</delivery>", "a", "delivery"),
        ("I must write <delivery>...</delivery>", "I must write <delivery>...</delivery>", "excerpt"),
        ("<DELIVERY>a</DELIVERY>", "a", "delivery"),
        ("<delivery>never closed", "<delivery>never closed", "excerpt"),
        ("**Final Answer:** 7", "7", "final_answer"),
        ("## Final Answer\n\n7", "7", "final_answer"),
        ("The final answer is 7.", "7.", "final_answer"),
        ("Final answer: 5\nWait.\nFinal answer: 7", "7", "final_answer"),
        ("My final answer is missing", "My final answer is missing", "excerpt"),
        ("Final answer:", "Final answer:", "excerpt"),
    ],
)
def test_delivery_markers(text: str, handed_on: str, source: str) -> None:
    assert delivery(text) == (handed_on, source)


@given(st.text("ab \n", min_size=1, max_size=40), st.integers(1, 3 * DELIVERY_EXCERPT))
def test_excerpt_is_bounded_and_taken_from_the_end(unit: str, size: int) -> None:
    text = unit * (size // len(unit) + 1)
    excerpt, source = delivery(text)
    assert source == "excerpt"
    assert len(excerpt) <= DELIVERY_EXCERPT + len("[...] ")
    assert text.strip().endswith(excerpt.removeprefix("[...] "))


def test_text_after_a_marker_is_bounded_but_cuts_no_solution() -> None:
    words = "word " * DELIVERY_EXCERPT
    assert delivery(f"Final answer: {words}") == (words[:DELIVERY_EXCERPT], "final_answer")
    code = "x = 1\n" * DELIVERY_EXCERPT
    text, source = delivery(f"Final answer:\n<solution>\n{code}</solution>")
    assert (text, source) == (f"<solution>\n{code.strip()}\n</solution>", "solution")


# Verdicts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CORRECT", True),
        ("INCORRECT", False),
        ("Verdict: CORRECT", True),
        ("Verdict: INCORRECT", False),
        ("verdict: correct", True),
        ("Verdict: incorrect.", False),
        ("**Verdict:** **CORRECT**", True),
        ("**Final verdict**: ✗ INCORRECT", False),
        ("The verdict is CORRECT", True),
        ("Verdict: NOT CORRECT", False),
        ("The result is not CORRECT", False),
        ("The result isn't CORRECT", False),
        ("The result isn’t CORRECT", False),
        ("It is not entirely CORRECT", False),
        ("I did not find an error: CORRECT", True),
        ("It looks CORRECT at first. In fact it is INCORRECT.", False),
        ("First I thought INCORRECT, now CORRECT.", True),
        ("Verdict: INCORRECT\nEdit: Verdict: CORRECT", True),
        ("Verdict: INCORRECT\nA CORRECT solution would use n + 1.", False),
        ("Final verdict: CORRECT or INCORRECT", None),
        ("Final verdict (CORRECT/INCORRECT):", None),
        ("Final verdict: INCORRECT or CORRECT", None),
        ("Verdict: CORRECT or Verdict: INCORRECT", None),
        ("CORRECT or INCORRECT? Verdict: CORRECT", True),
        ("Final verdict: CORRECT or INCORRECT\nVerdict: INCORRECT", False),
        ("The answer is correct.", None),
        ("This is partially correct.", None),
        ("CORRECTLY done", None),
        ("AUTOCORRECT", None),
        ("", None),
    ],
)
def test_verdict(text: str, expected: bool | None) -> None:
    assert verdict(text) is expected


@given(st.text("abc. \n"), st.sampled_from(["CORRECT", "INCORRECT", "NOT CORRECT"]), st.text("abc. \n"))
def test_the_last_verdict_line_decides(before: str, word: str, after: str) -> None:
    assert verdict(f"{before}\nCORRECT INCORRECT\nVerdict: {word}\n{after}") is (word == "CORRECT")


# Echoes


def test_strip_echo_drops_marked_lines_of_the_instructions_only() -> None:
    told = ["Be brief.\n- Example: The answer is \\boxed{42}\nSay Verdict: CORRECT or Verdict: INCORRECT at the end."]
    reply = f"{told[0]}\nThe answer is \\boxed{{7}}"
    assert strip_echo(reply, told) == "Be brief.\nThe answer is \\boxed{7}"
    assert strip_echo("  - Example: The answer is \\boxed{42}  ", told) == ""
    assert strip_echo("So the answer is \\boxed{42}", told) == "So the answer is \\boxed{42}"


@pytest.mark.parametrize(
    "bare",
    [r"\boxed{42}", r"$\boxed{42}$", "Verdict: CORRECT", "**Verdict: NOT correct**", "<solution>", "</delivery>"],
)
def test_strip_echo_keeps_what_is_bare(bare: str) -> None:
    assert strip_echo(f"so\n{bare}", [f"write\n{bare}\nhere"]) == f"so\n{bare}"


@pytest.mark.parametrize("tag", ["delivery", "solution"])
def test_strip_echo_drops_whole_blocks(tag: str) -> None:
    told = [f"Write\n<{tag}>\nyour text\n</{tag}>\n"]
    reply = f"ok <{tag}>your text</{tag}> <{tag}>\nmine\n</{tag}>"
    assert blocks(tag, strip_echo(reply, told)) == ["\nmine\n"]


@given(st.text("ab\\{}<>\n", max_size=40), st.lists(st.text("ab\\{}<>\n", max_size=40), max_size=3))
def test_strip_echo_only_ever_removes(reply: str, told: list[str]) -> None:
    rest = iter(reply)
    assert all(character in rest for character in strip_echo(reply, told)), "not a subsequence"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("unit", [r"\boxed{", "<delivery>", "{", "\n"])
def test_200_000_repetitions_are_read_at_once(unit: str) -> None:
    start = time.perf_counter()
    text = unit * 200_000
    assert last_boxed(text) is None
    last_boxed(text + "}" * 200_000)
    assert delivery(text)[1] == "excerpt"
    assert len(delivery(text)[0]) <= DELIVERY_EXCERPT + len("[...] ")
    assert verdict(text) is None
    assert time.perf_counter() - start < 5  # a fraction of a second in fact; minutes when anything is quadratic


def test_what_is_remembered_of_a_text_is_what_is_read_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        r"\boxed{1} \boxed{2}",
        "Final answer: \\boxed{3}",
        "<delivery>x</delivery>",
        "verdict: CORRECT\n\\boxed{4}",
    ]
    readers = [text_module.boxes, text_module.marked_lines, text_module.delivery]
    first = [[read(each) for each in texts] for read in readers]
    assert [[read(each) for each in texts] for read in readers] == first
    monkeypatch.setattr(text_module, "KEPT", 0)
    assert [[read(each) for each in texts] for read in readers] == first


def test_a_text_is_read_once_for_all_who_ask_however_long_it_is() -> None:
    read: list[int] = []

    @text_module.kept
    def length(text: str) -> int:
        read.append(len(text))
        return len(text)

    long = "a" * 300_000
    for _ in range(3):
        assert [length(long), length("short"), length(long + "b")] == [300_000, 5, 300_001]
    assert read == [300_000, 5, 300_001]
    assert length(long * 2) == length(long * 2) == 600_000
    assert read[3:] == [600_000, 600_000], "no more is held than that"


def test_a_programs_own_kind_of_text_is_never_remembered() -> None:
    class Odd(str):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return hash(r"\boxed{17}")

    assert len(text_module.boxes(Odd(r"nothing"))) == 0
    assert len(text_module.boxes(r"\boxed{17}")) == 1
    assert len(text_module.boxes(Odd(r"nothing"))) == 0
