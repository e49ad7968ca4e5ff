"""One file with pages, and a server of them: what is in it, what it may do, and who is answered."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import socketserver
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from markupsafe import Markup

from viewer import NoSuchPage, serving, write
from viewer.document import asset, served
from viewer.server import MOST_WAITING
from viewer.sites import Page, link


class Pages:
    """A site of plain pages."""

    home = "first"

    def __init__(self, pages: dict[str, str], listed: bool = True) -> None:
        self.pages, self.listed = pages, listed

    def page(self, route: str) -> Page:
        if route not in self.pages:
            raise NoSuchPage(f"there is no {route!r}")
        return Page(title=route, body=Markup(self.pages[route]))

    def version(self, route: str) -> str:
        return str(hash(self.page(route).body))

    def routes(self) -> Iterator[str]:
        yield from [*self.pages, "gone"] if self.listed else []

    def close(self) -> None:
        pass


def test_a_file_holds_what_fits_and_says_how_much_does_not(tmp_path: Path) -> None:
    site = Pages({"first": "<p>one</p>", "large": "x" * 900, "small": "<p>two</p>"})
    written = write(site, tmp_path / "page.html", most_bytes=len(served(site).encode()) + 500)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert (written.pages, written.left_out) == (2, 1)
    assert written.bytes == len(text.encode())
    assert "one" in text
    assert "two" in text
    assert "xxx" not in text


def test_bytes_are_counted_and_not_characters(tmp_path: Path) -> None:
    site = Pages({"first": "<p>one</p>", **{f"page {number}": "多智能体" * 5_000 for number in range(60)}})
    most = len(served(site).encode()) + 1_000_000
    written = write(site, tmp_path / "page.html", most_bytes=most)
    assert written.bytes == (tmp_path / "page.html").stat().st_size <= most
    assert written.pages == 1 + 16
    assert written.pages + written.left_out == 62


def test_what_pages_lead_to_is_in_the_file_or_counted(tmp_path: Path) -> None:
    """Also where no list of the site's names it, and where its name needs escaping."""
    odd = "run/a b&c?d=1.jsonl"
    pages = {
        "first": f'<a href="{link("second")}">',
        "second": f'<a href="{link(odd)}">',
        odd: f'<a href="{link("nowhere")}">',
    }
    site = Pages(pages, listed=False)
    assert write(site, tmp_path / "page.html").pages == 3
    site.pages |= {f"n{number}": "x" * 1000 for number in range(100)}
    site.pages["first"] += "".join(f'<a href="#/n{number}">' for number in range(100))
    written = write(site, tmp_path / "page.html", most_bytes=len(served(site).encode()) + 10_000)
    assert written.pages + written.left_out == 103
    assert 5 < written.pages < 15


