"""Published programs run unmodified; errors inside nodes, exits and descriptions. More is in the conformance suite."""

import json
from pathlib import Path

import pytest
from jails import Scripted, workflow_of

from workflow.completion import CompletionRequest
from workflow.failures import SandboxUnavailable
from workflow.graph import structure
from workflow.limits import Limits

PROGRAMS = Path(__file__).parents[1] / "programs"
PUBLISHED = Path(__file__).parents[4] / "shared" / "papers" / "designer-scripts"


def tool_call(code: str) -> str:
    return f"<tool_call>{json.dumps({'name': 'execute_code', 'arguments': {'code': code}})}</tool_call>"


def code_team(request: CompletionRequest) -> str:
    """A solver that tries its first solution, a tester that finds it wrong and the second right."""
    assert request.messages is not None
    said = [message["content"] for message in request.messages]
    results = [message["content"] for message in request.messages if message["role"] == "tool"]
    if request.agent in ("Solver", "CodeSolver"):
        if any("INCORRECT" in text for text in said[1:]):
            return "<solution>\nprint(int(input()) ** 2)\n</solution>"
        if not results:
            return tool_call("open('try.txt', 'w').write('tried'); print(3 + 3)")
        assert results == ["stdout:\n6\n\n"]
        return "<solution>\nprint(int(input()) + 3)\n</solution>"
    if not results:
        return tool_call("print(open('try.txt').read())\nraise ValueError('differ')")
    assert "stdout:\ntried" in results[0]
    assert "ValueError: differ" in results[0]
    return "Verdict: CORRECT" if "** 2" in said[1] + said[-4] else "Verdict: INCORRECT, 4 should give 16"


# Programs as they are published


def test_a_single_agent_that_runs_itself_and_prints(jail):
    engine = Scripted("There are four: \\boxed{4}")
    run = jail.program((PROGRAMS / "single_agent.py").read_text(), engine, "not asked")
    assert (run.failure, run.answer, run.answer_from) == (None, "There are four: \\boxed{4}", "Solver")
    assert run.output == f"{'=' * 20}\nFINAL ANSWER:\nThere are four: \\boxed{{4}}\n{'=' * 20}\n"
    [asked] = engine.asked
    assert "subsets of {1, 2, 3}" in asked.messages[-1]["content"], "it asks its own question"
    assert run.jail == f"process/{jail.mode}"


def test_a_workflow_that_is_only_defined_is_run_and_its_agents_overlap(jail):
    engine = Scripted(lambda request: f"{request.agent}: \\boxed{{{len(request.agent)}}}", delay_s=0.3)
    run = jail.program((PROGRAMS / "ensemble_judge.py").read_text(), engine, "the question")
    assert (run.failure, run.answer, run.answer_from) == (None, "Judge: \\boxed{5}", "Judge")
    assert engine.most_at_once == 3
    assert [request.agent for request in engine.asked[:3]] == ["AlgebraSolver", "GeometrySolver", "CaseworkSolver"]
    assert all("the question" in request.messages[-1]["content"] for request in engine.asked[:3])
    judged = engine.asked[3].messages[-1]["content"]
    assert all(name in judged for name in ("AlgebraSolver", "GeometrySolver", "CaseworkSolver"))


def test_a_solver_and_a_tester_with_a_code_tool(jail):
    engine = Scripted(code_team)
    run = jail.program((PROGRAMS / "solver_tester.py").read_text(), engine, "Square a number.")
    assert run.failure is None
    assert "print(int(input()) ** 2)" in run.answer
    assert run.answer_from == "Solver"
    kinds = [event.type for event in run.trace.events]
    assert kinds.count("code_run") == kinds.count("tool_call") == kinds.count("tool_result") == 3
    first = next(event for event in run.trace.events if event.type == "code_run")
    assert (first.stdout, first.exit_status) == ("6\n", 0)
    assert [event.agent for event in run.trace.agent_turns[:4]] == ["Solver", "Solver", "Tester", "Tester"]


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published programs are not on this machine")
@pytest.mark.parametrize("name", ["case1_single_agent", "case2_ensemble_judge", "case3_solver_tester"])
def test_the_published_programs_run_unmodified(jail, name):
    source = (PUBLISHED / f"{name}.py").read_text()
    engine = Scripted(lambda request: "Verdict: CORRECT. <solution>x</solution> \\boxed{116}")
    run = jail.program(source, engine)
    assert run.failure is None
    assert "116" in run.answer
    assert run.answer_from is not None
    assert len(engine.asked) == {"case1_single_agent": 1, "case2_ensemble_judge": 4, "case3_solver_tester": 2}[name]


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published programs are not on this machine")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("case1_single_agent", "single"),
        ("case2_ensemble_judge", "ensemble"),
        ("case3_solver_tester", "reflection"),
    ],
)
def test_the_published_programs_are_counted_as_the_paper_does(jail, name, expected):
    graph = jail.run(jail.sandbox.describe((PUBLISHED / f"{name}.py").read_text())).graph
    assert structure(graph) == expected


# What is around a program


