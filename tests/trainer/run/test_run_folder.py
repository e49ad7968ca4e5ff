"""A training run's folder: whose it is, what may change when it is gone on with, and what is never thrown away."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from trainer.config import EngineConfig, TrainConfig
from trainer.config.toml_file import read_config
from trainer.disk.checkpoint import CheckpointError
from trainer.run.run_folder import (
    CHECKPOINTS,
    CONFIG,
    INPUTS,
    METRICS,
    TRACES,
    RunChanged,
    claim,
    forget_after,
    prune_traces,
    record,
)

POLICY = {"model": "model", "engine": {"kind": "vllm", "options": {"learning_rate": 1.0}}}


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    (tmp_path / "problems.jsonl").write_text('{"id": "1"}\n')
    (tmp_path / "program.py").write_text("workflow = 1\n")
    return TrainConfig.model_validate(
        {
            "policies": {"p0": POLICY, "p1": POLICY},
            "roles": {"designer": "p0", "executor": "p1"},
            "data": [{"format": "problems", "path": str(tmp_path / "problems.jsonl")}],
            "rollout": {"program": str(tmp_path / "program.py")},
            "schedule": "executor-only",
            "checkpoint_every": 3,
        }
    )


@pytest.fixture
def out(config: TrainConfig, tmp_path: Path) -> Path:
    """A run of two steps, with a checkpoint."""
    folder = tmp_path / "run"
    claim(config, folder, resume=False)
    made(folder, 2)
    (folder / CHECKPOINTS / "step-00000002").mkdir(parents=True)
    return folder


def made(out: Path, steps: int) -> None:
    (out / METRICS).write_text("".join(json.dumps({"step": step}) + "\n" for step in range(steps)))


def changed(config: TrainConfig, **values: Any) -> TrainConfig:
    return config.model_copy(update=values)


def of_policy(config: TrainConfig, **values: Any) -> TrainConfig:
    return changed(config, policies=config.policies | {"p1": config.policies["p1"].model_copy(update=values)})


def test_a_folder_is_claimed_once_and_resumed_alike(config: TrainConfig, out: Path) -> None:
    assert read_config(out / CONFIG).steps == config.steps
    with pytest.raises(RunChanged, match="continue it with --resume"):
        claim(config, out, resume=False)
    claim(config, out, resume=True)
    with pytest.raises(RunChanged, match="seed = 0, not 1"):
        claim(changed(config, seed=1), out, resume=True)


# Inputs


@pytest.mark.parametrize("name", ["problems.jsonl", "program.py"])
def test_a_run_whose_inputs_changed_is_not_resumed(name: str, config: TrainConfig, out: Path, tmp_path: Path) -> None:
    before = (tmp_path / name).read_text()
    (tmp_path / name).write_text(before + "\n")
    told = re.escape(f"{tmp_path / name} is not the file that the run in {out} began with")
    for _ in range(2):  # what is refused leaves no record
        with pytest.raises(RunChanged, match=told):
            claim(config, out, resume=True)
    (tmp_path / name).write_text(before)
    claim(config, out, resume=True)


@pytest.mark.parametrize(("name", "key"), [("problems.jsonl", r"data\.0\.path"), ("program.py", r"rollout\.program")])
def test_an_input_that_is_gone_is_named_with_its_key(config: TrainConfig, tmp_path: Path, name: str, key: str) -> None:
    (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=rf"^{key}: cannot read .*/{name}: No such file or directory\. Fix: "):
        claim(config, tmp_path / "run", resume=False)
    assert not (tmp_path / "run").exists()


def test_inputs_may_change_until_a_step_is_made(config: TrainConfig, tmp_path: Path) -> None:
    claim(config, tmp_path / "run", resume=False)
    (tmp_path / "program.py").write_text("workflow = 2\n")
    claim(config, tmp_path / "run", resume=True)
    made(tmp_path / "run", 1)
    claim(config, tmp_path / "run", resume=True)


def test_a_folder_without_a_record_of_its_inputs_is_gone_on_with_and_has_one_then(
    config: TrainConfig, out: Path, tmp_path: Path
) -> None:
    (out / INPUTS).unlink()
    claim(config, out, resume=True)
    (tmp_path / "problems.jsonl").write_text("")
    with pytest.raises(RunChanged, match=r"problems\.jsonl is not the file"):
        claim(config, out, resume=True)


def test_a_record_that_cannot_be_read_is_told(config: TrainConfig, out: Path) -> None:
    for damaged in ("{", "[]", '{"a": 1}'):
        (out / INPUTS).write_text(damaged)
        with pytest.raises(RunChanged, match=rf"{INPUTS} cannot be read: .* Fix: remove it"):
            claim(config, out, resume=True)


# Settings


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_tokens_per_micro_batch", 8192),
        ("gradient_checkpointing", False),
        ("shared_prompts", False),
        ("learning_rate", 1e-7),
        ("designer_learning_rate", 1e-7),
    ],
)
def test_what_a_failed_update_advises_may_be_changed(key: str, value: Any, config: TrainConfig, out: Path) -> None:
    other = of_policy(config, **{key: value})
    assert other != config
    claim(other, out, resume=True)
    assert getattr(read_config(out / CONFIG).policies["p1"], key) != value, "not before the run really goes on"
    record(other, out)
    assert getattr(read_config(out / CONFIG).policies["p1"], key) == value
    claim(other, out, resume=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("weight_decay", 0.5),
        ("dtype", "float32"),
        ("max_gradient_norm", 2.0),
        ("engine", EngineConfig(kind="vllm", options={"learning_rate": 2.0})),
    ],
)
def test_no_other_setting_of_a_policy_may_be_changed(key: str, value: Any, config: TrainConfig, out: Path) -> None:
    with pytest.raises(RunChanged, match=rf"a run with policies\.p1\.{key}"):
        claim(of_policy(config, **{key: value}), out, resume=True)


# Lost checkpoints


@pytest.mark.parametrize(("steps", "lost"), [(0, False), (1, False), (3, False), (5, False), (6, True), (200, True)])
def test_metrics_are_not_thrown_away_where_checkpoints_were_lost(
    steps: int, lost: bool, config: TrainConfig, out: Path
) -> None:
    """With one checkpoint every 3 steps, a run that is killed while the first is written has up to 5 lines and none."""
    (out / CHECKPOINTS / "step-00000002").rmdir()
    made(out, steps)
    with (out / METRICS).open("a") as file:
        file.write('{"step": 9')  # cut short: no step
    if not lost:
        claim(config, out, resume=True)
        return
    before = (out / METRICS).read_bytes()
    often = changed(config, checkpoint_every=1000)
    for each in (config, often):  # what counts is what the run was made with
        with pytest.raises(CheckpointError, match=rf"{METRICS} has {steps} steps.*{CHECKPOINTS} holds no.* Fix: put"):
            claim(each, out, resume=True)
    assert (out / METRICS).read_bytes() == before


def test_a_run_without_a_checkpoint_yet_may_ask_for_them_earlier(config: TrainConfig, out: Path) -> None:
    (out / CHECKPOINTS / "step-00000002").rmdir()
    earlier = changed(config, checkpoint_every=1)
    for _ in range(2):  # and again, where it was killed before it forgot the two steps
        claim(earlier, out, resume=True)
    forget_after(out, 0)
    record(earlier, out)
    claim(earlier, out, resume=True)


@pytest.mark.parametrize(("kept", "left"), [(None, 5), (1, 1), (3, 3), (9, 5)])
def test_only_the_newest_traces_are_kept(out: Path, kept: int | None, left: int) -> None:
    """With a rollout ahead of the step that is done, which stays; so does what is no step's."""
    for step in range(6):
        (out / TRACES / f"step-{step:06}").mkdir(parents=True)
    (out / TRACES / "mine").mkdir()
    prune_traces(out, 4, kept)
    assert sorted(path.name for path in (out / TRACES).iterdir()) == [
        "mine",
        *(f"step-{step:06}" for step in range(5 - left, 6)),
    ]
