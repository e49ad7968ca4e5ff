"""Limits: each one is hit and reported as itself, for programs, for code and for calls; output is cut where it says."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from sandbox.conformance.scripted import SHORT, Scripted, workflow_of
from sandbox.conformance.subject import PRELOAD, Subject
from sandbox.conformance.suite import check, raises, together
from sandbox.protocol import CodeResult
from workflow.completion import Completion, CompletionRequest
from workflow.failures import LimitExceeded, MetaAgentError, ProgramFailed
from workflow.limits import Limits
from workflow.trace import Trace

AGAIN = "\nwhile True: workflow.run(question)"
PROGRAMS: dict[str, tuple[str, float, dict[str, Any]]] = {
    "wall_s": (workflow_of("while True: pass"), 0, {"wall_s": 0.5}),
    "cpu_s": (workflow_of("while True: pass"), 0, {"cpu_s": 1}),
    "memory_mb": (workflow_of("x = [0]", "while True: x.extend(x)"), 0, {"memory_mb": 64}),
    "output_bytes": (workflow_of("while True: print('x' * 100)"), 0, {"output_bytes": 5000}),
    "agent_calls": (workflow_of() + AGAIN, 0, {"agent_calls": 3}),
    "tokens": (workflow_of() + AGAIN, 0, {"tokens": 40}),
    "tool_calls": (
        workflow_of("import subprocess", "while True: subprocess.run(['python', '-c', '1'])"),
        0,
        {"tool_calls": 2},
    ),
}


@check("limits")
async def each_limit_of_a_program_is_reported_as_itself(subject: Subject) -> None:
    runs = await together(
        {
            kind: subject.program(source, Scripted(delay_s=delay), **limits)
            for kind, (source, delay, limits) in PROGRAMS.items()
        }
    )
    for kind, (_, _, limits) in PROGRAMS.items():
        run = runs[kind]
        assert run.failure is not None, kind
        assert run.failure.kind == "limit_exceeded", (kind, run.failure)
        fields = run.failure.fields
        assert (fields["limit_kind"], fields["limit"]) == (kind, limits[kind]), run.failure
        assert fields["used"] >= limits[kind] * 0.5
        hit = next(event for event in run.trace.events if event.type == "limit")
        assert (hit.limit_kind, hit.limit) == (kind, limits[kind])
        assert run.trace.ended.failure == run.failure
        Trace.from_lines(list(run.trace.lines()))


@check("limits")
async def a_program_that_spins_is_killed_at_its_wall_limit(subject: Subject) -> None:
    run = await subject.program(workflow_of("while True: pass"), wall_s=0.4, cpu_s=30)
    assert run.failure is not None
    assert run.failure.fields["limit_kind"] == "wall_s"
    await subject.all_gone()


@check("limits")
async def a_run_does_not_pay_for_a_slow_engine(subject: Subject) -> None:
    source = """
from workflow import AgentNode, EnsembleNode, Workflow
workflow = Workflow('w')
workflow.add_node(AgentNode('first', 'a'))
workflow.add_node(EnsembleNode('e', [AgentNode('b', 'b'), AgentNode('c', 'c')]))
"""
    run = await subject.sandbox.run_program(source, "q", engine=Scripted(delay_s=1.5), limits=Limits(wall_s=2))
    assert run.failure is None
    assert run.duration_s > 3


@check("limits")
async def a_run_whose_engine_hangs_keeps_its_trace_and_the_calls_in_flight(subject: Subject) -> None:
    class Slow(Scripted):
        async def complete(self, request: CompletionRequest) -> Completion:
            self.delay_s = 60 if request.agent == "slow" else 0
            return await super().complete(request)

    source = """
