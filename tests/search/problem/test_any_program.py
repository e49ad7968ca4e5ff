"""Any program can be searched, by every method: a run is found, its Trace replays, and its tree folds to the choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from one_jail import in_jail
from player import FOUR, SAMPLING, Player, WordScorer, searched

from engine.replay import ReplayEngine
from metaagent.terminal import print_transcript, stdout
from sandbox import ProcessSandbox
from search.problem import SearchReport, SearchSettings, read_tree
from tasks.environments import begins, problem_of
from tasks.problems import PlanPathLevel, Problem
from templates import load_templates
from workflow.completion import CompletionRequest
from workflow.trace import Trace, Valued

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT.parent / "shared" / "papers" / "designer-scripts"
"""Not on every machine."""
GAME = problem_of(PlanPathLevel(level="@..\n.#.\n..G"))
TOOLS_SIDE_BY_SIDE = """
import subprocess
from workflow import AgentNode, EnsembleNode, RouterNode, ToolRegistry, Workflow
from workflow.nodes import ReflectionNode
def run(code):
    return subprocess.run(["python", "-c", code], capture_output=True, text=True).stdout
tools = ToolRegistry()
about = {"type": "object", "properties": {"code": {"type": "string"}}}
tools.register("execute_code", run, "Run Python.", about)
members = [AgentNode(f"M{n}", "Use tools.", max_turns=2, tool_registry=tools) for n in range(3)]
critic = AgentNode("Critic", "Verdict?", max_turns=1)
voted = EnsembleNode("E", members, strategy="majority_vote")
loop = ReflectionNode("Loop", voted, 2, "Check.", critic, "Again.")
last = AgentNode("Last", "Say it.", max_turns=1)
router = RouterNode("R", {"code": last, "other": loop}, lambda message: "other", default_route="code")
workflow = Workflow("w").add_node(router)
"""
METHODS: list[tuple[SearchSettings, Any]] = [
    (SearchSettings(method="greedy"), None),
    (SearchSettings(method="majority", samples=2), None),
    (SearchSettings(method="beam", beam=2, samples=2), None),
    (SearchSettings(method="beam", beam=1, samples=2, first=True), WordScorer()),
    (SearchSettings(simulations=2, children=2), None),
    (SearchSettings(simulations=3, children=2, parallel=2), WordScorer()),
    (SearchSettings(simulations=2, children=2), "oracle"),
]


def moves(request: CompletionRequest) -> str:
    seed = request.sampling.seed or 0
    return f'```python\nprint(\'["{"RD"[seed % 2]}"]\')\n```\n#### ["{"RD"[seed % 2]}"]'


def programs() -> list[Any]:
    found: list[Any] = [pytest.param(TOOLS_SIDE_BY_SIDE, FOUR, id="tools in members of a loop behind a router")]
    for path in sorted((ROOT / "recipes" / "programs").glob("*.py")):
        problem = GAME if "environment" in path.read_text() else FOUR
        found.append(pytest.param(path.read_text(), problem, id=path.stem))
    for path in [*sorted((ROOT / "tests" / "sandbox" / "programs").glob("*.py")), *sorted(PUBLISHED.glob("*.py"))]:
        if "workflow" in path.read_text():  # one of the published files is a solution, not a program
            found.append(pytest.param(path.read_text(), FOUR, id=path.stem))
    slow = pytest.mark.thorough
    for template in load_templates():
        found.append(pytest.param(template.source, FOUR, id=f"template {template.name}", marks=slow))
    return [
        pytest.param(*each.values, METHODS[number % 2 :: 2], id=each.id, marks=each.marks)
        if each.marks
        else pytest.param(*each.values, METHODS, id=each.id)
        for number, each in enumerate(found)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(("program", "problem", "methods"), programs())
def test_every_method_finds_a_run_that_replays(
    program: str, problem: Problem, methods: list[tuple[SearchSettings, Any]], tmp_path: Path
) -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        for number, (settings, prm) in enumerate(methods):
            engine = Player(moves) if problem is GAME else Player()
            trace, tree = tmp_path / f"{number}.trace", tmp_path / f"{number}.tree"
            report = await searched(
                sandbox, program, settings, engine, problem=problem, prm=prm, trace=trace, tree=tree
            )
            assert (report.failure, report.stopped_by) == (None, ""), settings
            assert report.answer is not None, settings
            assert report.correct is not None, settings
            assert report.agent_calls == len(engine.asked) == len(engine.given), settings
            await check_trace(sandbox, program, problem, settings, report, trace)
            check_tree(report, tree)

    in_jail(go)


async def check_trace(
    sandbox: ProcessSandbox, program: str, problem: Problem, settings: SearchSettings, report: SearchReport, path: Path
) -> None:
    """The chosen run, with what was thought of it, opens and is run again from its own file."""
    trace = Trace.from_lines(path.read_text().splitlines())
    valued = [event for event in trace.events if isinstance(event, Valued)]
    assert valued == report.path
    assert sorted(each.key for each in valued) == sorted(turn.key for turn in trace.agent_turns)
    assert len(valued) == report.depth >= 1
    sampling = replace(trace.agent_turns[0].sampling, seed=None)
    assert sampling.top_p == SAMPLING.top_p
    assert sampling.temperature == (0 if settings.method == "greedy" else SAMPLING.temperature)
    engine = ReplayEngine(path)
    run = await sandbox.run_program(
        program, problem.question, engine=engine, sampling=sampling, seed=3, game=begins(problem)
    )
    assert run.failure is None, run.failure.message
    assert engine.unused() == []
    assert {turn.key for turn in run.trace.agent_turns} == {each.key for each in valued}
    assert trace.answer is not None
    assert run.answer == trace.answer.text
    print_transcript(stdout(), trace)


def check_tree(report: SearchReport, path: Path) -> None:
    """The file says what the search did: its choice, N and Q of the path, and what was drawn."""
    record = read_tree(path)
    assert record.chosen is not None
    chosen = record.nodes[record.chosen.id]
    assert [(each.action.key, each.action.agent) for each in chosen.path if each.action] == [
        (each.key, each.agent) for each in report.path
    ]
    assert [(each.value, each.visits, each.q if each.visits else None) for each in chosen.path] == [
        (each.value, each.visits, each.q) for each in report.path
    ]
    assert len(record.nodes) - 1 == report.nodes
    assert sum(node.copies for node in record.nodes.values()) - 1 == report.agent_calls
    assert chosen.end is not None
    assert chosen.end.answer == report.answer
