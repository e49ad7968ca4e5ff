"""The relay and the host's end of it, over plain pipes: streams, windows, files, limits, deaths. No Docker needed."""

import asyncio
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from jails import SHORT, Scripted, until, why_not, workflow_of
from relays import RelaySandbox, run_relay, start_relay

from sandbox.containers import wire
from sandbox.containers.container import Connection
from sandbox.containers.ports import Ports
from sandbox.containers.streams import JailStream
from sandbox.frames import FrameError
from sandbox.host.broker import Broker, _protocol_failure
from sandbox.host.spawner import CodeStreams
from sandbox.protocol import WorkspaceError
from workflow.failures import ProgramFailed, SandboxUnavailable
from workflow.limits import CodeLimits

pytestmark = pytest.mark.thorough

CALLED = "sandbox.conformance.called_functions"


@pytest.fixture(autouse=True)
def _jails_can_be_had():
    if why := why_not("j0"):
        pytest.skip(why)


def test_programs_code_and_calls(tmp_path):
    async def work(sandbox):
        done = await sandbox.run_code(
            "import sys; print(input()); print('e', file=sys.stderr); sys.exit(3)", stdin="x\n"
        )
        assert (done.exit_status, done.stdout, done.stderr, done.limit) == (3, "x\n", "e\n", None)
        run = await sandbox.run_program(workflow_of(), "q", engine=Scripted())
        assert (run.answer, run.failure) == ("It is \\boxed{42}.", None)
        program = workflow_of("import subprocess", "print(subprocess.run(['python', '-c', 'print(6 * 7)']).returncode)")
        run = await sandbox.run_program(program, "q", engine=Scripted())
        assert run.output.endswith("0\n")
        assert (await sandbox.describe(workflow_of())).graph is not None
        assert await sandbox.call(f"{CALLED}:double", "é") == {"doubled": "éé"}

    run_relay(tmp_path, work, preload=(CALLED,))
    assert os.listdir(tmp_path) == [], "the zygotes have removed their folders"


@pytest.mark.parametrize(
    ("code", "limits", "expected"),
    [
        ("while True: pass", {"cpu_s": 1}, "cpu_s"),
        ("import time; time.sleep(60)", {"wall_s": 0.5}, "wall_s"),
        ("print('x' * 100000)", {"output_bytes": 1000}, "output_bytes"),
        ("x = b'x' * (1 << 30)", {"memory_mb": 64}, "memory_mb"),
    ],
)
def test_each_limit_is_reported_as_itself(tmp_path, code, limits, expected):
    async def work(sandbox):
        result = await sandbox.run_code(code, limits=SHORT.model_copy(update=limits))
        assert result.limit == expected
        assert bool(sandbox.connections["code"].spoiled) == (expected == "wall_s")

    run_relay(tmp_path, work)


def test_who_breaks_the_protocol_spoils_the_container(tmp_path, monkeypatch):
    """No program can, but one that has got around the policy; so it is played here."""

    async def broken(broker, job):
        return _protocol_failure("a frame of its own")

    async def garbled(reader):
        raise FrameError("a frame of its own")

    async def work(sandbox):
        assert (await sandbox.run_program(workflow_of(), "q", engine=Scripted())).failure is None
        assert await sandbox.call(f"{CALLED}:double", "é") == {"doubled": "éé"}
        assert not sandbox.connections["program"].spoiled
        assert not sandbox.connections["call"].spoiled
        monkeypatch.setattr(Broker, "serve", broken)
        run = await sandbox.run_program(workflow_of(), "q", engine=Scripted())
        assert run.failure is not None
        assert run.failure.fields["error_type"] == "ProtocolError"
        assert "protocol" in sandbox.connections["program"].spoiled
        monkeypatch.setattr("sandbox.host.jail_sandbox.read_frame", garbled)
        with pytest.raises(ProgramFailed, match="a frame of its own"):
            await sandbox.call(f"{CALLED}:double", "é")
        assert "protocol" in sandbox.connections["call"].spoiled

    run_relay(tmp_path, work, preload=(CALLED,))


