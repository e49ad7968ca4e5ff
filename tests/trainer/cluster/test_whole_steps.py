"""Whole steps on a real Ray: the same run as in one process where float64 allows it, and the three systems together."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import training
from clusters import alone, clustered, run, seats, steps_of, traces_of
from toy import VOTE

from trainer.run import one_process
from trainer.run.runtime import Phase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class BesideUpdates(one_process.OneProcess):
    """One process whose engine works while its trainer does."""

    def check(self) -> None:
        pass


def test_split_policies_a_step_behind_are_those_of_one_process(
    ray_address: str, model: Path, problems: Path, tmp_path: Path
) -> None:
    settings = {"roles": {"designer": "p0", "executor": "p1"}, "steps": 4, "schedule": "coupled"}
    config = clustered(model, problems, ray_address, cluster={"staleness": 1}, **settings)
    run(config, tmp_path / "run")
    same = alone(config).model_copy(update={"cluster": config.cluster})
    training.run(same, tmp_path / "alone", runtime=BesideUpdates)
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "alone")
    assert traces_of(tmp_path / "run") == traces_of(tmp_path / "alone")
    for name in ("p0", "p1"):
        assert training.final_weights(tmp_path / "run", name) == training.final_weights(tmp_path / "alone", name)
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert set(last["timings"]["idle_s"]) == {"ranks", "engines", "run_workers"}
    assert {sync["transport"] for sync in last["syncs"].values()} == {"store"}


def test_agents_with_policies_of_their_own_are_those_of_one_process(
    ray_address: str, model: Path, problems: Path, tmp_path: Path
) -> None:
    """AT-GRPO: runs part in the run workers, and each agent asks the engines of its own policy."""
    program = tmp_path / "vote.py"
    program.write_text(VOTE.replace(', "Cay", "Dan", "Eve"', ""))
    settings = {
        "roles": {"agents": {"Ann": "p0", "Bob": "p1"}},
        "steps": 2,
        "schedule": "executor-only",
        "credit": "at-grpo",
        "rollout": {"designs": 1, "executions": 1, "program": str(program), "branching": {"candidates": 3}},
    }
    config = clustered(model, problems, ray_address, engines=2, **settings)
    assert set(config.policies) == {"p0", "p1"}
    run(config, tmp_path / "run")
    training.run(alone(config), tmp_path / "alone")
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "alone")
    assert traces_of(tmp_path / "run") == traces_of(tmp_path / "alone")
    assert any(set(line["updates"]) == {"p0", "p1"} for line in training.metrics(tmp_path / "run"))
    for name in ("p0", "p1"):
        assert training.final_weights(tmp_path / "run", name) == training.final_weights(tmp_path / "alone", name)


@pytest.mark.parametrize(("engines", "parts"), [(2, 1), (1, 2)], ids=["two-engines", "two-parts"])
def test_deepspeed_and_vllm_make_whole_steps(
    ray_address: str, model: Path, problems: Path, tmp_path: Path, engines: int, parts: int
) -> None:
    """ZeRO-3 on two ranks, weights over gloo into two workers of vLLM. Nothing is exact here: versions, counts and gaps
    are looked at."""
    pytest.importorskip("deepspeed")
    pytest.importorskip("vllm")
    config = clustered(model, problems, ray_address, ranks=2, steps=2, cluster={"heartbeat_s": 60.0})
    values = config.model_dump(mode="json")
    options = {"enforce_eager": True, "kv_cache_memory_bytes": 64 << 20}
    of_two = {"replicas": engines, "tensor_parallel": parts}
    values["policies"]["p0"]["engine"] = {
        "kind": "vllm", "dtype": "float32", "max_batch": 16, "options": options, **of_two,
    }  # fmt: skip
    config = type(config).model_validate(values)
    seen: dict[str, Any] = {}

    def look(runtime: Any, event: object) -> None:
        if isinstance(event, Phase) and event.name == "saving":
            seen["engines"] = [seat.identity for seat in seats(runtime, "engine")]

    run(config, tmp_path / "run", disturb=look)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1]
    assert all(line["executions"] == 8 for line in lines)
    updated = [line for line in lines if line["updates"]]
    assert updated
    for line in updated:
        [sync] = line["syncs"].values()
        assert (sync["transport"], sync["engines"], sync["version"]) == ("gloo", engines, line["step"] + 1)
        assert sync["bytes"] > 0
        assert sync["gap"] < 1e-3
        [update] = line["updates"].values()
        assert update["gap_max"] < 1e-3  # vLLM's log-probabilities are the trainer's
    assert len(seen["engines"]) == engines
    for identity in seen["engines"]:  # its core and its workers, for whoever must end them
        assert len(identity.children) >= 1 + parts
    from transformers import AutoModelForCausalLM

    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    loaded: Any = AutoModelForCausalLM.from_pretrained(newest / "p0" / "model")
    assert loaded.num_parameters() > 0


def test_what_lacks_is_said_before_a_folder_is_claimed(model: Path, problems: Path, tmp_path: Path) -> None:
    from trainer.cluster.ray_session import ClusterError
    from trainer.cluster.runtime import ClusterRuntime
    from trainer.run.loop import train

    config = clustered(model, problems, "127.0.0.1:1", cluster={"start_timeout_s": 5})
    with pytest.raises(
        ClusterError, match=r"Ray at '127\.0\.0\.1:1' did not answer within cluster\.start_timeout_s=5\. Fix: "
    ):
        asyncio.run(train(ClusterRuntime(config), tmp_path / "run"))
    with pytest.raises(ValueError, match=r"not for a cluster.*Fix: "):
        asyncio.run(train(ClusterRuntime(alone(config)), tmp_path / "other"))
    assert not (tmp_path / "other").exists() or not list((tmp_path / "other").glob("*.toml"))
