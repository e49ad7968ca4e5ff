"""What a jail must not reach, watched: a secret, files, sockets, a bystander process, this process itself.

`Outside.check` fails when anything of it was read, changed, contacted or disturbed. `test_oracles` proves that
it notices.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

WATCHED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO, signal.SIGURG)
MARK = "31337.25"
"""In the command line of every process that hostile code tries to start."""
BYSTANDER = """
import os, sys, time
secret = os.environ.pop("BYSTANDER_SECRET")
print(id(secret), flush=True)
time.sleep(600)
"""


class Outside:
    def __init__(self) -> None:
        self.secret = secrets.token_hex(16)
        self.folder = Path(tempfile.mkdtemp(prefix="outside-", dir="/tmp"))
        self.folder.chmod(0o777)
        self.canary, self.victim = self.folder / "canary", self.folder / "victim"
        self.canary.write_text(self.secret)
        self.canary.chmod(0o644)
        self.victim.write_text("untouched")
        self.victim.chmod(0o666)
        self.variable = f"OUTSIDE_{self.secret[:8]}"
        os.environ[self.variable] = self.secret
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.unix = self._listening(str(self.folder / "stream"))
        self.abstract = self._listening(f"\0outside-{self.secret[:8]}")
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(str(self.folder / "datagrams"))
        for name in ("stream", "datagrams"):
            (self.folder / name).chmod(0o777)
        for listening in (self.tcp, self.unix, self.abstract, self.datagrams):
            listening.setblocking(False)
        self.bystander = subprocess.Popen(
            [sys.executable, "-c", BYSTANDER],
            env={"BYSTANDER_SECRET": self.secret},
            stdout=subprocess.PIPE,
        )
        assert self.bystander.stdout is not None
        self.address = int(self.bystander.stdout.readline())
        self.signals: list[int] = []
        self._old = {number: signal.signal(number, self._note) for number in WATCHED_SIGNALS}
        self._files = self._look()

    @staticmethod
    def _listening(address: str) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(address)
        listening.listen()
        return listening

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)

    def _look(self) -> dict[str, Any]:
        found = {}
        for path in sorted(self.folder.iterdir()):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[path.name] = (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_nlink, content)
        return found

    def fill_in(self, source: str) -> str:
        """Hostile code with the addresses of what it is after."""
        names = {
            "@CANARY@": str(self.canary),
            "@VICTIM@": str(self.victim),
            "@FOLDER@": str(self.folder),
            "@PORT@": str(self.tcp.getsockname()[1]),
            "@STREAM@": str(self.folder / "stream"),
            "@DATAGRAMS@": str(self.folder / "datagrams"),
            "@ABSTRACT@": f"outside-{self.secret[:8]}",
            "@HOST@": str(os.getpid()),
            "@BYSTANDER@": str(self.bystander.pid),
            "@ADDRESS@": str(self.address),
            "@MARK@": MARK,
        }
        for name, value in names.items():
            source = source.replace(name, value)
        return source

    def check(self, *said: str) -> None:
        """Fail if anything out here was reached. `said` is all that came out of the jail."""
        for text in said:
            assert self.secret not in text, "the secret came out"
        assert self._look() == self._files, "files outside were changed"
        for name in ("tcp", "unix", "abstract"):
            with contextlib.suppress(BlockingIOError):
                getattr(self, name).accept()
                raise AssertionError(f"somebody connected to the {name} socket")
        with contextlib.suppress(BlockingIOError):
            data = self.datagrams.recv(100)
            raise AssertionError(f"somebody sent {data!r}")
        assert self.signals == [], "this process received signals"
        assert self.bystander.poll() is None, "the bystander was killed"
        status = Path(f"/proc/{self.bystander.pid}/status").read_text()
        assert "TracerPid:\t0" in status, "the bystander is traced"
        assert "T (stopped)" not in status, "the bystander was stopped"
        assert started_processes() == [], "hostile code started processes"

    def close(self) -> None:
        self.bystander.kill()
        self.bystander.wait(10)
        assert self.bystander.stdout is not None
        self.bystander.stdout.close()
        for sock in (self.tcp, self.unix, self.abstract, self.datagrams):
            sock.close()
        for number, old in self._old.items():
            signal.signal(number, old)
        del os.environ[self.variable]
        shutil.rmtree(self.folder)


def started_processes() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if MARK.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found
