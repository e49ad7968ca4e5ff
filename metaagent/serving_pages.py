"""Pages that are served while a command works, and until somebody has seen them: `view --serve`, and `--view` of other
commands. What they show is the viewer's business."""

from __future__ import annotations

import contextlib
import threading
import webbrowser
from collections.abc import Iterator

from metaagent.terminal import note, usage_error
from viewer import Site, serving


@contextlib.contextmanager
def opened(site: Site, *, port: int = 0, browser: bool = True) -> Iterator[None]:
    """Serve a site while the block runs, and say where; usage error where the port is taken."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(serving(site, port))
        except OSError as error:
            usage_error(f"cannot serve on port {port}: {error.strerror}. Fix: another --port")
        note(f"see {server.address}")
        if browser:
            # In a thread: some systems wait until the browser is closed.
            threading.Thread(target=_open, args=(server.address,), daemon=True).start()
        yield


def _open(address: str) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):  # the address has been told
        webbrowser.open(address)


def wait_for_the_end() -> None:
    """Until Ctrl-C, which ends the serving and not the command."""
    note("Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
