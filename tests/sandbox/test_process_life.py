"""The life of jails and zygotes: many at once, cancellation, sudden deaths, and that nothing is left behind."""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from jails import (
    SHORT,
    Scripted,
    hatcheries,
    jailed_processes,
    open_descriptors,
    processes_of,
    run_in,
    until,
    workflow_of,
    zygote_pid,
)

from sandbox import ProcessSandbox
from workflow.failures import SandboxUnavailable
from workflow.limits import CodeLimits, Limits

SLEEP = "import time; time.sleep(60)"
AGENT = workflow_of()
TOOL = workflow_of(
    "import subprocess, sys",
    "done = subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True, text=True)",
    "print('tool said', done.stdout)",
)


# Many at once


def test_fifty_code_runs_at_once(jail):
    async def all_of_them():
        return await asyncio.gather(
            *(jail.sandbox.run_code(f"print({n} ** 2)", limits=SHORT) for n in range(50)),
        )

    assert [result.stdout for result in jail.run(all_of_them())] == [f"{n**2}\n" for n in range(50)]


def test_fifty_programs_at_once(jail):
    engine = Scripted(lambda request: f"<delivery>{request.messages[-1]['content']}</delivery>", delay_s=0.2)

    async def all_of_them():
        runs = (jail.sandbox.run_program(AGENT, f"question {n}", engine=engine) for n in range(50))
        return await asyncio.gather(*runs)

    for n, run in enumerate(jail.run(all_of_them())):
        assert run.failure is None
        assert f"question {n}" in run.answer
    assert engine.most_at_once > 5, "programs wait for their agents side by side"


def test_more_messages_than_the_zygotes_socket_holds(any_mode):
    """A burst must queue, not fail and not lose a kill."""

    async def work(sandbox):
        await sandbox.strength()
        zygote = zygote_pid(sandbox, "code")
        [hatchery] = hatcheries(sandbox)
        hatchery._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        os.kill(zygote, signal.SIGSTOP)
        try:
            limits = CodeLimits(wall_s=40)
            runs = [asyncio.create_task(sandbox.run_code("print(1)", limits=limits)) for _ in range(60)]
            await asyncio.sleep(0.2)
            assert hatchery._outbox, "the burst does not fit"
        finally:
            os.kill(zygote, signal.SIGCONT)
        results = await asyncio.gather(*runs)
        assert all(result.ok for result in results)
        sleeping = [asyncio.create_task(sandbox.run_code(SLEEP, limits=CodeLimits(wall_s=0.2))) for _ in range(30)]
        assert {result.limit for result in await asyncio.gather(*sleeping)} == {"wall_s"}

    run_in(any_mode, work, max_jails=1000)


def test_no_more_jails_than_allowed(any_mode):
    async def work(sandbox):
        await sandbox.strength()
        runs = [asyncio.create_task(sandbox.run_code(SLEEP, limits=CodeLimits(wall_s=0.3))) for _ in range(6)]
        most = 0
        while not all(run.done() for run in runs):
            most = max(most, len(jailed_processes(sandbox)))
            await asyncio.sleep(0.02)
        assert most == 2

    run_in(any_mode, work, max_jails=2)


def test_waiting_for_a_slot_counts_against_no_limit(any_mode):
    async def work(sandbox):
        busy = asyncio.create_task(sandbox.run_program(AGENT, "q", engine=Scripted(delay_s=1.4)))
        await asyncio.sleep(0.1)
        run = await sandbox.run_program(AGENT, "q", engine=Scripted(), limits=Limits(wall_s=1))
        assert run.failure is None
        assert (await busy).failure is None

    run_in(any_mode, work, max_jails=1)


def test_a_program_in_the_only_slot_can_run_code(any_mode):
    """A program holds its slot while it waits for its code: these must not wait for each other."""

    async def work(sandbox):
        runs = [sandbox.run_program(TOOL, "q", engine=Scripted(), limits=Limits(wall_s=20)) for _ in range(2)]
        for run in await asyncio.gather(*runs):
            assert run.failure is None
            assert run.output == "tool said 42\n\n"

    run_in(any_mode, work, max_jails=1)


# Cancellation


def test_cancelling_a_code_run_kills_it_and_frees_its_slot(mode):
    async def work(sandbox):
        await sandbox.strength()
        for delay in (0, 0.001, 0.005, 0.02, 0.1):
            run = asyncio.create_task(sandbox.run_code(SLEEP))
            await asyncio.sleep(delay)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            await until(lambda: not jailed_processes(sandbox))
            assert (await asyncio.wait_for(sandbox.run_code("print(1)"), 10)).ok, "the only slot is free again"

    run_in(mode, work, max_jails=1)


