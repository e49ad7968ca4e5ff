"""The life of jails: many at once, cancellation, sudden deaths under a sandbox, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

from sandbox.conformance.scripted import SHORT, Scripted, tool, until, workflow_of
from sandbox.conformance.subject import PRELOAD, Subject
from sandbox.conformance.suite import check, raises
from sandbox.protocol import CodeResult
from workflow.failures import SandboxUnavailable
from workflow.limits import CodeLimits, Limits

SLEEP = "import time; time.sleep(60)"
AGENT = workflow_of()
TOOL = tool("print(6 * 7)")
CALL = f"{PRELOAD[0]}:sleep"
PATIENCE_S = 40.0
"""For what a sandbox does at most once in its life: start, notice a death, close."""


# Many at once


@check("concurrency")
async def many_code_runs_at_once(subject: Subject) -> None:
    results = await asyncio.gather(*(subject.code(f"print({n} ** 2)") for n in range(30)))
    assert [result.stdout for result in results] == [f"{n**2}\n" for n in range(30)]


@check("concurrency")
async def many_programs_at_once(subject: Subject) -> None:
    engine = Scripted(lambda request: f"<delivery>{(request.messages or [])[-1]['content']}</delivery>", delay_s=0.2)
    runs = await asyncio.gather(*(subject.program(AGENT, engine, f"question {n}") for n in range(30)))
    for n, run in enumerate(runs):
        assert run.failure is None
        assert f"question {n}" in (run.answer or "")
    assert engine.most_at_once > 1, "programs wait for their agents side by side"


@check("concurrency", "running")
async def never_more_jails_than_allowed(subject: Subject) -> None:
    async with subject.fresh(max_jails=2) as sandbox:
        limits = CodeLimits(wall_s=0.5)
        await sandbox.run_code("1")
        runs = [asyncio.create_task(sandbox.run_code(SLEEP, limits=limits)) for _ in range(6)]
        most = 0
        while not all(run.done() for run in runs):
            most = max(most, subject.running(sandbox))
            await asyncio.sleep(0.02)
        assert most == 2
        assert {run.result().limit for run in runs} == {"wall_s"}


@check("concurrency")
async def waiting_for_a_slot_counts_against_no_limit(subject: Subject) -> None:
    async with subject.fresh(max_jails=1) as sandbox:
        engine = Scripted(delay_s=2.5)
        busy = asyncio.create_task(sandbox.run_program(AGENT, "q", engine=engine))
        await until(lambda: engine.now == 1, PATIENCE_S)
        run = await sandbox.run_program(AGENT, "q", engine=Scripted(), limits=Limits(wall_s=2))
        assert run.failure is None
        assert (await busy).failure is None


@check("concurrency")
async def a_program_in_the_only_slot_can_run_code(subject: Subject) -> None:
    """A program holds its slot while it waits for its code: these must not wait for each other."""
    async with subject.fresh(max_jails=1) as sandbox:
        runs = [sandbox.run_program(TOOL, "q", engine=Scripted(), limits=Limits(wall_s=PATIENCE_S)) for _ in range(2)]
        for run in await asyncio.gather(*runs):
            assert run.failure is None
            assert run.output == "0 42\n \n"


BOMBS = (
    "while True: pass",
    "x = []\nwhile True: x.append(' ' * 10**6)",
    "import os\nwhile True: os.write(1, b'x' * 65536)",
    "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "import os\nwhile True:\n try: os.fork()\n except OSError: pass",
)


@check("concurrency")
async def many_attackers_at_once_do_not_disturb_a_bystander(subject: Subject) -> None:
    limits: dict[str, Any] = {"wall_s": 0.8, "cpu_s": 1, "memory_mb": 64}
    attackers = [asyncio.create_task(subject.code(BOMBS[n % 5], **limits)) for n in range(10)]
    innocents = [await subject.code("print(6 * 7)") for _ in range(3)]
    assert [result.stdout for result in innocents] == ["42\n"] * 3
    assert not any(result.ok for result in await asyncio.gather(*attackers))


# Cancellation


@check("cancellation", "running")
async def cancelling_code_kills_it_and_frees_its_slot(subject: Subject) -> None:
    async with subject.fresh(max_jails=1) as sandbox:
        await sandbox.run_code("1")
        for delay in (0, 0.001, 0.005, 0.02, 0.1):
            run = asyncio.create_task(sandbox.run_code(SLEEP))
            await asyncio.sleep(delay)
            run.cancel()
            async with raises(asyncio.CancelledError):
                await run
            await subject.all_gone(sandbox)
            assert (await asyncio.wait_for(sandbox.run_code("print(1)"), PATIENCE_S)).ok, "the only slot is free again"


@check("cancellation", "running")
async def cancelling_a_program_kills_it_and_closes_its_trace(subject: Subject) -> None:
    async with subject.fresh(max_jails=1) as sandbox:
        for asked in (False, True):
            events: list[Any] = []
            engine = Scripted(delay_s=60)
            run = asyncio.create_task(sandbox.run_program(AGENT, "q", engine=engine, sink=events.append))
            await until(lambda engine=engine, events=events, asked=asked: engine.now if asked else events, PATIENCE_S)
            run.cancel()
            async with raises(asyncio.CancelledError):
                await run
            assert engine.now == 0, "the call in flight was cancelled too"
            assert events[-1].type == "run_ended"
            assert "cancelled" in events[-1].failure.message
            await subject.all_gone(sandbox)
        again = sandbox.run_program(AGENT, "q", engine=Scripted())
        assert (await asyncio.wait_for(again, PATIENCE_S)).failure is None


@check("cancellation", "running")
async def cancelling_a_program_kills_its_tools_and_a_call_its_function(subject: Subject) -> None:
    async with subject.fresh() as sandbox:
        source = workflow_of("import subprocess", f"subprocess.run(['python', '-c', {SLEEP!r}], timeout=50)")
        run = asyncio.create_task(sandbox.run_program(source, "q", engine=Scripted()))
        await until(lambda: subject.running(sandbox) == 2, PATIENCE_S)
        call = asyncio.create_task(sandbox.call(CALL, 60, wall_s=50))
        await until(lambda: subject.running(sandbox) == 3, PATIENCE_S)
        for work in (run, call):
            work.cancel()
            async with raises(asyncio.CancelledError):
                await work
        await subject.all_gone(sandbox)


@check("cancellation", "left_behind")
async def cancelling_a_start_leaves_nothing(subject: Subject) -> None:
    with temporary_folder() as folder:
        before = here(subject, folder)
        for delay in (0.0, 0.05, 0.3):
            sandbox = subject.backend.build()
            starting = asyncio.create_task(sandbox.run_code("print(1)"))
            await asyncio.sleep(delay)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            assert (await asyncio.wait_for(sandbox.run_code("print(1)"), PATIENCE_S)).ok, "the next use starts another"
            await sandbox.close()
        await nothing_left(subject, folder, os.getpid(), before)


# Sudden deaths


async def busy(sandbox: Any, subject: Subject) -> list[asyncio.Task[Any]]:
    """Code, a call and a program that will not end by themselves."""
    works = (
        sandbox.run_code(SLEEP),
        sandbox.call(CALL, 60, wall_s=50),
        sandbox.run_program(AGENT, "q", engine=Scripted(delay_s=60)),
    )
    tasks = [asyncio.create_task(work) for work in works]
    await until(lambda: subject.running(sandbox) == 3, PATIENCE_S)
    return tasks


async def all_failed_as_infrastructure(tasks: list[asyncio.Task[Any]]) -> None:
    ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE_S)
    for end in ends:
        if isinstance(end, BaseException):
            assert isinstance(end, SandboxUnavailable), repr(end)
        else:
            assert not isinstance(end, CodeResult), end
            assert end.failure is not None
            assert end.failure.kind == "sandbox_unavailable", end.failure


async def everything_works(sandbox: Any) -> None:
    assert (await asyncio.wait_for(sandbox.run_code("print(1)", limits=SHORT), PATIENCE_S)).stdout == "1\n"
    assert await sandbox.call(f"{PRELOAD[0]}:double", 4) == {"doubled": 8}
    assert (await sandbox.run_program(TOOL, "q", engine=Scripted())).failure is None
    async with sandbox.workspace() as folder:
        await folder.write("x", b"1")
        assert (await sandbox.run_code("print(open('x').read())", limits=SHORT, workspace=folder)).stdout == "1\n"


@check("deaths", "running", "kill_workers")
async def death_of_the_workers_fails_what_waits_and_the_next_run_works(subject: Subject) -> None:
    assert subject.backend.kill_workers is not None
    async with subject.fresh() as sandbox:
        async with sandbox.workspace() as folder:
            await folder.write("mine", b"secret of this run")
            tasks = await busy(sandbox, subject)
            await subject.backend.kill_workers(sandbox)
            await all_failed_as_infrastructure(tasks)
            await everything_works(sandbox)
            async with raises(SandboxUnavailable):  # its folder died with the worker, and is nobody else's
                await sandbox.run_code("import os; print(os.listdir('.'))", workspace=folder)
        await everything_works(sandbox)


@check("deaths", "stop_workers", slow=True)
async def stopped_workers_hang_nobody(subject: Subject) -> None:
    assert subject.backend.stop_workers is not None
    async with subject.fresh() as sandbox:
        await sandbox.run_code("1")
        go_on = await subject.backend.stop_workers(sandbox)
        try:
            result = await asyncio.wait_for(sandbox.run_code("print(1)", limits=CodeLimits(wall_s=3)), PATIENCE_S)
        except SandboxUnavailable:
            pass
        else:  # by a worker that was made since
            assert result.stdout == "1\n", result
        finally:
            go_on()


@check("deaths", "running", "restart_daemon")
async def death_of_the_daemon_fails_what_waits_and_the_next_run_works(subject: Subject) -> None:
    assert subject.backend.restart_daemon is not None
    async with subject.fresh() as sandbox:
        tasks = await busy(sandbox, subject)
        await subject.backend.restart_daemon()
        ends = asyncio.gather(*tasks, return_exceptions=True)
        try:  # a daemon may take its containers with it, or find them again: then they go on
            await asyncio.wait_for(asyncio.shield(ends), 5)
        except TimeoutError:
            for task in tasks:
                task.cancel()
            await ends
        else:
            await all_failed_as_infrastructure(tasks)
        await everything_works(sandbox)


HOST = f"""
import asyncio, importlib, os, sys
from sandbox.conformance.scripted import Scripted, workflow_of

