"""Rewards of turns in games, worked out by hand from Stronger-MAS, Eq. 3 and Appendix B.3 to B.6."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from one_jail import in_jail

from sandbox import Sandbox
from search import Branching, Decision, jailed, trusted
from tasks.environments import begins, problem_of
from tasks.problems import PlanPathLevel, Problem, SokobanLevel, SudokuLevel
from trainer.credit import turn_reward
from workflow import AgentNode, Context, Workflow, WorkflowNode
from workflow.completion import Completion
from workflow.environment import Environment
from workflow.trace import Rewarded

PATH = problem_of(PlanPathLevel(level="@..\n.#.\n..G"))  # d_0 = 4
WALLED = problem_of(PlanPathLevel(level="@#G\n.#.\n..."))  # Manhattan distance 2, but 6 moves
SOKOBAN = problem_of(SokobanLevel(level="#######\n#@$ .##\n# $ . #\n#     #\n#######"))
LOST = problem_of(SokobanLevel(level="#####\n#.  #\n#@$ #\n#####"))
SUDOKU = problem_of(SudokuLevel(level="1 2 3 4\n3 4 1 2\n2 1 4 3\n. . . ."))


NOBODY: Any = None
"""Games need no sandbox to be rewarded."""


class Turns(WorkflowNode):
    """A tool proposes, a planner acts, twice. `adds` is what the program makes of their replies."""

    def __init__(self, adds: Any) -> None:
        super().__init__("Turns")
        self.adds = adds

    def process(self, context: Context) -> Any:
        environment, said = Environment(), None
        for _ in range(2):
            said = AgentNode("Tool", "Propose.", max_turns=1).process(context)
            environment.propose("Tool", self.adds(said.content))
            said = AgentNode("Planner", "Act.", max_turns=1).process(context)
            environment.act("Planner", self.adds(said.content))
        return said


def rewards(
    problem: Problem, *replies: str, adds: Any = str, node: WorkflowNode | None = None, **options: Any
) -> list[Rewarded]:
    """Of each reply, in their order: Tool, Planner, Tool, Planner."""

    async def go() -> list[Rewarded]:
        flow = Workflow("w").add_node(node or Turns(adds))
        branching = Branching(trusted(flow, problem.question, game=begins(problem)))
        position, found = await branching.start(), []
        for reply in replies:
            decision, said = position, Completion(text=reply)
            assert isinstance(decision, Decision)
            position = await branching.go_on(decision, said)
            found.append(await turn_reward(problem, decision, position, NOBODY, **options))
        await branching.close()
        return found

    return asyncio.run(asyncio.wait_for(go(), 30))


def explained(reward: Rewarded) -> dict[str, float]:
    assert reward.total == pytest.approx(sum(term.value * term.weight for term in reward.terms))
    assert all(term.reason for term in reward.terms)
    assert sum(term.weight for term in reward.terms if term.name != "team") <= 1 + 1e-9
    return {term.name: term.value for term in reward.terms}


@pytest.mark.parametrize(
    ("problem", "reply", "total", "terms"),
    [
        # B.4, planner: format, legal, on a shortest path; team max(0, (d - d') / d_0)
        (PATH, '["R"]', 0.25 + 1.0, {"team": 0.25, "format": 1, "legal": 1, "shortest": 1}),
        (PATH, '["R", "R"]', 0.5 + 1.0, {"team": 0.5, "format": 1, "legal": 1, "shortest": 1}),
        (PATH, '["R", "R", "D", "D"]', 1 + 1.0, {"team": 1, "format": 1, "legal": 1, "shortest": 1}),
        (PATH, '["R", "D"]', 0.25 + 0.1, {"team": 0.25, "format": 1, "legal": 0, "progress": 0}),  # R, then a wall
        (PATH, '["R", "L"]', 0.2, {"team": 0, "format": 1, "legal": 1, "shortest": 0}),
        (PATH, "[]", 0.2, {"team": 0, "format": 1, "legal": 1, "progress": 0}),
        (PATH, "right", 0.0, {"team": 0, "format": 0}),
        (WALLED, '["D", "D"]', 0 + 1.0, {"team": 0, "format": 1, "legal": 1, "shortest": 1}),  # 2, then 4, off at first
        # B.5, planner: team is the share of boxes on goals
        (SOKOBAN, '["R", "R"]', 0.5 + 1.0, {"team": 0.5, "format": 1, "legal": 1, "deadlock": 1}),
        (SOKOBAN, '["D", "R", "L", "U"]', 0 + 1.0, {"team": 0, "format": 1, "legal": 1, "deadlock": 1}),
        # B.3, planner: team is solved; newly filled cells of n^2
        (
            SUDOKU,
            "[[4, 1, 4], [4, 2, 3]]",
            0.1 + 0.1 + 0.8 * 2 / 16,
            {"team": 0, "format": 1, "legal": 1, "filled": 0.125},
        ),
        (
            SUDOKU,
            "[[4,1,4],[4,2,3],[4,3,2],[4,4,1]]",
            1 + 0.2 + 0.8 / 4,
            {"team": 1, "format": 1, "legal": 1, "filled": 0.25},
        ),
        (SUDOKU, "[[4, 1, 1]]", 0.1, {"team": 0, "format": 1, "legal": 0, "progress": 0}),
        (SUDOKU, "[[1, 1, 1]]", 0.1, {"team": 0, "format": 1, "legal": 0, "progress": 0}),  # a given as it is
        (SUDOKU, "[[4, 1, 0]]", 0.1, {"team": 0, "format": 1, "legal": 0, "progress": 0}),  # still blank
        (PATH, '["R", "R", "D", "D", "D"]', 2.0 - 0.8, {"team": 1, "format": 1, "legal": 1, "shortest": 0}),
    ],
)
def test_who_acts_is_scored_as_the_planner(problem: Problem, reply: str, total: float, terms: dict[str, float]) -> None:
    found = rewards(problem, "nothing", reply)[1]
    assert explained(found) == pytest.approx(terms)
    assert found.total == pytest.approx(total)


@pytest.mark.parametrize(
    ("problem", "reply", "total", "terms"),
    [
        (PATH, '["R", "R"]', 0.5 + 1.0, {"team": 0.5, "format": 1, "legal": 1, "distance": 1}),
        (PATH, '["R", "L"]', 0.0 + 1.0, {"team": 0, "format": 1, "legal": 1, "distance": 1}),  # it has not grown
        (PATH, '["R", "D"]', 0.25 + 0.1, {"team": 0.25, "format": 1, "legal": 0, "progress": 0}),
        (WALLED, '["D", "D"]', 0.2, {"team": 0, "format": 1, "legal": 1, "distance": 0}),
        (PATH, "[]", 0.2, {"team": 0, "format": 1, "legal": 1, "progress": 0}),
        (SOKOBAN, '["R", "R"]', 0.5 + 1.0, {"team": 0.5, "format": 1, "legal": 1, "potential": 1}),
        (SOKOBAN, '["D"]', 0.0 + 1.0, {"team": 0, "format": 1, "legal": 1, "potential": 1}),  # no box has moved
        (SUDOKU, "[[4, 1, 4]]", 1.0, {"team": 0, "format": 1, "legal": 1, "edits": 1}),
        (SUDOKU, "[[1, 1, 1], [2, 2, 4]]", 0.2, {"team": 0, "format": 1, "legal": 1, "progress": 0}),  # givens
        (SUDOKU, "[[1,2,3,4],[3,4,1,2],[2,1,4,3],[0,0,0,0]]", 0.2, {"team": 0, "format": 1, "legal": 1, "progress": 0}),
        (SUDOKU, "[[4, 1, 4], [1, 1, 1]]", 1.0, {"team": 0, "format": 1, "legal": 1, "edits": 1}),
        (SUDOKU, "[[4, 1, 4], [4, 2, 4]]", 0.2, {"team": 0, "format": 1, "legal": 1, "progress": 0}),  # nothing crashed
    ],
)
def test_who_proposes_is_scored_as_the_tool(
    problem: Problem, reply: str, total: float, terms: dict[str, float]
) -> None:
    found = rewards(problem, reply)[0]
    assert explained(found) == pytest.approx(terms)
    assert found.total == pytest.approx(total)


def test_a_digit_of_ones_own_that_is_cleared_or_repeated_is_no_progress() -> None:
    wrong = "[[4, 4, 1]]"
    for again in (wrong, "[[4, 4, 0]]"):
        tool, planner = rewards(SUDOKU, "", wrong, again, again)[2:]
        assert explained(tool) == {"team": 0, "format": 1, "legal": 1, "progress": 0}
        assert explained(planner) == {"team": 0, "format": 1, "legal": 0, "progress": 0}
    assert explained(rewards(SUDOKU, "", "[[4, 1, 4]]", "[[4, 1, 0], [4, 2, 3]]")[2])["edits"] == 1


def test_eq_3_alpha_weighs_the_team() -> None:
    assert rewards(PATH, "", '["R"]', alpha=3.0)[1].total == pytest.approx(3 * 0.25 + 1.0)
    assert rewards(PATH, "", '["R"]', alpha=0.0)[1].total == pytest.approx(1.0)


@pytest.mark.parametrize(("reply", "total"), [('["R", "L"]', 1.0), ('["R", "R", "D", "D"]', 2.0), ("x", 0.0)])
def test_outcomes_alone_are_solved_and_the_format(reply: str, total: float) -> None:
    """B.6."""
    assert rewards(PATH, "", reply, shaping="outcome")[1].total == total


def test_a_turn_begins_where_the_one_before_ended() -> None:
    first, again = (rewards(PATH, "", '["R"]', '["L"]', '["R"]')[place] for place in (1, 3))
    assert (explained(first)["team"], explained(again)["team"]) == (0.25, 0.25)
    back = rewards(PATH, "", '["R"]', "", '["L"]')[3]
    assert explained(back) == {"team": 0, "format": 1, "legal": 1, "shortest": 0}, "walking to and fro earns once"


def test_what_the_program_adds_earns_the_agent_nothing() -> None:
    found = rewards(PATH, "x", "y", adds=lambda said: '["R", "R", "D", "D"]')
    assert [explained(each) for each in found[:1]] == [{"team": 0, "local": 0}]
    assert explained(found[1])["local"] == 0


class Both(WorkflowNode):
    """One agent, whose action is proposed and then acted; and once more when the game may be over."""

    def process(self, context: Context) -> Any:
        environment = Environment()
        for _ in range(2):
            said = AgentNode("A", "Act.", max_turns=1).process(context)
            environment.propose("A", said)
            environment.act("A", said)
        return said


def test_a_proposal_leaves_the_position_as_it_is_and_what_comes_after_the_end_is_no_turn() -> None:
    found = rewards(PATH, '["R"]', '["R", "D", "D"]', node=Both("Both"))
    assert explained(found[0]) == {"team": 0.25, "format": 1, "legal": 1, "shortest": 1}, "from where it was proposed"
    assert explained(found[1]) == {"team": 1, "format": 1, "legal": 1, "shortest": 1}
    late = rewards(PATH, '["R", "R", "D", "D"]', '["U"]', node=Both("Both"))
    assert explained(late[1]) == {"team": 1, "local": 0}


class Looks(WorkflowNode):
    """One agent, who is shown the position before its action is played."""

    def process(self, context: Context) -> Any:
        said, environment = AgentNode("A", "Act.", max_turns=1).process(context), Environment()
        environment.observe("A")
        environment.act("A", said)
        return said


def test_looking_is_nothing_done() -> None:
    [found] = rewards(PATH, '["R"]', node=Looks("Looks"))
    assert explained(found) == {"team": 0.25, "format": 1, "legal": 1, "shortest": 1}


def test_boxes_in_corners_and_further_off() -> None:
    corner = problem_of(SokobanLevel(level="#####\n# .@#\n# $ #\n#   #\n#####"))
    stuck = rewards(corner, "", '["D", "D", "L", "L", "U", "R"]')[1]  # to the right wall, where no corner is
    assert explained(stuck)["deadlock"] == 1
    into = rewards(LOST, "", '["R"]')[1]  # against two walls
    assert explained(into) == {"team": 0, "format": 1, "legal": 1, "deadlock": 0}
    assert into.total == pytest.approx(0.2)
    one = problem_of(SokobanLevel(level="#######\n#$  . #\n# @$ .#\n#     #\n#######"))
    other = rewards(one, "", '["R"]')[1]
    assert explained(other)["deadlock"] == 1, "a box that was lost before is no turn's fault"
    off = rewards(LOST, '["R"]')[0]
    assert explained(off) == {"team": 0, "format": 1, "legal": 1, "potential": 0}
    assert off.total == pytest.approx(0.2)


OWN = "it neither acted nor proposed anything of its own"
TEAM, ACTION, SAME = "not solved", "an action", "no cell holds another digit than before"


@pytest.mark.parametrize(
    ("problem", "proposed", "acted", "of_tool", "of_planner"),
    [
        (PATH, '["R"]', '["R"]', ["distance 4, then 3", ACTION, "legal", "distance 4, then 3"],
         ["distance 4, then 3", ACTION, "legal", "on a shortest path"]),
        (PATH, "[]", '["R", "L"]', ["distance 4, then 4", ACTION, "legal", "nothing was done"],
         ["distance 4, then 4", ACTION, "legal", "off all shortest paths"]),
        (PATH, '["R", "D"]', '["R", "R", "D", "D"]',
         ["distance 4, then 3", ACTION, "move 2 of 2, D, leads into a wall or off the grid", "not all of it is legal"],
         ["solved", ACTION, "legal", "on a shortest path"]),
        (LOST, '["R"]', '["R"]', ["0 of 1 boxes on goals", ACTION, "legal", "potential -2, then -3"],
         ["0 of 1 boxes on goals", ACTION, "legal", "a box is in a corner for good"]),
        (SOKOBAN, '["R", "R"]', '["R", "R"]', ["1 of 2 boxes on goals", ACTION, "legal", "potential -4, then -2"],
         ["1 of 2 boxes on goals", ACTION, "legal", "no box goes into a corner"]),
        (SUDOKU, "[[4, 1, 4]]", "[[4, 1, 4], [4, 2, 3]]", [TEAM, ACTION, "legal", "all edits are legal"],
         [TEAM, ACTION, "legal", "2 of 16 cells newly filled"]),
        (SUDOKU, "[[1, 1, 1]]", "[[1, 1, 1]]", [TEAM, ACTION, "legal", SAME], [TEAM, ACTION, SAME, SAME]),
    ],
)  # fmt: skip
def test_each_part_says_what_was_seen(
    problem: Problem, proposed: str, acted: str, of_tool: list[str], of_planner: list[str]
) -> None:
    tool, planner = rewards(problem, proposed, acted)
    assert [term.reason for term in tool.terms] == of_tool
    assert [term.reason for term in planner.terms] == of_planner


def test_an_agent_that_did_nothing_or_nothing_readable_is_told() -> None:
    [found] = rewards(PATH, "x", adds=lambda said: '["R"]')
    assert [term.reason for term in found.terms] == ["distance 4, then 4", OWN]
    for shaping in ("dense", "outcome"):
        unread = rewards(PATH, "right", shaping=shaping)[0].terms[1]
        assert (unread.value, unread.reason) == (0, "no JSON: Expecting value: line 1 column 1 (char 0)")
        assert rewards(PATH, '["R"]', shaping=shaping)[0].terms[1].reason == ACTION
    assert [term.weight for term in rewards(PATH, "right")[0].terms] == [1.0, 0.1], "of the format alone"


CODES = """
import subprocess
import sys