def test_cancelling_a_program_kills_it_closes_its_trace_and_frees_its_slot(mode):
    async def work(sandbox):
        for delay in (0, 0.01, 0.3):
            events = []
            engine = Scripted(delay_s=60)
            run = asyncio.create_task(sandbox.run_program(AGENT, "q", engine=engine, sink=events.append))
            await asyncio.sleep(delay)
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            assert engine.now == 0, "the call in flight was cancelled too"
            if events:
                assert events[-1].type == "run_ended"
                assert "cancelled" in events[-1].failure.message
            await until(lambda: not jailed_processes(sandbox))
        assert (await asyncio.wait_for(sandbox.run_program(AGENT, "q", engine=Scripted()), 20)).failure is None

    run_in(mode, work, max_jails=1)


def test_cancelling_a_programs_tool_code_kills_the_code_too(mode):
    async def work(sandbox):
        program = workflow_of(
            "import subprocess", "subprocess.run(['python', '-c', 'import time; time.sleep(60)'], timeout=50)"
        )
        run = asyncio.create_task(sandbox.run_program(program, "q", engine=Scripted()))
        await until(lambda: len(jailed_processes(sandbox)) == 2)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await until(lambda: not jailed_processes(sandbox))

    run_in(mode, work)


def test_cancelling_a_call_kills_it(mode):
    async def work(sandbox):
        call = asyncio.create_task(sandbox.call("called_functions:sleep", 60, wall_s=50))
        await until(lambda: jailed_processes(sandbox))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: not jailed_processes(sandbox))

    run_in(mode, work, preload=("called_functions",))


def test_cancelling_a_start_leaves_no_zygote(any_mode):
    async def work():
        sandbox = ProcessSandbox(mode=any_mode)
        before = _zygotes_of_this_process()
        starting = asyncio.create_task(sandbox.strength())
        await until(lambda: _zygotes_of_this_process() - before)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await until(lambda: not _zygotes_of_this_process() - before)
        assert (await sandbox.run_code("print(1)")).ok, "and the next use starts another"
        await sandbox.close()

    asyncio.run(work())


def _zygotes_of_this_process() -> set[int]:
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in children if b"sandbox.zygote" in Path(f"/proc/{pid}/cmdline").read_bytes()}


# Sudden deaths


def test_death_of_the_zygotes_fails_what_waits_and_the_next_run_works(mode):
    async def work(sandbox):
        async with sandbox.workspace() as folder:
            runs = [
                asyncio.create_task(work)
                for work in (
                    sandbox.run_code(SLEEP),
                    sandbox.run_code(SLEEP, workspace=folder),
                    sandbox.call("called_functions:sleep", 60, wall_s=50),
                    sandbox.run_program(AGENT, "q", engine=Scripted(delay_s=60)),
                )
            ]
            await until(lambda: len(jailed_processes(sandbox)) == 4)
            folders = [hatchery._folder for hatchery in hatcheries(sandbox)]
            for kind in ("code", "call", "program"):
                os.kill(zygote_pid(sandbox, kind), signal.SIGKILL)
            code, in_folder, call, program = await asyncio.wait_for(asyncio.gather(*runs, return_exceptions=True), 15)
            for raised in (code, in_folder, call):
                assert isinstance(raised, SandboxUnavailable)
            assert program.failure.kind == "sandbox_unavailable"
            assert program.failure.is_infrastructure
            await until(lambda: not any(processes_of(path) for path in folders))
            assert await sandbox.call("called_functions:double", 4) == {"doubled": 8}
            assert (await sandbox.run_program(AGENT, "q", engine=Scripted())).failure is None
            async with sandbox.workspace() as fresh:
                assert fresh.number == folder.number, "the numbers begin anew, so this matters:"
                fresh.write("mine", b"x")
                with pytest.raises(SandboxUnavailable):
                    await sandbox.run_code("import os; print(os.listdir('.'))", workspace=folder)
            assert (await sandbox.run_code("print(1)")).ok
        assert not any(os.path.exists(path) for path in folders)

    run_in(mode, work, preload=("called_functions",))


def test_a_stopped_zygote_hangs_nobody(any_mode, monkeypatch):
    monkeypatch.setattr("sandbox.code_process.REAP_TIMEOUT_S", 0.5)

    async def work(sandbox):
        await sandbox.strength()
        zygote = zygote_pid(sandbox, "code")
        os.kill(zygote, signal.SIGSTOP)
        try:
            with pytest.raises(SandboxUnavailable, match="did not end"):
                await asyncio.wait_for(sandbox.run_code("print(1)", limits=CodeLimits(wall_s=0.2)), 10)
        finally:
            os.kill(zygote, signal.SIGCONT)

    run_in(any_mode, work)


