"""Folders of evaluations as they are read: whole, growing, torn, broken, huge, of earlier versions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from evaluation_folders import ENSEMBLE, HOSTILE, attempt, folder_of, rejected
from hypothesis import given
from hypothesis import strategies as st

from trainer.disk import line_of
from trainer.evaluate import RESULTS, SETTINGS, report_of
from viewer.evaluation import attempt_rows
from viewer.evaluation.evaluation_data import MOST_EXAMPLES, MOST_NAMED, EvaluationReader

SOME = [
    attempt("a", 0, True, task="sums", trace="traces/a-0.jsonl"),
    attempt("a", 1, False, task="sums", structure="ensemble", graph=ENSEMBLE),
    rejected("b", 0, task="chains"),
]


def test_figures_are_those_of_metaagent_eval(tmp_path: Path) -> None:
    found = EvaluationReader(folder_of(tmp_path, SOME)).read()
    assert found.report == report_of(SOME)
    assert [(row.problem, row.attempt, row.correct, row.line) for row in found.rows] == [
        ("a", 0, True, 1),
        ("a", 1, False, 2),
        ("b", 0, False, 3),
    ]
    row = found.rows[0]
    assert (row.tokens, row.calls, row.cost_usd, row.seconds, row.structure_name) == (90, 2, None, 2.0, "single")
    assert found.rows[2].structure_name == "none"
    assert (found.broken_count, found.torn, found.repeated, found.unread) == (0, False, 0, "")
    assert found.made_by["sampling"] == {"temperature": 1.0}
    assert [each.problem for each in found.examples["program_rejected"]] == ["b"]
    assert found.of_problem("a") == found.rows[:2]
    assert found.of_trace("traces/a-0.jsonl") == row
    assert found.of_trace("traces/b-0.jsonl") is None


def test_an_attempt_is_read_again_whole(tmp_path: Path) -> None:
    reader = EvaluationReader(folder_of(tmp_path, SOME))
    rows = reader.read().rows
    assert [reader.attempt(row) for row in rows] == SOME
    folder_of(tmp_path, [attempt("elsewhere"), *SOME])
    with pytest.raises(ValueError, match="line 2, is not what it was"):
        reader.attempt(rows[1])


def test_a_torn_last_line_is_left_out_until_it_ends(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, SOME[:2])
    whole = line_of(SOME[2])
    with (folder / RESULTS).open("a") as file:
        file.write(whole[:40])
    reader = EvaluationReader(folder)
    assert (len(reader.read().rows), reader.read().torn, reader.read().broken_count) == (2, True, 0)
    before = reader.version()
    with (folder / RESULTS).open("a") as file:
        file.write(whole[40:])
    assert reader.version() != before
    assert (len(reader.read().rows), reader.read().torn) == (3, False)
    assert reader.read().report == report_of(SOME)


def test_it_follows_a_file_that_grows_and_one_that_is_another(tmp_path: Path) -> None:
    reader = EvaluationReader(folder_of(tmp_path, []))
    assert reader.read().report == report_of([])
    for many in range(1, len(SOME) + 1):
        with (tmp_path / RESULTS).open("a") as file:
            file.write(line_of(SOME[many - 1]))
        assert reader.read().report == report_of(SOME[:many])
        assert reader.read() is reader.read()
    (tmp_path / RESULTS).unlink()
    assert reader.read().rows == []
    folder_of(tmp_path, SOME[2:])
    assert reader.read().report == report_of(SOME[2:])
    (tmp_path / RESULTS).write_text(line_of(SOME[0])[:-1])  # the same file with another content, shorter or longer
    assert (reader.read().rows, reader.read().torn) == ([], True)
    (tmp_path / RESULTS).write_text("".join(map(line_of, SOME[1:])))
    assert reader.read().report == report_of(SOME[1:])
    (tmp_path / RESULTS).write_text("".join(map(line_of, [*SOME[:2], attempt("c")])))
    assert reader.read().report == report_of([*SOME[:2], attempt("c")])


def test_broken_lines_are_named_and_counted(tmp_path: Path) -> None:
    lines = [line_of(each).encode() for each in SOME]
    wrong = json.loads(lines[0])
    broken = [
        b"{half",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        json.dumps(wrong | {"correct": "perhaps"}).encode(),
        json.dumps(wrong | {"domain": "poetry"}).encode(),
        json.dumps(wrong | {"duration_s": -1}).encode(),
        json.dumps(wrong | {"duration_s": float("nan")}).encode(),
        json.dumps(wrong | {"reply_tokens": {"executor": [2**60]}}).encode(),
        json.dumps(wrong | {"usage": {"executor": {"calls": -4}}}).encode(),
        b'{"usage": ' + b"[" * 5000,
        json.dumps({name: value for name, value in wrong.items() if name != "seed"}).encode(),
    ]
    folder_of(tmp_path, [])
    (tmp_path / RESULTS).write_bytes(b"\n".join([lines[0][:-1], *broken, b"", lines[1], lines[2]]))
    found = EvaluationReader(tmp_path).read()
    assert [row.line for row in found.rows] == [1, len(broken) + 3, len(broken) + 5]
    assert found.report == report_of(SOME)
    assert [each.line for each in found.broken] == list(range(2, len(broken) + 2))
    reasons = {each.line - 2: each.reason for each in found.broken}
    assert "correct" in reasons[4]
    assert "domain" in reasons[5]
    assert "-1.0 is no number of seconds" in reasons[6]
    assert "reply_tokens" in reasons[8]
    assert "seed" in reasons[11]


def test_many_broken_lines_are_counted(tmp_path: Path) -> None:
    folder_of(tmp_path, [])
    (tmp_path / RESULTS).write_text("no JSON\n" * 1000)
    found = EvaluationReader(tmp_path).read()
    assert (found.broken_count, len(found.broken)) == (1000, MOST_NAMED)


def test_a_line_that_is_too_long_is_broken_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("viewer.evaluation.evaluation_data.LONGEST_LINE", 3000)
    monkeypatch.setattr(attempt_rows, "LONGEST_LINE", 3000)
    long = attempt("long", message="x" * 9500)
    found = EvaluationReader(folder_of(tmp_path, [SOME[0], long, SOME[1]])).read()
    assert [row.line for row in found.rows] == [1, 3]
    assert [(each.line, each.reason) for each in found.broken] == [(2, "it is longer than 3,000 bytes")]
    with (tmp_path / RESULTS).open("a") as file:  # and one that has no end
        file.write("x" * 9500)
    assert EvaluationReader(tmp_path).read().broken_count == 2


def test_an_attempt_that_was_made_again_counts_once(tmp_path: Path) -> None:
    again = attempt("a", 0, False, task="sums")
    found = EvaluationReader(folder_of(tmp_path, [*SOME, again])).read()
    assert found.report == report_of([*SOME[1:], again])
    assert (found.repeated, [row.line for row in found.rows]) == (1, [2, 3, 4])
    reader = EvaluationReader(folder_of(tmp_path, SOME))
    assert reader.read().report.attempts == 3
    for _ in range(2):
        with (tmp_path / RESULTS).open("a") as file:
            file.write(line_of(again))
    assert (reader.read().report, reader.read().repeated) == (found.report, 2)


def test_what_earlier_versions_wrote_is_read(tmp_path: Path) -> None:
    """Of the first version, without what has come since, and of a later one with keys that nobody knows yet."""
    old = {
        "problem": "p",
        "attempt": 0,
        "problem_digest": "0",
        "domain": "math",
        "seed": 1,
        "correct": True,
        "answered": True,
        "verdict": "correct",
        "designer": "bank",
        "duration_s": 1,
    }
    folder_of(tmp_path, [])
    (tmp_path / RESULTS).write_text(
        json.dumps(old) + "\n" + json.dumps(old | {"attempt": 1, "mood": "fine", "graph": None}) + "\n"
    )
    found = EvaluationReader(tmp_path).read()
    assert (found.report.attempts, found.broken) == (2, [])
    assert (found.rows[0].tokens, found.rows[0].program, found.rows[0].trace) == (0, b"", None)


def test_examples_differ_and_are_few(tmp_path: Path) -> None:
    alike = [rejected(f"a{number}", message=f"line {number}: unexpected indent") for number in range(50)]
    others = [rejected(f"b{number}", message="no " * number) for number in range(50)]
    failed = rejected("c", failure="limit_exceeded", verdict="limit_exceeded", message="tokens")
    found = EvaluationReader(folder_of(tmp_path, [*alike, *others, failed])).read()
    assert [each.problem for each in found.examples["program_rejected"]] == ["a0", "b0", "b1"]
    assert len(found.examples["program_rejected"]) == MOST_EXAMPLES
    assert [each.message for each in found.examples["limit_exceeded"]] == ["tokens"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "[" * 100_000, '{"a": \ud800}'])
def test_settings_that_say_nothing_are_said_to(tmp_path: Path, text: str) -> None:
    folder_of(tmp_path, SOME)
    (tmp_path / SETTINGS).write_bytes(text.encode(errors="surrogatepass"))
    found = EvaluationReader(tmp_path).read()
    assert (found.made_by, len(found.rows)) == ({}, 3)
    assert SETTINGS in found.unread


def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        EvaluationReader(tmp_path / "nowhere").read()
    found = EvaluationReader(tmp_path).read()
    assert (found.rows, "is missing" in found.unread) == ([], True)
    os.mkfifo(tmp_path / RESULTS)
    with pytest.raises(OSError, match="no plain file"):
        EvaluationReader(tmp_path).read()


@given(st.lists(st.sampled_from([*SOME, attempt("a", 0, False)]), max_size=8), st.integers(0, 8))
def test_read_at_once_or_bit_by_bit_it_is_the_same(tmp_path_factory, attempts, first: int) -> None:
    """Attempts that are there twice included."""
    folder = tmp_path_factory.mktemp("evaluation")
    reader = EvaluationReader(folder_of(folder, []))
    for some in (attempts[:first], attempts[first:]):
        with (folder / RESULTS).open("a") as file:
            file.write("".join(map(line_of, some)))
        reader.read()
    last = {(each.problem, each.attempt): each for each in attempts}
    assert reader.read().report == report_of(last.values())
    assert reader.read().report == EvaluationReader(folder).read().report
    assert len(reader.read().rows) == len(last)


def test_hostile_texts_stay_what_they_are(tmp_path: Path) -> None:
    attempts = [rejected(text, task=text, verdict=text, message=text, program=text, trace=text) for text in HOSTILE]
    reader = EvaluationReader(folder_of(tmp_path, attempts))
    *short, long = (row.problem for row in reader.read().rows)
    assert short == list(HOSTILE[:-1])
    assert (len(long), long[:200]) == (297, HOSTILE[-1][:200])
    assert [reader.attempt(row).program for row in reader.read().rows] == list(HOSTILE)


def test_long_names_are_cut_and_stay_different(tmp_path: Path) -> None:
    long = [attempt("x" * 1000 + end, task=end * 1000, trace="traces/" + "y" * 600) for end in "ab"]
    found = EvaluationReader(folder_of(tmp_path, [each.model_copy(update={"trace": None}) for each in long])).read()
    assert len({row.problem for row in found.rows}) == len({row.task for row in found.rows}) == 2
    assert attempt_rows.row_of(long[0], 1, 0).trace is None