from workflow import AgentNode, EnsembleNode, Workflow
print('started')
workflow = Workflow('w')
workflow.add_node(EnsembleNode('e', [AgentNode('quick', 'a'), AgentNode('slow', 'b'), AgentNode('slow', 'c')]))
"""
    seen: list[Any] = []
    run = await subject.sandbox.run_program(
        source, "q", engine=Slow("quick"), limits=Limits(reply_s=1.5), sink=seen.append
    )
    assert run.failure is not None
    assert run.failure.kind == "engine_failed"
    assert "no reply within reply_s=1.5" in run.failure.message
    turns = {(turn.path, turn.completion is not None) for turn in run.trace.agent_turns}
    assert turns == {("w/e/quick[0]", True), ("w/e/slow[1]", False), ("w/e/slow[2]", False)}
    assert all(turn.error for turn in run.trace.agent_turns if turn.completion is None)
    assert seen == run.trace.events
    assert seen[-1].type == "run_ended"
    assert run.output == "started\n"
    await subject.all_gone()


@check("output caps")
async def one_giant_print_is_an_excess_of_output(subject: Subject) -> None:
    lines = (
        "print('x' * 20_000_000)",
        "print('\\U0001f600' * 6_000_000)",
        "[print('x' * 9000) for _ in range(1000)]",
    )
    runs = await together({line: subject.program(workflow_of(line)) for line in lines})
    for line, run in runs.items():
        assert run.failure is not None, line
        assert run.failure.fields["limit_kind"] == "output_bytes", (line, run.failure)
        assert len(run.output) < 3 << 20


CODE: dict[str, tuple[str, dict[str, Any], str]] = {
    "sleep": ("import time; time.sleep(60)", {"wall_s": 0.4}, "wall_s"),
    "spin": ("while True: pass", {"cpu_s": 1}, "cpu_s"),
    "spin in threads": (
        "import threading, zlib\ndata = b'x' * 10**7\ndef f():\n while True: zlib.crc32(data)\n"
        "for _ in range(4): threading.Thread(target=f).start()",
        {"cpu_s": 1},
        "cpu_s",
    ),
    "allocate": ("x = ' ' * 10**12", {}, "memory_mb"),
    "allocate in steps": ("x = []\nwhile True: x.append(bytearray(1 << 20))", {"memory_mb": 64}, "memory_mb"),
    "stdout": ("while True: print('x' * 1000)", {"output_bytes": 10_000}, "output_bytes"),
    "stderr": ("import sys\nwhile True: sys.stderr.write('x' * 1000)", {"output_bytes": 10_000}, "output_bytes"),
    "stdout without newline": ("import os\nwhile True: os.write(1, b'x' * 65536)", {}, "output_bytes"),
    "silent after much output": (
        "import sys, time; sys.stdout.write('x' * 20_000); sys.stdout.flush(); time.sleep(60)",
        {"output_bytes": 10_000},
        "output_bytes",
    ),
    "disk": (
        "f = open('big', 'wb')\nfor _ in range(8): f.write(b'x' * (1 << 20)); f.flush()",
        {"disk_mb": 2},
        "disk_mb",
    ),
}


@check("limits")
async def each_limit_of_code_is_reported_as_itself(subject: Subject) -> None:
    results: dict[str, CodeResult] = await together(
        {name: subject.code(code, **limits) for name, (code, limits, _) in CODE.items()}
    )
    for name, (_, limits, kind) in CODE.items():
        result = results[name]
        assert result.limit == kind, (name, result)
        assert not result.ok
        if kind == "output_bytes":
            assert len(result.stdout + result.stderr) == limits.get(kind, SHORT.output_bytes), name
        if kind == "memory_mb":
            assert (result.exit_status, result.stderr.splitlines()[-1]) == (1, "MemoryError"), (name, result)
        if kind == "disk_mb":
            assert result.exit_status == 1, (name, result)
        if kind in ("wall_s", "cpu_s"):
            assert (result.exit_status, result.signal) == (None, 9), (name, result)


@check("output caps")
async def output_of_exactly_the_limit_is_no_excess(subject: Subject) -> None:
    code = "import sys; sys.stdout.write('x' * 500); sys.stderr.write('y' * 500)"
    result = await subject.code(code, output_bytes=1000)
    assert (result.ok, len(result.stdout), len(result.stderr)) == (True, 500, 500)
    assert (await subject.code("import sys; sys.stdout.write('x' * 1001)", output_bytes=1000)).limit == "output_bytes"


@check("limits")
async def memory_within_the_limit_may_be_used(subject: Subject) -> None:
    assert (await subject.code("x = b'x' * (200 << 20); print(len(x))", memory_mb=256)).ok
    assert (await subject.code("x = b'x' * (300 << 20); print(len(x))", memory_mb=256)).limit == "memory_mb"


@check("limits")
async def an_excess_that_the_code_survives_is_no_excess(subject: Subject) -> None:
    result = await subject.code("try: ' ' * 10**12\nexcept MemoryError: print('caught')")
    assert (result.ok, result.stdout) == (True, "caught\n")
    code = "try:\n open('x', 'wb').write(bytes(4 << 20))\nexcept OSError: print('caught')"
    result = await subject.code(code, disk_mb=1)
    assert (result.ok, result.stdout) == (True, "caught\n")


@check("limits")
async def disk_within_the_limit_may_be_used(subject: Subject) -> None:
    code, _, _ = CODE["disk"]
    assert (await subject.code(code, disk_mb=9)).ok


# Jailed calls of trusted functions

HELPER = PRELOAD[0]


async def call(subject: Subject, name: str, payload: Any = None, **options: Any) -> Any:
    return await subject.sandbox.call(f"{HELPER}:{name}", payload, **options)


@check("calls")
async def a_call_returns_its_result(subject: Subject) -> None:
    assert await call(subject, "double", [1, {"a": "\u00e9\U0001f600"}]) == {
        "doubled": [1, {"a": "\u00e9\U0001f600"}] * 2
    }
    assert await call(subject, "warmed") == 1, "the preloaded module was warmed once, before the fork"
    assert [await call(subject, "remember", n) for n in range(3)] == [2, 2, 2], "calls share no state"


CALLS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("fail", [1], {}, "ValueError: bad payload [1]"),
    ("leave", None, {}, "SystemExit: 3"),
    ("interrupt", None, {}, "KeyboardInterrupt"),
    ("unserialisable", None, {}, "TypeError: Object of type set is not JSON serializable"),
    ("huge", 17 << 20, {}, "FrameError: frame of"),
    ("deep", 100, {}, "FrameError: nested deeper"),
    ("die", 120, {}, "ended without an answer (exit status 120)"),
    ("die", 0, {}, "ended without an answer (exit status 0)"),
    ("no_such_function", None, {}, "no_such_function"),
    ("sleep", 60, {"wall_s": 0.3}, "wall_s=0.3 exceeded"),
    ("spin", None, {"wall_s": 0.3}, "wall_s=0.3 exceeded"),
    ("spin", None, {"cpu_s": 1}, "cpu_s=1 exceeded"),
    ("fill", 500, {"memory_mb": 64}, "memory_mb=64 exceeded"),
]


@check("calls")
async def a_call_ends_as_its_function_does(subject: Subject) -> None:
    for name, payload, options, expected in CALLS:
        kind: type[MetaAgentError] = LimitExceeded if "exceeded" in expected else ProgramFailed
        async with raises(kind, expected):
            await call(subject, name, payload, **options)


@check("calls")
async def a_payload_has_a_size(subject: Subject) -> None:
    async with raises(ProgramFailed, "over the cap"):
        await call(subject, "double", "x" * (17 << 20))
    assert await call(subject, "double", 1) == {"doubled": 2}


@check("calls")
async def a_call_reads_no_files_of_the_host(subject: Subject) -> None:
    with tempfile.NamedTemporaryFile("w", prefix="conformance-") as file:
        file.write("of the host")
        file.flush()
        os.chmod(file.name, 0o644)
        async with raises(ProgramFailed, "FileNotFoundError", "PermissionError"):
            await call(subject, "read", file.name)


@check("calls")
async def a_module_that_was_not_preloaded_cannot_be_called(subject: Subject) -> None:
    async with raises(ValueError, "preload"):
        await subject.sandbox.call("os:system", "true")