async def main():
    module, _, name = sys.argv[1].partition(":")
    sandbox = getattr(importlib.import_module(module), name)(preload={PRELOAD!r})
    async with sandbox.workspace() as folder:
        code = "import time; open('x', 'w').write('x'); print('up', flush=True); time.sleep(600)"
        first = await sandbox.start_code(code, workspace=folder)
        second = await sandbox.start_code(code)
        engine = Scripted(delay_s=600)
        program = asyncio.create_task(sandbox.run_program(workflow_of(), "q", engine=engine))
        call = asyncio.create_task(sandbox.call({CALL!r}, 600, wall_s=500))
        for process in (first, second):
            assert await process.readline() == b"up\\n"
        while not engine.now:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        print("up", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


@check("deaths", "left_behind")
async def a_killed_host_leaves_nothing(subject: Subject) -> None:
    """SIGKILL in the middle of everything: processes, folders and containers go, without anybody's help."""
    assert subject.backend.left_behind is not None
    with temporary_folder() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "TMPDIR": folder,
        }
        host = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOST, subject.backend.make, stdout=subprocess.PIPE, env=environment
        )
        try:
            assert host.stdout is not None
            assert await asyncio.wait_for(host.stdout.readline(), 2 * PATIENCE_S) == b"up\n"
            assert subject.backend.left_behind(folder, host.pid), "something is there while it runs"
        finally:
            host.kill()
            await host.wait()
        await nothing_left(subject, folder, host.pid)


