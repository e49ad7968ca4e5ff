"""What a jail must not reach, watched: a secret, files, sockets, a bystander process, this process itself.

`Outside.noticed` says what of it was read, changed, contacted or disturbed; that it notices is proven by tests, which
make each attack from outside a jail. Needs no backend. Signals are watched by handlers, so make one in the main thread.
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
import threading
from pathlib import Path
from types import FrameType
from typing import Any

WATCHED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGIO, signal.SIGURG)
BYSTANDER = """
import os, sys
secret = os.environ.pop("BYSTANDER_SECRET")
print(id(secret), flush=True)
sys.stdin.read()
"""


class Outside:
    """Make it before the sandboxes that attacks run in: its secret is in the environment that they start from. Signals
    are noticed where it is made in the main thread."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(16)
        self.mark = f"31337.{secrets.randbelow(10**12):012}"
        """In the command line of every process that hostile code tries to start (a number, to sleep)."""
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
        self._start_bystander()
        self.signals: list[int] = []
        watched = WATCHED_SIGNALS if threading.current_thread() is threading.main_thread() else ()
        self._old = {number: signal.signal(number, self._note) for number in watched}
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
            "@MARK@": self.mark,
        }
        for name, value in names.items():
            source = source.replace(name, value)
        return source

    def noticed(self, *said: str) -> list[str]:
        """What was reached out here since the last time. `said` is all that came out of the jail."""
        found = ["the secret came out"] if any(self.secret in text for text in said) else []
        if self._look() != self._files:
            found.append("files outside were changed")
            self._files = self._look()
        for name in ("tcp", "unix", "abstract"):
            with contextlib.suppress(BlockingIOError):
                getattr(self, name).accept()[0].close()
                found.append(f"somebody connected to the {name} socket")
        with contextlib.suppress(BlockingIOError):
            found.append(f"somebody sent {self.datagrams.recv(100)!r}")
        if self.signals:
            found.append(f"this process received signals {self.signals}")
            self.signals.clear()
        if self.bystander.poll() is not None:
            found.append("the bystander was killed")
            self._start_bystander()
        else:
            status = Path(f"/proc/{self.bystander.pid}/status").read_text()
            if "TracerPid:\t0" not in status:
                found.append("the bystander is traced")
            if "T (stopped)" in status:
                found.append("the bystander was stopped")
                self.bystander.send_signal(signal.SIGCONT)
        for pid in self.started_processes():
            found.append(f"a process was started: {pid}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found

    def _start_bystander(self) -> None:
        self.bystander = subprocess.Popen(
            [sys.executable, "-c", BYSTANDER],
            env={"BYSTANDER_SECRET": self.secret},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.bystander.stdout is not None
        self.address = int(self.bystander.stdout.readline())

    def started_processes(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if self.mark.encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found

    def close(self) -> None:
        self.bystander.kill()
        self.bystander.communicate(timeout=10)
        for sock in (self.tcp, self.unix, self.abstract, self.datagrams):
            sock.close()
        for number, old in self._old.items():
            signal.signal(number, old)
        del os.environ[self.variable]
        shutil.rmtree(self.folder)
