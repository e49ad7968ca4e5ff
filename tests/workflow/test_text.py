import math
import re
import time
from collections.abc import Callable
from functools import partial

import pytest
from growth import check_linear
from hypothesis import example, given
from hypothesis import strategies as st

from workflow.text import (
    DELIVERY_EXCERPT,
    blocks,
    delivery,
    last_boxed,
    solution_block,
    strip_echo,
    verdict,
    vote_key,
    winning_vote,
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


# Votes


@pytest.mark.parametrize(
    ("answers", "weights", "winner"),
    [
        (["5", "7", "5"], [1, 1, 1], 0),
        (["5", "7", "7"], [1, 1, 1], 1),
        (["5", "7", "5"], [1, 3, 1], 1),
        (["5", "7"], [1, 1], 0),  # a tie goes to the class that was named first
        (["7", "5", "5", "7"], [1, 1, 1, 1], 0),
        ([None, "7", None], [9, 1, 9], 1),
        ([None, None], [1, 1], None),
        ([], [], None),
        (["5", "7"], [0, 0], 0),
        (["x", "y", "y"], [0.3, 0.1, 0.2], 0),  # 0.1 + 0.2 is no more than 0.3
        (["1,000", "7", "1000"], [1, 1, 1], 0),
        ([r"\dfrac{1}{2}", "7", r"$\frac{1}{2}$"], [1, 1, 1], 0),
        (["", "7", "7"], [1, 1, 1], 1),
    ],
)
def test_winning_vote(answers: list[str | None], weights: list[float], winner: int | None) -> None:
    assert winning_vote(answers, weights) == winner


def test_every_answer_needs_a_weight() -> None:
    with pytest.raises(ValueError, match="zip"):
        winning_vote(["5", "7"], [1])


@given(st.lists(st.tuples(st.sampled_from([None, "5", "7", "9"]), st.integers(0, 5)), max_size=7))
def test_vote_is_the_heaviest_class_and_its_first_member(votes: list[tuple[str | None, int]]) -> None:
    answers = [answer for answer, _ in votes]
    winner = winning_vote(answers, [weight for _, weight in votes])
    totals = {answer: sum(w for a, w in votes if a == answer) for answer in answers if answer is not None}
    if not totals:
        assert winner is None
        return
    assert winner is not None
    assert totals[answers[winner] or ""] == max(totals.values())
    heaviest = [answer for answer in totals if totals[answer] == max(totals.values())]
    assert winner == min(answers.index(answer) for answer in heaviest)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("5", " 5 ", True),
        ("5", "$5$", True),
        ("5", "5.", True),
        ("1,234,567", "1234567", True),
        (r"\left( 3, 4 \right)", "(3,4)", True),
        (r"\text{Yes}", "{yes}", True),
        ("3,4", "34", False),
        ("12,34", "1234", False),
        ("5", "-5", False),
        ("0.5", "5", False),
        (r"\sqrt{2}", "2", False),
    ],
)
def test_vote_key(one: str, other: str, same: bool) -> None:
    assert (vote_key(one) == vote_key(other)) is same


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


# Hostile input: every reader takes time linear in the text.

READERS: dict[str, Callable[[str], object]] = {
    "last_boxed": last_boxed,
    "delivery": delivery,
    "solution": solution_block,
    "verdict": verdict,
    "vote": vote_key,
    "echo": lambda text: strip_echo(text, [text[: len(text) // 2] + "\n\\boxed{}"]),
    "tool_calls": parse_tool_calls,
    "call_body": lambda text: parse_tool_calls(f"<tool_call>{text}x</tool_call>"),
    "fenced_call": lambda text: parse_tool_calls(f"<tool_call>```{text}x</tool_call>"),
    "fenced_code": lambda text: solution_block(f"<solution>```\n{text}x</solution>"),
}
HOSTILE = {
    "boxes": lambda n: r"\boxed{" * n,
    "nested boxes": lambda n: r"\boxed{" * n + "}" * n,
    "plain boxes": lambda n: r"\boxed " * n,
    "braces": lambda n: "{" * n,
    "closed braces": lambda n: "{" * n + "}" * n,
    "backslashes": lambda n: "\\" * n,
    "opening tags": lambda n: "<delivery><solution><tool_call>" * n,
    "closing tags": lambda n: "</delivery></solution></tool_call>" * n,
    "pairs": lambda n: "<delivery>a</delivery><tool_call>{</tool_call>" * n,
    "newlines": lambda n: "\n" * n,
    "spaces": lambda n: " " * n,
    "stars": lambda n: "*\n" * n,
    "one line of stars": lambda n: "*" * n,
    "markers": lambda n: "final answer " * n + " " * n,
    "marker lines": lambda n: "final answer\n" * n + "\n" * n,
    "verdicts": lambda n: "verdict " * n + " " * n + "not " * n,
    "nots": lambda n: "NOT a" * n + "\n" + "not " + "a" * n,
    "choices": lambda n: "CORRECT or " * n,
    "fences": lambda n: "```\n" * n,
    "backticks": lambda n: "`" * n,
    "digits": lambda n: "1,111" * n,
    "lefts": lambda n: r"\text \left" * n + " " * n,
    "brackets": lambda n: "[" * n,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_readers_take_linear_time(kind: str) -> None:
    def reading(reader: Callable[[str], object], count: int) -> Callable[[], object]:
        text = HOSTILE[kind](count)
        return lambda: reader(text)

    for name, reader in READERS.items():
        check_linear(name, partial(reading, reader), 2_500)


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


def test_infinite_weights_do_not_break_a_vote() -> None:
    assert winning_vote(["5", "7"], [1, math.inf]) == 1
