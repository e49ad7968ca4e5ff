"""Whatever is under way is cancelled, once or twice, at each turn of the loop: nothing stays, the next one works."""

import asyncio
import contextlib
import gc
import os
import resource
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from jails import SHORT, Scripted, jailed_processes, open_descriptors, run_in, until, workflow_of, zygote_pid, zygotes
from relays import run_relay

from sandbox import ProcessSandbox
from sandbox.conformance.scripted import tool
from sandbox.jail.walls import UIDS, Mode
from workflow.failures import SandboxUnavailable
from workflow.limits import Limits

CALLED = "sandbox.conformance.called_functions"
Operation = Callable[[Any], Coroutine[Any, Any, Any]]


async def a_program(sandbox: Any) -> None:
    run = await sandbox.run_program(tool("print(6 * 7)"), "q", engine=Scripted(delay_s=0.001))
    assert run.failure is None


async def code(sandbox: Any) -> None:
    assert (await sandbox.run_code("print(len(input()))", stdin="x" * 200_000)).ok


async def a_conversation(sandbox: Any) -> None:
    process = await sandbox.start_code("print(input(), flush=True); input()", limits=SHORT)
    try:
        await process.write(b"x\n")
        assert await process.readline() == b"x\n"
    finally:
        await process.kill()


async def a_workspace(sandbox: Any) -> None:
    async with sandbox.workspace() as folder:
        await folder.write("a", b"x")
        assert (await sandbox.run_code("print(open('a').read())", workspace=folder)).stdout == "x\n"


async def a_description(sandbox: Any) -> None:
    assert (await sandbox.describe(workflow_of())).graph is not None


async def a_call(sandbox: Any) -> None:
    assert await sandbox.call(f"{CALLED}:double", "x") == {"doubled": "xx"}


OPERATIONS: list[Operation] = [a_program, code, a_conversation, a_workspace, a_description, a_call]


