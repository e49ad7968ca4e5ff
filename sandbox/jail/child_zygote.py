"""The code zygote's side of its child: which jails it has, whether it can take one more, its end.

What the child itself does is a zygote's work (`sandbox.jail.zygote`); what it has loaded is in `sandbox.jail.loading`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import Any

from sandbox.jail import kernel

AT_ONCE = 200
"""Jails that the child has at once, so that what it says of them has room in the channel."""


class ChildZygote:
    """`be_child` is called in a new process, with its end of the channel."""

    def __init__(self, be_child: Callable[[socket.socket], None]) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, AT_ONCE << 11)
        self.ready = False
        """Whether it has loaded everything."""
        self.serves: dict[int, int | None] = {}
        """Its jails, with their workspaces."""
        self.pid = os.fork()
        if self.pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                kernel.take([kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)])
                self.control.close()
                be_child(theirs)
            finally:
                os._exit(1)
        theirs.close()

    def takes(self, message: dict[str, Any], fds: list[int]) -> bool:
        """Hand it a jail to fork, if the code names a package and it can take one more now."""
        if not message.get("packages") or not self.ready or len(self.serves) >= AT_ONCE:
            return False
        try:
            socket.send_fds(self.control, [json.dumps(message).encode()], fds, socket.MSG_DONTWAIT)
        except OSError:  # no room, or it has just ended
            return False
        self.serves[message["id"]] = message["workspace"]
        return True

    def kill(self, message: dict[str, Any]) -> None:
        if message["id"] in self.serves:
            with contextlib.suppress(ConnectionError):  # it has just ended, and its jails with it
                self.control.send(json.dumps(message).encode())

    def passes_on(self, message: dict[str, Any]) -> bool:
        """Take note of what it says; whether that is for the host."""
        if message["op"] == "ready":
            self.ready = True
            return False
        self.serves.pop(message["id"], None)
        return True

    def end(self) -> None:
        if not self.ready:
            os.kill(self.pid, signal.SIGKILL)
        self.control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def address_space_mb(proc: int) -> int:
    """What this process takes up, and a little more. `proc` is /proc, which mode j covers."""
    with open("self/statm", opener=functools.partial(os.open, dir_fd=proc)) as statm:
        return int(statm.read().split()[0]) * resource.getpagesize() // (1 << 20) + 16
