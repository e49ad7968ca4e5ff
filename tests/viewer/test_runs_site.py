"""A folder as a site: what its routes lead to, and that none leads out of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_traces import events, failed, lines_of, write
from markupsafe import Markup

from viewer import document
from viewer.runs.runs_site import RunsSite
from viewer.server import Server
from viewer.sites import NoSuchPage, Page

TREE = "traces/step-000003/question-0001"
ODD = "a b&c=d?e#f%20.jsonl"


@pytest.fixture(autouse=True)
def pages_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the pages of runs, which have tests of their own: the file that they were made for."""

    def run_page(read: Path, *, graph: object, words: object, base: str, first: int, **more: object) -> Page:
        told = f"run of {read.name} with {'a graph' if graph else 'none'} at {base} from {first}"
        return Page(title="run", body=Markup("{}").format(told))

    def compare_page(left: Path, right: Path, **more: Any) -> Page:
        told = f"{left.name} beside {right.name}, called {more['names']}, at {more['routes']}"
        return Page(title="two", body=Markup("{}").format(told))

    monkeypatch.setattr("viewer.run.KeptRuns.of", lambda kept, path: path)
    functions = {"read_run": lambda path: path, "run_page": run_page, "compare_page": compare_page}
    for name, function in functions.items():
        monkeypatch.setattr(f"viewer.runs.runs_site.{name}", function)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "runs"
    write(made / "a.jsonl")
    write(made / "deep" / "b.jsonl", events(failure=failed("program_failed", "no")))
    write(made / ODD)
    for execution in range(2):
        write(made / TREE / f"design-00-execution-0{execution}.jsonl", events(reward=1.4 - execution))
    (made / "secret.txt").write_text("secret", encoding="utf-8")
    write(tmp_path / "outside.jsonl")
    (made / "link.jsonl").symlink_to(tmp_path / "outside.jsonl")
    (made / "up").symlink_to(tmp_path)
    return made


@pytest.fixture
def site(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunsSite]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = RunsSite(folder)
    made.index.wait()
    yield made
    made.close()


def test_routes_lead_to_their_pages(site: RunsSite) -> None:
    assert "<strong>5 traces</strong>" in site.page(site.home).body
    assert "<strong>1 trace</strong>" in site.page("list?failure=program_failed").body
    assert site.page("run/deep/b.jsonl").body == "run of b.jsonl with none at run/deep/b.jsonl from 0"
    assert site.page("run/deep/b.jsonl?from=500").body == "run of b.jsonl with none at run/deep/b.jsonl from 500"
    assert site.page(f"run/{ODD}").body == Markup("run of {} with none at run/{} from 0").format(ODD, ODD)
    assert "a.jsonl beside b.jsonl" in site.page("compare?left=a.jsonl&right=deep/b.jsonl").body
    assert "Question 1 of step 3" in site.page(f"tree/{TREE}").body


def test_links_of_pages_lead_to_pages(site: RunsSite) -> None:
    import re
    from html import unescape
    from urllib.parse import unquote

    seen: set[str] = set()
    waiting = ["list"]
    while waiting:
        route = waiting.pop()
        if route in seen:
            continue
        seen.add(route)
        found = re.findall(r'href="#/([^"]*)"', str(site.page(route).body))
        waiting += [unquote(unescape(each)) for each in found]
    assert f"run/{ODD}" in seen
    assert f"tree/{TREE}" in seen
    assert any(each.startswith("list?asked=") for each in seen)


@pytest.mark.parametrize(
    "path",
    [
        "../outside.jsonl", "deep/../../outside.jsonl", "deep/../a.jsonl", "./a.jsonl", "/etc/passwd", "//a.jsonl",
        "link.jsonl", "up/outside.jsonl", "up/runs/a.jsonl", "secret.txt", "deep", "gone.jsonl", "", ".", "..",
        "a.jsonl/", "a.jsonl/b.jsonl", "a\0.jsonl", "deep//b.jsonl", "~/x.jsonl", "a.jsonl\n", "x" * 5000 + ".jsonl",
        "\ud800.jsonl",
    ],
)  # fmt: skip
def test_no_route_leads_out_of_the_folder_or_to_what_is_no_trace(path: str, site: RunsSite) -> None:
    for route in (f"run/{path}", f"compare?left=a.jsonl&right={path}", f"tree/{path}/x"):
        for asked in (site.page, site.version):
            with pytest.raises(NoSuchPage):
                asked(route)


