"""Where commands are told to write: links, devices, pipes, folders, files of somebody else's."""

import os
from pathlib import Path
from typing import Any

import pytest
from command_line import document, invoke

from metaagent.commands.outputs import PROGRAM, TRACE, check_output, open_output
from metaagent.commands.run import TraceFile
from metaagent.terminal import Stop
from workflow.trace import Printed

QUESTION = "What is 6 * 7?"
OWN = "nobody's but mine\n"
EVENT = '{"t":0.0,"type":"print","text":"x"}\n'
NAMES = ["run.jsonl", "a\nb\x1b[31m", os.fsdecode(b"\xff"), "-x", " "]


def test_a_run_survives_a_trace_that_cannot_be_written(one: str, replay: Any) -> None:
    engine = replay(("Solver", "\\boxed{42}"))
    result = invoke("run", one, QUESTION, "--engine", engine, "--trace", "/dev/full", "--json")
    assert result.exit_code == 0
    assert document(result)["answer"] == "42"
    assert document(result)["notes"] == ["the trace is incomplete: No space left on device"]
    program = Path(one).read_text()
    result = invoke("run", one, QUESTION, "--engine", engine, "--trace", one)
    assert (result.exit_code, "no trace" in result.stderr) == (2, True)
    assert Path(one).read_text() == program


def test_a_design_that_cannot_be_saved_is_shown() -> None:
    result = invoke("design", QUESTION, "--save", "/dev/full", "--json")
    assert (result.exit_code, "cannot write /dev/full" in result.stderr) == (2, True)
    assert document(result)["saved"] is None
    assert "workflow" in document(result)["designs"][0]["program"]
    Path("notes.txt").write_text(OWN)
    assert invoke("design", QUESTION, "--save", "notes.txt").exit_code == 2
    assert Path("notes.txt").read_text() == OWN


def test_a_pipe_that_nobody_reads_is_refused_and_one_that_somebody_reads_is_written() -> None:
    os.mkfifo("pipe")
    with pytest.raises(Stop, match="a pipe that nobody reads"):
        open_output(Path("pipe"), TRACE)
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    with TraceFile(Path("pipe")) as sink:
        sink(Printed(text="x"))
        assert os.read(reader, 1 << 16).decode() == EVENT
        os.close(reader)
        sink(Printed(text="y"))
    assert sink.problem == "the trace is incomplete: Broken pipe"


@pytest.mark.parametrize("kind", [TRACE, PROGRAM])
def test_what_is_another_thing_is_not_written_over(kind: Any) -> None:
    Path("notes.txt").write_text(OWN)
    os.symlink("notes.txt", "link")
    os.link("notes.txt", "twin")
    for name in ("notes.txt", "link", "twin"):
        for refuse in (open_output, check_output):
            with pytest.raises(Stop, match=f"is no {kind.name}"):
                refuse(Path(name), kind)
    assert Path("notes.txt").read_text() == OWN


@pytest.mark.parametrize(("kind", "text"), [(TRACE, EVENT), (PROGRAM, "from workflow import Workflow\n")])
def test_what_is_the_same_thing_is_written_over_and_names_may_be_any(kind: Any, text: str) -> None:
    Path("there").touch()
    os.symlink("new", "dangling")
    for name in ["there", "dangling", *NAMES, *NAMES]:
        check_output(Path(name), kind)
        with open_output(Path(name), kind) as file:
            file.write(text)
        assert Path(name).read_text() == text


def test_a_file_that_is_exchanged_while_it_is_looked_at_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was opened is mine; the one that is looked at, a trace."""
    Path("file").write_text(OWN)
    Path("trace").write_text(EVENT)
    fstat = os.fstat

    def exchanged(fd: int) -> os.stat_result:
        monkeypatch.setattr(os, "fstat", fstat)
        os.rename("file", "mine")
        os.rename("trace", "file")
        return fstat(fd)

    monkeypatch.setattr(os, "fstat", exchanged)
    with pytest.raises(Stop, match="is no trace"):
        open_output(Path("file"), TRACE)
    assert (Path("mine").read_text(), Path("file").read_text()) == (OWN, EVENT)


@pytest.mark.parametrize("path", ["folder", "gone/x", "loop", "/dev/null/x", "a" * 300])
def test_what_cannot_be_written_is_named(path: str) -> None:
    Path("folder").mkdir()
    os.symlink("loop", "loop")
    for refuse in (open_output,) if path in ("folder", "loop") else (open_output, check_output):
        with pytest.raises(Stop, match="cannot write"):
            refuse(Path(path), TRACE)


def test_a_trace_is_read_in_lines_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metaagent.terminal.transcript.LONGEST_LINE", 1 << 20)
    result = invoke("trace", "/dev/zero")
    assert (result.exit_code, "a line has more than" in result.stderr) == (2, True)


@pytest.mark.parametrize("other", ["both", "./folder/../both", "link"])
def test_two_outputs_are_two_files(one: str, replay: Any, other: str) -> None:
    Path("folder").mkdir()
    Path("link").symlink_to("both")
    engine = replay(("Solver", "\\boxed{42}"))
    for command, first, second in (("run", "--trace", "--out"), ("search", "--tree", "--trace")):
        told = invoke(command, one, QUESTION, "--engine", engine, first, "both", second, other)
        assert told.exit_code == 2
        assert "are both" in told.stderr
    told = invoke("design", QUESTION, "--save", "both", "--out", other)
    assert (told.exit_code, "--save and --out are both both" in told.stderr) == (2, True)
    assert not Path("both").exists()
    assert invoke("run", one, QUESTION, "--engine", engine, "--trace", "/dev/null", "--out", "/dev/null").exit_code == 0