# What is left behind


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Where sandboxes that are made meanwhile keep their temporary files."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="conformance-", dir="/tmp") as folder:
        os.chmod(folder, 0o711)
        tempfile.tempdir = folder
        try:
            yield folder
        finally:
            tempfile.tempdir = before


def here(subject: Subject, folder: str) -> set[str]:
    """What this process's sandboxes have now, the shared one's included."""
    assert subject.backend.left_behind is not None
    return set(subject.backend.left_behind(folder, os.getpid()))


async def nothing_left(subject: Subject, folder: str, host: int, before: Set[str] = frozenset()) -> None:
    assert subject.backend.left_behind is not None
    left_behind = subject.backend.left_behind
    try:
        await until(lambda: not set(left_behind(folder, host)) - before, PATIENCE_S)
    except TimeoutError:
        raise AssertionError(f"left behind: {set(left_behind(folder, host)) - before}") from None


@check("cleanup", "left_behind", "running")
async def close_leaves_nothing(subject: Subject) -> None:
    """No process, file, container, descriptor or task, whatever was running; and what waited is told."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, gc.collect)  # the executor stays, and is not the sandbox's
    gc.collect()
    descriptors, tasks = len(os.listdir("/proc/self/fd")), asyncio.all_tasks()
    with temporary_folder() as folder:
        before = here(subject, folder)
        sandbox = subject.backend.build()
        for _ in range(5):
            await asyncio.gather(
                *(sandbox.run_code("print(1)") for _ in range(3)),
                sandbox.run_code("import os; os._exit(3)"),
                sandbox.run_code(SLEEP, limits=CodeLimits(wall_s=0.05)),
                sandbox.run_program(TOOL, "q", engine=Scripted()),
                sandbox.run_program("raise ValueError", "q", engine=Scripted()),
                sandbox.call(f"{PRELOAD[0]}:double", 1),
            )
        # What is left running when the sandbox closes ends with it.
        forgotten = await sandbox.start_code(SLEEP)
        reading = asyncio.create_task(forgotten.readline())
        code = asyncio.create_task(sandbox.run_code(SLEEP))
        program = asyncio.create_task(sandbox.run_program(AGENT, "q", engine=Scripted(delay_s=60)))
        await until(lambda: subject.running(sandbox) == 3, PATIENCE_S)
        await asyncio.wait_for(sandbox.close(), PATIENCE_S)
        assert await asyncio.wait_for(reading, 5) == b""
        await all_failed_as_infrastructure([code, program])
        await nothing_left(subject, folder, os.getpid(), before)
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() <= tasks  # those of before may have ended
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    async with raises(SandboxUnavailable, "closed"):
        await sandbox.run_code("print(1)")
    await sandbox.close()
