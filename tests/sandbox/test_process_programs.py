"""Programs: they run to their answer in both modes, and whatever happens is in the `Run`."""

import asyncio
import json
from pathlib import Path

import pytest
from jails import Scripted, jailed_processes, until, workflow_of

from workflow.completion import CompletionRequest, Sampling
from workflow.failures import EngineFailed
from workflow.limits import Limits
from workflow.trace import Trace

PROGRAMS = Path(__file__).parent / "programs"
PUBLISHED = Path(__file__).parents[3] / "shared" / "papers" / "designer-scripts"


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


# What is around a program


def test_the_question_is_defined(jail):
    run = jail.program(workflow_of("print(question.upper())"), question="what is it? \u00e9\U0001f600")
    assert run.output == "WHAT IS IT? \u00c9\U0001f600\n"
    assert run.trace.started.question == "what is it? \u00e9\U0001f600"


def test_printed_output_is_kept_in_order_with_the_calls(jail):
    source = workflow_of("print('before')") + "\nanswer = workflow.run(question)\nprint('after', end='')\n"
    run = jail.program(source)
    assert run.output == "before\nafter"
    kinds = [event.type for event in run.trace.events if event.type != "delivery"]
    assert kinds == ["run_started", "print", "agent_call", "print", "answer", "run_ended"]


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
        (["from os import path"], "ImportError: programs cannot import os", 2),
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


def test_a_refused_program_names_line_and_fix(jail):
    run = jail.program("import os\nx = ().__class__.__mro__\n")
    assert run.failure.kind == "program_rejected"
    [finding] = run.failure.fields["findings"]
    assert finding["line"] == 2
    assert finding["fix"]


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


def test_an_answer_that_an_agent_gave_names_the_agent(jail):
    source = workflow_of() + "\nr = workflow.run(question)\nanswer = 'So it is \\\\boxed{42}, they say.'"
    run = jail.program(source)
    assert run.answer_from == "solver"


def test_unusual_text_travels(jail):
    """Lone surrogates, null characters and megabytes, in every direction."""
    engine = Scripted("\x00\u2028\U0001f600 \\boxed{1}")
    source = workflow_of("print('\\ud800|\\x00|\\U0001f600')") + "\nprint(workflow.run(question).content)\n"
    run = jail.program(source, engine, "\x00?")
    assert run.failure is None
    assert run.output == "?|\x00|\U0001f600\n\x00\u2028\U0001f600 \\boxed{1}\n"
    Trace.from_lines(list(run.trace.lines()))


def test_the_same_seed_and_replies_give_the_same_trace(jail):
    source = workflow_of(
        "import random, time",
        "print(random.random(), random.sample(range(100), 5), hash('x'), time.time(), {'b', 'a', 'c'})",
        "print([id(object()) for _ in range(2)], time.perf_counter())",
    )

    def trace_of(seed: int) -> list[dict]:
        work = jail.sandbox.run_program(source, "q", engine=Scripted(), seed=seed, sampling=Sampling(temperature=0.5))
        events = [event.model_dump() for event in jail.run(work).trace.events]
        for event in events:
            for name in ("t", "run_id", "duration_s"):
                event.pop(name, None)
        return events

    first, again, other = trace_of(1), trace_of(1), trace_of(2)
    assert first == again
    assert first != other
    seeds = [
        event["sampling"]["seed"] for events in (first, other) for event in events if event["type"] == "agent_call"
    ]
    assert seeds[0] != seeds[1]


def test_the_trace_streams_while_the_program_runs(jail):
    async def watch():
        seen = []
        engine = Scripted(delay_s=0.4)
        source = workflow_of("print('early')")
        run = asyncio.create_task(jail.sandbox.run_program(source, "q", engine=engine, sink=seen.append))
        await until(lambda: len(seen) == 2, 10)
        assert [event.type for event in seen] == ["run_started", "print"]
        assert not run.done()
        assert (await run).trace.events == seen
        return seen

    assert [event.type for event in jail.run(watch())][2:] == ["agent_call", "delivery", "answer", "run_ended"]


