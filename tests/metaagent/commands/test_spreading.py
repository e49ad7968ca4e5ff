"""The options that spread `eval` and `distill` over a cluster: what makes no sense is told before anything starts."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import invoke

from engine.openai import OpenAIEngine
from metaagent.commands import spreading
from trainer.config import ClusterConfig

Replay = Callable[..., str]
PROBLEM = {"id": "sum/1", "question": "What is 1 + 1?", "domain": "math", "gold": "2"}
SERVER = "openai:m@http://127.0.0.1:9/v1"


@pytest.fixture(params=["eval", "distill"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """A command that lacks only its engine."""
    (tmp_path / "own.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    return [request.param, "problems:own.jsonl", "-o", "out", *(["--bank"] if request.param == "distill" else [])]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--replicas", "2"), "--replicas says how a cluster is used. Fix: add --cluster local|auto|HOST:PORT"),
        (("--gpus-per-node", "0"), "--gpus-per-node says how a cluster is used"),
        (("--cluster", "here"), "--cluster here: there is no such address. Fix: write local, auto or HOST:PORT"),
        (("--cluster", "head:6379x"), "there is no such address"),
        (("--cluster", "local", "--run-workers", "0"), "'--run-workers'"),
        (
            ("--cluster", "local", "--nodes", "2", "--cache", "c"),
            "a cache needs one disk, and --nodes is more than one",
        ),
        (("--cluster", "local", "--sandbox", "x"), "there is no sandbox 'x'"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(words: list[str], options: tuple[str, ...], told: str) -> None:
    result = invoke(*words, "-e", SERVER, *options)
    assert result.exit_code == 2
    assert told in result.stderr
    assert not Path("out").exists()


def test_a_replay_stays_in_one_process(words: list[str], replay: Replay) -> None:
    result = invoke(*words, "-e", replay(("Solver", "x")), "--cluster", "local")
    assert result.exit_code == 2
    assert "replay:replies.jsonl gives its replies in order, to one process" in result.stderr


@pytest.mark.thorough
def test_without_ray_it_is_said_what_to_install(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = invoke(*words, "-e", SERVER, "--cluster", "local")
    assert result.exit_code == 4
    assert 'ray is not installed. Fix: pip install "metaagent[cluster]"' in result.stderr
    assert "are done and kept in out" in result.stderr


@pytest.mark.thorough
def test_what_is_done_already_needs_no_cluster(
    one: str, replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(OpenAIEngine, "complete", None)
    (tmp_path / "own.jsonl").write_text(json.dumps(PROBLEM) + "\n")
    words = ["eval", "problems:own.jsonl", "-d", one, "--k", "1", "-o", "out"]
    assert invoke(*words, "-e", replay(("Solver", r"\boxed{2}"))).exit_code == 0
    settings = Path("out/evaluation.json")
    settings.write_text(settings.read_text().replace("replay:replies.jsonl", SERVER))
    done = invoke(*words, "-e", SERVER, "--cluster", "local")
    assert done.exit_code == 0
    assert "100.0%" in done.stdout


def test_defaults_are_those_of_the_configuration() -> None:
    spread = spreading.spreading("local", None, None, None, None)
    assert spread is not None
    assert spread.cluster.run_workers_per_node == ClusterConfig().run_workers_per_node
    assert (spread.cluster.nodes, spread.replicas, spread.find_gpus) == (1, 1, True)
    told = spreading.spreading("head:1", 2, 3, 4, 0)
    assert told == spreading.Spreading(
        ClusterConfig(address="head:1", nodes=2, run_workers_per_node=3, gpus_per_node=0), 4, find_gpus=False
    )
    assert told is not None
    assert told.workers == 6
    assert spreading.spreading(None, None, None, None, None) is None
