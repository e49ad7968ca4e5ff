"""Programs: they run to their answer, ask agents side by side, run tools; whatever happens to them is in the `Run`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from engine.session import Run
from sandbox.conformance.scripted import Scripted, Steps, tool, until, workflow_of
from sandbox.conformance.subject import Subject
from sandbox.conformance.suite import check, raises, together
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed
from workflow.trace import EnvironmentStepped, Trace

CHAT = """
from workflow import AgentNode, EnsembleNode, Workflow
workflow = Workflow('w')
members = [AgentNode(name, 'x') for name in ('A', 'BB', 'CCC')]
workflow.add_node(EnsembleNode('e', members, strategy='consensus', consensus_agent=AgentNode('Judge', 'y')))
"""


@check("programs")
async def a_program_runs_to_its_answer(subject: Subject) -> None:
    run = await subject.program(workflow_of("print(question.upper())"), question="what? \u00e9\U0001f600")
    assert (run.failure, run.answer, run.answer_from) == (None, "It is \\boxed{42}.", "solver")
    assert run.output == "WHAT? \u00c9\U0001f600\n"
    assert run.jail == subject.backend.name
    assert run.trace.started is not None
    assert run.trace.started.question == "what? \u00e9\U0001f600"
    Trace.from_lines(list(run.trace.lines()))


@check("programs")
async def agents_are_asked_side_by_side(subject: Subject) -> None:
    engine = Scripted(lambda request: f"{request.agent}: \\boxed{{{len(request.agent)}}}", delay_s=0.3)
    run = await subject.program(CHAT, engine)
    assert (run.failure, run.answer, run.answer_from) == (None, "Judge: \\boxed{5}", "Judge")
    assert engine.most_at_once == 3
    assert [request.agent for request in engine.asked] == ["A", "BB", "CCC", "Judge"]
    assert [turn.place for turn in run.trace.agent_turns] == [(1, 0, 1), (1, 1, 1), (1, 2, 1), (2,)]


@check("programs")
async def prints_keep_their_order_among_the_calls(subject: Subject) -> None:
    source = workflow_of("print('before')") + "\nanswer = workflow.run(question)\nprint('after', end='')\n"
    run = await subject.program(source)
    assert run.output == "before\nafter"
    kinds = [event.type for event in run.trace.events if event.type != "delivery"]
    assert kinds == ["run_started", "print", "agent_call", "print", "answer", "run_ended"]


@check("programs")
async def a_game_is_played_on_the_host(subject: Subject) -> None:
    source = workflow_of(
        "print(environment.propose('solver', 'go'))",
        "while not environment.observe('solver').done:",
        "    seen = environment.act('solver', Workflow('w').add_node(AgentNode('solver', 'Go.')).run('Now?'))",
        "print(seen)",
    )
    engine = Scripted("go")
    run = await subject.sandbox.run_program(source, "q", engine=engine, game=Steps())
    assert (run.failure, len(engine.asked)) == (None, 3)
    assert run.output == (
        "Observation(text='solver has taken 1', done=False)\nObservation(text='solver has taken 3', done=True)\n"
    )
    steps = [event for event in run.trace.events if isinstance(event, EnvironmentStepped)]
    assert [(step.commit, step.after, step.from_agent) for step in steps] == [
        (False, "1", None),
        *((True, number, "solver") for number in "123"),
    ]
    assert (await subject.program(workflow_of("print(environment)"))).output == "None\n"


@check("programs")
async def unusual_text_travels(subject: Subject) -> None:
    """Lone surrogates, null characters and long texts, in every direction."""
    engine = Scripted("\x00\u2028\U0001f600 \\boxed{1}" + "x" * 250_000)
    source = workflow_of("print('\\ud800|\\x00|\\U0001f600')") + "\nprint(workflow.run(question).content[:20])\n"
    run = await subject.program(source, engine, "\x00?" + "y" * 900_000)
    assert run.failure is None
    assert run.output == "?|\x00|\U0001f600\n\x00\u2028\U0001f600 \\boxed{1}xxxxxxx\n"
    Trace.from_lines(list(run.trace.lines()))


ERRORS: dict[str, tuple[str, int | None]] = {
    "x = 1\nraise ValueError('no')": ("ValueError: no", 3),
    "class Odd(Exception):\n    pass\nraise Odd('odd')": ("Odd: odd", 4),
    "raise KeyboardInterrupt": ("KeyboardInterrupt", 2),
    "raise SystemExit(3)": ("the program called exit(3)", None),
    "1 / 0": ("ZeroDivisionError", 2),
    "def f(n):\n    return f(n + 1)\nf(0)": ("RecursionError", None),
    "from shutil import rmtree\nrmtree": ("ImportError: programs cannot import shutil", 2),
    "raise " + "E" * 300 + "('x')": ("NameError", 2),
}


@check("programs")
async def a_failing_program_names_error_and_line(subject: Subject) -> None:
    runs: dict[str, Run] = await together({source: subject.program(workflow_of(source)) for source in ERRORS})
    for source, (text, line) in ERRORS.items():
        run = runs[source]
        assert run.failure is not None, source
        assert (run.failure.kind, run.answer) == ("program_failed", None), source
        assert text in run.failure.message, (source, run.failure.message)
        assert line in (None, run.failure.fields["line"]), source
        assert run.trace.ended is not None
        assert run.trace.ended.failure == run.failure


@check("programs")
async def a_rejected_program_names_line_and_fix(subject: Subject) -> None:
    run = await subject.program("import os\nx = ().__class__.__mro__\n")
    assert run.failure is not None
    assert run.failure.kind == "program_rejected"
    [finding] = run.failure.fields["findings"]
    assert finding["line"] == 2
    assert finding["fix"]


@check("programs")
async def an_answer_that_no_agent_gave_is_marked(subject: Subject) -> None:
    said = await subject.program(workflow_of() + "\nworkflow.run(question)\nanswer = '\\\\boxed{41}'")
    assert (said.answer, said.answer_from) == ("\\boxed{41}", None)
    quoted = await subject.program(workflow_of() + "\nworkflow.run(question)\nanswer = 'It is \\\\boxed{42}, they say'")
    assert quoted.answer_from == "solver"


@check("programs")
async def oversized_programs_questions_and_answers_fail_the_program(subject: Subject) -> None:
    ask = "\nworkflow.run(question)\nanswer = 'x' * 17_000_000"
    runs: dict[str, Run] = await together(
        {
            "program": subject.program(workflow_of("# " + "x" * 17_000_000)),
            "question": subject.program(workflow_of(), question="x" * 17_000_000),
            "answer": subject.program(workflow_of() + ask),
            "prompt": subject.program(workflow_of().replace("'Solve it.'", "'x' * 17_000_000")),
        },
        at_once=1,
    )
    ends = {name: run.failure and run.failure.kind for name, run in runs.items()}
    assert set(ends.values()) == {"program_failed"}, ends


@check("programs")
async def the_same_seed_and_replies_give_the_same_trace(subject: Subject) -> None:
    source = workflow_of(
        "import random, time",
        "print(random.random(), hash('x'), time.time(), {'b', 'a', 'c'}, time.perf_counter())",
    )

    async def trace_of(seed: int) -> list[dict[str, Any]]:
        run = await subject.sandbox.run_program(
            source, "q", engine=Scripted(), seed=seed, sampling=Sampling(temperature=0.5)
        )
        events = [json.loads(line) for line in run.trace.lines()]
        for event in events:
            for name in ("t", "run_id", "duration_s"):
                event.pop(name, None)
        return events

    first, again, other = await trace_of(1), await trace_of(1), await trace_of(2)
    assert first == again
    assert first != other


@check("programs")
async def the_trace_streams_while_the_program_runs(subject: Subject) -> None:
    seen: list[Any] = []
    engine = Scripted(delay_s=0.4)
    work = subject.sandbox.run_program(workflow_of("print('early')"), "q", engine=engine, sink=seen.append)
    run = asyncio.create_task(work)
    await until(lambda: len(seen) == 2)
    assert [event.type for event in seen] == ["run_started", "print"]
    assert not run.done()
    assert (await run).trace.events == seen


@check("programs")
async def an_engine_that_fails_ends_the_run_as_infrastructure(subject: Subject) -> None:
    class Broken(Scripted):
        async def complete(self, request: CompletionRequest) -> Completion:
            raise EngineFailed("broken", "no connection", attempts=3)

    run = await subject.program(workflow_of(), Broken())
    assert run.failure is not None
    assert run.failure.kind == "engine_failed"
    assert run.failure.is_infrastructure


@check("programs")
async def an_engines_own_timeout_is_not_the_programs_limit(subject: Subject) -> None:
    def late(request: CompletionRequest) -> str:
        raise TimeoutError("the engine's")

    run = await subject.program(workflow_of(), Scripted(late))
    assert run.failure is not None
    assert run.failure.kind == "engine_failed"
    assert "the engine's" in run.failure.message


@check("programs")
async def a_sink_that_fails_is_raised_and_leaves_no_jail(subject: Subject) -> None:
    def sink(event: Any) -> None:
        if event.type == "agent_call":
            raise OSError("disk full")

    async with raises(OSError, "disk full"):
        await subject.sandbox.run_program(workflow_of(), "q", engine=Scripted(), sink=sink)
    await subject.all_gone()


# Tools


@check("tools")
async def code_of_a_program_has_its_own_jail_and_one_workspace_for_the_run(subject: Subject) -> None:
    source = workflow_of(
        "import subprocess, sys",
        "def run(code):",
        "    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)",
        "    print(done.stdout or done.stderr, end='')",
        "run(\"open('x', 'w').write('kept')\")",
        "run(\"print(open('x').read())\")",
        "run(\"import os; print(os.listdir('.'))\")",
    )
    assert (await subject.program(source)).output == "kept\n['x']\n"
    other = await subject.program(tool("import os; print(os.listdir('.'))"))
    assert other.output == "0 []\n \n", "another run has another workspace"


@check("tools")
async def results_of_a_tool_reach_the_program(subject: Subject) -> None:
    echo = await subject.program(tool("import sys; print(sys.stdin.read(), end=''); sys.exit(4)", input="'in'"))
    assert echo.output == "4 in \n"
    assert (await subject.program(tool("import ctypes; ctypes.string_at(0)"))).output.startswith("-11 ")


@check("tools")
async def a_timeout_of_a_tool_is_the_programs_to_catch(subject: Subject) -> None:
    source = workflow_of(
        "import subprocess, sys",
        "try:",
        "    subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'], timeout=TIMEOUT)",
        "except subprocess.TimeoutExpired:",
        "    print('expired')",
    )
    timeouts = ("0.3", "0", "-1", "1e-9")
    runs = await together({value: subject.program(source.replace("TIMEOUT", value)) for value in timeouts})
    assert [run.timed_out for run in runs.values()] == [True, False, False, True], "no time at all is no clock's doing"
    assert {value: run.output for value, run in runs.items()} == dict.fromkeys(timeouts, "expired\n")
    # What computes is ended by the processor's time: a busy machine changes no result.
    busy = await subject.program(
        source.replace("import time; time.sleep(60)", "while True: pass").replace("TIMEOUT", "1")
    )
    assert (busy.output, busy.timed_out) == ("expired\n", False)
    strange = ("float('nan')", "float('inf')", "1e300", "None")
    runs = await together({value: subject.program(tool("print(6 * 7)", timeout=value)) for value in strange})
    assert {value: run.output for value, run in runs.items()} == dict.fromkeys(strange, "0 42\n \n")


# Descriptions


@check("descriptions")
async def a_description_shows_the_graph_without_asking_anybody(subject: Subject) -> None:
    description = await subject.sandbox.describe(CHAT)
    assert description.findings == []
    assert description.graph is not None
    assert description.graph.name == "w"
    lost = await subject.sandbox.describe(workflow_of("AgentNode('unused', 'x')", "spare = AgentNode('spare', 'x')"))
    assert lost.unreachable == ["spare"]


@check("descriptions")
async def what_is_wrong_with_a_program_is_a_finding(subject: Subject) -> None:
    wrong = {
        "x = (": (1, "was never closed"),
        workflow_of("1 / 0"): (2, "division by zero"),
        workflow_of("x = ' ' * 10**12"): (0, "memory_mb"),
        "x = 1": (0, "defines no workflow"),
    }
    for source, (line, text) in wrong.items():
        description = await subject.sandbox.describe(source)
        assert description.graph is None
        [finding] = description.findings
        assert text in finding.message
        assert finding.line == line


@check("descriptions", "unguarded")
async def a_description_cannot_be_made_to_look_like_a_broken_sandbox(subject: Subject) -> None:
    assert subject.unguarded is not None
    messages = [{"role": "user", "content": "x"}]
    forgeries: list[dict[str, Any]] = [
        {"op": "AgentCall", "key": "k", "request": {"agent": "a", "messages": messages}},
        {"op": "CodeRun", "key": "k", "request": {"code": "1"}},
        {"op": "answer", "text": "x"},
        {"op": "described", "graph": {"kind": "x" * 100}, "unreachable": []},
        {"op": "described", "graph": None, "unreachable": ["x"] * 10},
        {"op": "nonsense"},
    ]
    for forged in forgeries:
        text = json.dumps(forged).encode()
        source = f"import os, struct\ntext = {text!r}\nos.write(3, struct.pack('<I', len(text)) + text)\n"
        assert (await subject.unguarded.describe(source)).graph is None, forged