# Limits


LIMITED = {
    "wall_s": (workflow_of(), Scripted(delay_s=60), {"wall_s": 0.5}),
    "cpu_s": (workflow_of("while True: pass"), None, {"cpu_s": 1}),
    "memory_mb": (workflow_of("x = [0]", "while True: x.extend(x)"), None, {"memory_mb": 64}),
    "output_bytes": (workflow_of("while True: print('x' * 100)"), None, {"output_bytes": 5000}),
    "agent_calls": (workflow_of() + "\nwhile True: workflow.run(question)", None, {"agent_calls": 3}),
    "tokens": (workflow_of() + "\nwhile True: workflow.run(question)", None, {"tokens": 40}),
    "tool_calls": (
        workflow_of("import subprocess", "while True: subprocess.run(['python', '-c', '1'])"),
        None,
        {"tool_calls": 2},
    ),
}


@pytest.mark.parametrize("kind", LIMITED)
def test_each_limit_ends_the_run_and_is_reported_as_itself(jail, kind):
    source, engine, limits = LIMITED[kind]
    run = jail.program(source, engine, **limits)
    assert run.failure.kind == "limit_exceeded"
    fields = run.failure.fields
    assert (fields["limit_kind"], fields["limit"]) == (kind, limits[kind])
    assert fields["used"] >= limits[kind] * 0.5
    hit = next(event for event in run.trace.events if event.type == "limit")
    assert (hit.limit_kind, hit.limit) == (kind, limits[kind])
    assert run.trace.ended.failure == run.failure
    Trace.from_lines(list(run.trace.lines()))


@pytest.mark.parametrize(
    "line",
    ["print('x' * 20_000_000)", "print('\\U0001f600' * 6_000_000)", "[print('x' * 9000) for _ in range(1000)]"],
)
def test_one_giant_print_is_an_excess_of_output(jail, line):
    run = jail.program(workflow_of(line))
    assert run.failure.fields["limit_kind"] == "output_bytes"
    assert len(run.output) < 3 << 20


def test_a_giant_answer_is_the_programs_failure(jail):
    run = jail.program(workflow_of() + "\nworkflow.run(question)\nanswer = 'x' * 17_000_000")
    assert run.failure.kind == "program_failed"
    assert "over the cap" in run.failure.message


def test_a_giant_prompt_is_the_programs_failure(jail):
    run = jail.program(workflow_of().replace("'Solve it.'", "'x' * 17_000_000"))
    assert run.failure.kind == "program_failed"
    assert "over the cap" in run.failure.message


def test_a_giant_program_or_question_is_refused(jail):
    run = jail.program(workflow_of("# " + "x" * 500_000))
    assert run.failure.kind == "program_rejected"
    run = jail.program(workflow_of("# " + "x" * 17_000_000))
    assert run.failure.kind == "program_failed"
    run = jail.program(workflow_of(), question="x" * 17_000_000)
    assert run.failure.kind == "program_failed"


def test_a_run_killed_by_its_wall_limit_keeps_its_trace_and_the_calls_in_flight(jail):
    def reply(request: CompletionRequest) -> str:
        return "quick"

    class Slow(Scripted):
        async def complete(self, request):
            self._delay_s = 60 if request.agent == "slow" else 0
            return await super().complete(request)

    source = """
from workflow import AgentNode, EnsembleNode, Workflow
print('started')
workflow = Workflow('w')
workflow.add_node(EnsembleNode('e', [AgentNode('quick', 'a'), AgentNode('slow', 'b'), AgentNode('slow', 'c')]))
"""
    seen = []
    work = jail.sandbox.run_program(source, "q", engine=Slow(reply), limits=Limits(wall_s=0.6), sink=seen.append)
    run = jail.run(work)
    assert run.failure.fields["limit_kind"] == "wall_s"
    assert run.failure.fields["used"] < 5
    turns = {(turn.path, turn.completion is not None) for turn in run.trace.agent_turns}
    assert turns == {("w/e/quick[0]", True), ("w/e/slow[1]", False), ("w/e/slow[2]", False)}
    assert all(turn.error for turn in run.trace.agent_turns if turn.completion is None)
    assert seen == run.trace.events
    assert seen[-1].type == "run_ended"
    assert run.output == "started\n"

    async def dead():
        await until(lambda: not jailed_processes(jail.sandbox))

    jail.run(dead())


