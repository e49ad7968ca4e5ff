"""Training of a real, tiny model of values: it learns, ends alike however often it is killed, and says what it is."""

# pyright: reportMissingImports=false

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import label_trees as trees
import torch

from benchmarks.tiny_models import make_model
from engine.pretrained import load_tokenizer
from trainer.disk import CheckpointError
from trainer.update import LoraSettings, TorchBackend
from trainer.values import (
    SCORER,
    ScorerFile,
    StateView,
    TreeRows,
    ValueResult,
    ValueSettings,
    ValueStep,
    View,
    held_out_problems,
    read_scorer,
    rows_of_trees,
    train_values,
)

SEPARATOR = "<|value|>"
SETTINGS = ValueSettings(epochs=2, batch=8, learning_rate=5e-3, held_out=0.2, seed=3)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("start")
    make_model(folder, layers=2, width=32, context=256, spread=0.6)
    return folder


def state_view(start: Path, view: View = "local", most: int | None = None) -> StateView:
    tokenizer = load_tokenizer(start)
    tokenizer.add_tokens([SEPARATOR], special_tokens=True)
    return StateView(tokenizer, SEPARATOR, view, most)


def one_token(dice: random.Random) -> dict[str, float]:
    """Replies of six letters, right where the third is an x."""
    found = {}
    for value in (1.0, -1.0, 1.0, -1.0):
        letters = [dice.choice("abcdefgh") for _ in range(6)]
        letters[2] = "x" if value > 0 else "y"
        found["".join(letters)] = value
    return found


def train(start: Path, read: TreeRows, view: StateView, out: Path, settings: ValueSettings, **more: Any) -> ValueResult:
    lora = more.pop("lora", None)
    backend = TorchBackend(
        start, learning_rate=settings.learning_rate, device="cpu", lora=lora, separator=SEPARATOR, seed=settings.seed
    )
    scorer = ScorerFile(
        view=view.view,
        separator=SEPARATOR,
        separator_id=view.separator_id,
        template=view.fingerprint,
        max_tokens=view.max_tokens,
        base=start.name,
        base_weights=backend.base,
    )
    try:
        return train_values(backend, read, settings, scorer, out, **more)
    finally:
        backend.close()


def lines(out: Path) -> list[ValueStep]:
    read = [ValueStep.model_validate_json(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line.model_copy(update={"duration_s": 0.0}) for line in read]


def ended(out: Path) -> tuple[list[bytes], list[ValueStep]]:
    names = ("model.safetensors", "value_head.safetensors", SCORER)
    return [(out / "model" / name).read_bytes() for name in names], lines(out)


@pytest.mark.parametrize("view", ["local", "transcript"])
def test_a_target_that_depends_on_one_token_is_learned(start: Path, tmp_path: Path, view: View) -> None:
    reads = state_view(start, view)
    read = rows_of_trees([trees.one_reply_trees(tmp_path / "data", 60, one_token)], reads)
    assert len(read.rows) == 240
    settings = ValueSettings(epochs=12, batch=16, learning_rate=5e-3, held_out=0.2)
    result = train(start, read, reads, tmp_path / "out", settings)
    assert (result.problems, result.held_out_problems, result.held_out_rows) == (48, 12, 48)
    first, *_, last = [line.held_out for line in lines(tmp_path / "out") if line.held_out is not None]
    assert first is not None
    assert first.rmse == pytest.approx(0.9999), "V is 0 at first"
    assert last is not None
    assert last.r2 is not None
    assert last.r2 > 0.9
    assert last.sign == 1.0
    assert last.by_agent["Ann"].r2 == last.by_depth[1].r2 == last.r2
    assert sum(each.count for each in last.calibration) == 48


@pytest.fixture(scope="module")
def small(start: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TreeRows, StateView]:
    reads = state_view(start)
    folder = tmp_path_factory.mktemp("data")
    return rows_of_trees([trees.one_reply_trees(folder, 10, one_token)], reads), reads


class Stopped(Exception):
    pass


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4, alpha=8, dropout=0.3)])
def test_stopped_and_resumed_ends_with_the_same_bits(
    start: Path, small: tuple[TreeRows, StateView], lora: LoraSettings | None, tmp_path: Path
) -> None:
    if lora:
        pytest.importorskip("peft")

    def stop(metrics: ValueStep, steps: int) -> None:
        if metrics.step == 5:
            raise Stopped

    train(start, *small, tmp_path / "whole", SETTINGS, lora=lora)
    with pytest.raises(Stopped):
        train(start, *small, tmp_path / "stopped", SETTINGS, lora=lora, checkpoint_every=2, watch=stop)
    result = train(start, *small, tmp_path / "stopped", SETTINGS, lora=lora, checkpoint_every=2, resume=True)
    assert result.resumed_from == 4
    assert ended(tmp_path / "stopped") == ended(tmp_path / "whole")


