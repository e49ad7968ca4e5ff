"""The life of zygotes: bursts, stops, no growth, no noise. What every backend must do is in the conformance suite."""

import asyncio
import gc
import os
import signal
import socket
from pathlib import Path
from typing import Any, cast

import pytest
from jails import (
    SHORT,
    Scripted,
    jailed_processes,
    run_in,
    until,
    workflow_of,
    zygote_pid,
    zygotes,
)

from sandbox.host.code_process import JailedCode, collect
from sandbox.host.spawner import Jailed
from workflow.failures import SandboxUnavailable
from workflow.limits import CodeLimits, Limits

SLEEP = "import time; time.sleep(60)"
AGENT = workflow_of()


# Many at once


def test_more_messages_than_the_zygotes_socket_holds(any_mode):
    """A burst must queue, not fail and not lose a kill."""

    async def work(sandbox):
        await sandbox.strength()
        pid = zygote_pid(sandbox, "code")
        [zygote] = zygotes(sandbox)
        zygote._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        os.kill(pid, signal.SIGSTOP)
        try:
            limits = CodeLimits(wall_s=40)
            runs = [asyncio.create_task(sandbox.run_code("print(1)", limits=limits)) for _ in range(60)]
            await asyncio.sleep(0.2)
            assert zygote._outbox, "the burst does not fit"
        finally:
            os.kill(pid, signal.SIGCONT)
        results = await asyncio.gather(*runs)
        assert all(result.ok for result in results)
        sleeping = [asyncio.create_task(sandbox.run_code(SLEEP, limits=CodeLimits(wall_s=0.2))) for _ in range(30)]
        assert {result.limit for result in await asyncio.gather(*sleeping)} == {"wall_s"}

    run_in(any_mode, work, max_jails=1000)


# Cancellation


# Sudden deaths


def test_a_stopped_zygote_hangs_nobody(any_mode, monkeypatch):
    monkeypatch.setattr("sandbox.host.code_process.REAP_TIMEOUT_S", 0.5)

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


# What is left behind


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
        await sandbox.run_program(AGENT, "q", engine=Scripted(delay_s=60), limits=Limits(reply_s=0.3))
        await sandbox.run_program(workflow_of("while True: pass"), "q", engine=Scripted(), limits=Limits(wall_s=0.3))

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


THREADS = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
started, stacks = 0, []
while started < 6000:
    stacks.append(mmap.mmap(-1, 16384))
    top = ctypes.addressof(ctypes.c_char.from_buffer(stacks[-1])) + 16384 - 64
    sleep = ctypes.cast(libc.sleep, ctypes.c_void_p)
    if libc.clone(sleep, ctypes.c_void_p(top), 0x50F00, ctypes.c_void_p(600)) < 0:
        break
    started += 1
os.write(1, f"{started}".encode())
os._exit(0)
"""


def test_threads_without_the_c_library_are_counted_too(jail):
    if jail.mode == "j0":
        pytest.skip("mode j0 counts threads only where runs have users of their own")
    assert 10 < int(jail.code(THREADS).stdout) <= 4096


class Deaf(asyncio.WriteTransport):
    """A jail's stdin, of which nothing is ever read."""

    def __init__(self):
        super().__init__()
        self.held, self.ending, self.aborted = b"", False, False

    def write(self, data):
        self.held += data

    def write_eof(self):
        self.ending = True

    def is_closing(self):
        return self.ending

    def get_write_buffer_size(self):
        return len(self.held)

    def abort(self):
        self.aborted, self.held = True, b""


@pytest.mark.parametrize("stdin", [b"x" * 1000, b""])
def test_stdin_that_was_never_read_is_let_go_when_its_zygote_dies(stdin):
    """An ended stream with nothing left to send closes by itself; aborting that twice is an error in asyncio."""

    class Dying:  # as much of a `Spawner` as is used
        async def open_code(self, source, limits, workspace, streams):
            ended = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.05, ended.set_exception, SandboxUnavailable("the zygote has ended"))
            return Jailed(1, ended, dying), deaf

        def kill(self, number):
            return None

        def spoil(self, reason):
            return None

    async def work():
        process = await JailedCode.start(dying, "", SHORT, None, lambda: None)
        with pytest.raises(SandboxUnavailable):
            await collect(process, stdin)

    deaf, dying = Deaf(), cast(Any, Dying())
    asyncio.run(asyncio.wait_for(work(), 10))
    assert (deaf.ending, deaf.aborted) == (True, bool(stdin))
