"""The index of a folder: complete, incremental, in nobody's way, and none of its failures hides a trace."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_traces import HOSTILE, events, failed, write

from viewer.html import folded
from viewer.reading.trace_summary import summarise
from viewer.runs import trace_index
from viewer.runs.graded_attempts import GradedAttempts
from viewer.runs.index_answers import Kind
from viewer.runs.index_file import IndexClosed, IndexFile, index_path
from viewer.runs.trace_filter import ORDERS, TraceFilter, parsed
from viewer.runs.trace_index import TraceIndex
from viewer.sites import NoSuchPage
from workflow.trace import AgentTurn

ALL = TraceFilter()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six traces, of which two failed, one is cut and one is broken, beside what is none."""
    made = tmp_path / "runs"
    write(made / "a.jsonl", events("What is 2 + 2?", "\\boxed{4}", reward=1.4))
    write(made / "b.jsonl", events("What is 2 + 2?", "\\boxed{5}", reward=0.4, turns=3))
    write(made / "deep" / "er" / "c.jsonl", events("Straße 100% sure_thing?", None, reward=0.0,
                                                   failure=failed("program_failed", "ValueError: no")))  # fmt: skip
    write(made / "d.jsonl", events(answer=None, reward=0.0, failure=failed("program_failed", "ValueError: no")))
    write(made / "e.jsonl", events()[:2])
    (made / "f.jsonl").write_bytes(b"\0" * 100)
    (made / "metrics.jsonl").write_text('{"step": 0}\n', encoding="utf-8")
    (made / "notes.txt").write_text("none", encoding="utf-8")
    (made / ".hidden").mkdir()
    write(made / ".hidden" / "g.jsonl")
    for number, name in enumerate(("a", "b", "deep/er/c", "d", "e", "f")):
        os.utime(made / f"{name}.jsonl", (1000 + number, 1000 + number))
    return made


@contextmanager
def opened(folder: Path, pause_s: float = 60.0) -> Iterator[TraceIndex]:
    index = TraceIndex(folder, pause_s=pause_s)
    try:
        assert index.wait(30)
        yield index
    finally:
        index.close()


def paths(index: TraceIndex, wanted: TraceFilter = ALL) -> list[str]:
    return [row.path for row in index.page(wanted, 1000).rows]


def soon(true: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)


def test_all_traces_are_found_and_say_what_their_summaries_say(folder: Path) -> None:
    with opened(folder) as index:
        assert paths(index) == ["f.jsonl", "e.jsonl", "d.jsonl", "deep/er/c.jsonl", "b.jsonl", "a.jsonl"]
        for row in index.page(ALL).rows:
            assert row.summary == summarise(folder / row.path)
        totals = index.totals(ALL)
        assert (totals.traces, totals.rewarded, totals.graded, totals.correct) == (6, 4, 4, 1)
        assert totals.reward == pytest.approx(0.45)
        assert index.progress.is_complete
        assert index.progress.files == 7
        assert index.told == ""


WANTED = {
    "q=What is": "a b d e",
    "q=2 WHAT": "a b d e",
    "q=STRASSE": "c",
    "q=100%25": "c",
    "q=0%25 s": "c",
    "q=sure_": "c",
    "q=h_t": "",
    "q=%25": "c",
    "q=boxed{5}": "b",
    "q=valueerror": "c d",
    "failure=program_failed": "c d",
    "failure=any": "c d",
    "failure=none": "a b",
    "failure=engine_failed": "",
    "state=broken": "f",
    "state=unfinished": "e",
    "state=not-whole": "e f",
    "correct=yes": "a",
    "correct=no": "b c d",
    "correct=unknown": "e f",
    "least=0.4": "a b",
    "most=0.4": "b c d",
    "least=0.1&most=1": "b",
    "step=0": "",
    "message=ValueError: no": "c d",
    "failure=any&q=straße": "c",
}


@pytest.mark.parametrize("query", WANTED)
def test_filters(query: str, folder: Path) -> None:
    with opened(folder) as index:
        assert sorted(Path(path).stem for path in paths(index, parsed(query))) == WANTED[query].split()
        assert index.page(parsed(query)).count == len(WANTED[query].split())