@given(path=st.text(max_size=30) | st.lists(st.sampled_from(["..", ".", "", "a", "up", "question-1"])).map("/".join))
def test_any_path_is_inside_or_nowhere(path: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("inside")
    (folder / "question-1").mkdir()
    (folder / "up").symlink_to(folder.parent)
    site = RunsSite.__new__(RunsSite)
    site.folder = folder
    try:
        found = site._question(path)
    except NoSuchPage:
        return
    assert found.resolve() == folder / "question-1"


def test_only_a_questions_folder_is_a_tree(site: RunsSite) -> None:
    for path in ("traces/step-000003", "traces", "deep"):
        for asked in (site.page, site.version):
            with pytest.raises(NoSuchPage, match=r"no question's folder\. Fix: tree/step-"):
                asked(f"tree/{path}")


@pytest.mark.parametrize("route", ["", "nowhere", "run", "runs/a.jsonl", "list/x", "compare", "compare?left=a.jsonl"])
def test_other_routes_lead_nowhere(route: str, site: RunsSite) -> None:
    for asked in (site.page, site.version):
        with pytest.raises(NoSuchPage):
            asked(route)


def test_a_wrong_search_is_told_and_not_asked(site: RunsSite) -> None:
    with pytest.raises(NoSuchPage, match="least='much' is no number"):
        site.page("list?least=much")


def test_versions_change_with_what_they_are_of(site: RunsSite, folder: Path) -> None:
    routes = ["run/a.jsonl", "compare?left=a.jsonl&right=deep/b.jsonl", f"tree/{TREE}"]
    before = [site.version(route) for route in routes]
    assert [site.version(route) for route in routes] == before
    for changed in ("a.jsonl", f"{TREE}/design-00-execution-01.jsonl"):
        with (folder / changed).open("ab") as file:
            file.write(b" \n")
    assert all(site.version(route) != was for route, was in zip(routes, before, strict=True))
    (folder / "a.jsonl").unlink()
    with pytest.raises(NoSuchPage, match="or no longer"):
        site.version("run/a.jsonl")


def test_a_run_of_a_design_is_shown_with_the_graph_of_its_record(site: RunsSite, folder: Path) -> None:
    from workflow.graph import GraphNode

    route = f"run/{TREE}/design-00-execution-00.jsonl"
    graph = GraphNode(kind="AgentNode", base="AgentNode", name="A").model_dump_json()
    record = folder / TREE / "design-00.json"
    record.write_text(f'{{"index": 0, "graph": {graph}}}', encoding="utf-8")
    assert "with a graph" in site.page(route).body
    record.write_text('{"index": 0, "gra', encoding="utf-8")
    assert "with none" in site.page(route).body


def test_what_is_worth_a_place_in_one_file(site: RunsSite, tmp_path: Path) -> None:
    routes = list(site.routes())
    assert routes[:3] == ["list", "list?failure=program_failed", "run/deep/b.jsonl"]
    assert {each for each in routes if each.startswith("run/")} == {
        "run/a.jsonl", "run/deep/b.jsonl", f"run/{ODD}", *(f"run/{TREE}/design-00-execution-0{n}.jsonl" for n in (0, 1))
    }  # fmt: skip
    assert routes.count(f"tree/{TREE}") == 1
    best_beside_worst = f"compare?left={TREE}/design-00-execution-00.jsonl&right={TREE}/design-00-execution-01.jsonl"
    assert best_beside_worst in routes
    assert best_beside_worst.replace("&", "&amp;") in site.page(f"tree/{TREE}").body
    written = document.write(site, tmp_path / "page.html")
    assert written.left_out == 0
    assert written.pages >= len(set(routes))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "secret" not in text
    small = document.write(site, tmp_path / "page.html", most_bytes=len(site.page("list").body) + 10)
    assert small.left_out > 0


def test_a_file_of_pages_waits_for_the_whole_list(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other cache"))
    for number in range(600):
        write(folder / "many" / f"{number}.jsonl")
    site = RunsSite(folder)
    try:
        document.write(site, tmp_path / "page.html")
        assert "<strong>605 traces</strong>" in (tmp_path / "page.html").read_text(encoding="utf-8")
        assert sum(each.startswith("run/") for each in site.routes()) == 606, "the example of a failure comes twice"
    finally:
        site.close()


def test_a_server_answers_for_it(site: RunsSite) -> None:
    server = Server(site)
    try:
        status, _, text = server.answer("page?route=list%3Ffailure%3Dany")
        assert (status, "1 trace" in text) == (200, True)
        assert server.answer("page?route=run/../outside.jsonl")[0] == 404
        assert server.answer("version?route=list")[0] == 200
        assert server.answer("page?route=list%3Fpage%3Dx")[0] == 404
    finally:
        server.server_close()


def test_a_trace_that_goes_between_the_list_and_the_click(site: RunsSite, folder: Path) -> None:
    os.truncate(folder / "a.jsonl", 0)
    assert site.page("run/a.jsonl")
    (folder / "a.jsonl").unlink()
    with pytest.raises(NoSuchPage, match=r"there is no trace 'a\.jsonl' in .*, or no longer"):
        site.page("run/a.jsonl")
    assert lines_of(events())


class AsBrowsersRead(HTMLParser):
    """Of the text of a file, in which newlines of any kind are one before anything else is looked at."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.attributes: dict[str, list[str]] = {}
        self.feed(re.sub(r"\r\n?", "\n", file.read_bytes().decode()))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            self.attributes.setdefault(f"{tag} {name}", []).append(value or "")


@pytest.mark.parametrize("name", ["cr\rline.jsonl", "\r.jsonl", "crlf\r\nline.jsonl", "a\r/b.jsonl", "lf\nline.jsonl"])
def test_links_lead_to_pages_in_the_file_whatever_files_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path / "odd" / name, events())
    site = RunsSite(tmp_path / "odd")
    document.write(site, tmp_path / "page.html")
    site.close()
    read = AsBrowsersRead(tmp_path / "page.html").attributes
    routes = {unquote(address.removeprefix("#/")) for address in read["a href"] if address.startswith("#/run/")}
    assert routes == {f"run/{name}"}
    assert f"run/{name}" in read["template data-route"]


def test_a_form_keeps_a_message_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    message = "ValueError: a\rb\r\nc"
    for number in range(2):
        struck = failed("program_failed", message)
        write(tmp_path / "runs" / f"{number}.jsonl", events(answer=None, reward=None, failure=struck))
    site = RunsSite(tmp_path / "runs")
    assert site.index.wait(30)
    (tmp_path / "list.html").write_text(str(site.page("list?message=" + quote(message)).body), newline="")
    site.close()
    read = AsBrowsersRead(tmp_path / "list.html").attributes
    assert message in read["input value"]
    assert len(read["li class"]) == 2