HOST = """
import asyncio, json, sys
from sandbox import ProcessSandbox
from jails import Scripted, hatcheries, workflow_of

async def main():
    sandbox = ProcessSandbox(mode=sys.argv[1])
    async with sandbox.workspace() as folder:
        code = "import time; open('x', 'w').write('x'); print('up', flush=True); time.sleep(600)"
        first = await sandbox.start_code(code, workspace=folder)
        second = await sandbox.start_code(code)
        program = asyncio.create_task(sandbox.run_program(workflow_of(), "q", engine=Scripted(delay_s=600)))
        for process in (first, second):
            assert await process.readline() == b"up\\n"
        while len(hatcheries(sandbox)) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        print(json.dumps([hatchery._folder for hatchery in hatcheries(sandbox)]), flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_killed_host_leaves_no_process_and_no_folder(mode):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    host = subprocess.Popen([sys.executable, "-c", HOST, mode], stdout=subprocess.PIPE, env=environment)
    try:
        assert host.stdout is not None
        folders = json.loads(host.stdout.readline())
        running = [processes_of(folder) for folder in folders]
        assert sorted(map(len, running)) == [2, 3], "a zygote each, two jails of code, one of a program"
    finally:
        host.kill()
        host.wait(10)
        host.stdout.close()

    async def gone():
        await until(lambda: not any(processes_of(folder) for folder in folders))
        await until(lambda: not any(os.path.exists(folder) for folder in folders))

    asyncio.run(gone())


# What is left behind


def test_close_leaves_no_process_no_descriptor_no_folder_and_no_task(mode):
    async def main():
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, gc.collect)  # the executor stays, and is not ours
        gc.collect()
        before = open_descriptors()
        sandbox = ProcessSandbox(mode=mode, preload=("called_functions",))
        engine = Scripted()
        for _ in range(20):
            await asyncio.gather(
                *(sandbox.run_code("print(1)") for _ in range(5)),
                sandbox.run_code("import os; os._exit(3)"),
                sandbox.run_code(SLEEP, limits=CodeLimits(wall_s=0.01)),
                sandbox.run_program(TOOL, "q", engine=engine),
                sandbox.run_program("raise ValueError", "q", engine=engine),
                sandbox.call("called_functions:double", 1),
            )
        during = open_descriptors()
        assert during - before <= 3 * 4, "a control socket per zygote, and nothing per run"
        folders = [hatchery._folder for hatchery in hatcheries(sandbox)]
        # What is left running when the sandbox closes ends with it.
        forgotten = await sandbox.start_code(SLEEP)
        waiting = [
            asyncio.create_task(work)
            for work in (
                forgotten.readline(),
                sandbox.run_code(SLEEP),
                sandbox.run_program(AGENT, "q", engine=Scripted(delay_s=60)),
            )
        ]
        await until(lambda: len(jailed_processes(sandbox)) == 3)
        await asyncio.wait_for(sandbox.close(), 20)
        line, code, program = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
        assert line == b""
        assert isinstance(code, SandboxUnavailable)
        assert program.failure.kind == "sandbox_unavailable"
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert not any(processes_of(folder) for folder in folders)
        assert not any(os.path.exists(folder) for folder in folders)
        gc.collect()
        assert open_descriptors() == before
        with pytest.raises(SandboxUnavailable, match="closed"):
            await sandbox.run_code("print(1)")
        await sandbox.close()

    asyncio.run(main())


def test_nothing_is_logged_or_warned_about(any_mode, caplog, recwarn, capsys):
    """Unretrieved exceptions and unclosed transports are reported by asyncio when they are collected."""

    async def work(sandbox):
        await sandbox.run_code("print(1)")
        await sandbox.run_program(AGENT, "q", engine=Scripted())
        await sandbox.start_code(SLEEP)
        for _ in range(3):
            task = asyncio.create_task(sandbox.run_code(SLEEP))
            await asyncio.sleep(0.002)
            task.cancel()
        await sandbox.run_program(AGENT, "q", engine=Scripted(delay_s=60), limits=Limits(wall_s=0.3))

    run_in(any_mode, work)
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == []
    assert [str(warning.message) for warning in recwarn] == []
    assert capsys.readouterr() == ("", "")


def test_the_zygote_does_not_grow_with_runs(mode):
    async def work(sandbox):
        def threads_and_files(pid):
            return len(os.listdir(f"/proc/{pid}/fd"))

        await sandbox.run_code("print(1)")
        pid = zygote_pid(sandbox, "code")
        await until(lambda: not jailed_processes(sandbox))
        before = threads_and_files(pid)
        for _ in range(5):
            await asyncio.gather(*(sandbox.run_code("print(1)") for _ in range(20)))
            async with sandbox.workspace() as folder:
                await sandbox.run_code("open('x', 'w').write('x')", workspace=folder)
        await until(lambda: threads_and_files(pid) == before)
        if mode == "j":
            await until(lambda: "/workspaces/" not in Path(f"/proc/{pid}/mountinfo").read_text())

    run_in(mode, work)