@pytest.mark.parametrize("order", ORDERS)
def test_orders(order: str, folder: Path) -> None:
    with opened(folder) as index:
        found = [row.summary for row in index.page(TraceFilter(order=order)).rows]
        assert len(found) == 6
        rewards = [each.reward for each in found if each.reward is not None]
        if order == "best":
            assert rewards == sorted(rewards, reverse=True)
            assert found[-1].reward is None
        if order == "worst":
            assert rewards == sorted(rewards)
        if order == "most-tokens":
            assert found[0].tokens == max(each.tokens or 0 for each in found)


def test_pages(folder: Path) -> None:
    with opened(folder) as index:
        seen = []
        for number in (1, 2, 3, 4, 99):
            listed = index.page(TraceFilter(order="path", page=number), per_page=2)
            assert (listed.count, listed.pages) == (6, 3)
            assert listed.page == min(number, 3)
            seen.append([Path(row.path).stem for row in listed.rows])
        assert seen == [["a", "b"], ["d", "c"], ["e", "f"], ["e", "f"], ["e", "f"]]
        empty = index.page(TraceFilter(q="no such thing"))
        assert (empty.rows, empty.count, empty.page, empty.pages) == ([], 0, 1, 1)


def test_failures_by_kind_with_examples(folder: Path) -> None:
    with opened(folder) as index:
        kinds = {kind.name: kind for kind in index.kinds(ALL)}
        assert {name: kind.count for name, kind in kinds.items()} == {"program_failed": 2, "unfinished": 1, "broken": 1}
        [example] = kinds["program_failed"].examples
        assert (example.message, example.count, example.path) == ("ValueError: no", 2, "d.jsonl")
        assert isinstance(kinds["broken"], Kind)


def test_runs_of_a_training_run_have_their_place(folder: Path) -> None:
    path = "rl/traces/step-000012/question-0003/design-01-execution-02.jsonl"
    write(folder / path)
    with opened(folder) as index:
        [row] = index.page(TraceFilter(step=12, question=3)).rows
        assert (row.path, row.step, row.number, row.design, row.execution) == (path, 12, 3, 1, 2)


def test_an_unchanged_folder_is_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(folder) as index:
        before = paths(index)
    monkeypatch.setattr(trace_index, "summarise", lambda path: pytest.fail(f"{path} was read again"))
    with opened(folder) as index:
        assert index.progress.error == ""
        assert index.progress.to_read == 0
        assert paths(index) == before


def test_what_is_new_grows_shrinks_and_goes_is_followed(folder: Path) -> None:
    with opened(folder, pause_s=0.02) as index:
        versions = {index.version()}
        write(folder / "new.jsonl", events("A new one?"))
        soon(lambda: "new.jsonl" in paths(index))
        versions.add(index.version())
        with (folder / "e.jsonl").open("ab") as file:
            file.write(write(folder / ".rest", events()[2:]).read_bytes())
        soon(lambda: paths(index, TraceFilter(state="unfinished")) == [])
        versions.add(index.version())
        (folder / "a.jsonl").write_bytes((folder / "a.jsonl").read_bytes()[:-40])
        soon(lambda: paths(index, TraceFilter(q="", state="ended", correct="yes")) == ["e.jsonl", "new.jsonl"])
        (folder / "new.jsonl").unlink()
        (folder / "metrics.jsonl").unlink()
        soon(lambda: "new.jsonl" not in paths(index))
        versions.add(index.version())
        assert len(versions) == 4
        quiet = index.version()
        time.sleep(0.2)
        assert index.version() == quiet, "nothing has changed"


def test_a_trace_that_becomes_something_else_leaves_the_list(folder: Path) -> None:
    with opened(folder, pause_s=0.02) as index:
        (folder / "a.jsonl").write_text('{"step": 1}\n', encoding="utf-8")
        soon(lambda: "a.jsonl" not in paths(index))
        write(folder / "metrics.jsonl")
        soon(lambda: "metrics.jsonl" in paths(index))


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "outside" / "z.jsonl")
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "z.jsonl").symlink_to(tmp_path / "outside" / "z.jsonl")
    (folder / "round").symlink_to(folder)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "folder.jsonl").mkdir()
    (folder / "itself").symlink_to("itself")
    with opened(folder) as index:
        assert len(paths(index)) == 6
        assert index.progress.passed_over == 4  # with .hidden


