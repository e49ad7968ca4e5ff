"""Rollouts beside updates: a fixed lag, the same run however often it is stopped, and pending rollouts on disk."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from training import configured, final_weights, metrics, optimizer_state, run, teach, write_problems

from trainer.config import TrainConfig
from trainer.run import pending
from trainer.run.one_process import OneProcess
from trainer.run.runtime import Phase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class BesideUpdates(OneProcess):
    """One process whose engine works while its trainer does: what a disaggregated cluster offers the loop."""

    def check(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    import training

    monkeypatch.setattr(training, "OneProcess", BesideUpdates)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teach(tmp_path_factory.mktemp("policy"), right=0.6)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_problems(tmp_path_factory.mktemp("problems") / "problems.jsonl")


def lagging(model: Path, problems: Path, staleness: int, **changes: Any) -> TrainConfig:
    cluster = {"layout": "disaggregated", "gpus_per_node": 0, "staleness": staleness}
    return configured(model, problems, **{"schedule": "coupled", "steps": 5, "cluster": cluster, **changes})


def drawn_with(out: Path) -> dict[int, set[int]]:
    """By step, the versions of the weights that its traces' completions name."""
    versions: dict[int, set[int]] = {}
    for path in (out / "traces").rglob("*-execution-*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["type"] == "agent_call" and event["completion"]:
                step = int(path.relative_to(out / "traces").parts[0].removeprefix("step-"))
                versions.setdefault(step, set()).add(event["completion"]["weights_version"])
    return versions


@pytest.mark.parametrize("staleness", [1, 2])
def test_each_step_is_rolled_out_with_the_weights_of_so_many_steps_before(
    model: Path, problems: Path, staleness: int, tmp_path: Path
) -> None:
    run(lagging(model, problems, staleness), tmp_path / "run")
    lines = metrics(tmp_path / "run")
    changed = [step + 1 for step, line in enumerate(lines) if line["updates"]]
    assert len(changed) >= 3

    def weights_at(step: int) -> int:
        return max([version for version in changed if version <= step], default=0)

    found = drawn_with(tmp_path / "run")
    assert found == {step: {weights_at(max(0, step - staleness))} for step in range(5 + staleness)}
    assert [line["age"] for line in lines] == [min(step, staleness) for step in range(5)]
    assert {sync["version"] for line in lines for sync in line["syncs"].values()} == set(changed)


@pytest.mark.thorough
def test_stopped_anywhere_it_ends_as_if_it_never_was(model: Path, problems: Path, tmp_path: Path) -> None:
    class Killed(BaseException): ...

    config = lagging(model, problems, 1)
    run(config, tmp_path / "undisturbed")
    for at in ((3, "rollout"), (2, "updating p0"), (2, "new weights for p0"), (1, "saving")):

        def stop(event: object, at: tuple[int, str] = at) -> None:
            if isinstance(event, Phase) and (event.step, event.name) == at:
                raise Killed

        out = tmp_path / f"{at[0]}-{at[1].replace(' ', '-')}"
        with pytest.raises(Killed):
            run(config, out, watch=stop)
        run(config.model_copy(update={"steps": 4}), out, resume=True)
        run(config, out, resume=True)  # and on, from rollouts that a finished run left
        assert metrics(out) == metrics(tmp_path / "undisturbed")
        assert final_weights(out) == final_weights(tmp_path / "undisturbed")
        assert optimizer_state(out) == optimizer_state(tmp_path / "undisturbed")
        assert drawn_with(out) == drawn_with(tmp_path / "undisturbed")


def test_pending_rollouts_come_back_as_they_were_written(model: Path, problems: Path, tmp_path: Path) -> None:
    kept: list[Any] = []
    write = pending.write

    with pytest.MonkeyPatch.context() as patched:

        def keeping(folder: Path, rollouts: Any) -> None:
            kept.append((folder, [list(each) for each in rollouts]))
            write(folder, rollouts)

        patched.setattr(pending, "write", keeping)
        run(lagging(model, problems, 2, steps=1), tmp_path / "run")
    [(_, rollouts)] = kept
    folder = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    again = pending.read(folder, 2)
    assert again == rollouts
    trajectory = again[0][0].designs[0].trajectories[0]
    assert (trajectory.token_ids.typecode, trajectory.behaviour_logprobs.typecode) == ("i", "f")
    assert replace(trajectory) == rollouts[0][0].designs[0].trajectories[0]


@pytest.mark.parametrize("text", [None, "", "[]", "[[], [], []]", '[[{"problem": 3}]]', "[" * 100_000])
def test_pending_rollouts_that_cannot_be_used_are_refused(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / pending.PENDING).write_text(text)
    with pytest.raises(ValueError, match=r"pending\.json .*Fix: load another checkpoint"):
        pending.read(tmp_path, 1)
    assert pending.read(tmp_path, 0) == []


def test_pending_rollouts_of_a_version_that_said_it_elsewhere_are_refused(tmp_path: Path) -> None:
    """What a clock had ended would be learned from."""
    execution = {"index": 0, "reward": {"total": 0.0, "terms": []}, "timed_out": True}
    design = {"index": 0, "program": "", "graph": None, "failure": None, "trajectories": [], "executions": [execution]}
    tree = {"problem": {"id": "q", "question": "?", "domain": "math", "gold": "1"}, "designs": [design]}
    (tmp_path / pending.PENDING).write_text(json.dumps([[tree]]))
    with pytest.raises(ValueError, match=r"pending\.json cannot be read: Unexpected keyword.*Fix: load another"):
        pending.read(tmp_path, 1)
    del execution["timed_out"]
    (tmp_path / pending.PENDING).write_text(json.dumps([[tree]]))
    assert len(pending.read(tmp_path, 1)) == 1
