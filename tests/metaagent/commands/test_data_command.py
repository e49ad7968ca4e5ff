"""`metaagent data` from its arguments to files, exit codes and what is shown; stopped and killed on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import document, invoke

from sandbox import ProcessSandbox
from tasks import READERS
from tasks.data import TRAINING_SETS
from workflow.failures import SandboxUnavailable

POLARIS: dict[str, Any] = {"problem": "What is half of $1$?", "answer": r"\frac{1}{2}", "difficulty": "5/8"}
TESTS = json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]})
APPS: dict[str, Any] = {
    "problem_id": 1,
    "question": "Add them.",
    "difficulty": "introductory",
    "input_output": TESTS,
    "solutions": json.dumps(["print(sum(map(int, input().split())))"]),
    "starter_code": "",
}


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_set_is_prepared_and_told(tmp_path: Path) -> None:
    source = write(tmp_path / "raw.jsonl", POLARIS, {**POLARIS, "answer": r"\frac{"}, {**POLARIS, "answer": ""})
    result = invoke("data", "prepare", "polaris", "--source", source, "--out", "data")
    assert result.exit_code == 0
    assert "Rows     1 of 3 that were read\n" in result.stdout
    assert "Graded   1 of 1 right answers as right, 0 of 1 wrong ones; 1 row read back\n" in result.stdout
    assert "Kept in  data/polaris_53k.jsonl\nMade of  data/polaris_53k.source.json\n" in result.stdout
    assert "reason\trows\nanswer: empty\t1\nan answer that the grader cannot read\t1\nall\t2\n" in result.stdout
    assert "100% read, raw.jsonl, row 3: " in result.stderr
    assert [problem.gold for problem in READERS["polaris"](tmp_path / "data" / "polaris_53k.jsonl")] == [r"\frac{1}{2}"]


def test_a_document_of_it(tmp_path: Path) -> None:
    source = write(tmp_path / "raw.jsonl", APPS, {**APPS, "difficulty": "interview"})
    result = invoke("data", "prepare", "apps", "-s", source, "-o", "data", "--limit", "5", "--json")
    assert result.exit_code == 0
    told = document(result)
    manifest = json.loads((tmp_path / "data" / "apps_introductory.source.json").read_text())
    assert told["prepared"] == manifest
    assert told["path"] == "data/apps_introductory.jsonl"
    assert (manifest["rows"], manifest["read"], manifest["limit"]) == (1, 2, 5)
    assert told["known_answers"]["right_accepted"] == told["known_answers"]["right"] == 1


def test_a_right_solution_is_kept_where_it_is_asked_for(tmp_path: Path) -> None:
    right = "print(sum(map(int, input().split())))"
    source = write(
        tmp_path / "raw.jsonl",
        {**APPS, "solutions": json.dumps(["print(4)", right])},
        {**APPS, "problem_id": 2, "solutions": json.dumps(["print(4)"])},
    )
    result = invoke("data", "prepare", "apps", "--source", source, "--out", "data", "--references")
    assert result.exit_code == 0
    assert "reason\trows\nno solution that passes all tests\t1\nall\t1\n" in result.stdout
    assert [each.reference for each in READERS["apps"](tmp_path / "data" / "apps_introductory.jsonl")] == [right]
    result = invoke("data", "prepare", "polaris", "--out", "other", "--references")
    assert result.exit_code == 2
    assert "--references: polaris was published without solutions. Fix: leave it out" in result.stderr


def test_data_that_does_not_grade_is_exit_code_1(tmp_path: Path) -> None:
    wrong = write(tmp_path / "raw.jsonl", {**APPS, "solutions": json.dumps(["print(0)"])})
    result = invoke("data", "prepare", "apps", "--source", wrong, "--out", "data")
    assert result.exit_code == 1
    assert "Graded   0 of 1 right answers as right" in result.stdout
    assert "apps/1: a right answer is graded as 0 of 1 tests passed" in result.stderr
    none = write(tmp_path / "raw.jsonl", {**APPS, "solutions": ""})
    result = invoke("data", "prepare", "apps", "--source", none, "--out", "data")
    assert result.exit_code == 0
    assert "no known answer was graded" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("prepare",), "say which training set. Fix: one of polaris, apps, code_contests"),
        (("prepare", "polarus", "--out", "x"), "there is no training set 'polarus'. Fix: write polaris"),
        (("prepare", "polaris"), "say where the file goes. Fix: add --out FOLDER"),
        (("prepare", "polaris", "--out", "x", "--source", "none.jsonl"), "there is no file none.jsonl"),
        (("prepare", "polaris", "--out", "x", "--source", "x.csv"), "x.csv is no data file. Fix: name one that"),
        (("prepare", "apps", "--out", "x", "--source", "raw.jsonl"), "no row of raw.jsonl can be used: difficulty is"),
        (("prepare", "polaris", "--out", "raw.jsonl/x", "--source", "raw.jsonl"), "cannot write to raw.jsonl/x: Not"),
        (("prepare", "polaris", "--out", "raw.jsonl", "--source", "raw.jsonl"), "is a file"),
        (("mend", "polaris"), "'mend' is not one of"),
        (("prepare", "polaris", "--out", "x", "--limit", "0"), "--limit"),
    ],
)  # fmt: skip
def test_usage_errors(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    write(tmp_path / "raw.jsonl", POLARIS)
    (tmp_path / "x.csv").write_text("")
    result = invoke("data", *arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert not (tmp_path / "x" / "polaris_53k.jsonl").exists()


def test_without_the_client_the_command_to_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    result = invoke("data", "prepare", "code_contests", "--out", "data")
    assert result.exit_code == 2
    told = " ".join(result.stderr.split())
    assert 'hf download --repo-type dataset deepmind/code_contests --include "data/train-*" --local-dir FOLDER' in told


def test_a_machine_that_cannot_grade_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(self: ProcessSandbox, kind: str) -> None:
        raise SandboxUnavailable("seccomp is missing", "use a kernel with seccomp")

    monkeypatch.setattr(ProcessSandbox, "_zygote", refuse)
    result = invoke("data", "prepare", "apps", "--source", write(tmp_path / "raw.jsonl", APPS), "--out", "data")
    assert result.exit_code == 4
    assert "seccomp is missing" in result.stderr
    assert not (tmp_path / "data").exists()


def test_the_sets_are_listed() -> None:
    listed = document(invoke("data", "list", "--json"))["training_sets"]
    assert [(each["name"], each["file"]) for each in listed] == [
        (name, each.file) for name, each in TRAINING_SETS.items()
    ]
    shown = invoke("data", "list").stdout
    assert all(each["download"] in shown for each in listed)


def started(tmp_path: Path) -> subprocess.Popen[str]:
    """A command in the midst of its work: all rows before are integers, which are graded at sight."""
    rows = [json.dumps({**POLARIS, "problem": f"{n}?", "answer": str(n)}) for n in range(300_000)]
    (tmp_path / "raw.jsonl").write_text("\n".join(rows))
    command = [
        sys.executable,
        "-m",
        "metaagent",
        "data",
        "prepare",
        "polaris",
        "--source",
        "raw.jsonl",
        "--out",
        "data",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"PYTHONUNBUFFERED": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )  # fmt: skip
    part = tmp_path / "data" / "polaris_53k.jsonl.part"
    until = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    return process


@pytest.mark.thorough
def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.thorough
def test_a_kill_leaves_no_file_under_the_final_name(tmp_path: Path) -> None:
    process = started(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["polaris_53k.jsonl.part"]
    result = invoke("data", "prepare", "polaris", "--source", "raw.jsonl", "--out", "data", "--limit", "3")
    assert result.exit_code == 0
    assert len(READERS["polaris"](tmp_path / "data" / "polaris_53k.jsonl")) == 3
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "polaris_53k.jsonl",
        "polaris_53k.source.json",
    ]
