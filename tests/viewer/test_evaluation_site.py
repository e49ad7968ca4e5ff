"""An evaluation's site: its routes, what they may reach, when pages are made again, its file and its server."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from evaluation_folders import HOSTILE, STARTED, attempt, folder_of, rejected
from inert import text_and_links, text_of

from trainer.disk import line_of
from trainer.evaluate import RESULTS
from viewer import document
from viewer.evaluation.evaluation_site import EvaluationSite, names_of, trace_in
from viewer.html import Markup
from viewer.server import serving
from viewer.sites import NoSuchPage, Page


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of runs that say what they were asked for: those of `viewer.run.run_page` have tests of their own."""

    def run_page(read: Path, *, graph: object, words: object, base: str, first: int, **more: object) -> Page:
        told = f"run {read.name} with {'a' if graph else 'no'} graph at {base} from {first}"
        return Page(title="a run", body=Markup("<p>{}</p>").format(told))

    def compare_page(left: Path, right: Path, **more: Any) -> Page:
        names, routes = more["names"], more["routes"]
        told = f"{names[0]}: {left.parts[-3]}; {names[1]}: {right.parts[-3]} at {' '.join(routes)}"
        return Page(title="two runs", body=Markup("<p>{}</p>").format(told))

    monkeypatch.setattr("viewer.run.KeptRuns.of", lambda kept, path: path)
    functions = {"read_run": lambda path: path, "run_page": run_page, "compare_page": compare_page}
    for name, function in functions.items():
        monkeypatch.setattr(f"viewer.evaluation.evaluation_site.{name}", function)


BEFORE = [attempt("a", 0, False, trace="traces/a-0.jsonl"), attempt("b"), attempt("c", trace="traces/c-0.jsonl")]
AFTER = [attempt("a", trace="traces/a-0.jsonl"), rejected("b"), attempt("c", trace="traces/gone.jsonl")]


@pytest.fixture
def site(tmp_path: Path) -> EvaluationSite:
    folder_of(tmp_path / "SFT", BEFORE)
    after = folder_of(tmp_path / "RL", AFTER)
    (after / "traces/gone.jsonl").unlink()
    return EvaluationSite(after, tmp_path / "SFT")


def test_every_route_has_its_page(site: EvaluationSite) -> None:
    said = {
        "evaluation": "Evaluation RL Accuracy 66.7 %",
        "before/evaluation": "Evaluation SFT Accuracy 66.7 %",
        "attempts?right=no": "Attempts of RL",
        "before/attempts": "Attempts of SFT",
        "attempt/2": "b: wrong Verdict program_rejected",
        "before/attempt/1": "a: wrong Verdict wrong",
        "run/traces/a-0.jsonl": "run a-0.jsonl with a graph at run/traces/a-0.jsonl from 0",
        "run/traces/a-0.jsonl?from=400": "run a-0.jsonl with a graph at run/traces/a-0.jsonl from 400",
        "before/run/traces/c-0.jsonl": "run c-0.jsonl with a graph at before/run/traces/c-0.jsonl from 0",
        "changes": "From SFT to RL: what changed",
        "changed?outcome=broken": "1 to 1 of 1 that were asked for, of 3",
        "compare?left=traces%2Fa-0.jsonl&right=traces%2Fa-0.jsonl": (
            "SFT: SFT; RL: RL at before/run/traces/a-0.jsonl run/traces/a-0.jsonl"
        ),
    }
    for route, text in said.items():
        found = text_of(str(site.page(route).body))
        assert text in found, route
        assert site.version(route)
    assert site.home == "changes"


def test_every_link_leads_to_a_page_but_to_traces_that_are_gone(site: EvaluationSite) -> None:
    """All pages that can be reached are looked at."""
    seen, dead, waiting = set(), set(), [site.home]
    while waiting:
        route = waiting.pop()
        if route in seen:
            continue
        seen.add(route)
        try:
            body = str(site.page(route).body)
        except NoSuchPage:
            dead.add(route)
            continue
        _, links = text_and_links(body)
        waiting += [urllib.request.unquote(link.removeprefix("#/")) for link in links]
    assert len(seen) > 25
    assert all("gone.jsonl" in route for route in dead)


def test_an_attempt_leads_to_the_same_one_elsewhere(site: EvaluationSite) -> None:
    text, links = text_and_links(str(site.page("attempt/1").body))
    assert "In SFT wrong, single; both runs side by side" in text
    assert "#/compare?left=traces%252Fa-0.jsonl&right=traces%252Fa-0.jsonl" in links
    text, links = text_and_links(str(site.page("before/attempt/3").body))
    assert "In RL right" in text
    assert "#/compare?left=traces%252Fc-0.jsonl&right=traces%252Fgone.jsonl" in links


