"""Whose an action in a game is. What it earns: tests/trainer/credit/test_reward.py."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from fake_engines import CannedEngine

from engine import run_workflow
from engine.authorship import RUNNABLE, Authorship, _Reader
from tasks.environments import begins, problem_of
from tasks.problems import SudokuLevel
from workflow import AgentNode, Context, Workflow, WorkflowNode
from workflow.completion import ChatMessage
from workflow.environment import Environment
from workflow.trace import EnvironmentStepped

RD, URRD = '["R", "D"]', '["U", "R", "R", "D"]'
QUESTION = 'Find a way. Write a list of moves:\n#### ["R", "D"]'
GRID = "[[1, 2, 3, 4], [3, 4, 1, 2]]"


def told(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=text) for text in texts]


def heard(*turns: tuple[str, str], question: str = "") -> Authorship:
    authorship = Authorship(question, plays=True)
    for number, (prompt, reply) in enumerate(turns):
        authorship.heard(f"A{number}", told(prompt), reply)
    return authorship


@pytest.mark.parametrize(
    ("turns", "action", "author"),
    [
        ([("Plan.", f"Right, down.\n#### {RD}")], RD, "A0"),
        ([("Plan.", f"#### {RD}")], f"I go.\n#### {RD}", "A0"),
        ([("Plan.", f"#### {RD}")], '["R"]', None),
        ([("Plan.", f"#### {RD}\n#### []")], RD, None),  # its action is the last one
        ([("Plan.", "Nothing.")], RD, None),
        ([("Plan.", RD), ("Plan.", RD)], RD, "A1"),
        ([("Plan.", RD)], "", None),
        ([("Plan.", "#### []")], "[]", "A0"),
        # the same in other words
        ([("Plan.", '["R","D"]')], RD, "A0"),
        ([("Plan.", "[R, D]")], RD, "A0"),
        ([("Plan.", "['R', 'D']")], RD, "A0"),
        ([("Plan.", "[[1,2,3]]")], "[[1, 2, 3]]", "A0"),
        # in a tool call
        ([("Plan.", '<tool_call>{"name": "move", "arguments": {"moves": ["R", "D"]}}</tool_call>')], RD, "A0"),
        ([("Plan.", '<tool_call>{"name": "move", "arguments": {"moves": "R D"}}</tool_call>')], RD, "A0"),
    ],
)
def test_an_action_is_the_agents_whose_reply_acts_so(
    turns: list[tuple[str, str]], action: str, author: str | None
) -> None:
    assert heard(*turns).of_action(action) == author


@pytest.mark.parametrize(
    ("prompt", "reply"),
    [
        (f"Say {URRD}", URRD),
        (f"Say: #### {URRD}", f"#### {URRD}"),
        ("Say ['U','R','R','D']", URRD),
        ("Your list has U, R, R, D.", URRD),
        ("U,R,R,D", URRD),
        ("First U, R and then R, D. Say that as JSON.", URRD),
        ("The moves are U R R D L; leave out the last.", URRD),
        ('Say: ["U"]', '["U"]'),
        (f"At 1, 2, 3 say {URRD}", URRD),  # places are no other actions
        (f"Say {GRID}", GRID),
        ("The rows are [1,2,3,4] and [3,4,1,2].", GRID),
        ("1 2 3 4\n3 4 1 2", GRID),
        (f"{QUESTION}\nSay {RD}", RD),  # the question's own example
    ],
)
def test_what_is_dictated_is_nobodys(prompt: str, reply: str) -> None:
    assert heard((prompt, reply), question=QUESTION).of_action(reply) is None
    again = heard((prompt, reply), (prompt, reply), question=QUESTION)
    assert again.of_action(reply) is None, "nor when it is dictated twice"


@pytest.mark.parametrize(
    ("turns", "action", "author"),
    [
        ([(f"{QUESTION}\nNow?", RD)], RD, "A0"),  # the question's example is right
        ([("Moves are U, D, L and R.", '["U"]')], '["U"]', "A0"),
        ([('Answer with one of #### ["U"], #### ["D"], #### ["L"] or #### ["R"]', '["L"]')], '["L"]', "A0"),
        ([('One of ["U", "U"], ["R", "R"]', '["R", "R"]')], '["R", "R"]', "A0"),  # it leaves a choice
        ([("U leads to a wall. D leads to 2, 1.", '["D"]')], '["D"]', "A0"),
        ([("Plan.", RD), (f"Proposed: {RD}", f"I adopt it.\n#### {RD}")], RD, "A1"),
        ([("Plan.", RD), (f"Proposed: {RD}", "No.")], RD, "A0"),
        # a proposal with words behind it, and a planner that takes the action in it
        ([("Go.", "[[4, 3, 2]] or"), ("Proposed: [[4, 3, 2]] or", "#### [[4, 3, 2]]")], "[[4, 3, 2]]", "A1"),
        ([("Go.", "So.\n#### [[4, 3, 2]] or"), ("Proposed: [[4, 3, 2]] or", "[[4, 3, 2]]")], "[[4, 3, 2]]", "A1"),
        ([("Go.", f"{URRD} it is"), (f"Tool says: {URRD} it is", URRD)], URRD, "A1"),
        ([("Go.", "In turn 3 [[4, 3, 2]] is right"), ("[[4, 3, 2]] (2 votes)", "[[4, 3, 2]]")], "[[4, 3, 2]]", "A1"),
        ([("Go.", "Row 4: [[4, 3, 2]]."), ("1. [[4, 3, 2]]\n2. [[4, 3, 2]]", "[[4, 3, 2]]")], "[[4, 3, 2]]", "A1"),
        ([("Go.", 'I would go ["R"] here.'), ('So: ["R"]', '#### ["R"]')], '["R"]', "A1"),
        # several at once, in any order, again, or put together
        (
            [("Go.", "[[4, 3, 2]]"), ("Go.", "[[4, 4, 1]]"), ("[[4, 4, 1]]\n[[4, 3, 2]]", "#### [[4, 3, 2]]")],
            "[[4, 3, 2]]",
            "A2",
        ),
        ([("Go.", "[[4, 3, 2]]"), ("[[4, 3, 2]]\n[[4, 3, 2]]\n[[4, 3, 2]]", "[[4, 3, 2]]")], "[[4, 3, 2]]", "A1"),
        (
            [("Go.", "First [4, 3, 2], since; then [4, 4, 1]"), ("[[4, 3, 2], [4, 4, 1]]", "[[4, 3, 2], [4, 4, 1]]")],
            "[[4, 3, 2], [4, 4, 1]]",
            "A1",
        ),
        (
            [
                ("Go.", "[[4, 3, 2]]"),
                ("Go.", "[[4, 4, 1]]"),
                ("(2, 4) first. A: [4, 3, 2], B: [4, 4, 1]", "[[4, 3, 2], [4, 4, 1]]"),
            ],
            "[[4, 3, 2], [4, 4, 1]]",
            "A2",
        ),
        ([("Go.", '["U", "R", "R"]'), ("Moves made: U, R", '["U", "R"]')], '["U", "R"]', "A1"),
        ([("Go.", '["R"]'), ("Go.", '["U"]'), ("Latest first: U, R", '["U"]')], '["U"]', "A2"),
        (
            [("Go.", '["R"]'), ("Go.", '["U"]'), ("Latest first: U, R", '["L", "L"] is worse.\n#### ["U"]')],
            '["U"]',
            "A2",
        ),
        # a board beside it is no list
        ([("4 . 3 .\n3 1 4 2\n. . 1 4\n1 . 2 .", "[[1, 4, 1]]")], "[[1, 4, 1]]", "A0"),
        # what moves there are
        ([("Write a JSON list of moves: U, D, L, R.", '#### ["R"]')], '["R"]', "A0"),
        ([("Write a JSON list of moves: U, D, L, R.", '["D", "L"]')], '["D", "L"]', "A0"),
        ([("Moves are U, D, L and R.", '["D", "L"]')], '["D", "L"]', "A0"),
        ([("Row 1, column 2. Turn 3 of 4.", "[[4, 3, 2]]")], "[[4, 3, 2]]", "A0"),
    ],
)
def test_what_an_agent_chooses_is_its_own(turns: Any, action: str, author: str) -> None:
    assert heard(*turns, question=QUESTION).of_action(action) == author


@pytest.mark.parametrize(
    ("turns", "action"),
    [
        # a program makes a way of single moves, or says more than it has heard
        ([("Go.", '["R"]'), ("Go.", '["D"]'), ('Say ["D", "R"]', '["D", "R"]')], '["D", "R"]'),
        ([("Go.", '["R"]'), ("Go.", '["D"]'), ('Say ["R", "R", "D"]', '["R", "R", "D"]')], '["R", "R", "D"]'),
        ([("Go.", "R or D"), ('Say ["R", "D"]', '["R", "D"]')], '["R", "D"]'),
        ([("Go.", "U, D, L, R: which?"), ('Say ["R"]', '["R"]')], '["R"]'),
        ([("Go.", "2 or 3"), ("Say [[4, 3, 2]]", "[[4, 3, 2]]")], "[[4, 3, 2]]"),
        ([("Go.", '["U", "R"] or'), (f"Say {URRD}", URRD)], URRD),
        ([("Go.", "[[4, 3, 2]] or"), ("Say [[4, 3, 2]], [4, 4, 1]", "[[4, 3, 2], [4, 4, 1]]")],
         "[[4, 3, 2], [4, 4, 1]]"),
        ([("All triples.", ". ".join(f"{a}, {b}, {c}" for a in "UDLR" for b in "UDLR" for c in "UDLR")),
          ('Say ["R", "U", "L"]', '["R", "U", "L"]')], '["R", "U", "L"]'),
        ([("All edits.", str([[r, c, v] for r in range(1, 5) for c in range(1, 5) for v in range(1, 5)])),
          ("Say [[2, 3, 4]]", "[[2, 3, 4]]")], "[[2, 3, 4]]"),
        # it writes it otherwise than the agent is to, or beside what is no other action
        *(([(f"Say {said}", said)], URRD) for said in (
            "U-R-R-D", "U.R.R.D", "U|R|R|D", "U->R->R->D", "U_R_R_D", "(U)(R)(R)(D)", "- U\n- R\n- R\n- D",
            '["\\u0055","\\u0052","R","D"]')),
        ([("Say 4.3.2", "4.3.2")], "[[4, 3, 2]]"),
        ([("U is up. Say U, R, R, D", URRD)], URRD),
        ([("Moves: U, D, L, R. Say U, R, R, D", URRD)], URRD),
        ([(f"Say the first four of {', '.join('URRD' * 800)}", URRD)], URRD),
        # or it has dictated to the first one, too
        ([("Say [[4, 3, 2]] or", "[[4, 3, 2]] or"), ("Proposed: [[4, 3, 2]] or", "[[4, 3, 2]]")], "[[4, 3, 2]]"),
        ([(f"Say: {URRD} it is", f"{URRD} it is"), (f"Tool says: {URRD} it is", URRD)], URRD),
    ],
)  # fmt: skip
def test_what_others_have_said_hides_no_dictation(turns: Any, action: str) -> None:
    assert heard(*turns).of_action(action) is None


def test_what_agents_have_done_move_by_move_is_theirs() -> None:
    def told_so(way: str, *done: str) -> str | None:
        authorship = heard(*(("Go.", f'["{move}"]') for move in done))
        for move in done:
            assert authorship.of_action(f'["{move}"]', commit=True)
        authorship.heard("B", told(f"So far: {way}"), way)
        return authorship.of_action(way)

    assert told_so('["R", "R"]', "R", "R") == "B"
    assert told_so('["R", "D"]', "U", "R", "D") == "B"
    for way in ('["D", "R"]', '["R", "R"]', '["R", "U"]'):  # in another order, too often, with a gap
        assert told_so(way, "R", "D", "U") is None, way


@pytest.mark.parametrize("stdout", ["Path: ['U', 'R', 'R', 'D']", f"{URRD} 4", f"explored 12\n{URRD}"])
def test_what_code_prints_beside_words_may_be_adopted(stdout: str) -> None:
    authorship = heard(("Code.", "```python\nprint(search())\n```"))
    authorship.ran("print(search())", stdout)
    authorship.heard("Planner", told(f"It printed:\n\n{stdout}"), f"#### {URRD}")
    assert authorship.of_action(URRD) == "Planner"


def test_what_code_is_told_to_print_is_nobodys() -> None:
    authorship = heard((f"Write a block that prints {URRD}.", f"```python\nprint({URRD!r})\n```"))
    authorship.ran(f"print({URRD!r})", URRD)
    assert authorship.of_action(URRD) is None


def cpu_s(replies: list[str], prompt: str, last: str) -> float:
    authorship = heard(*(("Go.", reply) for reply in replies))
    began = time.process_time()
    authorship.heard("B", told(prompt), last)
    return time.process_time() - began


def test_long_replies_and_instructions_take_time_in_proportion() -> None:
    lists = [". ".join(", ".join("U" * (n % 60 + 2)) for n in range(64)) for _ in range(100)]
    called = "".join(
        f'<tool_call>{{"name": "move", "arguments": {{"a": "{n} {n} {n}"}}}}</tool_call>' for n in range(1000)
    )
    for replies, prompt, last in (
        (lists, "; ".join("U" * 2000), lists[0]),
        ([], ". ".join(f"{n}, {n + 1}, {n + 2}" for n in range(20_000)), called),
        ([], "; ".join("URRDL" * 40_000), str(list("URRDL" * 500))),
        (["[[4, 3, 2]]"] * 200, "[[4, 3, 2]] " * 50_000, "[[4, 3, 2], [1, 1, 1]]"),
    ):
        assert cpu_s(replies, prompt, last) < 2.5


def test_what_is_seen_of_the_game_dictates_nothing() -> None:
    board = "1 2 3 4\n3 4 1 2\n2 1 4 3\n. . . ."
    plain, seeing = heard(), heard()
    seeing.seen(f"Turn 1 of 4.\n\n{board}")
    for authorship in (plain, seeing):
        authorship.heard("A", told(f"Now:\n\nTurn 1 of 4.\n\n{board}"), "[[1, 2, 3]]")
    assert plain.of_action("[[1, 2, 3]]") is None
    assert seeing.of_action("[[1, 2, 3]]") == "A"


def test_a_program_cannot_put_an_action_into_what_is_seen() -> None:
    """What went wrong is told in the words of the action, which the program has chosen."""
    node = Workflow("w").add_node(Smuggles("S"))
    run = asyncio.run(
        asyncio.wait_for(run_workflow(node, QUESTION, CannedEngine("[[4, 1, 4]]"), game=begins(OPEN)), 30)
    )
    proposed, acted = (event for event in run.trace.events if isinstance(event, EnvironmentStepped))
    assert "4, 1, 4" in proposed.wrong
    assert acted.action == [[4, 1, 4]]
    assert acted.from_agent is None


OPEN = problem_of(SudokuLevel(level="1 2 3 4\n3 4 1 2\n2 1 4 3\n. . . ."))


class Smuggles(WorkflowNode):
    def process(self, context: Any) -> Any:
        seen = Environment().propose("A", '["4, 1, 4"]')
        said = AgentNode("A", "Copy.").process(Context.for_question(seen.text))
        Environment().act("A", said)
        return said


def test_a_reply_acts_once() -> None:
    authorship = heard(("The letter for up, as a list.", '["U"]'), ("Plan.", '["R"]'))
    assert authorship.of_action('["U"]') == "A0"
    assert authorship.of_action('["U"]', commit=True) == "A0"
    assert authorship.of_action('["U"]') is None
    assert authorship.of_action('["R"]', commit=True) == "A1"
    authorship.heard("A2", told("Plan."), '["U"]')
    assert authorship.of_action('["U"]', commit=True) == "A2"


CODE = f"print({RD!r})"


def test_what_an_agents_code_prints_is_its_action() -> None:
    authorship = heard(("Code.", f"```python\n{CODE}\n```"))
    assert authorship.of_action(RD) is None, "it has not run"
    authorship.ran(CODE, RD + "\n")
    assert authorship.of_action(RD) == "A0"
    authorship.heard("A1", told(f"Proposed is {RD}"), RD)
    assert authorship.of_action(RD) == "A1"
    called = json.dumps({"name": "python_execute", "arguments": {"code": f"# moves\n{CODE}"}})
    by_tool = heard(("Code.", f"<tool_call>{called}</tool_call>"))
    by_tool.ran(f"# moves\n{CODE}", RD)
    assert by_tool.of_action(RD) == "A0"


def test_what_other_code_prints_or_leaves_behind_is_nobodys() -> None:
    alone = heard(("Code.", "Nothing."))
    alone.ran(CODE, RD)
    assert alone.of_action(RD) is None, "the program wrote that code"
    dictated = heard((f"Say: ```python\n{CODE}\n```", f"```python\n{CODE}\n```"))
    dictated.ran(CODE, RD)
    assert dictated.of_action(RD) is None, "the program dictated it"
    fed = heard(("Code.", "```python\nprint(input())\n```"))
    fed.ran("print(input())", RD, RD)
    assert fed.of_action(RD) is None, "the program gave it to the code"
    left = heard(("Code.", "```python\nprint(open('f').read())\n```"))
    left.ran("open('f', 'w').write('...')", "")
    left.ran("print(open('f').read())", RD)
    assert left.of_action(RD) is None, "the program's code left it in a file"


def test_an_answer_in_a_game_is_an_action() -> None:
    authorship = heard(("Plan.", f"#### {RD}"), (f"Say {URRD}", URRD))
    assert authorship.of(f"So:\n#### {RD}") == "A0"
    assert authorship.of(URRD) is None
    assert Authorship("").of_action(RD) is None, "there is no game"


def test_long_texts_are_read_from_their_end() -> None:
    authorship = heard(("Plan.", "x" * 300_000 + f"\n#### {RD}"))
    assert authorship.of_action(f"{'y' * 300_000}\n#### {RD}") == "A0"


def test_a_thousand_pieces_of_code_are_not_each_looked_for_in_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    plain = _Reader._is_told

    def counted(self: _Reader, code: str, shown: list[str]) -> bool:
        looked.append(code)
        return plain(self, code, shown)

    monkeypatch.setattr(_Reader, "_is_told", counted)
    fences = [f"```python\nprint({number})\n```" for number in range(1000)]
    authorship = heard(("Code.", "\n".join(fences)))
    assert len(looked) <= RUNNABLE + 10
    authorship.ran("print(999)", RD)
    assert authorship.of_action(RD) == "A0"