def test_a_file_asks_nobody_and_runs_our_scripts_alone(tmp_path: Path) -> None:
    write(Pages({"first": '<figure data-chart></figure><div data-graph=""></div>'}), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    said = policy[1].replace("&#39;", "'")
    assert said.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'none'" in said
    assert "unsafe-eval" not in said
    assert said.count("sha256-") == text.count("<script>") == 3
    assert not re.search(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?https?:""", text)


def test_scripts_that_no_page_needs_are_left_out(tmp_path: Path) -> None:
    write(Pages({"first": "<p>one</p>"}), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count("<script>") == 1
    assert len(text) < 60_000


def test_the_licences_of_what_is_bundled_lie_beside_it() -> None:
    licences = asset("vendor/LICENCES.txt")
    for name in ("vega", "vega-lite", "vega-interpreter", "@dagrejs/dagre", "d3-scale"):
        assert re.search(rf"^{re.escape(name)} \d+\.\d+", licences, re.MULTILINE), name


def asked(address: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def test_a_server_answers_whoever_knows_its_token() -> None:
    site = Pages({"first": "<p>one</p>", "a b&c": "<p>two</p>"})
    with serving(site) as server:
        status, body, headers = asked(server.address)
        assert status == 200
        assert b"data-live" in body
        assert "connect-src 'self'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        page = json.loads(asked(server.address + "page?route=a%20b%26c")[1])
        assert (page["title"], page["html"]) == ("a b&c", "<p>two</p>")
        version = asked(server.address + "version?route=first")[1]
        site.pages["first"] = "<p>changed</p>"
        assert asked(server.address + "version?route=first")[1] != version
        assert asked(server.address + "page?route=nowhere")[:2] == (404, b"there is no 'nowhere'")
        for path in ("..", "page/..", "assets/app.js", "%2e%2e/etc/passwd"):
            assert asked(server.address + path)[0] == 404


@pytest.mark.parametrize("path", ["", "page?route=first", "0" * 32 + "/", "é/", "../", "%00/"])
def test_who_does_not_know_the_token_learns_nothing(path: str) -> None:
    with serving(Pages({"first": "<p>one</p>"})) as server:
        root = server.address.removesuffix(f"{server.token}/")
        assert asked(root + urllib.request.quote(path, safe="/?=%."))[:2] == (404, b"")
        assert asked(server.address, Host="evil.example")[:2] == (404, b"")
        assert asked(server.address.replace("127.0.0.1", "localhost"))[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS", "DELETE", "NONSENSE"])
def test_other_methods_learn_nothing_either(method: str) -> None:
    with serving(Pages({"first": "<p>one</p>"})) as server:
        for request in (f"{method} / HTTP/1.1\r\n\r\n", f"{method} {'x' * 70_000} HTTP/1.1\r\n\r\n", "GET\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as client:
                client.sendall(request.encode())
                head, _, body = b"".join(iter(lambda: client.recv(65536), b"")).partition(b"\r\n\r\n")
            assert body == b""
            assert b"Server:" not in head
            assert b"metaagent" not in head


def test_a_page_that_cannot_be_made_takes_no_other_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    class Wrong(Pages):
        def page(self, route: str) -> Page:
            if route == "wrong":
                raise OverflowError("too large")
            return super().page(route)

    with serving(Wrong({"first": "<p>one</p>"})) as server:
        told = b"this page cannot be made: OverflowError: too large"
        assert asked(server.address + "page?route=wrong")[:2] == (500, told)
        assert asked(server.address + "page?route=first")[0] == 200
        assert asked(server.address + "///[x")[0] in (404, 500)
    assert "Traceback" not in capfd.readouterr().err


def test_a_server_is_on_loopback_alone_and_gone_at_the_end() -> None:
    with serving(Pages({"first": ""})) as server:
        assert server.server_address[0] == "127.0.0.1"
        port = server.server_port
        with pytest.raises(OSError, match="in use"), serving(Pages({"first": ""}), port):
            pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_clients_that_say_nothing_hold_up_no_other() -> None:
    with serving(Pages({"first": "<p>one</p>"})) as server:
        silent = [socket.create_connection(("127.0.0.1", server.server_port), timeout=5) for _ in range(8)]
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(asked(server.address)[0])) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
        assert found == [200] * 8
        for each in silent:
            each.close()


def test_strangers_take_few_files_and_threads_of_the_command() -> None:
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with serving(Pages({"first": "<p>one</p>"})) as server:
        files_before, threads_before = files(), threading.active_count()
        strangers: list[socket.socket] = []
        for number in range(300):
            strangers.append(socket.create_connection(("127.0.0.1", server.server_port), timeout=5))
            if number % 50 == 49:
                assert asked(server.address)[0] == 200
        until = time.monotonic() + 20
        while threading.active_count() > threads_before + MOST_WAITING + 1 and time.monotonic() < until:
            time.sleep(0.05)
        assert threading.active_count() <= threads_before + MOST_WAITING + 1
        assert files() - files_before - len(strangers) <= MOST_WAITING + 1
        closed = sum(each.recv(1) == b"" for each in strangers[: 300 - MOST_WAITING])
        assert closed == 300 - MOST_WAITING
        for each in strangers:
            each.close()


def test_without_a_file_for_it_a_connection_waits_and_no_processor_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Pages({"first": "<p>one</p>"})) as server:
        tries: list[float] = []

        def refused(_: object) -> None:
            tries.append(time.monotonic())
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(socketserver.TCPServer, "get_request", refused)
            waiting = socket.create_connection(("127.0.0.1", server.server_port), timeout=20)
            waiting.sendall(f"GET /{server.token}/ HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
            time.sleep(1)
        assert 1 <= len(tries) <= 15
        assert waiting.recv(12) == b"HTTP/1.0 200"
        waiting.close()


def test_links_hold_any_route() -> None:
    assert link("run/a b/c?d=1") == "#/run/a%20b/c?d=1"
    assert link('x"><script>') == "#/x%22%3E%3Cscript%3E"
