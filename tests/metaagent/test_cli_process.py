"""The installed command as a process: light, plain in a pipe, coloured on a terminal, ended by Ctrl-C."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytestmark = pytest.mark.thorough

ONE = """\
from workflow import AgentNode, Workflow

solver = AgentNode(name="Solver", system_prompt="Put the answer in \\\\boxed{}.")
workflow = Workflow(name="one").add_node(solver)
"""
TWO = (
    ONE.replace("workflow = ", 'other = AgentNode(name="Other", system_prompt="Check.")\nworkflow = ')
    + "workflow.add_node(other)\n"
)
METAAGENT = [sys.executable, "-m", "metaagent.cli"]
HEAVY = ["openai", "torch", "sympy", "math_verify", "transformers", "RestrictedPython", "latex2sympy2_extended"]


def test_help_is_light() -> None:
    script = (
        "import sys, metaagent.cli\n"
        "sys.argv = ['metaagent', '--help']\n"
        "try: metaagent.cli.app()\n"
        "except SystemExit as end: assert end.code == 0\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
    assert "design" in done.stdout
    assert "Exit codes:" in done.stdout


def test_help_of_every_command_tells_the_exit_codes() -> None:
    for name in ("design", "run", "check", "show", "templates", "doctor", "trace", "demo", "train"):
        done = subprocess.run([*METAAGENT, name, "-h"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0
        assert "4  infrastructure" in done.stdout


def test_a_pipe_gets_plain_text_of_any_width(one: str) -> None:
    done = subprocess.run([*METAAGENT, "design", "Compute $1 + 2$. " * 30], capture_output=True, timeout=60)
    assert done.returncode == 0
    text = done.stdout.decode()
    assert "\x1b" not in text
    assert not set(text) & set("│┃╭╮╰╯━")
    assert "\n".join(line for line in text.splitlines() if line.startswith("Why")).count("\n") == 0


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = subprocess.Popen([*METAAGENT, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert b"Traceback" not in errors


def test_an_ascii_terminal_gets_escapes_not_a_traceback(one: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps({"agent": "Solver", "reply": "π ∎ 𝔸"}) + "\n")
    done = subprocess.run(
        [*METAAGENT, "run", one, "π?", "-e", "replay:r.jsonl"],
        capture_output=True,
        timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0, done.stderr
    assert rb"\u03c0" in done.stdout
    assert b"Traceback" not in done.stderr


def on_a_terminal(*arguments: str) -> str:
    """What a command that ends well writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*METAAGENT, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        output += piece
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return output.decode()


def test_a_terminal_gets_colours_and_live_progress(one: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps({"agent": "Solver", "reply": r"\boxed{42} [bold]x[/bold]"}) + "\n")
    text = on_a_terminal("run", one, "6 * 7?", "-e", "replay:r.jsonl")
    assert "\x1b[1;32m42" in text
    assert "agent " in text


class Streaming(BaseHTTPRequestHandler):
    """Answers every request with one program, in pieces."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        deltas = [*f"I think \x1b[2J of one.\n<code>\n{ONE}</code>".splitlines(keepends=True)]
        chunks = [{"choices": [{"delta": {"content": each}}]} for each in deltas]
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        chunks.append({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"data: {json.dumps(each)}\n\n" for each in chunks).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_terminal_gets_what_the_designer_writes() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Streaming) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        engine = f"openai:m@http://127.0.0.1:{server.server_port}/v1"
        text = on_a_terminal("design", "6 * 7?", "-e", engine, "--temperature", "0.3", "--max-tokens", "99")
        server.shutdown()
    assert r"I think \x1b[2J of one." in text, "shown, and escaped"
    assert text.index("I think") < text.index("Designer")
    assert "</code>" in text
    (body,) = Streaming.asked
    assert (body["stream"], body["temperature"], body["max_tokens"]) == (True, 0.3, 99)


@pytest.fixture
def silent_endpoint() -> Iterator[str]:
    """An HTTP endpoint that takes requests and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"openai:m@http://127.0.0.1:{server.getsockname()[1]}/v1"


