"""The programs of the math and code recipes read replies as the host does, whose rewards agents learn from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from one_jail import in_jail

from sandbox.conformance.scripted import Scripted
from tasks import written_tests
from workflow.answers import code_answer, math_answer
from workflow.completion import CompletionRequest

PROGRAMS = Path(__file__).parents[3] / "recipes" / "programs"


def parts(name: str) -> dict[str, Any]:
    """The functions of a program, without its run."""
    source = (PROGRAMS / f"{name}.py").read_text()
    head, cut, _ = source.partition("\nhistory = []")
    assert cut
    names: dict[str, Any] = {}
    exec(compile(head, name, "exec"), names)
    return names


MATH, CODE = parts("math"), parts("code")


@pytest.mark.parametrize(
    "reply",
    [
        r"\boxed{5}", r"\fbox{5}", r"\boxed {5}", r"\boxed 5", r"\boxed{5} and \boxed{}", r"\boxed{5} \boxed{6",
        r"\boxed{\boxed{5}}", r"\boxed{\frac{1}{2}}", r"\boxed{\left\{1,2\right\}}", r"\boxed{\{1\}}", "none",
        "\\boxed{" + "1" * 800 + "}", r"\boxed{a} then \boxed{\text{yes}} end", r"first \boxed{1}, no: \boxed{2}.",
    ],
)  # fmt: skip
def test_boxes(reply: str) -> None:
    assert MATH["boxed"](reply) == (math_answer(reply) or "")


CODES = [
    "```python\nprint(1)\n```", "```py\nprint(1)\n```", "```Python\nprint(1)\n```", "```python3\nprint(1)\n```",
    "```python title=x\nprint(1)\n```", "```\nprint(1)\n```", "```python\r\nprint(1)\r\n```",
    "<solution>print(1)</solution>", "<solution>\n```python\nprint(1)\n```\n</solution>\n```python\nprint(2)\n```",
    "```python\nprint(1)\n```\nor\n```python\nprint(2)\n```", "```cpp\nint x;\n```\n```python\nprint(1)\n```",
    '```python\nx = """\n# use ``` here\n"""\nprint(1)\n```', "````python\nprint('```')\n````", "```python\nprint(1)",
    "print(1)", "```\n\n```",
]  # fmt: skip


@pytest.mark.parametrize("reply", CODES)
def test_code(reply: str) -> None:
    expected = (code_answer(reply) or "").replace("\r\n", "\n").strip()
    assert MATH["code_of"](reply).strip() == CODE["code_of"](reply).strip() == expected


@pytest.mark.parametrize(
    "reply",
    [
        "**Test Input:**\n3\n**Test Output:**\n9", "**test input:**\n3\n**test output:**\n9",
        "**Test Input: **\n3\n**Test Output: **\n9", "**Test Input**:\n3\n**Test Output**:\n9",
        "### Test Input:\n3\n### Test Output:\n9", "**Test Input 1:**\n3\n**Test Output 1:**\n9\n**Test Input 2:**\n4",
        "Test Input: 3\nTest Output: 9", "**Test Input:**\n```\n3\n4\n```\n**Test Output:**\n```text\n9\n```\nas 3 * 3",
        "**Test Input:** `3`\n**Test Output:** `9`", "**Test Input:**\n3\n**Test Output:** 9\n**Test Output:** 10",
        "**Test Output:**\n9\n**Test Input:**\n3", "**Test Input:**\n3\n**Test Output:**\n", "none",
        "**Test Input:**\n\n**Test Output:**\n9", "The **Test Input:** is 3.\n**Test Output:**\n9",
    ],
)  # fmt: skip
def test_tests(reply: str) -> None:
    host = [(test.stdin, test.stdout.strip()) for test in written_tests(reply, 1)]
    given, expected = CODE["test_in"](reply)
    assert ([(given, expected.strip())] if expected else []) == host


@pytest.mark.parametrize(
    ("box", "printed", "same"),
    [
        (r"\frac{1}{2}", "1/2", True), (r"\dfrac12", "0.5", True), ("1/2", "0.5", True),
        (r"\sqrt{2}", "1.41421356237", True), (r"2\sqrt{3}", "2*sqrt(3)", True), (r"2\pi", "6.283185307", True),
        ("x=5", "5", True),
        (r"5 \text{ cm}", "5", True), (r"90^\circ", "90", True), (r"\$5", "5", True), (r"50\%", "50%", True),
        ("1,234", "1234", True), ("2^{10}", "1024", True),
        (r"\frac{\sqrt{3}}{2}", "sqrt(3)/2", True), ("-3", "-3.0", True), ("1,2", "12", False), ("3, 4", "34", False),
        ("1_0", "10", False), ("\uff15", "5", False), ("5", "6", False), ("(1,2)", "(1, 2)", True),
        ("1 2", "12", False),
        (r"\text{yes}", "no", False), ("9**9**9**9", "1", False), ("__import__('os')", "1", False), ("", "", True),
    ],
)  # fmt: skip
def test_agreement(box: str, printed: str, same: bool) -> None:
    assert MATH["same"](box, printed) is same


def test_later_prompts_stay_short() -> None:
    asked: list[CompletionRequest] = []

    def reply(request: CompletionRequest) -> str:
        asked.append(request)
        long = "# " + "x" * 100_000
        return "y" * 100_000 + r"\boxed{1}" if request.agent == "Reasoner" else f"```python\n{long}\nprint(2)\n```"

    source = (PROGRAMS / "math.py").read_text()
    run = in_jail(lambda sandbox: sandbox.run_program(source, "q", engine=Scripted(reply)))
    assert run.failure is None
    assert len(asked) == 8
    assert max(len(str(request.messages)) for request in asked) < 30_000
    assert re.search("It printed: 2", str(asked[-1].messages))
