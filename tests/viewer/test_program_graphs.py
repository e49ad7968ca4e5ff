"""The static graph on the page of one file: of the program that the file holds now, and asked for once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from made_traces import PROGRAM, events, write

from designer.sample import Design
from viewer import open_site
from viewer.reading import read_run
from viewer.run import RunSite, run_page
from viewer.run.program_graphs import KEPT, Graphs
from viewer.runs import RunsSite
from workflow.graph import GraphNode

OTHER = PROGRAM + "# another one\n"


class Describer:
    """A workflow with one agent that is never asked, named by the length of the program."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, program: str) -> GraphNode:
        self.asked.append(program)
        unused = GraphNode(kind="AgentNode", base="AgentNode", name=f"Unused{len(program)}")
        solver = GraphNode(kind="AgentNode", base="AgentNode", name="Solver")
        return GraphNode(kind="Workflow", base="Workflow", name="w", children=[solver, unused])


def test_a_file_that_becomes_the_run_of_another_program(tmp_path: Path) -> None:
    describe = Describer()
    path = write(tmp_path / "run.jsonl")
    site = open_site(path, describe=describe)
    first = str(site.page("run").body)
    assert f"Unused{len(PROGRAM)}" in first
    write(path, events(program=OTHER))
    second = str(site.page("run").body)
    assert f"Unused{len(OTHER)}" in second
    assert f"Unused{len(PROGRAM)}" not in second
    write(path)
    assert f"Unused{len(PROGRAM)}" in str(site.page("run").body)
    assert describe.asked == [PROGRAM, OTHER]


def test_a_file_that_was_empty_when_it_was_opened(tmp_path: Path) -> None:
    describe = Describer()
    path = tmp_path / "run.jsonl"
    path.write_text("")
    site = open_site(path, describe=describe)
    site.page("run")
    assert describe.asked == []
    for turns in range(1, 5):  # it grows
        write(path, events(turns=turns, reward=None)[:-1])
        assert f"Unused{len(PROGRAM)}" in str(site.page("run").body)
    assert describe.asked == [PROGRAM]


def test_pages_of_further_rows_and_versions_need_no_graph(tmp_path: Path) -> None:
    describe = Describer()
    path = write(tmp_path / "run.jsonl", events(turns=600))
    site = RunSite(path, describe=describe)
    site.page("run?from=500")
    site.version("run")
    assert list(site.routes()) == ["run", "run?from=500"]
    assert describe.asked == []


def test_what_cannot_be_described_is_not_asked_for_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def describe(program: str) -> GraphNode | None:
        asked.append(program)
        raise ValueError("no jail")

    site = RunSite(write(tmp_path / "run.jsonl"), describe=describe)
    for _ in range(3):
        assert "Solver" in str(site.page("run").body)
    assert asked == [PROGRAM]


def test_nobody_waits_for_another_program() -> None:
    began, goes_on = threading.Event(), threading.Event()
    asked: list[str] = []

    def describe(program: str) -> GraphNode | None:
        asked.append(program)
        if program == "slow":
            began.set()
            assert goes_on.wait(30)
        return GraphNode(kind="AgentNode", base="AgentNode", name=program)

    graphs = Graphs(describe)
    found: list[GraphNode | None] = []
    threads = [threading.Thread(target=lambda: found.append(graphs.of("slow"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert began.wait(30)
    quick = graphs.of("quick")
    assert quick is not None
    assert quick.name == "quick"
    goes_on.set()
    for thread in threads:
        thread.join(30)
    assert [each.name for each in found if each is not None] == ["slow"] * 4
    assert sorted(asked) == ["quick", "slow"]


def test_not_all_graphs_are_held() -> None:
    describe = Describer()
    graphs = Graphs(describe)
    for number in range(KEPT + 1):
        graphs.of(f"program {number}")
    graphs.of("program 0")
    assert len(describe.asked) == KEPT + 2


def test_what_stops_the_process_is_not_held_up() -> None:
    def describe(program: str) -> GraphNode | None:
        raise KeyboardInterrupt

    graphs = Graphs(describe)
    with pytest.raises(KeyboardInterrupt):
        graphs.of("program")
    assert graphs.of("program") is None


@pytest.mark.parametrize(("graph_of", "drawn"), [(None, True), (PROGRAM, True), (OTHER, False), ("", False)])
def test_a_graph_of_another_program_is_not_drawn(tmp_path: Path, graph_of: str | None, drawn: bool) -> None:
    graph = Describer()(PROGRAM)
    page = run_page(read_run(write(tmp_path / "run.jsonl")), graph=graph, graph_of=graph_of)
    assert (f"Unused{len(PROGRAM)}" in page.body) is drawn


def test_a_run_whose_design_was_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "runs/step-000000/question-0000"
    write(folder / "design-00-execution-00.jsonl")
    site = RunsSite(tmp_path / "runs")
    for program in (PROGRAM, OTHER):
        design = Design(index=0, source=program, graph=Describer()(PROGRAM))
        (folder / "design-00.json").write_text(design.model_dump_json())
        page = site.page("run/step-000000/question-0000/design-00-execution-00.jsonl").body
        assert (f"Unused{len(PROGRAM)}" in page) is (program == PROGRAM)
    site.close()
