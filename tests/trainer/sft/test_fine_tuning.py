"""The loop of supervised fine-tuning, with a backend that remembers everything it was taught: what it ends with names
every sample, order and learning rate of its life. Real models: test_fine_tuning_torch.py."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Probe
from trainer.disk import metrics_file
from trainer.disk.checkpoint import CheckpointError
from trainer.samples import Sample
from trainer.sft.epochs import CHECKPOINTS, METRICS, learning_rate, shuffled
from trainer.sft.fine_tuning import SFTResult, SFTSettings, StepMetrics, digest, held_out_loss, split, train
from trainer.update.backend import ImitationObjective, Objective, UpdateFailed, UpdateReport


class Diary:
    """A backend whose one weight is a digest of all that it has learned."""

    def __init__(self) -> None:
        self.steps, self.learning_rate, self.weight = 0, 0.0, "new"
        self.fails_at = -1

    def update(self, samples: Sequence[Sample], objective: Objective) -> UpdateReport:
        assert objective == ImitationObjective()
        if self.steps == self.fails_at:
            raise UpdateFailed("the loss is nan")
        read = [(list(sample.token_ids), list(sample.loss_mask)) for sample in samples]
        self.weight = hashlib.sha256(f"{self.weight} {self.learning_rate} {read}".encode()).hexdigest()
        self.steps += 1
        return UpdateReport(
            loss=int(self.weight[:8], 16) / 2**32,
            gradient_norm=1.0,
            steps=1,
            samples=len(samples),
            computed_samples=len(samples),
            tokens=sum(sum(sample.loss_mask) for sample in samples),
        )

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        return [[-0.5 * chosen for chosen in sample.loss_mask] for sample in samples]

    def weights(self) -> Mapping[str, Any]:
        pytest.fail("supervised fine-tuning serves no engine")

    def probe(self, token_ids: Sequence[int]) -> Probe:
        pytest.fail("supervised fine-tuning serves no engine")

    def save(self, folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text(self.weight)
        (folder / "steps").write_text(str(self.steps))

    def load(self, folder: Path) -> None:
        self.weight, self.steps = (folder / "model" / "weights").read_text(), int((folder / "steps").read_text())

    def close(self) -> None: ...


def row(number: int, samples: int = 1) -> list[Sample]:
    return [
        Sample(policy="", token_ids=[9, number, each], loss_mask=[0, 1, 1], behaviour_logprobs=[0.0] * 3, advantage=1.0)
        for each in range(samples)
    ]


ROWS = [row(number, samples=1 + number % 2) for number in range(10)]
SETTINGS = SFTSettings(epochs=3, batch=4, learning_rate=0.1, warmup=0.25, held_out=0.1, seed=7)
STEPS = 9
"""Nine rows are learned from, in steps of 4, 4 and 1."""


def learn(out: Path, *, settings: SFTSettings = SETTINGS, rows: Any = ROWS, **options: Any) -> SFTResult:
    return train(options.pop("backend", None) or Diary(), rows, settings, out, **options)


def lines(out: Path) -> list[StepMetrics]:
    """The metrics, without what depends on the clock."""
    read = [StepMetrics.model_validate_json(line) for line in (out / METRICS).read_text().splitlines()]
    return [line.model_copy(update={"duration_s": 0.0}) for line in read]


def weight(out: Path) -> str:
    return (out / "model" / "weights").read_text()


# The course of a run


def test_a_run_from_beginning_to_end(tmp_path: Path) -> None:
    seen: list[tuple[StepMetrics, int]] = []
    result = learn(tmp_path, watch=lambda metrics, steps: seen.append((metrics, steps)), checkpoint_every=4)
    assert result == SFTResult(model=tmp_path / "model", steps=STEPS, rows=9, held_out_rows=1, resumed_from=None)
    told = lines(tmp_path)
    assert [line.step for line in told] == list(range(STEPS + 1))
    assert [line.epoch for line in told] == [step / 3 for step in range(STEPS + 1)]
    assert [line.step for line in told if line.held_out_loss is not None] == [0, 3, 6, 9]
    assert {line.held_out_loss for line in told} == {None, 0.5}
    assert [line.learning_rate for line in told[1:]] == [learning_rate(step, STEPS, SETTINGS) for step in range(STEPS)]
    assert sum(line.reply_tokens for line in told[1:4]) == 2 * sum(len(ROWS[n]) for n in split(10, SETTINGS)[0])
    assert [(metrics.step, steps) for metrics, steps in seen] == [(step, STEPS) for step in range(STEPS + 1)]
    kept = sorted(path.name for path in (tmp_path / CHECKPOINTS).glob("step-*"))
    assert kept == ["step-00000008", "step-00000009"]
    assert (tmp_path / CHECKPOINTS / kept[-1] / "model" / "weights").read_text() == weight(tmp_path)


class Stopped(Exception):
    pass


@pytest.mark.parametrize("checkpoint_every", [1, 2, 4, 100])
def test_a_run_stopped_after_any_step_ends_as_if_it_had_not_been(checkpoint_every: int, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    learn(whole)
    for last in range(STEPS + 1):
        out = tmp_path / f"stopped-{last}"

        def stop(metrics: StepMetrics, steps: int, last: int = last) -> None:
            if metrics.step == last:
                raise Stopped

        with pytest.raises(Stopped):
            learn(out, checkpoint_every=checkpoint_every, watch=stop)
        result = learn(out, checkpoint_every=checkpoint_every, resume=True)
        saved = (last - 1) // checkpoint_every * checkpoint_every
        assert result.resumed_from == (saved if last > 0 and saved > 0 else None)
        assert weight(out) == weight(whole)
        assert lines(out) == lines(whole)


def test_what_is_finished_is_not_done_again(tmp_path: Path) -> None:
    learn(tmp_path)
    before = lines(tmp_path)
    (tmp_path / "model" / "weights").unlink()  # as if killed before the result was written
    seen: list[Any] = []
    assert learn(tmp_path, resume=True, watch=lambda *step: seen.append(step)).resumed_from == STEPS
    assert seen == []
    assert lines(tmp_path) == before
    assert len(weight(tmp_path)) == 64


def test_a_damaged_checkpoint_is_told_and_passed_over(tmp_path: Path) -> None:
    learn(tmp_path, checkpoint_every=4)
    end = weight(tmp_path)
    (tmp_path / CHECKPOINTS / "step-00000009" / "steps").write_text("3")
    told: list[tuple[str, str]] = []
    result = learn(tmp_path, resume=True, passed_over=lambda name, wrong: told.append((name, wrong)))
    assert result.resumed_from == 8
    assert told == [("step-00000009", "steps has another sha256 than when it was written")]
    assert weight(tmp_path) == end


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": SETTINGS.model_copy(update={"batch": 5, "seed": 8})}, "batch 4, not 5; seed 7, not 8"),
        ({"rows": ROWS[::-1]}, "has other data"),
        ({"resume": False}, "holds a run, at step 9. Fix: resume it, or choose another folder"),
    ],
)
def test_another_run_in_the_folder_is_left_alone(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    learn(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(CheckpointError) as caught:
        learn(tmp_path, **{"resume": True, **change})
    assert said in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_loss_that_is_not_finite_costs_nothing_that_was_saved(tmp_path: Path) -> None:
    backend = Diary()
    backend.fails_at = 5
    with pytest.raises(UpdateFailed):
        learn(tmp_path, backend=backend, checkpoint_every=2)
    assert learn(tmp_path, resume=True).resumed_from == 4


def test_a_full_disk_costs_nothing_that_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Diary, folder: Path) -> None:
        if self.steps == 4:
            Path("/dev/full").write_text("x")
        save(self, folder)

    save = Diary.save
    with monkeypatch.context() as patch:
        patch.setattr(Diary, "save", full)
        with pytest.raises(CheckpointError, match=r"No space left on device.*step-00000002"):
            learn(tmp_path, checkpoint_every=2)
    learn(tmp_path, resume=True)
    learn(tmp_path / "whole")
    assert weight(tmp_path) == weight(tmp_path / "whole")


def test_nothing_to_learn_from_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no row to learn from: there are 0"):
        learn(tmp_path, rows=[])


# Order, split, learning rate


settings = st.builds(
    SFTSettings,
    seed=st.integers(0, 5),
    held_out=st.floats(0, 0.9),
    warmup=st.floats(0, 1),
    decay=st.sampled_from(["cosine", "constant"]),
)


@given(count=st.integers(0, 200), settings=settings)
def test_every_row_is_either_learned_from_or_held_out(count: int, settings: SFTSettings) -> None:
    learned, held = split(count, settings)
    assert sorted(learned + held) == list(range(count))
    assert len(held) == round(count * settings.held_out)
    assert split(count, settings) == (learned, held)


def test_order_depends_on_seed_and_epoch_alone() -> None:
    rows = list(range(50))
    orders = {(seed, epoch): shuffled(rows, seed, epoch) for seed in range(3) for epoch in range(3)}
    assert all(sorted(order) == rows for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) == 9
    assert shuffled(rows, 1, 2) == orders[1, 2]


def test_the_learning_rate_by_hand() -> None:
    cosine = SFTSettings(learning_rate=8.0, warmup=0.4, decay="cosine")
    assert [learning_rate(step, 10, cosine) for step in range(4)] == [2.0, 4.0, 6.0, 8.0]
    falling = [learning_rate(step, 10, cosine) for step in range(4, 10)]
    assert falling == pytest.approx([8.0, 4 + 2 * math.sqrt(3), 6.0, 4.0, 2.0, 4 - 2 * math.sqrt(3)])
    constant = SFTSettings(learning_rate=8.0, warmup=0.0, decay="constant")
    assert [learning_rate(step, 3, constant) for step in range(3)] == [8.0] * 3


@given(steps=st.integers(1, 300), settings=settings)
def test_the_learning_rate_rises_then_falls_and_is_never_zero(steps: int, settings: SFTSettings) -> None:
    rates = [learning_rate(step, steps, settings) for step in range(steps)]
    assert all(0 < rate <= settings.learning_rate for rate in rates)
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)


def test_the_digest_knows_tokens_masks_and_rows() -> None:
    [[one]] = rows = [row(1)]
    other = [[Sample(**{name: getattr(one, name) for name in one.__slots__} | {"loss_mask": [0, 0, 1]})]]
    assert len({digest(each) for each in (rows, other, [row(2)], [row(1), row(1)], [[one, one]], [])}) == 6
    assert digest(rows) == digest([tuple(row(1))])


def test_the_held_out_loss_is_the_mean_over_reply_tokens() -> None:
    class Given(Diary):
        def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
            return [[0.0, -1.0, -2.0], [0.0, -3.0, -6.0]]

    assert held_out_loss(Given(), row(1, samples=2)) == 3.0
    assert held_out_loss(Given(), []) is None


# Metrics on disk


def test_cutting_keeps_lines_up_to_a_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics_file.cut(path, 3)
    assert not path.exists()
    for step in range(5):
        metrics_file.append(path, StepMetrics(step=step, epoch=0.0))
    with path.open("a") as file:
        file.write('{"step": 1, "torn')
    metrics_file.cut(path, 2)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 1, 2]
    metrics_file.cut(path, -1)
    assert path.read_text() == ""


def test_metrics_on_a_full_disk_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> BinaryIO:
        return os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb")  # a real ENOSPC

    monkeypatch.setattr("trainer.disk.plain_files.appended", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*metrics\.jsonl'"):
        metrics_file.append(tmp_path / "metrics.jsonl", StepMetrics(step=1, epoch=0.0))
