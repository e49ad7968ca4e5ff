"""Where users look, they see who used what and what the cache spared them: `run`, `trace`, `design`."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from metaagent.cli import app
from metaagent.commands.run_notes import fix_of
from workflow.failures import LimitExceeded

PAIR = r"""
from workflow import AgentNode, EnsembleNode, Workflow

solvers = [AgentNode(name="Solver", system_prompt="Put it in \\boxed{}.", max_turns=1) for _ in range(2)]
judge = AgentNode(name="Judge", system_prompt="Put it in \\boxed{}.", max_turns=1)
workflow = Workflow(name="two")
workflow.add_node(EnsembleNode(name="Pair", agents=solvers, strategy="consensus", consensus_agent=judge))
"""


class Endpoint(ThreadingHTTPServer):
    """Answers each request with `said`, 100 prompt tokens (40 of them seen before) and 7 completion tokens."""

    daemon_threads = True
    said = r"\boxed{42}"
    asked = 0


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 40}}
        message = {"role": "assistant", "content": self.server.said}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Endpoint(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield running
        running.shutdown()


def invoke(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == exit_code, result.output
    return result.output


def spec(endpoint: Endpoint) -> str:
    return f"openai:m@http://127.0.0.1:{endpoint.server_port}/v1"


def test_a_models_context_is_no_limit_that_an_option_raises() -> None:
    failure = LimitExceeded("context_tokens", 4096, 5000).record()
    assert "--" not in fix_of(failure, "p.py")
    assert "raise it with --wall-s" in fix_of(LimitExceeded("wall_s", 1, 2).record(), "p.py")


def test_run_and_trace_tell_agents_and_hits(endpoint: Endpoint, tmp_path: Path) -> None:
    Path("pair.py").write_text(PAIR)
    arguments = ("run", "pair.py", "6 * 7?", "-e", spec(endpoint), "--cache", "kept", "--trace", "t.jsonl")
    first = invoke(*arguments)
    assert "Usage   3 agent calls, 300 prompt (120 of a known prefix) and 21 completion tokens\n" in first
    assert "Cache   0 of 3 replies, 0 tokens not paid again\n" in first
    second = invoke(*arguments)
    assert endpoint.asked == 3
    assert "Answer  42\n" in second
    assert "Cache   3 of 3 replies, 321 tokens not paid again\n" in second
    agents = second[second.index("By agent\n") :].splitlines()[1:]
    from_cache = "completion tokens; from the cache:"
    assert agents == [
        f"  Solver  2 calls, 200 prompt (80 of a known prefix) and 14 {from_cache} 2 of 2 replies, "
        "214 tokens not paid again",
        f"  Judge   1 call, 100 prompt (40 of a known prefix) and 7 {from_cache} 1 of 1 replies, "
        "107 tokens not paid again",
    ]
    transcript = invoke("trace", "t.jsonl")
    assert "100 + 7 tokens, from the cache" in transcript
    assert "from the cache: 3 of 3 replies, 321 tokens not paid again" in transcript
    assert transcript.splitlines()[-3:] == ["By agent", *agents]
    shown = json.loads(invoke("trace", "t.jsonl", "--json"))["usage_report"]
    assert shown == json.loads(invoke(*arguments, "--json"))["usage_report"]
    assert shown["total"]["usage"]["completion_tokens"] == 21
    assert shown["by_agent"]["Judge"]["cache_hits"] == 1


def test_without_a_cache_none_is_spoken_of(endpoint: Endpoint, one: str) -> None:
    for _ in range(2):
        said = invoke("run", one, "6 * 7?", "-e", spec(endpoint))
        assert "ache" not in said
        assert "By agent" not in said
    assert endpoint.asked == 2


def test_design_shows_the_designer_beside_the_executor(endpoint: Endpoint) -> None:
    endpoint.said = f"<code>\n{PAIR}</code>"
    arguments = ("design", "6 * 7?", "-e", spec(endpoint), "--run", "--samples", "2")
    told = invoke(*arguments, "--cache", "kept")
    roles = told[told.index("By role\n") :].splitlines()[1:]
    assert [line.split(",")[0] for line in roles] == ["  designer  2 calls", "  executor  3 calls"]
    report = json.loads(invoke(*arguments, "--json", "--cache", "kept"))
    assert endpoint.asked == 5
    by_role = report["usage_report"]["by_role"]
    assert by_role["designer"]["usage"] == report["usage"]
    assert by_role["executor"] == report["run"]["usage_report"]["total"]
    assert (by_role["designer"]["cache_hits"], by_role["executor"]["cache_hits"]) == (2, 3)
    assert report["usage_report"]["total"]["usage"]["prompt_tokens"] == 500


def test_a_cache_without_an_endpoint_is_a_usage_error(one: str, endpoint: Endpoint) -> None:
    assert "nothing to cache" in invoke("run", one, "?", "-e", "replay:f", "--cache", "kept", exit_code=2)
    assert "--engine" in invoke("design", "?", "--cache", "kept", exit_code=2)
    Path("kept").mkdir()
    Path("kept/replies.sqlite3").write_text("no database" * 100)
    said = invoke("run", one, "?", "-e", spec(endpoint), "--cache", "kept", exit_code=4)
    assert "kept/replies.sqlite3" in said
    assert "Fix: " in said
