"""Curves for TensorBoard and Weights & Biases: opened in time, continued at the right step, closed at the end."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from step_reports import reported

from metaagent.terminal.console import ExitCode, Stop
from metaagent.terminal.training_writers import Writers
from trainer.config import TrainConfig
from trainer.run.curves import scalars
from trainer.run.runtime import Phase

CONFIG = TrainConfig.model_validate(
    {"policies": {"p0": {"model": "m"}}, "data": [{"format": "problems", "path": "p.jsonl"}]}
)


def steps(writers: Writers, numbers: range, reward: float) -> None:
    with writers:
        for step in numbers:
            writers(Phase(step, "rollout"))
            writers(reported(step, reward=reward))
            writers(Phase(step, "saving"))


def test_tensorboard_shows_each_step_once_when_a_run_is_resumed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    steps(Writers(CONFIG, tmp_path, tensorboard=True, wandb=""), range(4), 0.25)
    steps(Writers(CONFIG, tmp_path, tensorboard=True, wandb=""), range(2, 6), 0.75)  # the checkpoint had two steps
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(scalars(reported(0)))
    points = [(point.step, point.value) for point in events.Scalars("reward/mean")]
    assert points == [(0, 0.25), (1, 0.25), (2, 0.75), (3, 0.75), (4, 0.75), (5, 0.75)]


class FakeRun:
    def __init__(self) -> None:
        self.logged: list[tuple[int, float]] = []
        self.ended: list[type | None] = []

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, values["reward/mean"]))

    def __enter__(self) -> "FakeRun":
        return self

    def __exit__(self, kind: type | None, *rest: object) -> None:
        self.ended.append(kind)


class FakeWandb(SimpleNamespace):
    class Error(Exception): ...

    def __init__(self) -> None:
        super().__init__(inits=[], run=FakeRun(), Settings=dict)

    def init(self, **arguments: Any) -> FakeRun:
        self.inits.append(arguments)
        return self.run


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_wandb_goes_on_with_the_same_run(wandb: FakeWandb, tmp_path: Path) -> None:
    steps(Writers(CONFIG, tmp_path, tensorboard=False, wandb="tests"), range(2), 0.25)
    steps(Writers(CONFIG, tmp_path, tensorboard=False, wandb="tests"), range(2, 3), 0.75)
    first, second = wandb.inits
    assert first["id"] == second["id"] == (tmp_path / "wandb-id.txt").read_text()
    assert (first["project"], first["resume"], first["dir"]) == ("tests", "allow", str(tmp_path))
    assert first["config"] == CONFIG.model_dump(mode="json")
    assert wandb.run.logged == [(0, 0.25), (1, 0.25), (2, 0.75)]
    assert wandb.run.ended == [None, None]


def test_wandb_is_told_that_a_run_failed(wandb: FakeWandb, tmp_path: Path) -> None:
    def fails() -> None:
        with Writers(CONFIG, tmp_path, tensorboard=False, wandb="tests") as writers:
            writers(Phase(0, "rollout"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert wandb.run.ended == [ZeroDivisionError]


def test_nothing_is_opened_before_the_first_rollout(wandb: FakeWandb, tmp_path: Path) -> None:
    with Writers(CONFIG, tmp_path, tensorboard=False, wandb="tests") as writers:
        writers(Phase(4, "loading step-00000004"))
    assert wandb.inits == []
    assert list(tmp_path.iterdir()) == []


def test_what_wandb_refuses_is_told(wandb: FakeWandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(**_: Any) -> None:
        raise wandb.Error("api_key not configured")

    monkeypatch.setattr(wandb, "init", refuses)
    with Writers(CONFIG, tmp_path, tensorboard=False, wandb="tests") as writers, pytest.raises(Stop) as stopped:
        writers(Phase(0, "rollout"))
    assert "api_key not configured. Fix: wandb login, or set WANDB_MODE=offline" in str(stopped.value)
    assert stopped.value.code == ExitCode.INFRASTRUCTURE
