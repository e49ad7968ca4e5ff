"""Pages over HTTP, on loopback alone, for whoever knows the address: a token in it keeps out everybody else on the
machine, and other pages in the same browser.

    GET /TOKEN/                   the document
    GET /TOKEN/page?route=R       {"title", "html", "version"} of a page
    GET /TOKEN/version?route=R    text that changes when the page does

It writes nothing and answers nothing else. What pages say is the site's business.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from viewer.document import policy, scripts, served
from viewer.sites import NoSuchPage, Site

HOST = "127.0.0.1"
REQUEST_S = 30.0
"""Seconds in which a client has to say what it wants."""
MOST_WAITING = 32
"""Connections that have not said the token yet. Anybody on the machine can open some, and each takes a thread and a
file of the command that serves; of more the oldest are closed, as who knows the token says it at once."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:  # no more files: asked again at once it would fail as fast as a processor can
            time.sleep(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._waiting[request] = None
            oldest = next(iter(self._waiting)) if len(self._waiting) > MOST_WAITING else None
            if oldest is not None:
                del self._waiting[oldest]
        if oldest is not None:
            with contextlib.suppress(OSError):  # it has gone by itself
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def heard(self, request: Any) -> None:
        """It has said the token, or is over."""
        with self._lock:
            self._waiting.pop(request, None)

    def shutdown_request(self, request: Any) -> None:
        self.heard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is no news."""

    def __init__(self, site: Site, port: int = 0) -> None:
        """Raises OSError where the port is taken; 0 is any that is free."""
        self.site = site
        self.token = secrets.token_urlsafe(24)
        self.document = served(site)
        self.policy = policy(scripts(), "'self'")
        self._waiting: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        """What to open; it holds the token."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def answer(self, path: str) -> tuple[int, str, str]:
        """Status, type and text for what is asked behind the token."""
        try:
            asked = urlsplit(path)
            route = parse_qs(asked.query).get("route", [self.site.home])[0]
            if asked.path == "":
                return 200, "text/html", self.document
            if asked.path == "version":
                return 200, "text/plain", self.site.version(route)
            if asked.path == "page":
                version = self.site.version(route)  # before the page: what comes between is seen at the next look
                page = self.site.page(route)
                told = {"title": page.title, "html": str(page.body), "version": version}
                return 200, "application/json", json.dumps(told)
        except NoSuchPage as error:
            return 404, "text/plain", str(error)
        except OSError as error:
            return 404, "text/plain", f"cannot read {error.filename}: {error.strerror}"
        except Exception as error:  # one page that cannot be made takes no other with it
            return 500, "text/plain", f"this page cannot be made: {type(error).__name__}: {error}"
        return 404, "text/plain", ""


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = REQUEST_S

    def do_GET(self) -> None:
        token, _, path = self.path.removeprefix("/").partition("/")
        known = hmac.compare_digest(token.encode(), self.server.token.encode())
        if not known or self.headers.get("Host") not in self._names():
            self._send(404, "text/plain", "")  # says nothing about what is here
            return
        self.server.heard(self.connection)
        self._send(*self.server.answer(path))

    def _names(self) -> tuple[str, ...]:
        """Another name that leads here is some other page's trick."""
        port = self.server.server_port
        return f"{HOST}:{port}", f"localhost:{port}"

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", self.server.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Whatever is wrong with a request: who asks so does not know the token."""
        self.close_connection = True
        self._send(code, "text/plain", "")

    def send_response(self, code: int, message: str | None = None) -> None:
        self.send_response_only(code, message)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(site: Site, port: int = 0) -> Iterator[Server]:
    """A server that answers in threads of its own until the block ends."""
    server = Server(site, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
