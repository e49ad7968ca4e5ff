"""`metaagent sft` from its arguments to its exit code, with a tiny model. What is learned: tests/trainer."""

# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.util
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from metaagent.cli import app
from metaagent.commands.sft import main as sft
from trainer.sft.fine_tuning import SFTSettings


def invoke(*arguments: Any) -> Result:
    result = CliRunner().invoke(app, ["sft", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    return result


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(question: str, answer: str, **more: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}],
        **more,
    }


def test_the_options_have_the_settings_defaults() -> None:
    options = inspect.signature(sft).parameters
    assert {name: options[name].default for name in SFTSettings.model_fields} == SFTSettings().model_dump()


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    gone = ("torch", "peft")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in gone else find(name))
    data = write(tmp_path / "rows.jsonl", row("a", "b"))
    result = invoke("--model", "m", "--data", data, "--out", tmp_path / "out", "--lora-rank", 4)
    assert result.exit_code == 2, "as of metaagent train"
    assert "torch" in result.stderr
    assert "peft" in result.stderr
    assert result.stderr.endswith('Fix: pip install "metaagent[train]"\n')


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--epochs", 0], "--epochs 0: Input should be greater than or equal to 1"),
        (["--learning-rate", -1], "--learning-rate -1.0: Input should be greater than 0"),
        (["--held-out", 1], "--held-out 1.0: Input should be less than 1"),
    ],
)
def test_settings_out_of_range_are_named(options: list[Any], said: str, tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", row("a", "b"))
    result = invoke("--model", "m", "--data", data, "--out", tmp_path / "out", *options)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks.tiny_models import make_model

    folder = tmp_path_factory.mktemp("start")
    make_model(folder, context=128)
    return folder


@pytest.fixture
def run(model: Path, tmp_path: Path) -> Any:
    def run(*options: Any, data: Any = None) -> Result:
        data = data or [write(tmp_path / "rows.jsonl", *(row(f"{n}?", f"{n}!") for n in range(8)))]
        files = [word for path in data for word in ("--data", path)]
        return invoke("--model", model, *files, "--out", "out", "--dtype", "float32", "--device", "cpu", *options)

    return run


def test_from_rows_to_a_model_and_on(run: Any, tmp_path: Path) -> None:
    result = run("--json", "--epochs", 2, "--batch", 4, "--held-out", 0.25, "--learning-rate", 0.01)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["held_out_after"] < told["held_out_before"]
    assert {name: told[name] for name in ("model", "rows", "held_out_rows", "steps", "resumed_from")} == {
        "model": "out/model",
        "rows": 6,
        "held_out_rows": 2,
        "steps": 4,
        "resumed_from": None,
    }
    assert (tmp_path / "out" / "model" / "config.json").exists()
    progress = result.stderr.splitlines()
    assert [line.split("  ")[1] for line in progress] == ["step 0/4", "step 2/4", "step 4/4"]
    assert all("held-out loss" in line for line in progress)

    again = run("--epochs", 2, "--batch", 4, "--held-out", 0.25, "--learning-rate", 0.01)
    assert again.exit_code == 4
    assert "out holds a run, at step 4. Fix: resume it, or choose another folder" in again.stderr
    other = run("--resume", "--epochs", 3, "--batch", 4, "--held-out", 0.25, "--learning-rate", 0.01)
    assert "the run in out has epochs 2, not 3" in other.stderr
    resumed = run("--resume", "--epochs", 2, "--batch", 4, "--held-out", 0.25, "--learning-rate", 0.01)
    assert resumed.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in resumed.stdout.splitlines())
    assert lines["Steps"] == "4, resumed after 4"
    assert lines["Rows"] == "6 learned from, 2 held out"
    before, after = told["held_out_before"], told["held_out_after"]
    assert lines["Held-out"] == f"{before:.4f} to {after:.4f} nats per reply token"


def test_roles_files_and_long_rows(run: Any, tmp_path: Path) -> None:
    first = write(tmp_path / "1.jsonl", row("a", "b", role="designer"), row("a", "c", role="executor"), row("a", "d"))
    second = write(tmp_path / "2.jsonl", row("a", "b"), row("a", "b" * 200))
    result = run("--json", "--role", "designer", "--lora-rank", 2, data=[first, second])
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["rows"] == 3
    assert told["rows_too_long"] == [f"{second}, line 2"]
    assert f"note: 1 rows have too many tokens and are left out: {second}, line 2" in result.stderr
    assert told["held_out_before"] is None


def test_a_damaged_checkpoint_is_told(run: Any, tmp_path: Path) -> None:
    options = ("--batch", 4, "--checkpoint-every", 1, "--resume")
    assert run(*options).exit_code == 0
    (tmp_path / "out" / "checkpoints" / "step-00000002" / "state.json").write_text("{}")
    result = run(*options)
    assert result.exit_code == 0
    assert "note: checkpoint step-00000002 is damaged and passed over: state.json has 2 bytes" in result.stderr


def test_what_cannot_be_learned_from_is_named(run: Any, tmp_path: Path) -> None:
    result = run(data=[write(tmp_path / "bad.jsonl", row("a", "b"), {"messages": []})])
    assert result.exit_code == 2
    assert f"error: {tmp_path}/bad.jsonl, line 2, field messages: expected an assistant turn" in result.stderr
    result = run(data=[write(tmp_path / "long.jsonl", row("a", "b" * 200))])
    assert result.exit_code == 2
    assert "no row to learn from" in result.stderr
    result = run("--model", tmp_path / "none")
    assert result.exit_code == 2
    assert "cannot load --model" in result.stderr


def test_a_loss_that_is_not_finite_stops_with_a_remedy(run: Any) -> None:
    result = run("--learning-rate", 1e30, "--batch", 1, "--warmup", 0)
    assert result.exit_code == 3
    assert "no step was taken. Fix: a lower learning_rate" in result.stderr
