"""What a command does, on a page while it does it."""

from __future__ import annotations

import pytest
from inert import text_of

from viewer import Designed, NoSuchPage, WorkSite
from viewer.work_site import LAST_WRITTEN
from workflow.completion import Completion
from workflow.failures import Finding
from workflow.graph import GraphNode
from workflow.trace import AgentTurn, Answered, RunEnded, RunStarted, ToolCalled

HOSTILE = "<script>alert(1)</script>\u202e{{ 7 * 7 }}"
GRAPH = GraphNode(
    kind="EnsembleNode", name="vote", children=[GraphNode(kind="AgentNode", name=HOSTILE, role="member", tools=["add"])]
)


def test_what_is_written_is_seen_as_it_comes() -> None:
    site = WorkSite("What is 1 + 1?")
    assert "Nothing has been written yet" in text_of(site.page("design").body)
    versions = {site.version("design")}
    for piece in ("from work", "flow import AgentNode", HOSTILE):
        site.written(piece)
        versions.add(site.version("design"))
    assert len(versions) == 4
    assert "from workflow import AgentNode<script>alert(1)</script>\\u202e{{ 7 * 7 }}" in text_of(
        site.page("design").body
    )
    site.written("x" * 10 * LAST_WRITTEN)
    assert len(site.page("design").body) < 3 * LAST_WRITTEN


def test_designs_and_the_run_of_one() -> None:
    site = WorkSite("What is 1 + 1?")
    site.written("being written")
    wrong = Designed(
        by="engine", program="x = (", failure=HOSTILE, findings=[Finding(line=1, code="c", message=HOSTILE)]
    )
    site.designed([wrong, Designed(by="bank", program="x = 1\n", reason="short", graph=GRAPH, chosen=True)])
    said = text_of(site.page("design").body)
    for part in ("Design 1 of 2", "line 1: <script>", "Design 2 of 2 chosen", "why short", "member, tools: add"):
        assert part in said, said
    assert "being written" not in said
    assert list(site.routes()) == ["design"]
    site.runs(GRAPH)
    site(RunStarted(run_id="r", question="What is 1 + 1?", engine="e"))
    assert "The run of the program" in text_of(site.page("design").body)
    assert "no end" in text_of(site.page("run").body)
    before = site.version("run")
    site(Answered(text="\\boxed{2}", from_agent="Solver"))
    site(RunEnded())
    assert site.version("run") != before
    assert "Solver" in text_of(site.page("run").body)
    assert list(site.routes()) == ["design", "run"]


def test_who_is_asked_is_seen_until_the_reply_comes() -> None:
    site = WorkSite("What is 1 + 1?", designs=False)
    site.runs(None)
    site(RunStarted(run_id="r", question="What is 1 + 1?", engine="e"))
    assert "Being asked" not in site.page("run").body
    before = site.version("run")
    for number in range(70):
        site.asking(AgentTurn(key=f"k{number}", path="p", messages=[], agent=f"{HOSTILE}{number}"))
    assert site.version("run") != before
    body = site.page("run").body
    assert "<script>alert" not in body
    assert "Being asked now: <script>alert(1)</script>\\u202e{{ 7 * 7 }}0, " in text_of(body)
    assert "and 10 more" in text_of(body)
    for number in range(70):
        site(
            AgentTurn(
                key=f"k{number}", path="p", messages=[], agent=f"{HOSTILE}{number}", completion=Completion(text="2")
            )
        )
    assert "Being asked" not in site.page("run").body


def test_a_program_that_may_not_run_is_shown_with_what_was_found() -> None:
    site = WorkSite("What is 1 + 1?", designs=False)
    assert "It is being checked." in text_of(site.page("run").body)
    site.refused("bad.py", "import os\n", [Finding(line=1, code="import", message="os is not there")])
    said = text_of(site.page("run").body)
    for part in ("Program 1 of 1", "bad.py", "has not passed its check", "line 1: os is not there", "import os"):
        assert part in said, said


def test_what_failed_is_shown_with_what_had_been_written() -> None:
    site = WorkSite("What is 1 + 1?")
    site.written("from work")
    before = site.version("design")
    site.failed(f"the engine is gone {HOSTILE}")
    assert site.version("design") != before
    said = text_of(site.page("design").body)
    assert "Failed the engine is gone <script>alert(1)</script>\\u202e" in said
    assert "Written until then from work" in said
    assert "Being written" not in said


def test_who_may_yet_be_asked_is_not_called_unasked() -> None:
    site = WorkSite("What is 1 + 1?", designs=False)
    site.runs(GraphNode(kind="Workflow", base="Workflow", name="w", children=[
        GraphNode(kind="AgentNode", base="AgentNode", name="Solver"),
    ]))  # fmt: skip
    site(RunStarted(run_id="r", question="What is 1 + 1?", engine="e"))
    assert "no reply so far" in site.page("run").body
    site(Answered(text="2"))
    site(RunEnded())
    assert "no reply so far" not in site.page("run").body
    assert "not asked" in site.page("run").body
    assert "by no agent" in site.page("run").body


def test_a_run_alone_begins_with_its_page() -> None:
    site = WorkSite("What is 1 + 1?", designs=False)
    assert site.home == "run"
    text_of(site.page("run").body)
    with pytest.raises(NoSuchPage, match="elsewhere"):
        site.page("elsewhere")


def test_a_long_run_goes_on_on_further_pages_while_it_runs() -> None:
    site = WorkSite("What is 1 + 1?", designs=False)
    site.runs(GRAPH)
    site(RunStarted(run_id="r", question="What is 1 + 1?", engine="e"))
    for number in range(700):
        site(ToolCalled(path="w/A", agent="A", name=f"tool{number}"))
    first, second = text_of(site.page("run").body), text_of(site.page("run?from=500").body)
    assert "tool499" in first
    assert "tool500" not in first
    assert "tool699" in second
    assert "run?from=500" in site.page("run").body