async def cancelled(work: Coroutine[Any, Any, Any], turns: int, again: int | None) -> None:
    """Cancel `work` after so many turns of the loop, and once more after some more."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    was_cancelled = task.cancel()
    if again is not None:
        for _ in range(again):
            await asyncio.sleep(0)
        task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, asyncio.CancelledError) or (not was_cancelled and result is None), result


def children() -> list[str]:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


@pytest.mark.thorough
def test_nothing_stays_of_what_is_cancelled_at_any_turn(mode: Mode) -> None:
    async def work(sandbox: ProcessSandbox) -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        for operation in OPERATIONS:
            await operation(sandbox)
        await until(lambda: not jailed_processes(sandbox))
        before = open_descriptors()
        for operation in OPERATIONS:
            for turns in [*range(16), 30, 60]:
                for again in (None, turns % 3):
                    await cancelled(operation(sandbox), turns, again)
            await operation(sandbox)
            await until(lambda: len(asyncio.all_tasks()) <= 2)  # this one, and the one that waits for it
            await until(lambda: not jailed_processes(sandbox))
            gc.collect()
            with contextlib.suppress(TimeoutError):  # a busy machine closes them a moment later
                await until(lambda: open_descriptors() == before)
            assert (operation, open_descriptors(), complaints) == (operation, before, [])
        await until(lambda: not any(zygote._users or zygote._ending or zygote._folders for zygote in zygotes(sandbox)))

    run_in(mode, work, preload=(CALLED,), max_jails=4)


@pytest.mark.thorough
def test_a_start_or_a_close_that_is_cancelled_leaves_no_process(mode: Mode) -> None:
    async def main() -> None:
        before = set(children())
        sandbox = ProcessSandbox(mode=mode)

        def expected() -> set[str]:
            """Where a start was over before it could be cancelled, its zygote serves on."""
            alive = [zygote._process for zygote in zygotes(sandbox) if zygote.dead is None]
            return before | {str(process.pid) for process in alive if process is not None}

        for when_s in (0, 0.005, 0.02, 0.08):
            task = asyncio.ensure_future(sandbox.run_code("print(1)"))
            await asyncio.sleep(when_s)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: set(children()) <= expected())
        await a_description(sandbox)
        await code(sandbox)
        await cancelled(sandbox.close(), 2, 0)
        await until(lambda: set(children()) <= before)

    asyncio.run(main())


def test_a_workspace_is_given_back_that_comes_just_when_it_is_cancelled(mode: Mode) -> None:
    async def work(sandbox: ProcessSandbox) -> None:
        await code(sandbox)
        (zygote,) = zygotes(sandbox)
        before = open_descriptors()
        waiting: asyncio.Task[Any]
        handle = zygote._handle

        def handled(message: dict[str, Any], fds: list[int]) -> None:
            handle(message, fds)
            if message["op"] == "workspace":
                waiting.cancel()

        zygote._handle = handled
        waiting = asyncio.ensure_future(a_workspace(sandbox))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        zygote._handle = handle
        assert open_descriptors() == before
        assert zygote._users == {}
        await a_workspace(sandbox)

    run_in(mode, work)


def test_a_container_drops_a_workspace_that_nobody_waits_for(tmp_path: Path) -> None:
    async def work(sandbox: Any) -> None:
        await code(sandbox)
        for turns in (1, 2, 3, 10):
            await cancelled(a_workspace(sandbox), turns, None)
        await code(sandbox)
        await until(lambda: not any(tmp_path.glob("*/workspaces/*")))
        await a_workspace(sandbox)

    run_relay(tmp_path, work)


def test_where_descriptors_are_scarce_the_sandbox_says_so(mode: Mode) -> None:
    async def main() -> None:
        before = set(children())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        await asyncio.to_thread(int)
        async with ProcessSandbox(mode=mode) as sandbox:
            for spare in (0, 1, 2, 3, 5):
                filling = [os.open("/dev/null", os.O_RDONLY) for _ in range(64)]  # no low number is left
                resource.setrlimit(resource.RLIMIT_NOFILE, (filling[-1] + 1 + spare, hard))
                try:
                    with pytest.raises(SandboxUnavailable, match="ulimit -n"):
                        await code(sandbox)
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                    for fd in filling:
                        os.close(fd)
                assert set(children()) <= before
            await code(sandbox)

    asyncio.run(main())


def test_no_run_shares_its_user_with_one_that_still_runs(mode: Mode) -> None:
    """Who shares it shares the kernel's count of threads."""
    hog = (
        "import threading, time\nthreading.stack_size(65536)\n"
        "try:\n while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "except RuntimeError: print('full', flush=True)\ninput()"
    )
    twin = "import threading\nfor _ in range(8): t = threading.Thread(target=int); t.start(); t.join()\nprint('ran')"

    async def work(sandbox: ProcessSandbox) -> None:
        async with sandbox.workspace() as folder:
            (zygote,) = zygotes(sandbox)
            if not zygote.own_users:
                pytest.skip("runs have no users of their own here")
            hogs = [await sandbox.start_code(hog), await sandbox.start_code(hog, workspace=folder)]
            for each in hogs:
                assert await each.readline() == b"full\n"
            for held in (zygote._numbers - 1, folder.number):
                zygote._numbers = held + UIDS - 1  # as after so many runs
                result = await sandbox.run_code(twin)
                assert (result.stdout, result.stderr) == ("ran\n", "")
            for each in hogs:
                await each.kill()
        assert zygote._users == {}

    run_in(mode, work)


def test_nothing_spins_after_runs_that_timed_out_or_were_killed(mode: Mode) -> None:
    async def work(sandbox: ProcessSandbox) -> None:
        spin = "while True: pass"
        await asyncio.gather(
            *(sandbox.run_code(spin, limits=SHORT.model_copy(update={"wall_s": 0.2})) for _ in range(3)),
            sandbox.run_program(workflow_of(spin), "q", engine=Scripted(), limits=Limits(wall_s=0.2)),
        )
        await cancelled(sandbox.run_code(spin), 30, 0)
        await until(lambda: not jailed_processes(sandbox))
        used = [cpu_s(zygote_pid(sandbox, kind)) for kind in ("program", "code")]
        began = os.times()
        await asyncio.sleep(1)
        ended = os.times()
        assert [cpu_s(zygote_pid(sandbox, kind)) for kind in ("program", "code")] == pytest.approx(used, abs=0.1)
        assert ended.user + ended.system - began.user - began.system < 0.2

    run_in(mode, work)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