@pytest.mark.parametrize(
    ("lines", "kind", "line"),
    [
        (["x = 1", "raise ValueError('no')"], "ValueError: no", 3),
        (["def f():", "    return {}['key']", "f()"], "KeyError: 'key'", 3),
        (["class Odd(Exception):", "    pass", "raise Odd('odd')"], "Odd: odd", 4),
        (["raise KeyboardInterrupt"], "KeyboardInterrupt", 2),
        (["raise GeneratorExit('g')"], "GeneratorExit: g", 2),
        (["raise EOFError('e')"], "EOFError: e", 2),
        (["raise SystemExit(3)"], "the program called exit(3)", None),
        (["import sys", "sys.exit('bad')"], "the program called exit('bad')", None),
        (["1 / 0"], "ZeroDivisionError", 2),
        (["print(_missing)"], "NameError: name '_missing' is not defined", 2),
        (["def f(n):", "    return f(n + 1)", "f(0)"], "RecursionError", None),
        (["from shutil import rmtree", "rmtree"], "ImportError: programs cannot import shutil", 2),
        (["class A:", "    def __str__(self):", "        raise ValueError", "raise Exception(A())"], "Exception", 5),
        (["raise " + "E" * 300 + "('x')"], "NameError", 2),
    ],
)
def test_a_programs_error_has_its_type_and_line(jail, lines, kind, line):
    run = jail.program(workflow_of(*lines))
    assert run.failure.kind == "program_failed"
    assert kind in run.failure.message
    if line is not None:
        assert run.failure.fields["line"] == line
    assert run.answer is None
    assert run.trace.ended.failure == run.failure


@pytest.mark.parametrize(
    "error", ["KeyboardInterrupt", "SystemExit(2)", "GeneratorExit", "EOFError", "ValueError('v')"]
)
def test_an_error_inside_a_node_is_the_programs_failure_too(jail, error):
    source = f"""
from workflow import AgentNode, Message, Workflow, WorkflowNode

class Odd(WorkflowNode):
    def process(self, context):
        raise {error}

workflow = Workflow('w')
workflow.add_node(Odd('odd'))
"""
    run = jail.program(source)
    assert run.failure.kind == "program_failed"


def test_a_program_without_a_workflow_says_so(jail):
    assert "defines no workflow" in jail.program("x = 1").failure.message


def test_a_clean_exit_before_the_end_is_no_failure(jail):
    run = jail.program(workflow_of() + "\nworkflow.run(question)\nexit()\nprint('never')")
    assert run.failure is None
    assert run.answer == "It is \\boxed{42}."
    assert run.output == ""


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        (workflow_of() + "\nworkflow.run(question)\nanswer = 'nobody said this'", "nobody said this"),
        (workflow_of() + "\nworkflow.run(question)\nanswer = '\\\\boxed{41}'", "\\boxed{41}"),
        ("from workflow import Workflow\nanswer = 'no agent at all'\nWorkflow('w')", None),
    ],
)
def test_an_answer_that_no_agent_produced_is_marked(jail, source, answer):
    run = jail.program(source)
    if answer is None:
        assert run.failure is not None
        return
    assert (run.answer, run.answer_from) == (answer, None)
    assert run.trace.answer.from_agent is None


# Limits


# Code that programs run


# Descriptions


def test_a_description_shows_the_graph_without_asking_anybody(jail):
    description = jail.run(jail.sandbox.describe((PROGRAMS / "ensemble_judge.py").read_text()))
    assert description.findings == []
    assert description.graph.name == "ensemble_judge"
    lost = workflow_of("AgentNode('unused', 'x')", "spare = AgentNode('spare', 'x')")
    assert jail.run(jail.sandbox.describe(lost)).unreachable == ["spare"]


@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        ("x = (", 1, "was never closed"),
        (workflow_of("1 / 0"), 2, "division by zero"),
        (workflow_of("while True: pass"), 0, "cpu_s"),
        (workflow_of("x = ' ' * 10**12"), 0, "memory_mb"),
        ("x = 1", 0, "defines no workflow"),
    ],
)
def test_what_is_wrong_with_a_program_is_a_finding(jail, monkeypatch, source, line, text):
    monkeypatch.setattr(
        "sandbox.host.jail_sandbox.DESCRIBE_LIMITS", Limits(wall_s=10, cpu_s=1, agent_calls=0, tool_calls=0)
    )
    description = jail.run(jail.sandbox.describe(source))
    assert description.graph is None
    [finding] = description.findings
    assert text in finding.message
    assert finding.line == line


def test_a_program_that_is_let_compute_too_little_is_no_worse_for_it(jail, monkeypatch):
    """Building waits for nothing but the processor: that it takes long by the clock is the machine's doing."""
    starved = Limits(wall_s=0.001, cpu_s=5, agent_calls=0, tool_calls=0)
    monkeypatch.setattr("sandbox.host.jail_sandbox.DESCRIBE_LIMITS", starved)
    with pytest.raises(SandboxUnavailable, match=r"too little of the processor .*wall_s.* Fix: run less"):
        jail.run(jail.sandbox.describe(workflow_of("pass")))


SOLVES = "    Workflow('Solves').add_node(AgentNode('A', 'x')).run(question)"
PLAYS = """
from workflow import AgentNode, Workflow
{first}
    flow = Workflow("Plays").add_node(AgentNode("Planner", "Act."))
    seen = environment.observe("Planner")
    while not seen.done:
        turn, board, situation = seen.text.split("\\n\\n")
        seen = environment.act("Planner", flow.run(board))
{then}
"""


@pytest.mark.parametrize(
    ("first", "then", "name"),
    [
        ("if environment is not None:", "", "Plays"),
        ("if environment:", "else:\n    Workflow('Solves').add_node(AgentNode('A', 'x')).run(question)", "Plays"),
        (
            "if False:",
            "if environment is None:\n    Workflow('Solves').add_node(AgentNode('A', 'x')).run(question)",
            "Solves",
        ),
    ],
)
def test_a_program_that_plays_is_described_whatever_it_will_be_run_on(jail, first, then, name):
    description = jail.run(jail.sandbox.describe(PLAYS.format(first=first, then=then)))
    assert description.findings == []
    assert description.graph.name == name
