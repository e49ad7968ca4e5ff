"""`metaagent prm` from its arguments to its exit code, with a tiny model. What is learned: tests/trainer/values."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from metaagent.cli import app
from metaagent.commands.prm import main as prm
from metaagent.commands.search_options import opened_models
from metaagent.terminal import Stop
from search.problem import AnyLine, NodeLine, SimulationLine, StateLine, TreeHeader, line_text
from trainer.values import ValueSettings
from workflow.completion import ChatMessage, Completion


def invoke(*arguments: Any) -> Result:
    result = CliRunner().invoke(app, ["prm", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    return result


def write_trees(folder: Path, problems: int = 8, longest: int = 1, method: str = "label") -> Path:
    """Ann is asked once; she is right with an x and wrong with a y."""
    dice = random.Random(0)
    (folder / "trees").mkdir(parents=True)
    for number in range(problems):
        question = f"Problem {number}?"
        lines: list[AnyLine] = [
            TreeHeader(
                settings={"method": method},
                problem=f"{number}",
                problem_digest=f"{number}",
                question=question,
                domain="math",
                program="00",
                engine="stub",
            ),
            StateLine(id=0, terminal=False, agent="Ann", messages=[ChatMessage(role="user", content=question)]),
        ]
        for at, letter in enumerate("xy", 1):
            said = Completion(text=letter * dice.randint(1, longest))
            lines.append(NodeLine(id=at, parent=0, key="k", path="Ann", agent="Ann", depth=1, completion=said))
        for at, graded in ((1, 1.0), (2, -1.0)):
            lines += [
                StateLine(id=at, terminal=True, answer="x", graded=graded),
                SimulationLine(path=[at], value=graded),
            ]
        (folder / "trees" / f"{number}.jsonl").write_text("".join(map(line_text, lines)))
    return folder


def test_the_options_have_the_settings_defaults() -> None:
    options = inspect.signature(prm).parameters
    assert {name: options[name].default for name in ValueSettings.model_fields} == ValueSettings().model_dump()


def test_the_papers_setting_is_the_default() -> None:
    """Appendix B.5: 5 epochs, batches of 8 times 16, rate 1e-5, rank 256; 5 % of the problems validate."""
    options = inspect.signature(prm).parameters
    paper = {"epochs": 5, "batch": 128, "learning_rate": 1e-5, "lora_rank": 256, "loss": "huber", "held_out": 0.05}
    assert {name: options[name].default for name in paper} == paper


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    gone = ("torch", "peft")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in gone else find(name))
    result = invoke("--model", "m", "--data", write_trees(tmp_path / "data"), "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr.endswith('Fix: pip install "metaagent[train]"\n')


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--epochs", 0], "--epochs 0: Input should be greater than or equal to 1"),
        (["--delta", 0], "--delta 0.0: Input should be greater than 0"),
        (["--separator", ""], "--separator '' is no token. Fix: text that no reply holds"),
        (["--separator", " "], "--separator ' ' is no token. Fix: "),
        (["--separator", "\udcff"], "is no token. Fix: "),
        (["--outcome", "--view", "transcript"], "--outcome reads the question and the answer of every end. Fix: no"),
    ],
)
def test_settings_out_of_range_are_named(options: list[Any], said: str, tmp_path: Path) -> None:
    result = invoke("--model", "m", "--data", write_trees(tmp_path / "data"), "--out", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks.tiny_models import make_model

    folder = tmp_path_factory.mktemp("start")
    make_model(folder, context=64, spread=0.6)
    return folder


@pytest.fixture
def run(model: Path, tmp_path: Path) -> Any:
    def run(*options: Any, data: Path | None = None, rank: int = 0) -> Result:
        data = data or (tmp_path / "data" if (tmp_path / "data").exists() else write_trees(tmp_path / "data"))
        given = ("--model", model, "--data", data, "--out", tmp_path / "out", "--lora-rank", rank)
        return invoke(*given, "--dtype", "float32", "--device", "cpu", *options)

    return run


LEARN = ("--epochs", 8, "--batch", 4, "--held-out", 0.25, "--learning-rate", 0.01)


def test_from_trees_to_a_scorer_and_on(run: Any, tmp_path: Path) -> None:
    result = run("--json", *LEARN)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["held_out_after"]["rmse"] < told["held_out_before"]["rmse"] == pytest.approx(0.9999)
    assert {name: told[name] for name in ("trees", "problems", "held_out_problems", "rows", "held_out_rows")} == {
        "trees": 8,
        "problems": 6,
        "held_out_problems": 2,
        "rows": 12,
        "held_out_rows": 4,
    }
    progress = result.stderr.splitlines()
    assert [line.split("  ")[1] for line in progress] == [f"step {3 * epoch}/24" for epoch in range(9)]
    assert all("held-out RMSE" in line for line in progress)

    from trainer.values import TorchScorer

    scorer = TorchScorer.load(tmp_path / "out", device="cpu")
    assert scorer.agents == {"Ann": 12}, "and none of the 4 held out"

    assert "holds a run, at step 24. Fix: resume it" in run(*LEARN).stderr
    resumed = run("--resume", *LEARN)
    assert resumed.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in resumed.stdout.splitlines())
    assert lines["Steps"] == "24, resumed after 24"
    assert lines["Trees"] == "8, of 6 problems and 2 held out"
    assert lines["Ann"].startswith("4\t")


def test_an_outcome_model_with_adapters(run: Any, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    result = run("--json", "--outcome", "--epochs", 1, rank=4)
    assert result.exit_code == 0
    assert json.loads((tmp_path / "out" / "model" / "scorer.json").read_text())["view"] == "outcome"


def test_what_is_left_out_is_said(run: Any, tmp_path: Path) -> None:
    data = write_trees(tmp_path / "long", longest=60)
    result = run("--json", "--epochs", 1, "--max-tokens", 40, data=data)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    [count] = told["dropped"].values()
    assert f"note: {count} rows left out: too long" in result.stderr
    assert told["rows"] + told["held_out_rows"] + count == 16
    result = run("--root-window", 0.5, "--min-visits", 2)
    assert "note: 16 rows left out: fewer than 2 visits" in result.stderr
    assert "error: no row to learn from" in result.stderr


def test_what_cannot_be_learned_from_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run(data=tmp_path / "empty")
    assert result.exit_code == 2
    assert "empty has no tree (*.jsonl). Fix: a folder that metaagent label wrote" in result.stderr
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"type": "tree"}\n')
    result = run(data=bad)
    assert result.exit_code == 2
    assert "bad.jsonl:1 is no line of a tree" in result.stderr


def test_a_separator_that_texts_are_made_of_is_refused(run: Any, tmp_path: Path) -> None:
    assert run("--separator", "a").exit_code == 2
    assert "--separator 'a' is token" in run("--separator", "a").stderr
    longer = run("--separator", "xx", data=write_trees(tmp_path / "long", longest=60))
    assert longer.exit_code == 2
    assert "'xx' stands in" in longer.stderr


def test_trees_of_searches_and_of_math500_are_refused(run: Any, tmp_path: Path) -> None:
    result = run(data=write_trees(tmp_path / "searched", method="majority"))
    assert result.exit_code == 2
    assert "0.jsonl is no tree of labels: its header has method 'majority', not 'label'; 8 of 8" in result.stderr
    data = write_trees(tmp_path / "data", problems=3)
    tree = data / "trees" / "1.jsonl"
    tree.write_text(tree.read_text().replace("Problem 1?", "How many positive whole-number divisors does 196 have?"))
    result = run("--epochs", 1)
    assert result.exit_code == 2
    assert "1 of 3 problems stand in MATH-500, which is for tests: 1. Fix: --without-math500" in result.stderr
    result = run("--epochs", 1, "--without-math500", "--json")
    assert "They are left out" in result.stderr
    told = json.loads(result.stdout)
    assert (told["trees"], told["rows"] + told["held_out_rows"]) == (2, 4)


def test_a_folder_that_is_no_model_of_values_is_said_to_be_none(model: Path, tmp_path: Path) -> None:
    (tmp_path / "lost" / "model").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no folder")
    for folder, why in (
        (tmp_path / "empty", "it has no config.json"),
        (tmp_path / "lost", "it has no config.json"),
        (tmp_path / "nowhere", "there is no such folder"),
        (tmp_path / "file", "there is no such folder"),
        (model, "has no token '<extra_0>'"),  # as a model/ that has lost its scorer.json
    ):
        with pytest.raises(Stop) as said:
            asyncio.run(opened(str(folder)))
        text = str(said.value)
        assert f"--prm: {folder} is neither a model of metaagent prm, as it has no scorer.json, nor one of two" in text
        assert why in text
        assert "Fix: the --out folder of metaagent prm, copied whole, or a model for token classification" in text


async def opened(prm: str) -> None:
    async with opened_models(prm, None):
        pass