KILLED = """
import os, signal, sys
from pathlib import Path
import test_value_training as tests, label_trees as trees
tests.torch.set_num_threads(1)
start, data, out = map(Path, sys.argv[1:4])
reads = tests.state_view(start)
read = tests.rows_of_trees([data], reads)
def kill(metrics, steps):
    if metrics.step == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
tests.train(start, read, reads, out, tests.SETTINGS, checkpoint_every=3, resume=True, watch=kill)
"""


def test_killed_in_the_middle_and_resumed_it_ends_with_the_same_bits(start: Path, tmp_path: Path) -> None:
    data = trees.one_reply_trees(tmp_path / "data", 10, one_token)
    for out, steps in (("whole", [-1]), ("killed", [5, -1])):
        for step in steps:
            ran = subprocess.run(
                [sys.executable, "-c", KILLED, str(start), str(data), str(tmp_path / out), str(step)],
                cwd=Path(__file__).parents[3],
                env=os.environ | {"PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[3]}"},
                capture_output=True,
                text=True,
                timeout=100,
            )
            assert ran.returncode == (0 if step < 0 else -signal.SIGKILL), ran.stderr
    assert ended(tmp_path / "killed") == ended(tmp_path / "whole")


def test_no_problem_is_in_both_parts(
    start: Path, small: tuple[TreeRows, StateView], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, _ = small
    learned: list[tuple[int, ...]] = []
    tested: list[tuple[int, ...]] = []
    update, values = TorchBackend.update, TorchBackend.values

    def seen_update(self: Any, samples: Any, objective: Any) -> Any:
        learned.extend(tuple(sample.token_ids) for sample in samples)
        return update(self, samples, objective)

    def seen_values(self: Any, samples: Any) -> Any:
        tested.extend(tuple(sample.token_ids) for sample in samples)
        return values(self, samples)

    monkeypatch.setattr(TorchBackend, "update", seen_update)
    monkeypatch.setattr(TorchBackend, "values", seen_values)
    train(start, *small, tmp_path, SETTINGS.model_copy(update={"epochs": 1}))
    held = held_out_problems(read.problems, 0.2, 3)
    assert len(held) == 2
    assert sorted(tested[:8]) == sorted(tuple(row.tokens.token_ids) for row in read.rows if row.problem in held)
    assert sorted(learned) == sorted(tuple(row.tokens.token_ids) for row in read.rows if row.problem not in held)


def test_rows_by_their_visits(
    start: Path, small: tuple[TreeRows, StateView], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights have mean 1 over what is learned from."""
    path = trees.write(tmp_path / "t.jsonl", trees.relay())
    read = rows_of_trees([path], state_view(start))
    weights: list[float] = []
    update = TorchBackend.update

    def seen(self: Any, samples: Any, objective: Any) -> Any:
        weights.extend(sample.weight for sample in samples)
        return update(self, samples, objective)

    monkeypatch.setattr(TorchBackend, "update", seen)
    for weigh in (False, True):
        settings = ValueSettings(epochs=1, held_out=0.0, weigh_visits=weigh)
        train(start, read, state_view(start), tmp_path / str(weigh), settings)
    assert weights[:5] == [1.0] * 5
    assert sorted(weights[5:]) == pytest.approx([0.625, 0.625, 0.625, 1.25, 1.875])


def test_a_row_that_is_too_long_does_not_end_training(start: Path, tmp_path: Path) -> None:
    """train/trainer.py:239-243: one does."""
    reads = state_view(start, most=40)
    folder = trees.one_reply_trees(tmp_path / "data", 4, lambda dice: {"x" * 80: 1.0, "y": -1.0})
    read = rows_of_trees([folder], reads)
    assert read.dropped == {"too long": 4}
    settings = SETTINGS.model_copy(update={"held_out": 0.0})
    assert train(start, read, reads, tmp_path / "out", settings).rows == 4


def test_what_was_trained_is_written_beside_it(start: Path, small: tuple[TreeRows, StateView], tmp_path: Path) -> None:
    result = train(start, *small, tmp_path, SETTINGS)
    scorer = read_scorer(result.model)
    assert scorer.view == "local"
    assert scorer.agents == {"Ann": 32}, "the other 8 are held out"
    computed = {"config.json", "model.safetensors", "value_head.safetensors"}
    assert set(scorer.files) >= computed | {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    assert set(scorer.files) <= {path.name for path in result.model.iterdir()} - {SCORER}
    newest = max((tmp_path / "checkpoints").glob("step-*")) / "model"
    assert read_scorer(newest) == scorer, "every checkpoint is one, too"
    with pytest.raises(CheckpointError, match=r"has loss huber, not bce. Fix: resume it alike"):
        train(start, *small, tmp_path, SETTINGS.model_copy(update={"loss": "bce"}), resume=True)
    with pytest.raises(ValueError, match=r"no row to learn from: there are 0.*Fix: more trees"):
        train(start, TreeRows(), small[1], tmp_path / "none", SETTINGS)
