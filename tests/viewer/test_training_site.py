"""The site of a training run: which page a route leads to, when pages change, what goes into one file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from inert import text_of
from training_folders import events, lines_of, report, training_folder, write_design, write_run

from trainer.run import METRICS
from viewer.document import write
from viewer.html import Markup
from viewer.sites import NoSuchPage, Page
from viewer.training import step_traces
from viewer.training.training_site import TrainingSite
from workflow.failures import Failure

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m\x00"


class Runs:
    """In the place of `viewer.runs.RunsSite`."""

    home = "list"
    closed = 0

    def __init__(self, folder: Path, words: object = None) -> None:
        self.folder = folder

    def page(self, route: str) -> Page:
        return Page(title="runs", body=Markup("{} of {}").format(route, self.folder.name))

    def version(self, route: str) -> str:
        return f"version of {route}"

    def routes(self) -> Iterator[str]:
        return iter(())

    def close(self) -> None:
        Runs.closed += 1


@pytest.fixture(autouse=True)
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewer.training.training_site.RunsSite", Runs)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Steps 0 to 3 are done, 4 is under way; traces of the last three are kept."""
    training_folder(tmp_path, [report(step, failures={"program_failed": 1} if step == 3 else {}) for step in range(4)])
    for step in (2, 3, 4):
        for question in (0, 1):
            write_run(tmp_path, step, question, 0, 0, events(f"What is {question}?", 0.4))
            write_run(tmp_path, step, question, 0, 1, events(reward=1.4, tools=2))
    failure = Failure(kind="program_failed", message=f"ValueError: {HOSTILE}")
    write_run(tmp_path, 3, 1, 1, 0, events(reward=0.0, failure=failure))
    write_design(tmp_path, 3, 1, 2, f"line 3: {HOSTILE}")
    write_run(tmp_path, 4, 1, 1, 1, events(ended=False), torn='{"t":')
    return tmp_path


@pytest.fixture
def site(folder: Path) -> TrainingSite:
    return TrainingSite(folder)


def test_routes_lead_to_their_pages(site: TrainingSite) -> None:
    assert site.page("training").title.startswith("Training run ")
    assert site.page("step/000003").title == "Step 3"
    assert site.page("tree/step-000003/question-0001").body == "tree/step-000003/question-0001 of traces"
    for route in ("list", "list?failure=limit_exceeded", "run/step-000003/question-0001/design-00-execution-00.jsonl"):
        assert site.page(route).body == f"{Markup.escape(route)} of traces"
        assert site.version(route) == f"version of {route}"
    assert site.page("compare?left=a&right=b").title == "runs"


@pytest.mark.parametrize(
    "route", ["", "training/", "step/x", "step/-1", "step/1/2", "question/1", "runs", "../x", "step/999", HOSTILE]
)
def test_a_route_that_leads_nowhere(site: TrainingSite, route: str) -> None:
    with pytest.raises(NoSuchPage):
        site.page(route)


def test_the_runs_are_opened_when_they_are_asked_for(site: TrainingSite) -> None:
    Runs.closed = 0
    site.close()
    assert Runs.closed == 0
    site.page("list")
    site.close()
    assert Runs.closed == 1


def test_links_of_a_page_lead_somewhere(site: TrainingSite) -> None:
    for route in ("training", "step/000003", "step/000004"):
        found = re.findall(r'href="#/([^"]*)"', str(site.page(route).body))
        assert found
        for each in found:
            site.page(each)


def test_the_page_of_a_step(site: TrainingSite) -> None:
    page = site.page("step/000003")
    text = text_of(page.body)
    assert "8 runs of 4 designs for 2 questions" in text
    assert "0 What is 0? 0.9 1/2 1.4 0.4 1" in text
    # 0.4, 1.4, 0 of the run that failed, and twice 0 of the design that could not run.
    assert "1 What is 1? 0.36 1/5 1.4 0 1 run, 1 design" in text
    assert 'href="#/tree/step-000003/question-0001"' in page.body
    assert 'href="#/run/step-000003/question-0001/design-00-execution-01.jsonl"' in page.body
    assert 'href="#/step/000002"' in page.body
    assert "Updates" in text


def test_a_step_under_way_has_a_page_that_changes(folder: Path, site: TrainingSite) -> None:
    text = text_of(site.page("step/000004").body)
    assert "There is no report of this step" in text
    assert "1 under way" in text
    before = site.version("step/000004")
    assert site.version("step/000004") == before
    write_run(folder, 4, 1, 1, 1, events(reward=0.2))
    assert site.version("step/000004") != before
    assert "1 under way" not in text_of(site.page("step/000004").body)
    assert "under way: step 4" in text_of(site.page("training").body)


def test_a_step_whose_traces_are_gone(site: TrainingSite) -> None:
    page = site.page("step/000001")
    assert "Traces of this step are not kept" in text_of(page.body)
    assert site.version("step/000001")


def test_the_page_of_the_run_follows_it(folder: Path, site: TrainingSite) -> None:
    assert "4 of 20 steps are done." in text_of(site.page("training").body)
    before = site.version("training")
    with (folder / METRICS).open("ab") as file:
        file.write(lines_of([report(4)]))
    assert site.version("training") != before
    assert "5 of 20 steps are done." in text_of(site.page("training").body)


def test_the_page_of_the_run_has_examples_and_tools(site: TrainingSite) -> None:
    page = site.page("training")
    text = text_of(page.body)
    assert "step 3, question 1, design 1, execution 0 ValueError: </script>" in text
    assert "Tool calls" in text
    assert "search and filter all runs" in text


def test_finished_traces_are_read_once(site: TrainingSite, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    questions_of = step_traces.questions_of
    monkeypatch.setattr(step_traces, "questions_of", lambda place: read.append(place) or questions_of(place))
    for _ in range(3):
        site.page("step/000003")
        site.page("training")
    assert len(read) == 1


def test_the_most_important_pages_come_first(site: TrainingSite) -> None:
    routes = list(site.routes())
    assert routes[:4] == ["training", "step/000004", "step/000003", "step/000002"]
    assert routes[4:6] == ["tree/step-000004/question-0000", "tree/step-000004/question-0001"]
    assert routes[10] == "run/step-000003/question-0001/design-01-execution-00.jsonl"
    assert routes[11:13] == [
        f"run/step-000004/question-0000/design-00-execution-{execution:02}.jsonl" for execution in (1, 0)
    ]


def test_one_file_has_them_all(site: TrainingSite, tmp_path: Path) -> None:
    written = write(site, tmp_path / "page.html")
    assert written.left_out == 0
    assert written.pages >= len(set(site.routes()))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<img" not in text
    assert '<template data-route="training"' in text


def test_a_run_without_traces(tmp_path: Path) -> None:
    site = TrainingSite(training_folder(tmp_path, [report(0)]))
    assert list(site.routes()) == ["training"]
    assert "none are kept" in text_of(site.page("training").body)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        TrainingSite(tmp_path / "gone")