@pytest.mark.parametrize(
    "route",
    [
        *(
            "",
            "elsewhere",
            "attempt/0",
            "attempt/4",
            "attempt/x",
            "attempt/-1",
            "attempt/" + "9" * 400,
            "before/changes",
        ),
        *("before/", "before/before/evaluation", "run/", "run/traces/none.jsonl", "run/traces", "run/.", "compare"),
        *("run/../SFT/results.jsonl", "run//etc/passwd", "run/traces/../../SFT/traces/a-0.jsonl", "run/\x00"),
        *("run/" + "x/" * 3000, "compare?left=../RL/traces/a-0.jsonl&right=traces/a-0.jsonl", "before/compare"),
    ],
)
def test_what_leads_nowhere_is_said(site: EvaluationSite, route: str) -> None:
    with pytest.raises(NoSuchPage):
        site.page(route)


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "RL", AFTER)
    (tmp_path / "secret.jsonl").write_text(STARTED)
    (folder / "traces/out.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (folder / "traces/circle.jsonl").symlink_to(folder / "traces/circle.jsonl")
    (folder / "up").symlink_to(tmp_path)
    (folder / "traces/in.jsonl").symlink_to(folder / "traces/a-0.jsonl")
    for path in ("traces/out.jsonl", "traces/circle.jsonl", "up/secret.jsonl"):
        with pytest.raises(NoSuchPage):
            trace_in(folder, path)
    assert trace_in(folder, "traces/in.jsonl").name == "a-0.jsonl"


def test_without_another_evaluation_there_are_no_changes(tmp_path: Path) -> None:
    site = EvaluationSite(folder_of(tmp_path / "RL", AFTER))
    assert site.home == "evaluation"
    for route in ("changes", "changed", "before/evaluation"):
        with pytest.raises(NoSuchPage):
            site.page(route)
    assert "compare" not in str(site.page("attempt/1").body)
    two = "compare?left=traces%2Fa-0.jsonl&right=traces%2Fgone.jsonl"
    assert "traces/a-0.jsonl: RL; traces/gone.jsonl: RL" in str(site.page(two).body)
    with pytest.raises(OSError, match="No such file"):
        EvaluationSite(tmp_path / "nowhere").page("evaluation")


def test_a_page_is_made_again_when_its_files_change(site: EvaluationSite, tmp_path: Path) -> None:
    page, version = site.page("evaluation"), site.version("evaluation")
    assert site.page("evaluation") is page
    run = site.version("run/traces/a-0.jsonl")
    with (tmp_path / "RL" / RESULTS).open("a") as file:
        file.write(line_of(attempt("d")))
    assert site.version("evaluation") != version
    assert site.version("run/traces/a-0.jsonl") == run
    assert "4 at 4 problems" in text_of(str(site.page("evaluation").body))
    assert "1 are in RL alone" in text_of(str(site.page("changes").body))
    with (tmp_path / "RL" / "traces/a-0.jsonl").open("a") as file:
        file.write(STARTED)
    assert site.version("run/traces/a-0.jsonl") != run


def test_names_are_the_parts_that_differ(tmp_path: Path) -> None:
    def names(one: str, other: str | None) -> tuple[str, str]:
        return names_of(tmp_path / one, None if other is None else tmp_path / other)

    assert names("RL", None) == ("RL", "RL")
    assert names("RL", "SFT") == ("RL", "SFT")
    assert names("seed-0/K=1/attempts", "seed-0/start/attempts") == ("K=1", "start")
    assert names("a", "a/b") == ("a", "b")
    assert names("a", "a") == ("a", "a")


def test_a_file_holds_the_pages(site: EvaluationSite, tmp_path: Path) -> None:
    written = document.write(site, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    routes = list(site.routes())
    assert routes[0] == "changes"
    assert len(set(routes)) == len(routes)
    for route in ("evaluation", "attempt/2", "before/attempt/1", "changed?outcome=fixed", "run/traces/a-0.jsonl"):
        assert f'<template data-route="{route}"' in text
    assert written.left_out == 0
    small = document.write(site, tmp_path / "small.html", most_bytes=20_000)
    assert small.left_out > 0
    assert small.pages < written.pages


def test_a_hostile_evaluation_is_written_and_served(tmp_path: Path) -> None:
    def hostile(correct: bool) -> list:
        return [
            attempt(text, 0, correct, task=text, verdict=text, message=text, program=text, trace=text)
            for text in HOSTILE
        ]

    folder, before = folder_of(tmp_path / HOSTILE[1], hostile(True)), folder_of(tmp_path / HOSTILE[2], hostile(False))
    site = EvaluationSite(folder, before)
    for route in site.routes():
        try:
            text_of(str(site.page(route).body))
        except NoSuchPage:
            assert "run/" in route or "compare" in route  # there are no such files
    document.write(site, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<img src=x" not in text
    assert "<script>alert" not in text
    with serving(site) as server:
        with urllib.request.urlopen(server.address + "page?route=" + quote("attempts?page=1")) as answer:
            page = json.load(answer)
        text_of(page["html"])
        with urllib.request.urlopen(server.address + "version?route=evaluation") as answer:
            assert answer.read().decode() == site.version("evaluation")


@pytest.mark.thorough
def test_many_attempts_are_opened_in_seconds(tmp_path: Path) -> None:
    """20,000 of them; 100,000 take five times as long."""
    folder = folder_of(tmp_path / "RL", [])
    lines = [line_of(attempt("PROBLEM", number, number % 3 == 0)) for number in range(4)]
    with (folder / RESULTS).open("w") as file:
        for problem in range(5_000):
            file.writelines(line.replace("PROBLEM", f"problem-{problem}") for line in lines)
    began = time.process_time()
    site = EvaluationSite(folder)
    assert "20,000 at 5,000 problems" in text_of(str(site.page("evaluation").body))
    assert "1 to 200 of 10,000" in text_of(str(site.page("attempts?right=yes").body))
    assert time.process_time() - began < 10