def test_names_of_files_may_be_anything(folder: Path) -> None:
    names = ["a b&c=d?e#f%20.jsonl", "ünï.jsonl", "'; DROP TABLE traces; --.jsonl", "new\nline.jsonl"]
    for name in names:
        write(folder / name, events("odd name"))
    with open(os.fsencode(folder) + b"/\xff\xfe.jsonl", "wb") as file:
        file.write(b"x")
    with opened(folder) as index:
        assert sorted(paths(index, TraceFilter(q="odd"))) == sorted(names)
        assert index.progress.nameless == 1


def test_hostile_texts_are_kept_and_found(folder: Path) -> None:
    write(folder / "h.jsonl", events(HOSTILE, HOSTILE))
    with opened(folder) as index:
        [row] = index.page(TraceFilter(q="<script>alert(1)</script>")).rows
        assert row.summary.question == HOSTILE
        assert paths(index, TraceFilter(q="' OR 1=1 --")) == []
        assert paths(index, TraceFilter(message="' OR 1=1 --", program='"', asked="')")) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_must_not_be_read_is_said_and_read_once_it_may(folder: Path) -> None:
    (folder / "a.jsonl").chmod(0)
    (folder / "deep").chmod(0)
    try:
        with opened(folder, pause_s=0.02) as index:
            assert paths(index, TraceFilter(state="broken")) == ["f.jsonl", "a.jsonl"]
            assert index.progress.unread_folders == 1
            (folder / "a.jsonl").chmod(0o600)
            soon(lambda: paths(index, TraceFilter(state="broken")) == ["f.jsonl"])
    finally:
        (folder / "deep").chmod(0o700)


