"""The oracles of the hostile corpus notice: each attack, made from outside a jail, is caught by `Outside.check`."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from outside import MARK, Outside, started_processes


@pytest.fixture
def watched() -> Iterator[Outside]:
    outside = Outside()
    yield outside
    outside.close()


def connect(family: int, address: object) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.connect(address)  # type: ignore[arg-type]


def send_datagram(outside: Outside) -> None:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    pair[0].sendto(b"hello", str(outside.folder / "datagrams"))
    for sock in pair:
        sock.close()


def signal_this_process(outside: Outside) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(0.01)


def stop(outside: Outside) -> None:
    outside.bystander.send_signal(signal.SIGSTOP)
    time.sleep(0.05)


def kill(outside: Outside) -> None:
    outside.bystander.kill()
    outside.bystander.wait(5)


ATTACKS: dict[str, Callable[[Outside], object]] = {
    "chmod": lambda outside: outside.canary.chmod(0o600),
    "utime": lambda outside: os.utime(outside.victim, (0, 0)),
    "write": lambda outside: outside.victim.write_text("changed"),
    "create": lambda outside: (outside.folder / "new").touch(),
    "delete": lambda outside: outside.victim.unlink(),
    "link": lambda outside: os.link(outside.canary, outside.folder / "link"),
    "tcp": lambda outside: connect(socket.AF_INET, outside.tcp.getsockname()),
    "unix": lambda outside: connect(socket.AF_UNIX, outside.unix.getsockname()),
    "abstract": lambda outside: connect(socket.AF_UNIX, outside.abstract.getsockname()),
    "datagram": send_datagram,
    "signal": signal_this_process,
    "stop": stop,
    "kill": kill,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_noticed(watched, name):
    watched.check("nothing yet")
    ATTACKS[name](watched)
    with pytest.raises(AssertionError):
        watched.check("done")


def test_a_leaked_secret_is_noticed(watched):
    for place in (watched.canary.read_text(), os.environ[watched.variable]):
        with pytest.raises(AssertionError, match="secret"):
            watched.check(f"look: {place}")


def test_the_bystanders_memory_holds_the_secret(watched):
    with open(f"/proc/{watched.bystander.pid}/mem", "rb") as memory:
        memory.seek(watched.address)
        assert watched.secret.encode() in memory.read(200)


def test_a_started_process_is_noticed(watched):
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", MARK])
    try:
        deadline = time.monotonic() + 10
        while started_processes() != [started.pid]:
            assert time.monotonic() < deadline
        with pytest.raises(AssertionError, match="processes"):
            watched.check()
    finally:
        started.kill()
        started.wait(5)