def test_megabytes_both_ways(tmp_path):
    async def work(sandbox):
        limits = SHORT.model_copy(update={"output_bytes": 16 << 20})
        text = "".join(f"{n:07}\n" for n in range(500_000))
        result = await sandbox.run_code("import sys; sys.stdout.write(sys.stdin.read())", stdin=text, limits=limits)
        assert result.stdout == text
        long = await sandbox.run_code(f"x = {text!r}; print(len(x))", limits=limits)
        assert long.stdout == f"{len(text)}\n"

    run_relay(tmp_path, work)


def test_a_conversation(tmp_path):
    async def work(sandbox):
        process = await sandbox.start_code(
            "for line in iter(input, 'end'): print('got', line, flush=True)", limits=SHORT
        )
        for turn in range(20):
            await process.write(f"{turn}\n".encode())
            assert await process.readline() == f"got {turn}\n".encode()
        await process.write(b"end\n")
        assert (await process.wait()).ok

    run_relay(tmp_path, work)


def test_what_is_said_long_before_the_end_comes_long_before_it(tmp_path):
    async def work(sandbox):
        process = await sandbox.start_code("import time; input(); print(1, flush=True); time.sleep(60)", limits=SHORT)
        await process.write(b"\n")
        await process.close_stdin()
        assert await asyncio.wait_for(process.readline(), 5) == b"1\n"
        await process.kill()

    run_relay(tmp_path, work)


