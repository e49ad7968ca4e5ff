"""Lines of programs are those that Python counts, whatever stands in them, on every page that numbers them."""

from __future__ import annotations

import ast
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inert import text_of
from made_runs import made, turn

from viewer.html import python
from viewer.run.compare_page import MOST_LINES, compare_page
from viewer.run.first_difference import compared
from viewer.run.program_lines import program_lines
from viewer.run.run_page import run_page
from viewer.source_lines import source_ends, source_lines, with_newlines

ENDS_NO_LINE = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@given(st.lists(st.sampled_from(["x = 1", "", '"a', "\n", "\r", "\r\n", *ENDS_NO_LINE]), max_size=20))
def test_lines_are_those_of_python(parts: list[str]) -> None:
    source = "".join(parts)
    assert len(source_lines(source)) == len(source_ends(source))
    assert source_lines(with_newlines(source)) == source_lines(source)
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert source_lines(source) == (lines if lines[-1] else lines[:-1])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", *ENDS_NO_LINE])
@pytest.mark.parametrize("new", ["\n", "\r\n", "\r"])
def test_an_agent_is_on_the_line_that_the_page_gives_that_number(end: str, new: str) -> None:
    text = f'"""a{end}b"""'
    program = new.join(["from workflow import AgentNode", text, "", 'solver = AgentNode("Solver", "Solve.")', ""])
    with suppress(SyntaxError):
        ast.parse(program)
    (line,) = program_lines(program).of("Solver")
    shown = dict(re.findall(r'id="line-(\d+)"><i>\d+</i>(.*)', str(python(program))))
    assert "Solver" in shown[str(line)]
    page = str(run_page(made(turn("w/Solver"), program=program)).body)
    assert f'data-goto="line-{line}"' in page
    assert f'id="line-{line}"' in page


@pytest.mark.parametrize("odd", [*ENDS_NO_LINE, "\u202e"])
def test_the_first_line_that_differs_is_counted_as_python_does(odd: str) -> None:
    left, right = (f"a = 1\rb = '{odd}{odd}'\r\nc = {number}\n" for number in (1, 2))
    first = compared(made(program=left).trace, made(program=right).trace).first
    assert first is not None
    assert first.in_words() == "the program differs, first in line 3"
    page = text_of(compare_page(made(program=left), made(program=right)).body)
    assert "3 c = 1 3 c = 2" in page


@pytest.mark.parametrize(
    ("left", "right", "told", "ends"),
    [
        ("a\nb\n", "a\nb\r\n", "first in the end of line 2", ("LF", "CR LF")),
        ("a\nb\n", "a\nb", "first in the end of line 2", ("LF", "no end")),
        ("a\rb\n", "a\nb\n", "first in the end of line 1", ("CR", "LF")),
    ],
)
def test_programs_that_differ_in_the_ends_of_lines_alone(
    left: str, right: str, told: str, ends: tuple[str, str]
) -> None:
    first = compared(made(program=left).trace, made(program=right).trace).first
    assert first is not None
    assert told in first.in_words()
    assert (first.left_text, first.right_text) == ends
    page = text_of(compare_page(made(program=left), made(program=right)).body)
    assert "The program is the same" not in page
    assert "lines of the program say the same" in page


def test_programs_that_differ_far_behind() -> None:
    left = "x\n" * MOST_LINES
    page = text_of(compare_page(made(program=left), made(program=left + "y\n")).body)
    assert f"first in line {MOST_LINES + 1:,}" in page
    assert "The first 3,000 lines of the program say the same." in page
