"""Folders that hold what is not ours, or that somebody has tampered with: nothing of it is changed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.problems import Problem
from trainer.config import TrainConfig, read_config
from trainer.disk import CheckpointError, metrics_file, plain_files
from trainer.distill.distill_log import DistillLog
from trainer.evaluate.attempts import AttemptLog
from trainer.run.run_folder import RunChanged, claim, forget_after
from trainer.sft.epochs import check_unclaimed

OWN = '{"my": "own"}'
PROBLEMS = [Problem(id="i", question="q", domain="math", gold="1")]


def evaluate(folder: Path) -> None:
    with AttemptLog(folder, {"seed": 1}):
        pass


def distill(folder: Path) -> None:
    with DistillLog(folder, PROBLEMS, {"seed": 1}, resume=True) as log:
        log.write_rows()


def config(folder: Path) -> TrainConfig:
    (folder / "d.jsonl").write_text(PROBLEMS[0].model_dump_json() + "\n")
    path = folder / "mine.toml"
    path.write_text('[policies.p0]\nmodel = "m"\n[[data]]\nformat = "problems"\npath = "d.jsonl"\n')
    return read_config(path)


FILES: list[tuple[Callable[[Path], None], str]] = [
    *((evaluate, name) for name in ("results.jsonl", "evaluation.json")),
    *((distill, name) for name in ("attempts.jsonl", "rows.jsonl", "distillation.json")),
]


@pytest.mark.parametrize(("work", "name"), FILES)
@pytest.mark.parametrize("text", [OWN, OWN + "\n", "no JSON\n", "[" * 100_000])
def test_a_file_of_somebody_elses_is_left_alone(
    work: Callable[[Path], None], name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match="Fix: "):
        work(tmp_path)
    assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize(("work", "name"), FILES)
def test_links_pipes_and_devices_are_not_followed(work: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text(OWN)
    for target in ("mine", "/dev/zero", "/nowhere", "pipe"):
        os.mkfifo(tmp_path / name) if target == "pipe" else (tmp_path / name).symlink_to(target)
        with pytest.raises(ValueError, match="is no file but"):
            work(tmp_path)
        (tmp_path / name).unlink()
    assert (tmp_path / "mine").read_text() == OWN


def test_a_known_name_beside_a_file_that_is_replaced_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text(OWN)
    for name in (
        "evaluation.tmp",
        "distillation.tmp",
        "rows.jsonl.tmp",
        "metrics.jsonl.tmp",
        "config.tmp",
        "inputs.tmp",
    ):
        (tmp_path / name).symlink_to("mine")
    evaluate(tmp_path)
    distill(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    metrics_file.cut(tmp_path / "metrics.jsonl", 0)
    plain_files.replace(tmp_path / "config.toml", b"x")
    assert (tmp_path / "mine").read_text() == OWN
    assert not list(tmp_path.glob(".tmp-*"))


def test_steps_that_are_no_numbers_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    odd = ['"x"', "null", "[]", "{}", "NaN", "1e999", "9" * 400, "[" * 100_000]
    path.write_text("".join(f'{{"step": {step}}}\n' for step in ["0", *odd]))
    metrics_file.cut(path, 0)
    assert path.read_text() == '{"step": 0}\n'


@pytest.mark.parametrize("name", ["config.toml", "inputs.json", "traces"])
def test_a_training_run_does_not_take_over_what_no_run_has_written(name: str, tmp_path: Path) -> None:
    mine = config(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    if name == "traces":
        (out / name).mkdir()
    else:
        (out / name).write_text("# mine\n" + (tmp_path / "mine.toml").read_text())
    with pytest.raises(RunChanged, match="of no run"):
        claim(mine, out, resume=False)
    assert [path.name for path in out.iterdir()] == [name]


def test_a_training_run_that_failed_to_start_may_start_again(tmp_path: Path) -> None:
    mine = config(tmp_path)
    for _ in range(2):
        claim(mine, tmp_path / "out", resume=False)


def test_traces_with_odd_names_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    traces = tmp_path / "out" / "traces"
    for name in ("step-x", "step-", "step-000001", "step-000009"):
        (traces / name).mkdir(parents=True)
    (traces / "step-000010").symlink_to(tmp_path / "mine")
    forget_after(tmp_path / "out", 5)
    assert sorted(path.name for path in traces.iterdir()) == ["step-", "step-000001", "step-000010", "step-x"]


def test_fine_tuning_does_not_remove_a_model_or_metrics_of_somebody_elses(tmp_path: Path) -> None:
    check_unclaimed(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "epoch": 0.0}\n{"torn')
    check_unclaimed(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(OWN + "\n")
    with pytest.raises(CheckpointError, match="of no run"):
        check_unclaimed(tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "model").mkdir()
    with pytest.raises(CheckpointError, match="of no run"):
        check_unclaimed(tmp_path)
