"""`metaagent view`: what becomes of each kind of path, and what is said where nothing can be shown."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from functools import partial
from pathlib import Path

import pytest
import typer
from command_line import document, invoke

from metaagent import serving_pages
from metaagent.demo import PROGRAM, REPLAY, text
from metaagent.terminal import ExitCode, Stop
from workflow.completion import Completion
from workflow.trace import AgentTurn, RunEnded, RunStarted, Trace

pytestmark = pytest.mark.thorough

PROBLEM = "Jen enters a lottery."


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(text(PROGRAM))
    (tmp_path / "replies.jsonl").write_text(text(REPLAY))
    path = tmp_path / "run.jsonl"
    ran = invoke("run", str(tmp_path / "program.py"), PROBLEM, "-e", f"replay:{tmp_path / 'replies.jsonl'}",
                 "--trace", str(path))  # fmt: skip
    assert ran.exit_code == 0, ran.output
    return path


def test_a_trace_becomes_a_file(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("view", "run.jsonl")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("run.html: 1 pages, ")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "MathSolver" in page
    assert "\\boxed{116}" in page
    assert invoke("view", "run.jsonl", "--out", "run.html").exit_code == 0  # it is ours, and made anew


def test_a_folder_of_traces_becomes_one_file(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "traces"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.jsonl").write_bytes(trace.read_bytes())
    shown = invoke("view", str(folder), "-o", str(tmp_path / "all.html"))
    assert shown.exit_code == 0, shown.output
    assert "3 traces" in (tmp_path / "all.html").read_text(encoding="utf-8")


def test_traces_beside_an_empty_folder_of_traces_are_shown(trace: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "runs" / "traces").mkdir(parents=True)
    trace.rename(tmp_path / "runs" / "run.jsonl")
    shown = invoke("view", str(tmp_path / "runs"), "-o", str(tmp_path / "all.html"))
    assert shown.exit_code == 0, shown.output
    assert "1 trace<" in (tmp_path / "all.html").read_text(encoding="utf-8")


def test_what_is_somebody_elses_is_not_written_over(trace: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.html"
    mine.write_text("<!doctype html><p>mine</p>")
    shown = invoke("view", str(trace), "--out", str(mine))
    assert shown.exit_code == 2
    assert f"cannot write {mine}: it holds something that is no page" in shown.stderr
    assert mine.read_text() == "<!doctype html><p>mine</p>"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere is not there. Fix: "),
        (["empty"], "empty holds no traces. Fix: "),
        (
            ["links"],
            "links holds no traces (links and folders whose names begin with a dot are not followed: 2). Fix: ",
        ),
        (["run.jsonl", "--before", "empty"], "run.jsonl is no evaluation, and only those are compared. Fix: "),
        (["run.jsonl", "--serve", "--out", "x.html"], "--serve writes no file. Fix: "),
        (["run.jsonl", "--port", "3333"], "--port 3333 is for --serve. Fix: "),
        (["program.py"], "program.py is no trace: it is no JSON"),
        (["replies.jsonl"], "replies.jsonl is no trace: "),
        (["metrics.jsonl"], "metrics.jsonl is a part of a folder. Fix: metaagent view "),
        (["pipe"], "pipe is no plain file. Fix: "),
        (["run.jsonl", "--before", "nowhere"], "nowhere is not there. Fix: "),
    ],
)
def test_what_cannot_be_shown_is_told(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "links" / ".hidden").mkdir(parents=True)
    (tmp_path / "links" / "run.jsonl").symlink_to(trace)
    (tmp_path / "links" / "other.txt").symlink_to(trace)
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    os.mkfifo(tmp_path / "pipe")
    shown = invoke("view", *arguments)
    assert shown.exit_code == 2
    assert said in shown.stderr


def served(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "metaagent", *arguments]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"see (http://127\.0\.0\.1:\d+/\S+/)", line):
            return found[1]
    raise AssertionError(f"no address, and the end: {process.wait(timeout=10)}")


def waits(process: subprocess.Popen[str]) -> bool:
    """Whether it has said that Ctrl-C ends it, from when on it does."""
    assert process.stderr is not None
    return any("Ctrl-C ends it" in line for line in process.stderr)


def test_a_trace_is_served_until_ctrl_c(trace: Path) -> None:
    process = served("view", str(trace), "--serve", "--no-browser")
    try:
        with urllib.request.urlopen(address_of(process) + "page?route=run", timeout=20) as answer:
            assert b"MathSolver" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.communicate(timeout=20)


def test_a_run_is_seen_after_it_has_ended(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "true")  # a program that opens nothing
    replies = f"replay:{tmp_path / 'replies.jsonl'}"
    process = served("run", str(tmp_path / "program.py"), PROBLEM, "-e", replies, "--view")
    try:
        address = address_of(process)
        assert process.stdout is not None
        assert any("Answer  116" in line for line in process.stdout)
        with urllib.request.urlopen(address + "page?route=run", timeout=20) as answer:
            page = answer.read()
        assert b"MathSolver" in page
        assert b"The run answered" in page
        assert waits(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.communicate(timeout=20)


@pytest.mark.parametrize(("command", "more"), [("design", []), ("design", ["--json"]), ("run", [])])
def test_what_failed_is_seen_until_ctrl_c(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, more: list[str]
) -> None:
    monkeypatch.setenv("BROWSER", "true")
    (tmp_path / "none.jsonl").write_text("")
    program = [str(tmp_path / "program.py")] if command == "run" else []
    process = served(command, *program, PROBLEM, "-e", f"replay:{tmp_path / 'none.jsonl'}", "--view", *more)
    try:
        address = address_of(process)
        told = process.stdout if command == "run" or more else process.stderr
        assert told is not None
        failure = next(line for line in told if "was not recorded" in line)
        if more:
            assert json.loads(failure)["error"]["exit_code"] == ExitCode.INFRASTRUCTURE
        with urllib.request.urlopen(f"{address}page?route={command}", timeout=20) as answer:
            assert b"was not recorded" in answer.read()
        assert waits(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == ExitCode.INFRASTRUCTURE
        assert process.stderr is not None
        assert "was not recorded" not in process.stderr.read()  # it is told once
    finally:
        process.kill()
        process.communicate(timeout=20)


def test_who_is_asked_is_seen_and_what_there_is_is_written_after_ctrl_c(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER", "true")
    out = tmp_path / "page.html"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        engine = f"openai:m@http://127.0.0.1:{silent.getsockname()[1]}/v1"
        process = served("run", str(tmp_path / "program.py"), PROBLEM, "-e", engine, "--view", "--out", str(out))
        try:
            address = address_of(process)
            until = time.monotonic() + 60
            page = ""
            while "Being asked now: MathSolver" not in page and time.monotonic() < until:
                time.sleep(0.1)
                with urllib.request.urlopen(address + "page?route=run", timeout=20) as answer:
                    page = answer.read().decode()
            assert "Being asked now: MathSolver" in page
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == ExitCode.INTERRUPTED
        finally:
            process.kill()
            process.communicate(timeout=20)
    assert "MathSolver" in out.read_text(encoding="utf-8")


def test_a_run_is_written_as_a_page_without_being_served(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    program = str(tmp_path / "program.py")
    ran = invoke("run", program, PROBLEM, "-e", f"replay:{tmp_path / 'replies.jsonl'}", "--out", str(out))
    assert ran.exit_code == 0, ran.output
    assert "page.html: 1 pages" in "".join(ran.stderr.split("\n"))
    assert "The run answered" in out.read_text(encoding="utf-8")
    (tmp_path / "none.jsonl").write_text("")
    failed = invoke("design", PROBLEM, "-e", f"replay:{tmp_path / 'none.jsonl'}", "--out", str(out))
    assert failed.exit_code == ExitCode.INFRASTRUCTURE
    assert "was not recorded" in out.read_text(encoding="utf-8")
    out.write_text("mine")
    refused = invoke("run", program, PROBLEM, "-e", f"replay:{tmp_path / 'replies.jsonl'}", "--out", str(out))
    assert refused.exit_code == ExitCode.USAGE
    assert "it holds something that is no page" in refused.stderr
    assert out.read_text() == "mine"


def test_a_training_run_that_failed_is_seen_until_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "true")
    waited: list[str] = []
    monkeypatch.setattr(serving_pages, "wait_for_the_end", lambda: waited.append("waited"))
    with pytest.raises(typer.Exit) as ended, serving_pages.viewing_training(True, tmp_path):
        raise Stop("the disk is full", ExitCode.FAILED)
    assert (ended.value.exit_code, waited) == (ExitCode.FAILED, ["waited"])
    with pytest.raises(Stop), serving_pages.viewing_training(True, tmp_path):
        raise Stop("another run's folder", ExitCode.USAGE)
    assert waited == ["waited"]


def test_the_address_is_on_no_command_line(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/asked.tmp\nmv {tmp_path}/asked.tmp {tmp_path}/asked\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    process = served("view", str(trace), "--serve")
    try:
        address = address_of(process)
        until = time.monotonic() + 20
        while not (tmp_path / "asked").exists() and time.monotonic() < until:
            time.sleep(0.05)
        asked = (tmp_path / "asked").read_text().strip()
        assert asked.startswith("file:///")
        assert address.split("/")[3] not in asked
        page = Path(asked.removeprefix("file://"))
        assert address in page.read_text()
        assert page.parent.stat().st_mode & 0o077 == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert not page.exists()
    finally:
        process.kill()
        process.communicate(timeout=20)


def test_a_trace_is_drawn_with_what_its_program_never_asked(trace: Path, tmp_path: Path) -> None:
    lines = trace.read_text().splitlines()
    told = json.loads(lines[0])
    told["program"] += '\nextra = AgentNode("Nobody", "x")\nworkflow.add_node(extra)\n'
    trace.write_text("\n".join([json.dumps(told), *lines[1:]]) + "\n")
    assert invoke("view", str(trace), "-o", str(tmp_path / "page.html")).exit_code == 0
    assert '"Nobody","not asked"' in (tmp_path / "page.html").read_text()


def test_tokens_are_coloured_in_the_text(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"<unk>": 0, "four": 1, "five": 2}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "<unk>")).save(str(tmp_path / "tokenizer.json"))
    said = Completion(text="four five", token_ids=[1, 2, 99, -1], logprobs=[-0.01, -5.0, -1.0, -1.0])
    turn = AgentTurn(key="a#0", path="a", agent="a", messages=[], completion=said)
    started = RunStarted(run_id="r", question="?", engine="e")
    (tmp_path / "run.jsonl").write_text("".join(Trace(events=[started, turn, RunEnded()]).lines()))
    page = tmp_path / "page.html"
    shown = invoke("view", str(tmp_path / "run.jsonl"), "--tokenizer", str(tmp_path), "-o", str(page))
    assert shown.exit_code == 0, shown.output
    assert re.search(r'class="h\d"[^>]*>five</span>', page.read_text(encoding="utf-8"))
    shown = invoke("view", str(tmp_path / "run.jsonl"), "--tokenizer", str(tmp_path / "nowhere"), "-o", str(page))
    assert shown.exit_code == 2
    assert f"cannot read {tmp_path / 'nowhere' / 'tokenizer.json'}: " in shown.stderr


def test_the_json_of_a_run_is_the_same_with_and_without_a_page(trace: Path, tmp_path: Path) -> None:
    ran = invoke("run", str(tmp_path / "program.py"), PROBLEM, "-e", f"replay:{tmp_path / 'replies.jsonl'}", "--json")
    assert document(ran)["answer"] == "116"
