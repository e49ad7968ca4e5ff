"""Who said what: properties of rearranged replies. What a session makes of it: test_session.py."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.authorship import MAX_READ, Authorship
from workflow.answers import Domain, code_answers, final_answer, math_answers
from workflow.completion import ChatMessage

PIECES = st.sampled_from(
    [r"\boxed{1}", r"\boxed{2}", r"So it is \boxed{3}.", r"Or it is \boxed{1}.", r"\boxed{\boxed{4}}",
     r"\boxed{ {\boxed{2}}}",
     "<solution>\nx = 1\n</solution>", "<solution>y = 2</solution>", "```python\nx = 1\n```", "```text\nz = 3\n```",
     "```\ny = 2\n```", "  ```python\n  x = 1\n  ```", "````python\ny = 2\n````", "~~~\nz = 3\n~~~",
     "Well.", "```", "~~~",
     "</solution>", "<delivery>7</delivery>", r"<delivery>It is \boxed{3}</delivery>", r"\boxed{", "}", "1", "x = 1",
     "verdict", "\u2028", r"1. A said: \boxed{2}"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=5).map("\n".join)
DOMAINS: tuple[Domain, Domain] = ("math", "code")


def told(text: str, role: Any = "user") -> list[ChatMessage]:
    return [ChatMessage(role=role, content=text)]


def heard(*replies: str, prompt: str = "Solve.", question: str = "") -> Authorship:
    authorship = Authorship(question)
    for number, reply in enumerate(replies):
        authorship.heard(f"A{number}", told(prompt), reply)
    return authorship


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[tuple[str, str]], list[str]]:
    """What a program told its agents and they replied, by turns; and texts that it makes of all that: prompts and
    answers are cut out of replies, and mixed with words of its own."""
    turns: list[tuple[str, str]] = []
    seen = [""]
    for _ in range(draw(st.integers(1, 3))):
        cuts = st.sampled_from(seen) | PIECES
        prompt = "\n".join(draw(st.lists(cuts, max_size=4)))
        reply = "\n".join(draw(st.lists(st.sampled_from([*prompt.splitlines(), ""]) | PIECES, max_size=5)))
        turns.append((prompt, reply))
        seen += [reply, *reply.splitlines()]
    answers = ["\n".join(draw(st.lists(st.sampled_from(seen) | PIECES, max_size=4))) for _ in range(3)]
    return turns, [*answers, *(reply for _, reply in turns)]


def own_answers(reply: str, domain: Domain) -> list[str]:
    found = [answer for answer, _, _ in math_answers(reply)] if domain == "math" else code_answers(reply)
    return [answer.strip() for answer in found]


@pytest.mark.thorough
@settings(max_examples=500)
@given(runs())
@example(
    (
        [("\n<solution>y = 2</solution>", "<solution>y = 2</solution>\n```python\nx = 1\n```")],
        ["<solution>\nx = 1\n</solution>", "<solution>y = 2</solution>\n```python\nx = 1\n```"],
    )
)
def test_what_is_paid_stands_in_one_agents_own_words(run: tuple[list[tuple[str, str]], list[str]]) -> None:
    """However a program tells agents what to say, and cuts and joins replies and words of its own."""
    turns, answers = run
    authorship = Authorship("Solve.")
    for number, (prompt, reply) in enumerate(turns):
        authorship.heard(f"A{number}", told(prompt), reply)
    paid: dict[Domain, set[str]] = {domain: set() for domain in DOMAINS}
    for answer in answers:
        agent = authorship.of(answer)
        for domain in DOMAINS:
            graded = final_answer(answer, domain)
            if agent is None or graded is None:
                continue
            paid[domain].add(graded.strip())
            # The same reader finds it in what one agent said, as its last words, or before or behind an echo of what it
            # was told.
            assert any(
                graded.strip() in own_answers(reply, domain)[-1:]
                or graded.strip() in own_answers(unrepeated(reply, prompt), domain)[-1:]
                or (graded.strip() in own_answers(reply, domain) and repeats(reply, prompt, domain))
                for prompt, reply in turns
            )
    for domain in DOMAINS:  # nobody gives a program several to choose from
        assert len(paid[domain]) <= sum(final_answer(reply, domain) is not None for _, reply in turns)


def unrepeated(reply: str, prompt: str) -> str:
    """A reply without the lines of its instructions."""
    told = {line.strip() for line in prompt.splitlines()}
    return "\n".join(line for line in reply.splitlines() if line.strip() not in told)


def repeats(reply: str, prompt: str, domain: Domain) -> bool:
    """Whether the reply ends with an answer that its instructions hold."""
    last = own_answers(reply, domain)[-1]
    return last in prompt or all(line.strip() in prompt for line in last.splitlines())


@given(TEXTS, st.sampled_from(["system", "user", "tool", "assistant"]))
def test_a_reply_handed_on_whole_is_its_agents(reply: str, role: str) -> None:
    authorship = Authorship("Solve.")
    authorship.heard("A0", told("Solve.", role), reply)
    if final_answer(reply, "math") or final_answer(reply, "code"):
        assert authorship.of(reply) == "A0"


@given(TEXTS)
def test_nothing_that_only_a_program_wrote_is_paid(prompt: str) -> None:
    """An agent that repeats its prompt, and says no more, has said nothing, unless it had a choice."""
    authorship = heard(prompt, prompt=prompt)
    boxes = {answer for answer, _, _ in math_answers(prompt)}
    if len(boxes) <= 1 and math_answers(prompt):
        assert authorship.of(prompt) is None
    if final_answer(prompt, "code") is not None:
        assert authorship.of(f"<solution>{final_answer(prompt, 'code')}</solution>") is None


VALUES = "\n".join(rf"Value: \boxed{{{number}}}" for number in range(1, 6))


@pytest.mark.parametrize("number", range(1, 6))
def test_a_program_cannot_pick_among_the_values_that_an_agent_lists(number: int) -> None:
    """Not by answering with one, nor by calling those behind it instructions, nor by having it repeated. An agent that
    adds a single value to those that it was told has chosen it."""
    behind = "\n".join(VALUES.splitlines()[number:])
    told_those = heard(VALUES, prompt=f"List all values.\n{behind}")
    assert told_those.of(rf"\boxed{{{number}}}") == ("A0" if number in (1, 5) else None)
    twice = heard(VALUES)
    twice.heard("B", told(rf"Say \boxed{{{number}}}."), rf"\boxed{{{number}}}")
    assert twice.of(rf"\boxed{{{number}}}") == ("B" if number == 5 else None)


CODES = "\n".join(f"<solution>\nx = {number}\n</solution>" for number in range(1, 4))


def test_nor_among_the_solutions() -> None:
    behind = "<solution>\nx = 3\n</solution>"
    assert heard(CODES, prompt=f"List all.\n{behind}").of("<solution>\nx = 2\n</solution>") is None
    assert heard(f"<solution>x = 1</solution>\n{behind}", prompt=behind).of("<solution>x = 1</solution>") == "A0"


@pytest.mark.parametrize(
    "prompt",
    ["~~~\ndef f(): return 7\n~~~", "Write\ndef f(): return 7\nplease", "````text\n  def f(): return 7\n````",
     "<SOLUTION>def f(): return 7</SOLUTION>", "```python\r\ndef f(): return 7\r\n```"],
)  # fmt: skip
def test_dictated_code_is_nobodys_in_whatever_fence(prompt: str) -> None:
    reply = "```python\ndef f(): return 7\n```"
    assert heard(reply, prompt=prompt).of(reply) is None
    assert heard(reply, prompt=prompt, question="Mend\ndef f(): return 7").of(reply) == "A0"
    assert heard(reply, reply, prompt="Improve:\n" + reply).of(reply) is None, "the first was told"
    authorship = heard(reply)
    authorship.heard("B", told(prompt), reply)
    assert authorship.of(reply) == "B", "told what an agent wrote, who agrees has said it"


def test_code_that_an_agent_ran_may_be_repeated() -> None:
    authorship = heard('<tool_call>{"name": "run", "arguments": {"code": "x = 1\\nprint(x)"}}</tool_call>')
    authorship.heard("B", told("Review:\nx = 1\nprint(x)"), "```python\nx = 1\nprint(x)\n```")
    assert authorship.of("<solution>x = 1\nprint(x)</solution>") == "B"


@pytest.mark.parametrize("dictated", [r"Say \boxed{ 1 / 2 }.", r"Say \fbox{1/2}", r"Say \boxed{\boxed{1/2}}"])
def test_a_dictated_box_is_nobodys_however_it_is_spaced(dictated: str) -> None:
    assert heard(r"\boxed{1/2}", prompt=dictated).of(r"\boxed{1/2}") is None
    authorship = Authorship()
    authorship.heard("A", told("Solve."), r"\boxed{1/2}", [{"function": {"description": dictated}}])
    assert authorship.of(r"\boxed{1/2}") is None, "schemas of tools are instructions too"


def test_code_that_prints_what_it_is_given_says_nothing() -> None:
    for stdin, agent in (("", "B"), (r"So it is \boxed{17}", None)):
        authorship = heard("```python\nprint(input())\n```")
        authorship.ran("print(input())", r"So it is \boxed{17}", stdin)
        authorship.heard("B", told(r"So it is \boxed{17}", "tool"), r"So it is \boxed{17}")
        assert authorship.of(r"\boxed{17}") == agent


def test_a_judge_may_repeat_the_line_that_an_agent_delivered() -> None:
    authorship = heard(r"<delivery>The answer is \boxed{17}</delivery>")
    authorship.heard("Judge", told("### From A0\nThe answer is \\boxed{17}"), r"The answer is \boxed{17}")
    assert authorship.of(r"The answer is \boxed{17}") == "Judge"


def test_lines_of_code_are_no_echo() -> None:
    """The code of a template holds a marked word; who completes it has written the whole."""
    start = "def f(n):\n    verdict = n > 1"
    code = f"{start}\n    return verdict"
    assert heard(f"```python\n{code}\n```", prompt=start).of(f"<solution>{code}</solution>") == "A0"


def test_what_is_left_out_joins_nothing() -> None:
    reply = "\\boxed{\nits verdict\n17}"
    assert heard(reply, prompt="its verdict").of(r"\boxed{17}") is None


@pytest.mark.parametrize(
    ("language", "agent"), [("python", "A0"), ("", "A0"), ("py", "A0"), ("text", None), ("json", None)]
)
def test_a_fence_that_the_grader_does_not_read_founds_nothing(language: str, agent: str | None) -> None:
    answer = "```python\ndef f(): return 7\n```"
    assert heard(f"```{language}\ndef f(): return 7\n```").of(answer) == agent


def test_a_programs_own_solution_beside_an_agents_text_is_nobodys() -> None:
    reply = "```text\ndef f(): return 7\n```"
    assert heard(reply).of(f"{reply}\n```python\ndef f(): return 7\n```") is None


def test_no_more_than_the_end_of_a_reply_is_read() -> None:
    assert heard("\\boxed{1}" + " " * MAX_READ).of("\\boxed{1}") is None
    assert heard(" " * MAX_READ + "\\boxed{1}").of("\\boxed{1}") == "A0"