from workflow import AgentNode, Message, Workflow, WorkflowNode


class Codes(WorkflowNode):
    def process(self, context):
        said = AgentNode("Tool", "Write code.", max_turns=1).process(context)
        subprocess.run([sys.executable, "-c", said.content], capture_output=True)
        return Message(environment.propose("Tool", said).text, sender="Codes")


workflow = Workflow("codes").add_node(Codes("Codes"))
"""


@pytest.mark.parametrize(
    ("code", "legal", "reason"),
    [("", 1, "legal"), ("raise SystemExit(1)", 0, "its code failed"), ("print('x' * 2**21)", 0, "its code failed")],
)
def test_a_tools_code_that_fails_makes_no_legal_edit(code: str, legal: float, reason: str) -> None:
    """B.3: of Sudoku's tool, whether its code ran."""
    reply = f"{code}\n####\n[[4, 1, 4]]"  # which Python reads, too

    async def go(sandbox: Sandbox) -> Rewarded:
        branching = Branching(jailed(sandbox, CODES, SUDOKU.question, game=begins(SUDOKU)))
        decision = await branching.start()
        assert isinstance(decision, Decision), decision
        position = await branching.go_on(decision, Completion(text=reply))
        found = await turn_reward(SUDOKU, decision, position, sandbox)
        await branching.close()
        return found

    found = in_jail(go)
    assert (found.terms[2].value, found.terms[2].reason) == (legal, reason)
