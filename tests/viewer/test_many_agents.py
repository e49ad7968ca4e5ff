"""A run of thousands of agents makes pages and graphs that a browser opens in a few seconds; what is not shown is
counted."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from inert import text_of
from made_runs import made, turn

from viewer import write
from viewer.graphs.layout_cost import layout_cost
from viewer.graphs.run_graph import MOST_BOXES, MOST_COST, RunGraph, run_graph
from viewer.run import KeptRuns, RunSite, run_page
from viewer.run import known_run as run_module
from viewer.run.program_lines import ProgramLines
from viewer.run.run_page import MOST_AGENTS, MOST_ROWS
from viewer.runs import RunsSite
from workflow.trace import AgentTurn, Trace

AGENTS = 3_000


def drawn(events: list[AgentTurn]) -> RunGraph:
    return run_graph(made(*events).trace)


def one_after_the_other(agents: int = AGENTS) -> list[AgentTurn]:
    return [turn(f"w/A{number}", number, number + 1) for number in range(agents)]


def test_the_cost_of_a_layout_is_what_arrows_and_frames_go_through() -> None:
    boxes = [{"id": name, "lines": [name]} for name in "abcd"]
    chain = [{"from": a, "to": b} for a, b in ("ab", "bc", "cd")]
    assert layout_cost(boxes, chain) == 3
    assert layout_cost(boxes, [*chain, {"from": "a", "to": "d"}, {"from": "b", "to": "b"}]) == 6
    assert layout_cost(boxes, [*chain, {"from": "d", "to": "a", "back": True}]) == 6
    framed = [{"id": "f", "group": True}, *(box | {"parent": "f"} for box in boxes[1:3]), boxes[0], boxes[3]]
    assert layout_cost(framed, [{"from": "b", "to": "c"}]) == 1 + 3 * 2


def test_a_drawing_that_would_keep_a_browser_busy_has_fewer_boxes() -> None:
    there_and_back = [turn(f"w/A{number}", number, number + 1) for pair in range(60) for number in (pair, pair + 60)]
    for place, each in enumerate(there_and_back):
        each.t, each.duration_s = AGENTS + place + 1, 1
    graph = drawn([*one_after_the_other(), *there_and_back])
    assert layout_cost(graph.drawing["nodes"], graph.drawing["edges"]) <= MOST_COST
    left = AGENTS - (MOST_BOXES // 2 - 1)
    assert graph.notes[0] == f"{left:,} more places at which the run worked or parts met are drawn as one box."
    assert f"{left:,} more" in [node["lines"][0] for node in graph.drawing["nodes"]]
    light = drawn(one_after_the_other())
    assert len(light.drawing["nodes"]) > MOST_BOXES


def test_points_at_which_parts_meet_are_bounded_as_boxes_are() -> None:
    pairs = [turn(f"w/A{number}[{number % 2}]", number // 2, number // 2 + 1) for number in range(AGENTS)]
    assert len(drawn(pairs).drawing["nodes"]) <= 2 * MOST_BOXES
    threes = [(i, j, k) for i in range(12) for j in range(i) for k in range(j)]
    crowd = [turn(f"w/A{i}[{i}]", step, step + 1, number=step) for step, of in enumerate(threes) for i in of]
    graph = drawn(crowd)
    assert len(graph.drawing["nodes"]) <= 2 * MOST_BOXES + 16
    assert "more places at which the run worked or parts met" in graph.notes[0]


def test_agents_are_looked_for_in_the_program_only_where_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[str] = []
    monkeypatch.setattr(ProgramLines, "of", lambda self, agent: looked_for.append(agent) or [])
    run_page(made(*one_after_the_other(), program="x = 1"))
    assert len(looked_for) == MOST_AGENTS


def test_a_long_run_goes_on_without_what_stands_before_its_rows() -> None:
    run = made(*one_after_the_other(2 * MOST_ROWS), program="x = 1")
    first, second = run_page(run, base="run").body, run_page(run, base="run", first=MOST_ROWS).body
    for part in ("data-graph", 'id="agents"', 'id="facts"', 'id="program"', 'id="question"'):
        assert part in first
        assert part not in second
    assert '<a href="#/run">From the beginning</a>' in second
    assert '<a href="#/run">1–500</a>' in second  # the page that is there already, at its own route
    assert ">A500</option>" in second
    assert ">A0</option>" not in second
    for body in (first, second):
        text_of(body)


@pytest.mark.thorough
def test_what_is_found_of_a_run_is_found_once_for_all_its_pages(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = [*made(*one_after_the_other(4 * MOST_ROWS)).trace.lines()]
    for number in range(2):
        (tmp_path / f"{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    found: list[str] = []
    known_run = run_module.known_run
    monkeypatch.setattr(run_module, "known_run", lambda read: found.append(read.name) or known_run(read))
    monkeypatch.setattr(sys.modules["viewer.run.run_page"], "known_run", None)
    for site, pages in ((RunSite(tmp_path / "0.jsonl"), 5), (RunsSite(tmp_path), 2 + 2 * 5)):
        assert write(site, tmp_path / "page.html").pages == pages
        assert sorted(found) == ["0.jsonl", "1.jsonl"][: len(found)]
        assert len(found) == len(set(found))
        site.close()
        found.clear()


def test_a_run_that_has_changed_is_found_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = [*made(*one_after_the_other(3)).trace.lines()]
    site = RunSite(path)
    for count in (2, 3):
        path.write_text("".join(lines[:count]), encoding="utf-8")
        assert f">A{count - 2}</option>" in site.page("run").body


def test_kept_runs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(made(*one_after_the_other(3)).trace.lines())
    monkeypatch.setattr(run_module, "MOST_KEPT", 2 * len(text))
    kept = KeptRuns()
    for number in range(4):
        (tmp_path / f"{number}.jsonl").write_text(text, encoding="utf-8")
        kept.of(tmp_path / f"{number}.jsonl")
    assert len(kept._kept) == 2


def test_where_a_part_is_left_out_its_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(made(*one_after_the_other(100)).trace.lines()), encoding="utf-8")
    monkeypatch.setattr("viewer.reading.traces.MOST_BYTES", path.stat().st_size // 2)
    monkeypatch.setattr("viewer.reading.traces.LAST_BYTES", path.stat().st_size // 4)
    told = text_of(RunSite(path).page("run").body)
    assert f"of {path.stat().st_size:,} bytes are shown" in told
    assert told.count("Here a part of the file is left out") == 1
    assert "the run ended" in told


@pytest.mark.thorough
@pytest.mark.slow
def test_a_file_of_a_run_of_thousands_is_written_in_seconds(tmp_path: Path) -> None:
    debate = [
        turn(f"w/talk/A{number}[{number}]", 100 * each, 100 * each + 1 + number / 1_000, number=each)
        for each in range(3)
        for number in range(AGENTS)
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(Trace(events=made(*debate).trace.events).lines()), encoding="utf-8")
    began = time.process_time()
    written = write(RunSite(path), tmp_path / "page.html")
    assert time.process_time() - began < 12  # seconds of this process
    assert (written.pages, written.left_out) == (19, 0)