def test_a_program_that_spins_in_a_wall_limit_is_killed(jail):
    run = jail.program(workflow_of("while True: pass"), wall_s=0.4, cpu_s=30)
    assert run.failure.fields["limit_kind"] == "wall_s"

    async def dead():
        await until(lambda: not jailed_processes(jail.sandbox))

    jail.run(dead())


def test_an_engine_that_fails_ends_the_run_as_infrastructure(jail):
    class Broken(Scripted):
        async def complete(self, request):
            raise EngineFailed("broken", "no connection", attempts=3)

    run = jail.program(workflow_of(), Broken())
    assert run.failure.kind == "engine_failed"
    assert run.failure.is_infrastructure
    assert run.trace.agent_turns[0].completion is None
    assert "no connection" in run.trace.agent_turns[0].error
    assert run.trace.ended.failure == run.failure


def test_a_sink_that_fails_is_raised_and_leaves_no_jail(jail):
    def sink(event):
        if event.type == "agent_call":
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        jail.run(jail.sandbox.run_program(workflow_of(), "q", engine=Scripted(), sink=sink))

    async def dead():
        await until(lambda: not jailed_processes(jail.sandbox))

    jail.run(dead())


# Code that programs run


def tool(code: str, **options: object) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in options.items())
    return workflow_of(
        "import subprocess, sys",
        f"done = subprocess.run([sys.executable, '-c', {code!r}], capture_output=True, text=True, {arguments})",
        "print(done.returncode, done.stdout, done.stderr)",
    )


def test_code_of_a_program_has_its_own_jail_and_one_workspace_for_the_run(jail):
    source = workflow_of(
        "import subprocess, sys",
        "def run(code):",
        "    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)",
        "    print(done.stdout or done.stderr, end='')",
        "run(\"open('x', 'w').write('kept')\")",
        "run(\"print(open('x').read())\")",
        "run(\"import os; print(os.listdir('.'))\")",
    )
    assert jail.program(source).output == "kept\n['x']\n"
    other = tool("import os; print(os.listdir('.'))")
    assert jail.program(other).output == "0 []\n \n", "another run has another workspace"


def test_results_of_code(jail):
    assert jail.program(tool("import sys; print(sys.stdin.read(), end=''); sys.exit(4)", input="'in'")).output == (
        "4 in \n"
    )
    assert jail.program(tool("import ctypes; ctypes.string_at(0)")).output.startswith("-11 ")


@pytest.mark.parametrize("timeout", ["0.3", "0", "-1", "1e-9"])
def test_a_timeout_of_code_is_the_programs_to_catch(jail, timeout):
    source = workflow_of(
        "import subprocess, sys",
        "try:",
        f"    subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'], timeout={timeout})",
        "except subprocess.TimeoutExpired:",
        "    print('expired')",
    )
    assert jail.program(source).output == "expired\n"


@pytest.mark.parametrize("timeout", ["float('nan')", "float('inf')", "1e300", "None"])
def test_a_strange_timeout_is_the_usual_one(jail, timeout):
    run = jail.program(tool("print(6 * 7)", timeout=timeout))
    assert run.failure is None
    assert run.output == "0 42\n \n"


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
    monkeypatch.setattr("sandbox.process.DESCRIBE_LIMITS", Limits(wall_s=10, cpu_s=1, agent_calls=0, tool_calls=0))
    description = jail.run(jail.sandbox.describe(source))
    assert description.graph is None
    [finding] = description.findings
    assert text in finding.message
    assert finding.line == line
