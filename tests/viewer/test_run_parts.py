"""Parts of a run's page: the lines of its program, its time line, its tokens in colours."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from inert import text_of
from made_runs import made, turn

from viewer.reading.traces import ReadRun
from viewer.run.program_lines import fits, program_lines
from viewer.run.run_page import run_page
from viewer.run.time_line import MOST_BARS, MOST_LANES, time_line
from viewer.run.token_heat import UNKNOWN, heat_of, level
from workflow.completion import Completion
from workflow.trace import (
    AgentTurn,
    CodeRan,
    Event,
    ToolCalled,
    ToolReturned,
)


def shown(run: ReadRun, **options: Any) -> str:
    return text_of(run_page(run, **options).body)


# The program and its lines

PROGRAM = """from workflow import AgentNode as A, EnsembleNode, Workflow
import workflow as wf
NAME = "Constant"
class Own(wf.WorkflowNode):
    pass
class Further(Own):
    pass
one = A(name="One", system_prompt="x")
two = A(
    NAME, "x"
)
many = [A(f"Solver{i} of {3}", "x") for i in range(3)]
def make(name):
    return A(name, "x")
three = make("Three")
own = Further("Mine")
flow = wf.Workflow("flow").add_node(EnsembleNode("vote", [one, two]))
"""


def test_the_line_of_each_node_is_found() -> None:
    lines = program_lines(PROGRAM)
    assert lines.problem == ""
    assert lines.of("One") == [8]
    assert lines.of("Constant") == [9]
    assert lines.of("Solver2 of 3") == [12]
    assert lines.of("Three") == [15], "where its name stands, since only running it tells where it is built"
    assert lines.of("Nobody") == []
    assert {(built.line, built.kind) for built in lines.built} == {
        *((line, "AgentNode") for line in (8, 9, 12, 14)),
        *((16, "Further"), (17, "Workflow"), (17, "EnsembleNode")),
    }


@pytest.mark.parametrize(
    ("name", "pieces", "fitting"),
    [
        ("Solver1", ("Solver", ""), True),
        ("aXbYc", ("a", "b", "c"), True),
        ("aXbYd", ("a", "b", "c"), False),
        ("ab", ("a", "", "b"), True),
        ("aa", ("aa", "aa"), False),
        ("anything", ("", ""), False),
    ],
)
def test_names_of_f_strings(name: str, pieces: tuple[str, ...], fitting: bool) -> None:
    assert fits(name, pieces) == fitting


@pytest.mark.parametrize("source", ["def (", "\x00", "(" * 5_000, "x" * 300_000, "\\d\n'\\d'", "\ud800 = 1", ""])
def test_a_program_that_cannot_be_read_has_no_lines(source: str) -> None:
    lines = program_lines(source)
    assert lines.of("A") == []
    shown(made(turn("w/A"), program=source))


def test_lines_lead_to_agents_and_back() -> None:
    run = made(turn("flow/vote/One[0]"), turn("flow/vote/Constant[1]"), program=PROGRAM)
    page = run_page(run).body
    line = next(line for line in page.split("\n") if 'id="line-8"' in line)
    assert 'data-goto="e1">One 1×</button>' in line
    assert 'class="line marked"' in line
    assert 'data-goto="line-8">8</button>' in page


# The time line


def test_parts_that_worked_side_by_side_have_lanes_of_their_own() -> None:
    run = made(turn("e/A[0]", 0, 6), turn("e/B[1]", 0, 8), turn("e/J", 8, 10))
    lanes = time_line(run.trace, lambda path: path).lanes
    assert [(lane.name, [(bar.left, bar.width) for bar in lane.bars]) for lane in lanes] == [
        ("e/A[0]", [(0.0, 60.0)]),
        ("e/B[1]", [(0.0, 80.0)]),
        ("e/J", [(80.0, 20.0)]),
    ]


def test_a_tool_is_at_work_from_its_call_to_its_result_and_code_beside_it() -> None:
    events = [
        turn("w/A", 0, 2),
        ToolCalled(t=2, path="w/A", agent="A", name="run"),
        CodeRan(t=5, path="w/A", code="", exit_status=1, stdout="", stderr="", duration_s=2),
        ToolReturned(t=6, path="w/A", agent="A", name="run", content="x"),
        ToolCalled(t=7, path="w/A", agent="A", name="gone"),
    ]
    lanes = time_line(made(*events, turn("w/A", 8, 10)).trace, lambda path: path).lanes
    told = [[(bar.kind, bar.start, bar.end, bar.failed) for bar in lane.bars] for lane in lanes]
    assert told == [
        [("turn", 0, 2, False), ("tool", 2, 6, False), ("tool", 7, 7, True), ("turn", 8, 10, False)],
        [("code", 3, 5, True)],
    ]
    assert [lane.name for lane in lanes] == ["w/A", ""]


def test_very_many_bars_and_lanes_are_bounded_and_told() -> None:
    events: list[Event] = []
    for number in range(3_000):
        events += [turn("w/A", number, number + 0.5), ToolCalled(t=number + 0.6, path="w/A", agent="A", name="x")]
    time = time_line(made(*events).trace, lambda path: path)
    assert all(len(lane.bars) <= MOST_BARS + 1 for lane in time.lanes)
    assert sum(bar.count for lane in time.lanes for bar in lane.bars) == 6_000
    beside = time_line(made(*(turn(f"e/A{n}[{n}]") for n in range(100))).trace, lambda path: path)
    assert len(beside.lanes) == MOST_LANES
    assert beside.notes == ["60 more are not drawn."]
    crowd = time_line(made(*(turn("w/A") for _ in range(100))).trace, lambda path: path)
    assert crowd.notes == ["60 at w/A are not drawn, since too much worked at once."]


def test_without_times_there_is_no_time_line() -> None:
    assert time_line(made(turn("w/A", 0, 0)).trace, lambda path: path).lanes == []
    assert "When" not in shown(made(turn("w/A", math.nan, math.nan)))


# Tokens by how likely they were


def likely(*logprobs: float) -> AgentTurn:
    event = turn("w/A")
    event.completion = Completion(text="abc", token_ids=list(range(len(logprobs))), logprobs=list(logprobs))
    return event


def test_each_token_has_a_cell() -> None:
    heat = heat_of([-0.01, -0.01, -1.0, -9.0, math.nan])
    assert re.findall(r'class="h(\d)" style="flex:(\d+)"', heat.strip) == [
        ("0", "2"),
        ("3", "1"),
        ("6", "1"),
        ("7", "1"),
    ]
    assert heat.mean == pytest.approx(10.02 / 4)
    assert heat.least == pytest.approx(math.exp(-9))
    assert [level(-0.0), level(-math.inf), level(math.nan), level(3.0)] == [0, 6, UNKNOWN, 0]
    assert "5 tokens, surprisal" in shown(made(likely(-0.01, -0.01, -1.0, -9.0, math.nan)))


def test_very_many_tokens_share_cells_by_the_least_likely() -> None:
    heat = heat_of([-0.01] * 9_999 + [-9.0])
    assert heat.per_cell == 25
    assert re.findall(r"flex:(\d+)", heat.strip) == ["399", "1"]
    assert "a cell is 25 tokens" in shown(made(likely(*([-0.01] * 9_999 + [-9.0]))))


def test_the_text_itself_is_coloured_where_the_texts_of_tokens_are_known() -> None:
    def words(ids: list[int]) -> list[str]:
        return ["Hel", "lo ", "<b>", "\u202e"][: len(ids)]

    page = run_page(made(likely(-0.01, -0.01, -1.0, -5.0)), words=words).body
    assert 'Hello <span class="h3" title="36.8 %">&lt;b&gt;</span><span class="h6" title="0.7 %">\\u202e</span>' in page
    text_of(page)


@pytest.mark.parametrize("words", [lambda ids: [], lambda ids: ["x"] * 99])
def test_texts_that_are_not_one_for_each_token_are_not_shown(words: Any) -> None:
    assert heat_of([-1.0, -2.0], [1, 2], words).text is None
    assert heat_of([-1.0, -2.0], [1], lambda ids: ["x"]).text is None


@pytest.mark.parametrize("total", [1e-9, 4e-6, 0.003, 0.026, 0.04, 1.0, 9.99, 11.0, 119.0, 120.0, 500.0, 1e6])
def test_ticks_differ_as_they_are_written(total: float) -> None:
    told = [text for _, text in time_line(made(turn("w/A", 0, total)).trace, lambda path: path).ticks]
    assert len({*told}) == len(told) >= 2