def test_ctrl_c_ends_a_run_cleanly(one: str, silent_endpoint: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*METAAGENT, "run", one, "?", "-e", silent_endpoint, "--trace", "t.jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in its background has them ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    trace = tmp_path / "t.jsonl"
    deadline = time.monotonic() + 60
    while not (trace.exists() and trace.read_text()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)  # until the agent call is under way
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "note: interrupted: what there was by then is shown\n"
    assert re.search(r"^Stopped +interrupted$", out, re.MULTILINE)
    assert "ancelled" not in out
    assert "Failed" not in out
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    assert events[-1]["type"] == "run_ended"
    [asked] = [event for event in events if event["type"] == "agent_call"]
    assert asked["error"] == "it was stopped before its reply was there"


class Tiring(BaseHTTPRequestHandler):
    """Answers the first request, and is silent from then on."""

    said: ClassVar[str]
    asked: ClassVar[int]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked += 1
        if self.asked > 1:
            time.sleep(60)
            return
        message = {"role": "assistant", "content": self.said}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        reply = {"id": "r", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None: ...


def stopped(said: str, *arguments: str, by: type[Tiring] = Tiring) -> tuple[int, str, str]:
    """A command whose engine says one thing and then nothing, and that then gets Ctrl-C."""
    by.said, by.asked = said, 0
    with ThreadingHTTPServer(("127.0.0.1", 0), by) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        process = subprocess.Popen(
            [*METAAGENT, *arguments, "-e", f"openai:m@http://127.0.0.1:{server.server_port}/v1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        deadline = time.monotonic() + 60
        while by.asked < 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # For the check of what was said, on a busy machine; else for what is on its way.
        time.sleep(8 if said else 1)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
        server.shutdown()
    return process.returncode, out, errors


def test_ctrl_c_keeps_the_designs_that_are_finished(tmp_path: Path) -> None:
    code, out, errors = stopped(
        f"<think>x</think><code>\n{ONE}</code>", "design", "6 * 7?", "--samples", "3", "--save", "p.py", "--run"
    )
    assert code == 130, errors
    assert "AgentNode" in out
    assert "passed" in out
    assert (tmp_path / "p.py").read_text().strip() == ONE.strip()
    assert "note: interrupted: the 1 that were finished are shown" in errors
    assert "Answer" not in out, "nothing was run"


def test_ctrl_c_shows_the_transcript_so_far(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO)
    code, out, errors = stopped("It is \\boxed{42}.", "run", "two.py", "6 * 7?", "--transcript")
    assert code == 130
    assert errors == "note: interrupted: what there was by then is shown\n"
    assert "It is \\boxed{42}." in out


def test_ctrl_c_gives_the_report_of_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO)
    code, out, errors = stopped("It is \\boxed{42}.", "run", "two.py", "6 * 7?", "--json")
    assert (code, errors) == (130, "")
    report = json.loads(out)
    assert (report["interrupted"], report["failure"], report["fix"]) == (True, None, "")
    assert (report["agent_calls"], list(report["usage_report"]["by_agent"])) == (2, ["Solver", "Other"])


def test_ctrl_c_of_the_run_of_a_design_is_no_failure_of_its_program() -> None:
    code, out, errors = stopped(f"<code>\n{ONE}</code>", "design", "6 * 7?", "--run", "--json")
    assert code == 130, errors
    report = json.loads(out)
    assert (report["interrupted"], report["run"]["interrupted"], report["run"]["failure"]) == (True, True, None)


class Dripping(Tiring):
    """Writes half a reply, piece by piece, and is silent then."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["stream"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for piece in ("I think ", "that it ", "is"):
            choice = {"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}
            chunk = {"id": "r", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
        type(self).asked = 2
        time.sleep(60)


def test_ctrl_c_keeps_what_was_written_of_a_reply(one: str, tmp_path: Path) -> None:
    code, out, _ = stopped("", "run", one, "6 * 7?", "--trace", "t.jsonl", "--transcript", by=Dripping)
    assert code == 130
    [asked] = [
        event
        for line in (tmp_path / "t.jsonl").read_text().splitlines()
        if (event := json.loads(line))["type"] == "agent_call"
    ]
    assert (asked["completion"], asked["written"]) == (None, "I think that it is")
    assert "I think that it is" in out


def test_ctrl_c_keeps_what_was_written_of_a_design(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal, where what is written is watched
    code, out, _ = stopped("", "design", "6 * 7?", "--save", "p.py", "--json", by=Dripping)
    assert code == 130
    report = json.loads(out)
    [design] = report["designs"]
    assert (design["written"], design["program"], report["saved"]) == ("I think that it is", None, None)
    assert not (tmp_path / "p.py").exists()
    code, out, errors = stopped("", "design", "6 * 7?", by=Dripping)
    assert code == 130
    assert "I think that it is" in out
    assert "interrupted: what was written by then is shown" in errors


def test_ctrl_c_in_the_run_of_a_design_keeps_the_design(tmp_path: Path) -> None:
    code, out, errors = stopped(f"<code>\n{ONE}</code>", "design", "6 * 7?", "--save", "p.py", "--run")
    assert code == 130, errors
    assert (tmp_path / "p.py").read_text().strip() == ONE.strip()
    assert "passed" in out
    assert re.search(r"^Stopped +interrupted$", out, re.MULTILINE)
    assert "ancelled" not in out
