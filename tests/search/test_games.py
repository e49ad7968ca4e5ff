"""Runs that part in games: every position is that of a separate run, and what is done side by side has one order."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import product
from typing import Any

import pytest
from one_jail import in_jail

from engine.session import Run
from sandbox import ProcessSandbox
from search import Branching, Decision, Ended, OpenRuns, Path, jailed
from search.branching import Position
from tasks.environments import begins, problem_of
from tasks.problems import PlanPathLevel
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed
from workflow.trace import EnvironmentStepped

PROBLEM = problem_of(PlanPathLevel(level="@..\n.#.\n..G"))
OTHER = problem_of(PlanPathLevel(level="@..\n...\n.#G"))
PLAYS = """
from workflow import AgentNode, Workflow
tool, planner = AgentNode("Tool", "Propose.", max_turns=1), AgentNode("Planner", "Act.", max_turns=1)
seen = environment.observe("Tool")
while not seen.done:
    proposal = Workflow("T").add_node(tool).run(seen.text)
    shown = environment.propose("Tool", proposal)
    seen = environment.act("Planner", Workflow("P").add_node(planner).run(seen.text + shown.text + proposal.content))
answer = seen.text
"""
BESIDE = """
from workflow import AgentNode, EnsembleNode, Workflow
from workflow.nodes import WorkflowNode
class Mover(WorkflowNode):
    def process(self, context):
        for _ in range(2):
            said = AgentNode(self.name, "Act.", max_turns=1).process(context)
            print(self.name, environment.act(self.name, said).text.split("\\n")[2:5])
        return said
workflow = Workflow("w").add_node(EnsembleNode("E", [Mover("A"), Mover("B")]))
"""
MOVES = ('["R"]', '["D"]')


def in_jails(work: Callable[[ProcessSandbox], Coroutine[Any, Any, Any]]) -> Any:
    return in_jail(work, 120)


class InTurn:
    """Replies in their order."""

    name = "in turn"

    def __init__(self, replies: list[str]) -> None:
        self.replies = iter(replies)
        self.asked: list[CompletionRequest] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append(request)
        return Completion(text=next(self.replies, "[]"))

    async def close(self) -> None: ...


def steps(run: Run) -> list[Any]:
    found = [event for event in run.trace.events if isinstance(event, EnvironmentStepped)]
    return [(each.agent, each.action, each.commit, each.before, each.after, each.from_agent) for each in found]


async def grown(branching: Branching, position: Position, replies: list[str]) -> Position:
    for reply in replies:
        if isinstance(position, Decision):
            position = await branching.go_on(position, Completion(text=reply))
    while isinstance(position, Decision):
        position = await branching.go_on(position, Completion(text="[]"))
    return position


@pytest.mark.parametrize("most", [1, 64])
def test_a_tree_is_the_set_of_separate_runs(most: int) -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        branching = Branching(jailed(sandbox, PLAYS, PROBLEM.question, game=begins(PROBLEM)), open_runs=OpenRuns(most))
        start = await branching.start()
        ways = [list(way) for way in product(MOVES, repeat=3)]
        ends = await asyncio.gather(*(grown(branching, start, way) for way in ways))
        boards = set()
        for way, end in zip(ways, ends, strict=True):
            assert isinstance(end, Ended)
            engine = InTurn(way)
            run = await sandbox.run_program(PLAYS, PROBLEM.question, engine=engine, game=begins(PROBLEM))
            assert (end.run.answer, end.run.failure, steps(end.run)) == (run.answer, None, steps(run))
            kept = Path.model_validate_json(end.path.model_dump_json())
            again = await branching.at(kept)
            assert isinstance(again, Ended)
            assert (again.path.digest, again.run.answer) == (end.path.digest, end.run.answer)
            boards.add(run.answer)
        assert len(boards) > 1
        await branching.close()

    in_jails(go)


def test_what_is_done_side_by_side_is_done_in_the_order_of_the_keys() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        outputs = set()
        for most in (1, 64):
            asked = jailed(sandbox, BESIDE, PROBLEM.question, game=begins(PROBLEM))
            branching = Branching(asked, open_runs=OpenRuns(most))
            end = await grown(branching, await branching.start(), ['["R"]', '["D"]', '["L"]', '["U"]'])
            assert isinstance(end, Ended)
            assert end.run.failure is None
            acts = [step for step in end.path.steps if step.type == "game"]
            assert [step.key for step in acts] == sorted(step.key for step in acts)
            outputs.add(end.run.output)
        assert len(outputs) == 1

    in_jails(go)


def test_a_path_does_not_fit_another_level_or_other_rules() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        branching = Branching(jailed(sandbox, PLAYS, PROBLEM.question, game=begins(PROBLEM)))
        end = await grown(branching, await branching.start(), list(MOVES))
        assert isinstance(end, Ended)
        other = jailed(sandbox, PLAYS, PROBLEM.question, game=begins(OTHER))
        with pytest.raises(EngineFailed, match="recorded with another program"):
            await Branching(other).at(end.path)
        forced = Path(program=other.digest, steps=end.path.steps)
        with pytest.raises(EngineFailed, match="shows another position of the game than the recorded one"):
            await Branching(other).at(forced)
        silent = jailed(sandbox, PLAYS.replace('act("Planner"', 'propose("Planner"'), PROBLEM.question)
        assert silent.digest != other.digest
        tampered = Path(
            program=branching.program.digest,
            steps=tuple(
                step.model_copy(update={"commit": not step.commit}) if step.type == "game" and step.text else step
                for step in end.path.steps
            ),
        )
        with pytest.raises(EngineFailed, match=r"it plays as 'Tool' \(to see\).*, recorded was 'Tool' \(for good\)"):
            await branching.at(tampered)

    in_jails(go)
