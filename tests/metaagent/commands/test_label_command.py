"""`metaagent label` from its arguments to its exit code: a real jail, an endpoint, and real kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import MISSPELT, document, invoke
from replying_server import ReplyingServer

from engine import retries
from search.problem import read_tree

TWO = """\
from workflow import AgentNode, Workflow
first, last = AgentNode("First", "Think.", max_turns=1), AgentNode("Last", "Answer.", max_turns=1)
workflow = Workflow("two").add_nodes([first, last])
"""
PROBLEMS = [{"id": f"sum/{n}", "question": f"What is {n} + {n}?", "domain": "math", "gold": str(2 * n)} for n in (1, 2)]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)
    (tmp_path / "two.py").write_text(TWO)
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))


def label(engine: str, folder: str, *more: str) -> list[str]:
    settings = ("--simulations", "6", "--children", "2")
    return ["label", "problems:own.jsonl", "--program", "two.py", "-e", engine, "--out", folder, *settings, *more]


def trees(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "trees").iterdir())}


def test_problems_are_labelled_once_and_told(tmp_path: Path) -> None:
    with ReplyingServer() as server:
        told = document(invoke(*label(server.spec, "out", "--json")))
        asked = len(server.asked)
        again = invoke(*label(server.spec, "out"))
        assert len(server.asked) == asked, "nothing is asked again"
    records = [read_tree(path) for path in sorted((tmp_path / "out" / "trees").iterdir())]
    assert (told["problems"], told["kept"], len(records)) == (2, 0, 2)
    assert told["nodes"] == sum(len(record.nodes) - 1 for record in records) == asked
    assert told["edges"] == sum(node.visits > 0 for record in records for node in record.nodes.values())
    lines = [line for record in records for line in record.simulations]
    assert len(lines) == 12
    assert told["right"] == sum(line.value > 0 for line in lines) / 12
    assert {record.header.question for record in records} == {problem["question"] for problem in PROBLEMS}
    assert again.exit_code == 0
    assert "2, 2 of them from before" in again.stdout
    assert f"{told['edges']} visited edges of {told['nodes']}" in again.stdout
    body: dict[str, Any] = server.asked[0]
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.7, 0.95, 1024)
    assert "logprobs" not in body, "an endpoint would refuse that under this sampling"


@pytest.mark.thorough
@pytest.mark.parametrize("replies", [3, 8])
def test_labels_of_a_killed_process_go_on_to_the_same_bytes(tmp_path: Path, replies: int) -> None:
    with ReplyingServer(pause_s=0.05) as server:
        command = [sys.executable, "-m", "metaagent", *label(server.spec, "killed")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
        try:
            until = time.monotonic() + 60
            while len(server.asked) < replies and process.poll() is None and time.monotonic() < until:
                time.sleep(0.002)
            os.kill(process.pid, signal.SIGKILL)
        finally:
            process.kill()
            assert process.wait(20) == -signal.SIGKILL
        there = b"".join(trees(tmp_path / "killed").values()).count(b'{"type": "node"')
        before = len(server.asked)
        told = document(invoke(*label(server.spec, "killed", "--json")))
        assert told["nodes"] - there == len(server.asked) - before > 0
        invoke(*label(server.spec, "whole", "--max-concurrent", "1"))
    assert trees(tmp_path / "killed") == trees(tmp_path / "whole")


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--simulations", "0"), "--simulations 0"),
        (("--children", "0"), "--children 0"),
        (("--c-uct", "-1"), "--c-uct -1"),
        (("--c-uct", "nan"), "--c-uct nan"),
        (("--top-p", "0"), "--top-p 0"),
        (("--temperature", "-1"), "--temperature -1"),
    ],
)
def test_settings_that_are_none_are_usage_errors(more: tuple[str, ...], named: str, tmp_path: Path) -> None:
    result = invoke(*label("replay:nothing.jsonl", "out", *more))
    assert result.exit_code == 2
    assert named in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_what_cannot_be_labelled_is_a_usage_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "nobody.py").write_text(
        "from workflow import Workflow, WorkflowNode\nclass Four(WorkflowNode):\n    def process(self, context):\n"
        "        return '4'\nworkflow = Workflow('w').add_node(Four('four'))\n"
    )
    (tmp_path / "misspelt.py").write_text(MISSPELT)
    with ReplyingServer() as server:
        invoke(*label(server.spec, "out"))
        before = trees(tmp_path / "out")
        asked = len(server.asked)
        for more, named in (
            (("--simulations", "7"), "simulations=6, not 7"),
            (("--program", "nobody.py", "--out", "other"), "asks no agent"),
            (("--program", "misspelt.py", "--out", "other"), "--program misspelt.py may not run"),
        ):
            result = invoke(*label(server.spec, "out", *more))
            assert (result.exit_code, len(server.asked)) == (2, asked), named
            assert named in result.stderr
            assert "Fix: " in result.stderr
        damaged = next((tmp_path / "out" / "trees").iterdir())
        damaged.write_bytes(before[damaged.name].replace(b'"type": "state"', b'"type": "stat"', 1))
        result = invoke(*label(server.spec, "out"))
        assert result.exit_code == 2
        assert f"{damaged.name}:2 is no line of a tree" in "".join(result.stderr.split("\n"))
        damaged.write_bytes(before[damaged.name])
    assert trees(tmp_path / "out") == before
    assert invoke(*label("", "out")).exit_code == 2


@pytest.mark.thorough
def test_an_engine_that_is_gone_keeps_what_is_done(tmp_path: Path) -> None:
    (tmp_path / "gone.jsonl").write_text("")
    result = invoke(*label("replay:gone.jsonl", "out"))
    assert result.exit_code == 4
    assert "0 of 2 trees are done and kept in out: the same command goes on from there" in result.stderr
    for text in trees(tmp_path / "out").values():
        assert [json.loads(line)["type"] for line in text.splitlines()] in (["tree", "state"], ["tree"], [])