def test_the_end_of_a_stream_is_said_once(tmp_path):
    sent = []

    async def work():
        loop = asyncio.get_running_loop()
        stream = JailStream(lambda operation, payload: sent.append((operation, len(payload))), Paused(), loop)
        stream.write(b"x" * (wire.WINDOW + 1))
        stream.write_eof()
        stream.credited(wire.WINDOW // 2)
        stream.credited(wire.WINDOW // 2)
        stream.write_eof()

    asyncio.run(work())
    assert sent == [(wire.DATA, wire.CHUNK)] * (wire.WINDOW // wire.CHUNK) + [(wire.DATA, 1), (wire.EOF, 0)]


def test_what_is_in_no_hurry_waits_for_what_is_but_not_long(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    ports = Ports(write)
    ports.poll.register(write, 0)
    first, last = (wire.frame(wire.EOF, number) for number in (1, 2))

    def sent():
        ports.flush()
        try:
            return os.read(read, 1 << 20)
        except BlockingIOError:
            return b""

    assert ports.patience() is None
    ports.send(wire.EOF, 1, hurries=False)
    assert (sent(), ports.patience()) == (b"", pytest.approx(10.0))
    now += 0.004
    ports.send(wire.EOF, 2, hurries=False)
    assert (sent(), ports.patience()) == (b"", pytest.approx(6.0))
    now += 0.007
    assert (ports.patience(), sent(), ports.patience()) == (0.0, first + last, None)

    ports.send(wire.EOF, 1, hurries=False)
    ports.send(wire.EOF, 2)
    assert (sent(), ports.patience()) == (first + last, None)

    ports.send(wire.DATA, 1, b"x" * wire.CHUNK, hurries=False)
    assert sent() == wire.frame(wire.DATA, 1, b"x" * wire.CHUNK)[: 1 << 16], "much does not wait either"
    assert (ports.patience(), ports.blocked) == (None, True), "a full pipe says when it has room"
    assert len(sent()) == wire.HEADER.size
    os.close(read)
    os.close(write)


class Paused(asyncio.Protocol):
    """Takes what comes only while it is let."""

    def __init__(self):
        self.size = 0

    def connection_made(self, transport):
        self.transport = transport
        transport.pause_reading()

    def data_received(self, data):
        self.size += len(data)


FLOOD = b"import os\nwhile True: os.write(1, b'x' * 65536)"
KERNEL = {"cpu_s": 20, "memory_mb": 256, "disk_mb": 8}


def memory_mb(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) >> 10


def test_a_flood_that_nobody_reads_stops_at_its_window_and_holds_up_nobody(tmp_path):
    async def work(sandbox: RelaySandbox):
        connection = await sandbox._acquire("code")
        pid = sandbox.processes["code"].pid
        before = memory_mb(pid)
        floods = []
        for _ in range(8):
            out = Paused()
            streams = CodeStreams(asyncio.BaseProtocol(), out, asyncio.Protocol())
            floods.append((out, *await connection.open_code(FLOOD, KERNEL, None, streams)))
        held = [out.transport._held for out, _, _ in floods]
        await until(lambda: all(len(one) == wire.WINDOW for one in held))
        for _ in range(5):
            assert (await sandbox.run_code("print(1)", limits=SHORT)).ok
        assert all(len(one) == wire.WINDOW for one in held), "not a byte over"
        assert memory_mb(pid) - before < 16
        out = floods[0][0]
        out.transport.resume_reading()
        await until(lambda: out.size > 4 * wire.WINDOW)
        for _, jailed, _ in floods:
            jailed.kill()
        for _, jailed, _ in floods:
            assert (await jailed.reaped()).signal == signal.SIGKILL

    run_relay(tmp_path, work)


def test_stdin_that_nobody_reads_waits_on_the_host_and_holds_up_nobody(tmp_path):
    async def work(sandbox: RelaySandbox):
        process = await sandbox.start_code("import time; time.sleep(60)", limits=SHORT)
        pid = sandbox.processes["code"].pid
        before = memory_mb(pid)
        writing = asyncio.create_task(process.write(b"x" * (32 << 20)))
        assert (await sandbox.run_code("print(1)", limits=SHORT)).ok
        assert not writing.done()
        assert process._stdin.get_write_buffer_size() > 31 << 20
        assert memory_mb(pid) - before < 8
        await process.kill()
        await asyncio.wait_for(writing, 10)

    run_relay(tmp_path, work)


def test_a_closed_stdin_swallows_what_is_written(tmp_path):
    async def work(sandbox):
        code = "import os, sys; os.close(0); print('closed', flush=True); import time; time.sleep(60)"
        process = await sandbox.start_code(code, limits=SHORT)
        assert await process.readline() == b"closed\n"
        await asyncio.wait_for(process.write(b"x" * (4 << 20)), 10)
        await process.kill()

    run_relay(tmp_path, work)


def test_files_of_a_workspace(tmp_path):
    async def work(sandbox):
        async with sandbox.workspace(2) as folder:
            data = os.urandom(1 << 20)
            await folder.write("in", data)
            assert await folder.read("in") == data
            assert (await sandbox.run_code("import os; os.rename('in', 'out')", workspace=folder)).ok
            assert await folder.read("out") == data
            for name, error in (
                ("in", FileNotFoundError),
                ("../out", ValueError),
                ("a\0b", ValueError),
                ("", ValueError),
            ):
                with pytest.raises(error):
                    await folder.read(name)
            await folder.write("empty", b"")
            assert await folder.read("empty") == b""
            await sandbox.run_code(
                "import os; os.mkdir('folder'); open('big', 'wb').write(b'x' * (3 << 20))", workspace=folder
            )
            with pytest.raises(FileNotFoundError, match="regular file"):
                await folder.read("folder")
            with pytest.raises(WorkspaceError, match="over the workspace's size"):
                await folder.read("big")
            with pytest.raises(WorkspaceError, match="code has left a folder"):
                await folder.write("folder", b"x")
            assert await folder.read("empty") == b"", "the container is as good as before"

    run_relay(tmp_path, work)


@pytest.mark.parametrize("victim", ["relay", "zygote"])
def test_death_of_what_serves_a_run_is_no_result(tmp_path, victim):
    async def work(sandbox: RelaySandbox):
        process = await sandbox.start_code("print(1, flush=True); import time; time.sleep(60)", limits=SHORT)
        assert await process.readline() == b"1\n"
        relay = sandbox.processes["code"].pid
        children = Path(f"/proc/{relay}/task/{relay}/children").read_text().split()
        os.kill(relay if victim == "relay" else int(children[0]), signal.SIGKILL)
        with pytest.raises(SandboxUnavailable, match="has ended"):
            await asyncio.wait_for(process.wait(), 10)
        with pytest.raises(SandboxUnavailable, match="replaced"):
            await sandbox.run_code("print(1)")

    run_relay(tmp_path, work)


def test_when_the_host_hangs_up_everything_ends(tmp_path):
    async def main():
        connection, relay = await start_relay("code", str(tmp_path))
        streams = CodeStreams(asyncio.BaseProtocol(), asyncio.Protocol(), asyncio.Protocol())
        await connection.open_code(b"import time; time.sleep(60)", KERNEL, None, streams)
        (zygote,) = Path(f"/proc/{relay.pid}/task/{relay.pid}/children").read_text().split()
        children = Path(f"/proc/{zygote}/task/{zygote}/children")
        await until(lambda: children.read_text().split())
        pids = [int(zygote), *map(int, children.read_text().split())]
        connection.close()
        assert await asyncio.to_thread(relay.wait, 10) == 0
        await until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids) and not os.listdir(tmp_path))

    asyncio.run(main())


# A relay that lies


class Liar:
    """The other end of a connection, in the hands of the test."""

    def __init__(self, kind="code"):
        self.kind = kind

    async def __aenter__(self):
        ours, theirs = socket.socketpair()
        self.lost = []
        self.connection = Connection(self.kind, "docker/warm", self.lost.append, docker=False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self.connection, sock=ours)
        self.reader, self.writer = await asyncio.open_unix_connection(sock=theirs)
        self.say(wire.READY, 0)
        await self.connection.ready(5)
        return self

    async def __aexit__(self, *exception):
        self.connection.close()
        self.writer.close()

    def say(self, operation, number, payload=b"", stream=0):
        self.writer.write(wire.frame(operation, number, payload, stream))

    async def spawned(self):
        streams = CodeStreams(asyncio.BaseProtocol(), Paused(), asyncio.Protocol())
        jailed, _ = await self.connection.open_code(b"1", KERNEL, None, streams)
        return jailed


LIES = {
    "giant frame": lambda liar: liar.writer.write(wire.HEADER.pack(1 << 31, 1, wire.DATA, 1)),
    "past the window": lambda liar: [liar.say(wire.DATA, 1, b"x" * 65536, 1) for _ in range(5)],
    "too much credit": lambda liar: liar.say(wire.CREDIT, 1, wire.COUNT.pack(1), 0),
    "credit that is no number": lambda liar: liar.say(wire.CREDIT, 1, b"xyz", 0),
    "unknown stream": lambda liar: liar.say(wire.DATA, 1, b"x", 77),
    "unknown operation": lambda liar: liar.say(99, 1),
    "no exit": lambda liar: liar.say(wire.EXITED, 1, b"x"),
    "no JSON": lambda liar: liar.say(wire.FAILED, 1, b"{"),
    "deep JSON": lambda liar: liar.say(wire.FAILED, 1, b"[" * 500_000),
    "no object": lambda liar: liar.say(wire.FAILED, 1, b"[]"),
    "nothing in it": lambda liar: liar.say(wire.FAILED, 1, b"{}"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_relay_that_breaks_the_protocol_is_dropped(lie):
    async def main():
        async with Liar() as liar:
            jailed = await liar.spawned()
            LIES[lie](liar)
            with pytest.raises(SandboxUnavailable, match="broke the protocol"):
                await asyncio.wait_for(asyncio.shield(jailed.ended), 10)
            assert liar.lost == [liar.connection]

    asyncio.run(main())


def test_what_is_said_of_unknown_numbers_is_ignored():
    async def main():
        async with Liar() as liar:
            jailed = await liar.spawned()
            for operation in (wire.DATA, wire.EOF, wire.CREDIT, wire.EXITED, wire.DONE, wire.FAILED, 99):
                liar.say(operation, 7, b"x")
            liar.say(wire.EXITED, 1, wire.EXIT.pack(0, 0.5, False))
            end = await asyncio.wait_for(jailed.ended, 10)
            assert (end.exit_status, end.cpu_s) == (0, 0.5)
            assert liar.connection.lost is None

    asyncio.run(main())


def test_a_kill_that_is_not_obeyed_costs_the_container(monkeypatch):
    monkeypatch.setattr("sandbox.containers.container.REAP_TIMEOUT_S", 0.2)

    async def main():
        async with Liar() as liar:
            jailed = await liar.spawned()
            jailed.kill()
            with pytest.raises(SandboxUnavailable, match="did not end"):
                await asyncio.wait_for(asyncio.shield(jailed.ended), 10)
            assert liar.connection.lost

    asyncio.run(main())


def test_a_jail_killed_for_want_of_memory_says_so_and_spoils_its_container():
    async def main():
        async with Liar() as liar:
            from sandbox.host.code_process import JailedCode

            code = await JailedCode.start(liar.connection, "1", CodeLimits(), None, lambda: None)
            liar.say(wire.EXITED, 1, wire.EXIT.pack(9, 0.1, True))
            assert (await code.wait()).limit == "memory_mb"
            assert liar.connection.spoiled

    asyncio.run(main())