def test_what_cannot_be_read_is_said_and_read_once_it_can(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = threading.Event()
    refused.set()

    def summary(path: Path):
        if refused.is_set() and path.name == "a.jsonl":
            raise PermissionError(13, "Permission denied", str(path))
        return summarise(path)

    monkeypatch.setattr(trace_index, "summarise", summary)
    with opened(folder, pause_s=0.02) as index:
        [row] = [row for row in index.page(ALL).rows if row.path == "a.jsonl"]
        assert (row.summary.state, row.summary.wrong) == ("broken", "it cannot be read: Permission denied")
        quiet = index.version()
        time.sleep(0.2)
        assert index.version() == quiet
        refused.clear()
        soon(lambda: paths(index, TraceFilter(correct="yes")) == ["a.jsonl"])


def test_files_that_vanish_while_they_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def summary(path: Path):
        path.unlink(missing_ok=True)
        return summarise(path)

    monkeypatch.setattr(trace_index, "summarise", summary)
    with opened(folder) as index:
        assert paths(index) == []
        assert index.progress.error == ""


def test_a_folder_that_goes_keeps_its_list_and_says_so(folder: Path, tmp_path: Path) -> None:
    with opened(folder, pause_s=0.02) as index:
        folder.rename(tmp_path / "moved")
        soon(lambda: index.progress.error != "")
        assert "No such file" in index.progress.error
        assert len(paths(index)) == 6
        (tmp_path / "moved").rename(folder)
        soon(lambda: index.progress.error == "")


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    for name in ("gone", "file"):
        with pytest.raises((FileNotFoundError, NotADirectoryError)):
            TraceIndex(tmp_path / name)


# The file


def test_nothing_is_written_into_the_folder_and_the_index_is_the_users_own(folder: Path, cache: Path) -> None:
    before = sorted(folder.rglob("*"))
    with opened(folder):
        pass
    assert sorted(folder.rglob("*")) == before
    file = index_path(folder)
    assert file.parent == cache / "metaagent" / "views"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert index_path(folder.parent / "runs" / ".." / "runs") == file


def test_another_cache_folder_is_used_where_the_variable_is_no_absolute_path(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert index_path(folder).parent == tmp_path / "home" / ".cache" / "metaagent" / "views"


def damaged_page(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for place in range(4096, len(data)):
        data[place] = 0xA5
    file.write_bytes(bytes(data))


def of_another_program(file: Path) -> None:
    file.unlink()
    with sqlite3.connect(file) as other:
        other.execute('CREATE TABLE "od""d" (x)')
        other.execute("CREATE TABLE traces (path TEXT)")
        other.execute("CREATE VIEW v AS SELECT * FROM traces")


def of_another_version(file: Path) -> None:
    with sqlite3.connect(file) as other:
        other.execute("PRAGMA user_version = 999")


def of_another_folder(file: Path) -> None:
    with sqlite3.connect(file) as other:
        other.execute("UPDATE folder SET path = '/elsewhere'")
        other.execute("UPDATE traces SET question = 'of another folder'")


def not_a_database(file: Path) -> None:
    file.write_bytes(b"this is text, " * 1000)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


@pytest.mark.parametrize(
    "spoil", [damaged_page, of_another_program, of_another_version, of_another_folder, not_a_database, cut]
)
def test_an_index_that_is_damaged_or_foreign_is_made_anew(spoil: Callable[[Path], None], folder: Path) -> None:
    with opened(folder) as index:
        expected = index.page(ALL).rows
    spoil(index_path(folder))
    with opened(folder) as index:
        assert index.page(ALL).rows == expected
        assert index.told == ""
        assert index.progress.error == ""
    with opened(folder) as index:
        assert index.progress.to_read == 0, "and it is kept"


def test_an_index_that_is_damaged_while_it_is_open_is_made_anew(folder: Path) -> None:
    with opened(folder, pause_s=0.02) as index:
        file = index_path(folder)
        with index._file.looking() as sql:
            sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with file.open("r+b") as data:
            data.write(b"\xa5" * file.stat().st_size)
        write(folder / "new.jsonl")
        soon(lambda: "new.jsonl" in paths(index))
        soon(lambda: len(paths(index)) == 7)
        assert index._file.begun > 1


def test_a_link_in_the_place_of_the_index_is_replaced_and_not_followed(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "precious"
    other.write_bytes(b"precious")
    file = index_path(folder)
    file.parent.mkdir(parents=True)
    file.symlink_to(other)
    with opened(folder) as index:
        assert len(paths(index)) == 6
    assert other.read_bytes() == b"precious"
    assert not file.is_symlink()


def test_where_no_file_can_be_written_it_is_in_memory_and_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("x", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    with opened(folder, pause_s=0.02) as index:
        assert len(paths(index)) == 6
        assert "in memory alone" in index.told
        assert "Not a directory" in index.told
        write(folder / "new.jsonl")
        soon(lambda: len(paths(index)) == 7)


def test_a_disk_that_is_full_while_it_fills(folder: Path) -> None:
    with opened(folder, pause_s=0.02) as index:
        with index._file.looking() as sql:
            sql.execute("PRAGMA max_page_count = 1")  # SQLite says what it says of a full disk
        for number in range(40):
            write(folder / f"more-{number}.jsonl", events("long " * 2000))
        soon(lambda: len(paths(index)) == 46)
        assert "in memory alone" in index.told
        assert "full" in index.told


def test_questions_in_many_threads_while_it_fills(folder: Path) -> None:
    for number in range(300):
        write(folder / f"more-{number}.jsonl")
    index = TraceIndex(folder, pause_s=0.01)
    wrong: list[BaseException] = []

    def ask() -> None:
        try:
            while not index.wait(0):
                index.page(TraceFilter(q="what"))
                index.kinds(ALL)
                index.version()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert index.page(ALL).count == 306
    index.close()


OTHER = """
import sys
from pathlib import Path
from viewer.runs.trace_filter import TraceFilter
from viewer.runs.trace_index import TraceIndex
index = TraceIndex(Path(sys.argv[1]), pause_s=0.01)
assert index.wait(60)
print(index.page(TraceFilter()).count, index.told, index.progress.error)
index.close()
"""


@pytest.mark.thorough
def test_several_processes_share_an_index(folder: Path) -> None:
    for number in range(400):
        write(folder / f"more-{number}.jsonl")
    command = [sys.executable, "-c", OTHER, str(folder)]
    others = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    with opened(folder, pause_s=0.01) as index:
        for other in others:
            said, _ = other.communicate(timeout=90)
            assert other.returncode == 0
            assert said.split() == ["406"]
        soon(lambda: index.page(ALL).count == 406)
        assert index.told == index.progress.error == ""


@pytest.mark.thorough
def test_a_process_that_is_killed_while_it_fills_leaves_a_usable_index(folder: Path) -> None:
    for number in range(2000):
        write(folder / f"more-{number}.jsonl")
    file = index_path(folder)
    other = subprocess.Popen([sys.executable, "-c", OTHER, str(folder)], stdout=subprocess.DEVNULL)
    soon(file.exists, 60)
    time.sleep(0.1)
    other.kill()
    other.wait()
    with opened(folder) as index:
        assert index.page(ALL).count == 2006


def test_closing_it_amid_the_work_is_quick(folder: Path) -> None:
    for number in range(500):
        write(folder / f"more-{number}.jsonl")
    index = TraceIndex(folder)
    began = time.monotonic()
    index.close()
    assert time.monotonic() - began < 5
    assert not index._thread.is_alive()
    index.close()
    with pytest.raises(NoSuchPage, match="the viewer was closed"):
        index.page(ALL)


def test_what_an_index_file_holds_is_only_in_the_one_place(folder: Path, cache: Path) -> None:
    file = IndexFile(folder)
    with file.writing() as sql:
        sql.execute("INSERT INTO others VALUES ('x', 1, 2)")

    def fail() -> None:
        with file.writing() as sql:
            sql.execute("INSERT INTO others VALUES ('y', 1, 2)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with file.reading() as sql:
        assert sql.execute("SELECT path FROM others").fetchall() == [("x",)]
        assert sql.execute("SELECT changes FROM state").fetchone() == (1,)
    file.close()
    assert {each.parent for each in cache.rglob("*") if each.is_file()} == {index_path(folder).parent}


# What an evaluation says


def test_evaluations_say_which_traces_were_correct(folder: Path) -> None:
    write(folder / "eval" / "traces" / "one.jsonl", events(reward=None))
    write(folder / "eval" / "traces" / "two.jsonl", events(reward=None))
    results = folder / "eval" / "results.jsonl"
    results.write_text(
        '{"problem": "p", "correct": true, "trace": "traces/one.jsonl"}\nnonsense\n'
        '{"correct": true, "trace": "../a.jsonl"}\n{"correct": false, "trace": "../deep/er/c.jsonl"}\n'
        '{"correct": false, "trace": "tra',
        encoding="utf-8",
    )
    with opened(folder, pause_s=0.02) as index:
        assert "eval/traces/one.jsonl" in paths(index, TraceFilter(correct="yes"))
        assert paths(index, TraceFilter(correct="unknown", q="what")) == ["eval/traces/two.jsonl", "e.jsonl"]
        with results.open("a", encoding="utf-8") as file:
            file.write('ces/two.jsonl"}\n')
        soon(lambda: "eval/traces/two.jsonl" in paths(index, TraceFilter(correct="no")))
        assert paths(index, TraceFilter(correct="yes")).count("a.jsonl") == 1, "its own reward says so"


@pytest.mark.thorough
def test_what_an_evaluation_says_now_overrules_what_it_said(folder: Path) -> None:
    """Also where its results are others, of the same length or longer, whether or not an index is open meanwhile."""
    names = [f"eval/traces/{number}.jsonl" for number in range(600)]
    results = folder / "eval" / "results.jsonl"

    def evaluate(right: int, note: str = "") -> None:
        for name in names:
            write(folder / name, events(run_id=f"r{right}", reward=None))
        told = [
            f'{{"correct": {"true" if n < right else "false"}, "trace": "{name[5:]}"{note}}}\n'
            for n, name in enumerate(names)
        ]
        results.write_text("".join(told), encoding="utf-8")

    def right(index: TraceIndex) -> int:
        return sum(path.startswith("eval/") for path in paths(index, TraceFilter(correct="yes")))

    evaluate(100)
    with opened(folder, pause_s=0.02) as index:
        assert right(index) == 100
        evaluate(300, ', "note": "longer"')
        soon(lambda: right(index) == 300)
        results.write_text(results.read_text().replace("true", "null"), encoding="utf-8")
        soon(lambda: right(index) == 0)
        evaluate(50)
        soon(lambda: right(index) == 50)
    evaluate(350, ', "note": "longer"')
    with opened(folder, pause_s=0.02) as index:
        assert right(index) == 350
        results.unlink()
        soon(lambda: right(index) == 0)
        evaluate(7)
        soon(lambda: right(index) == 7)


def test_an_evaluation_whose_results_were_half_read_is_read_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder / "eval" / "traces" / "one.jsonl", events(reward=None))
    (folder / "eval" / "results.jsonl").write_text('{"correct": true, "trace": "traces/one.jsonl"}\n')

    def killed(*given: object) -> None:
        raise IndexClosed

    with monkeypatch.context() as patch:
        patch.setattr(GradedAttempts, "some", killed)
        with opened(folder):
            pass
    with opened(folder) as index:
        assert "eval/traces/one.jsonl" in paths(index, TraceFilter(correct="yes"))


# Words


def test_words_are_looked_for_in_whole_questions_answers_and_names(folder: Path) -> None:
    long = "Where is İstanbul? " + "and " * 1000 + "Größe"
    made = events(long, "so " * 500 + "Zürich", reward=None)
    made.insert(2, AgentTurn(t=0.6, key="w/Ann#0", path="w/Ann", agent="Ångström", messages=[]))
    write(folder / "words.jsonl", made)
    write(folder / "others.jsonl", events("Where?", reward=None))
    with opened(folder) as index:
        for words in ("istanbul", "İSTANBUL", "grösse", "GROSSE", "zurich", "angstrom", "ångström where"):
            assert paths(index, TraceFilter(q=words)) == ["words.jsonl"], words
        assert set(paths(index, TraceFilter(q="where"))) == {"words.jsonl", "others.jsonl"}
        write(folder / "words.jsonl", events("Another?"))
    with opened(folder) as index:
        assert paths(index, TraceFilter(q="istanbul")) == []


@pytest.mark.parametrize("length", [100, 700, 4_000, 9_000])
def test_words_are_looked_for_in_whole_messages_of_failures(folder: Path, length: int) -> None:
    message = "a" * length + " Größe " + "b" * length
    write(folder / "words.jsonl", events("Q?", None, reward=None, failure=failed("program_failed", message)))
    with opened(folder) as index:
        assert paths(index, TraceFilter(q="grosse")) == ["words.jsonl"]
        (kind,) = [each for each in index.kinds(TraceFilter(q="grosse")) if each.name == "program_failed"]
        assert len(kind.examples[0].message) <= 600
        assert paths(index, TraceFilter(message=kind.examples[0].message)) == ["words.jsonl"]


# The filter


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("failure=oops", "failure='oops' is not known. Fix: one of program_rejected, "),
        ("least=much", "least='much' is no number. Fix: such as least=0.5"),
        ("least=nan", "is no number"),
        ("page=-1", "page='-1' is no count"),
        ("step=1e3", "is no count"),
        ("step=99999999999999999999", "is no count"),
        ("order=sideways", "Fix: one of newest, "),
        ("colour=red", "there is no filter 'colour'. Fix: one of q, failure, "),
    ],
)
def test_a_wrong_query_is_told(query: str, said: str) -> None:
    with pytest.raises(NoSuchPage) as error:
        parsed(query)
    assert said in str(error.value)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(
    q=TEXTS,
    message=TEXTS,
    least=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    most=st.none() | st.sampled_from([1 / 3, 0.1 + 0.2, 1e-300, 12345678.9, 1.0]),
    step=st.none() | st.integers(0, 1000),
    failure=st.sampled_from(["", "any", "none", "program_failed"]),
    order=st.sampled_from(list(ORDERS)),
    page=st.integers(1, 9),
)
def test_a_filter_and_its_query_say_the_same(**values: Any) -> None:
    wanted = TraceFilter(**values)
    assert parsed(wanted.query) == wanted
    assert not wanted.is_empty
    assert parsed(wanted.without("q").query) == wanted.having(q="")
    where, bound = wanted.condition()
    assert where.count("?") == len(bound)


MEMORY = sqlite3.connect(":memory:")
MEMORY.execute("CREATE TABLE questions (asked TEXT, words TEXT)")


@given(word=st.text(max_size=20), text=st.text(max_size=40))
def test_words_are_found_as_they_are(word: str, text: str) -> None:
    """A pattern finds what Python finds, whatever signs the word holds."""
    word, text = (each.replace("\0", "").encode(errors="replace").decode() for each in (word, text))
    wanted = TraceFilter(q=word)
    where, bound = wanted.condition()
    if bound:
        found = MEMORY.execute(
            f"SELECT {where} FROM (SELECT ? AS words, '' AS asked)", [*bound, folded(text)]
        ).fetchone()[0]
        assert bool(found) == all(each in folded(text) for each in folded(word).split())
    assert TraceFilter().condition() == ("1", [])
