"""The list of traces: what stands in a row, in the filters and about failures, and that nothing in it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from made_traces import HOSTILE, events, failed, write

from viewer.reading.trace_summary import LOOKED_THROUGH, TraceSummary
from viewer.runs import list_page as pages
from viewer.runs.index_answers import Indexed
from viewer.runs.list_page import bytes_told, list_page, row
from viewer.runs.trace_filter import TraceFilter, parsed
from viewer.runs.trace_index import Progress, TraceIndex

TREE = "rl/traces/step-000003/question-0001"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceIndex]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "runs"
    write(folder / "good.jsonl", events("Is it good?"))
    write(folder / TREE / "design-00-execution-02.jsonl", events("Is it a tree?", reward=0.4))
    for number in range(3):
        struck = failed("program_failed", "ValueError: the same" if number else "TypeError: another")
        write(folder / f"failed-{number}.jsonl", events("Did it fail?", None, reward=0.0, failure=struck))
    late = failed("limit_exceeded", "limit wall_s=1 exceeded", limit_kind="wall_s")
    write(folder / "late.jsonl", events("Was it late?", None, reward=0.0, failure=late))
    write(folder / "half.jsonl", events("Was it stopped?")[:2])
    (folder / "torn.jsonl").write_bytes(write(folder / ".t", events("Was it torn?")).read_bytes()[:-9])
    (folder / "zero.jsonl").write_bytes(bytes(500))
    write(folder / "hostile.jsonl", events(HOSTILE * 50, None, failure=failed("program_failed", HOSTILE)))
    made = TraceIndex(folder, pause_s=60)
    assert made.wait(30)
    yield made
    made.close()


def shown(index: TraceIndex, query: str = "") -> str:
    return str(list_page(index, parsed(query), "runs").body)


def hrefs(page: str) -> list[str]:
    return [unquote(each.replace("&amp;", "&")) for each in re.findall(r'href="#/([^"]*)"', page)]


def test_every_trace_has_a_row_that_leads_to_it(index: TraceIndex) -> None:
    page = shown(index)
    rows = page.partition('<ol class="runs">')[2].split('<li class="item">')[1:]
    assert len(rows) == 10
    assert {hrefs(each)[0] for each in rows} == {f"run/{found.path}" for found in index.page(TraceFilter()).rows}
    assert "<strong>10 traces</strong>" in page
    assert "28.6% of 7 correct" in page


def of(index: TraceIndex, name: str) -> pages.Row:
    return next(row(each) for each in index.page(TraceFilter()).rows if each.path.endswith(name))


@pytest.mark.parametrize(
    ("name", "mark", "means", "said"),
    [
        ("good.jsonl", "✓", "correct", "answer: \\boxed{4}"),
        ("execution-02.jsonl", "✗", "wrong", "answer: \\boxed{4}"),
        ("failed-1.jsonl", "✗", "failed: program_failed", "program_failed: ValueError: the same"),
        ("late.jsonl", "✗", "failed: limit_exceeded", "limit_exceeded, left out of training: limit wall_s=1 exceeded"),
        ("half.jsonl", "…", "this run has not ended", "its run has not ended"),
        ("torn.jsonl", "–", "not graded", "answer: \\boxed{4} (its last line is cut short)"),
        ("zero.jsonl", "!", "this trace is broken", "line 1: it holds zero bytes"),
    ],
)
def test_how_a_run_ended(index: TraceIndex, name: str, mark: str, means: str, said: str) -> None:
    found = of(index, name)
    assert (found.mark, found.mark_means) == (mark, means)
    assert found.said.startswith(said)


def test_traces_that_are_not_whole_can_be_asked_for(index: TraceIndex) -> None:
    page = index.page(TraceFilter(state="not-whole"))
    assert {each.path for each in page.rows} == {"half.jsonl", "torn.jsonl", "zero.jsonl"}


def test_a_row_leads_to_its_tree_and_to_its_like(index: TraceIndex) -> None:
    found = of(index, "execution-02.jsonl")
    assert found.tree == f"tree/{TREE}"
    assert found.place == "design 0, execution 2 · rl/traces"
    links = hrefs(shown(index, "q=tree"))
    assert f"tree/{TREE}" in links
    for route, count in ((found.same_question, 1), (found.same_program, 9)):
        assert route in links
        assert index.page(parsed((route or "").partition("?")[2])).count == count
    broken = of(index, "zero.jsonl")
    assert (broken.title, broken.same_question, broken.tree) == ("zero.jsonl", None, None)


def test_failures_by_kind_lead_to_examples_and_to_all_of_them(index: TraceIndex) -> None:
    page = shown(index)
    assert "What went wrong: program_failed 4, broken 1, limit_exceeded 1, unfinished 1" in " ".join(page.split())
    links = hrefs(page)
    for query in ("failure=program_failed", "state=broken", "state=unfinished", "failure=limit_exceeded"):
        assert f"list?{query}" in links
    same = next(each for each in links if "message=ValueError" in each)
    assert index.page(parsed(same.partition("?")[2])).count == 2
    assert "2 times" in page


def test_what_is_searched_for_stands_in_the_form_and_can_be_taken_back(index: TraceIndex) -> None:
    page = shown(index, "q=%22fail%22+it&failure=program_failed&least=-1&order=worst")
    assert 'value="&#34;fail&#34; it"' in page
    assert "<option selected>program_failed</option>" in page
    assert "<option selected>worst</option>" in page
    assert 'name="least" value="-1"' in page
    assert "No trace is like that." in page
    without = [each for each in hrefs(page) if each.startswith("list?") and "q=" not in each]
    assert without == ["list?failure=program_failed&least=-1&order=worst"]
    kept = shown(index, "message=ValueError%3A+the+same")
    assert '<input type="hidden" name="message" value="ValueError: the same">' in kept


def test_pages_lead_on(index: TraceIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = index.page
    monkeypatch.setattr(index, "page", lambda wanted: plain(wanted, 1))
    page = shown(index, "page=5&order=path")
    assert {each for each in hrefs(page) if "page=" in each} == {
        f"list?order=path&page={number}" for number in (3, 4, 6, 7, 10)
    }
    assert '<span aria-current="page">5</span>' in page
    assert "list?order=path" in hrefs(page), "the first page"


def test_routes_can_stand_below_another_one(index: TraceIndex) -> None:
    page = str(list_page(index, TraceFilter(), "runs", base="traces/").body)
    assert all(each.startswith("traces/") for each in hrefs(page))
    assert 'data-route="traces/list"' in page


def test_hostile_texts_are_inert(index: TraceIndex) -> None:
    page = shown(index)
    for live in ("<script>", "<img", "\u202e", "\x1b", "\u2028", "</pre>", "49"):
        assert live not in page.replace(">49<", "")
    assert "&lt;script&gt;alert(1)" in page
    assert len(page) < 100_000


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (Progress(files=5000), "Looking through the folder: 5,000 files so far."),
        (Progress(files=9, to_read=9000, read=300), "Reading: 300 of 9,000 files are in the list, the newest first."),
        (Progress(looking=False, error="<b>"), "The list may be out of date: &lt;b&gt;."),
        (Progress(looking=False, unread_folders=2), "Folders that cannot be read and are left out: 2."),
        (Progress(looking=False, passed_over=3), "Links and folders whose names begin with a dot are not followed: 3."),
        (Progress(looking=False, nameless=1), "Files left out, as their names are no text in UTF-8: 1."),
    ],
)
def test_what_the_list_lacks_is_said(progress: Progress, said: str, index: TraceIndex) -> None:
    index.progress = progress
    assert said in shown(index)


def test_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "none").mkdir()
    index = TraceIndex(tmp_path / "none")
    index.wait(30)
    page = shown(index)
    index.close()
    assert "No trace here." in page
    assert "<strong>0 traces</strong>" in page


def test_of_a_large_trace_it_is_said_that_only_its_ends_were_looked_at() -> None:
    for size, told in ((LOOKED_THROUGH, False), (LOOKED_THROUGH + 1, True)):
        figures = row(Indexed("a.jsonl", None, None, None, None, TraceSummary(size=size))).figures
        assert ("looked at at its ends alone" in figures) is told


def test_sizes_and_times() -> None:
    assert [bytes_told(size) for size in (0, 999, 1000, 1_234_567, 5_000_000_000)] == [
        "0 B", "999 B", "1 kB", "1.23 MB", "5 GB"
    ]  # fmt: skip
    found = row(Indexed("a.jsonl", None, None, None, None, TraceSummary(size=10, mtime_ns=86_400_000_000_000)))
    assert found.figures == ["10 B", "1970-01-02 00:00 UTC"]


@pytest.mark.parametrize("least", [1 / 3, 0.1 + 0.2, 2 / 3 - 1e-9, 0.3333334, 1e-12])
def test_links_and_forms_ask_for_the_very_same_rewards(
    least: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number in range(120):  # half of them just too bad
        write(tmp_path / "runs" / f"{number}.jsonl", events(reward=least if number % 2 else least - 1e-13))
    index = TraceIndex(tmp_path / "runs", pause_s=60)
    assert index.wait(30)
    page = shown(index, f"least={least!r}&most={least!r}")
    assert "<strong>60 traces</strong>" in page
    (route,) = {each for each in hrefs(page) if each.endswith("page=2")}
    second = shown(index, route.removeprefix("list?"))
    assert "<strong>60 traces</strong>" in second
    (value,) = re.findall(r'name="least" value="([^"]*)"', second)
    assert float(value) == least
    index.close()


def test_round_rewards_are_told_as_they_are_written() -> None:
    assert TraceFilter(least=1.0, most=0.5).query == "least=1&most=0.5"
