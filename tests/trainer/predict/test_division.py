"""Which divisions are looked at, and that the best of them can be trained and is no slower on more nodes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicted import QWEN3_4B, SIZE_8B, config

from trainer.cluster import Unplaceable
from trainer.config import TrainConfig
from trainer.predict.costs import CPU_CORE, costs_of
from trainer.predict.division import (
    Divided,
    _divided,
    _Search,
    best_division,
    described,
    divisions,
    unplaceable,
)
from trainer.predict.simulate import simulate
from trainer.predict.workload import assumed_workload
from trainer.run.gpus import GPUS
from trainer.run.sizes import ModelSize

SIZES = {"p0": SIZE_8B, "p1": SIZE_8B}
SPLIT = {"designer": "p0", "executor": "p1"}


def best(run: TrainConfig, nodes: int) -> Divided:
    gpu = GPUS["H200"] if run.cluster.gpus_per_node else CPU_CORE
    return best_division(run, nodes, SIZES, gpu, assumed_workload(run))


@st.composite
def runs(draw: st.DrawFn) -> TrainConfig:
    """Of one policy or two, on nodes with any number of GPUs or with none, and small enough to be quick."""
    size = st.integers(1, 4)
    changes: dict[str, Any] = {
        "rollout": {"questions": draw(size), "designs": draw(size), "executions": draw(size)},
        "schedule": draw(st.sampled_from(["stagewise", "coupled", "executor-only"])),
        "stage_length": draw(st.sampled_from([1, 3])),
        "cluster": {
            "gpus_per_node": draw(st.sampled_from([0, 3, 4, 8])),
            "staleness": draw(st.sampled_from([0, 0, 2])),
        },
        "policy": {
            "max_tokens_per_micro_batch": draw(st.sampled_from([256, 16384])),
            "dtype": draw(st.sampled_from(["bfloat16", "float32"])),
            "update": {"zero_stage": draw(st.integers(0, 3))},
            "engine": {"tensor_parallel": draw(st.sampled_from([1, 1, 2, 4]))},
        },
        **({"roles": SPLIT} if draw(st.booleans()) else {}),
    }
    return config(**changes)


@pytest.mark.thorough
@given(run=runs(), nodes=st.integers(1, 5), more=st.integers(1, 5))
@settings(max_examples=12, deadline=None)
def test_more_nodes_are_not_predicted_slower(run: TrainConfig, nodes: int, more: int) -> None:
    """But for the order in which more run workers let requests come."""
    try:
        few = best(run, nodes)
    except Unplaceable:
        return
    assert best(run, nodes + more).prediction.step_s <= 1.01 * few.prediction.step_s


@given(run=runs(), nodes=st.integers(1, 20), more=st.integers(0, 10), most=st.integers(1, 100))
@settings(max_examples=12, deadline=None)
def test_what_is_tried_on_some_nodes_is_tried_on_more(run: TrainConfig, nodes: int, more: int, most: int) -> None:
    enough = [most] * len(run.policies)
    few = set(divisions(run, nodes, enough))
    assert few <= set(divisions(run, nodes + more, enough))


@given(run=runs(), nodes=st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_what_is_found_can_be_trained(run: TrainConfig, nodes: int) -> None:
    try:
        found = best(run, nodes)
    except Unplaceable:
        return
    assert TrainConfig.model_validate(found.config.model_dump()) == found.config
    assert unplaceable(found.config) == ""
    engines = {name: policy.engine for name, policy in found.config.policies.items()}
    used = sum(engine.replicas * engine.tensor_parallel for engine in engines.values())
    if found.config.cluster.layout == "disaggregated":
        used += sum(policy.update.ranks for policy in found.config.policies.values())
    if run.cluster.gpus_per_node:
        assert used + found.idle == nodes * run.cluster.gpus_per_node
    assert (" idle" in described(found.config, found.idle)) == (found.idle > 0)


@given(run=runs(), data=st.data())
@settings(max_examples=12, deadline=None)
def test_divisions_are_compared_by_what_is_predicted_of_them(run: TrainConfig, data: st.DataObject) -> None:
    content = assumed_workload(run)
    search = _Search(run, 3, SIZES, GPUS["H100"], content, None)
    there = list(divisions(run, 3, search.requests))
    if not there:
        return
    each = data.draw(st.sampled_from(there))
    chosen = _divided(run, 3, each)
    whole = simulate(chosen, costs_of(chosen, SIZES, GPUS["H100"], content), content)
    assert search.seconds(each)[0] == pytest.approx(whole.step_s, rel=1e-9)


# Single cases


@pytest.mark.thorough
def test_a_group_that_fills_a_node_is_tried_on_any_number_of_nodes() -> None:
    """At stage 3 micro-batches of 512 tokens keep nine ranks waiting for the network."""
    changes: dict[str, Any] = {"rollout": {"questions": 32}, "policy": {"max_tokens_per_micro_batch": 512}}
    run = config(**changes)
    found = {nodes: best(run, nodes) for nodes in (4, 5)}
    assert [each.config.policies["p0"].update.ranks for each in found.values()] == [8, 8]
    assert found[5].config.policies["p0"].engine.replicas == 32
    assert found[5].prediction.step_s < found[4].prediction.step_s


def test_more_gpus_than_a_step_has_work_for_stay_idle() -> None:
    run = config(rollout={"questions": 1, "designs": 1, "executions": 2})
    found = best(run, 100)
    assert found.idle > 780
    assert described(found.config, found.idle).endswith(f"; {found.idle} GPUs idle")
    assert found.prediction.step_s == pytest.approx(best(run, 1000).prediction.step_s)


@pytest.mark.thorough
def test_without_float32_weights_one_rank_learns() -> None:
    """Two are DeepSpeed's, which refuses that."""
    sizes = {"p0": ModelSize.model_validate(QWEN3_4B)}

    def ranks(dtype: str) -> int:
        run = config(
            policy={"update": {"backend": "torch", "zero_stage": 0}, "dtype": dtype},
            rollout={"questions": 64},
            cluster={"gpus_per_node": 4},
        )
        found = best_division(run, 4, sizes, GPUS["H200"], assumed_workload(run))
        return found.config.policies["p0"].update.ranks

    assert ranks("bfloat16") == 1 < ranks("float32")


def test_what_fits_nowhere_is_told() -> None:
    with pytest.raises(Unplaceable, match=r"tensor_parallel = 4 needs 4 GPUs of one node, and nodes have 2"):
        best(config(parallel=4, policy={"engine": {"tensor_parallel": 4}}, cluster={"gpus_per_node": 2}), 3)
    with pytest.raises(Unplaceable, match=r"2 GPUs are needed .* 1 too few. Fix: cluster.nodes = 2"):
        best(config(cluster={"gpus_per_node": 1, "staleness": 1}), 1)
    with pytest.raises(Unplaceable, match=r"1 CPUs are too few for ranks and engines. Fix: more nodes"):
        best(config(cluster={"gpus_per_node": 0, "staleness": 1, "nodes": 2}), 1)
    with pytest.raises(Unplaceable, match=r"policies.p0: update takes .* Fix: "):
        best(config(policy={"max_tokens_per_micro_batch": 10_000_000}), 1)
    with pytest.raises(Unplaceable, match=r"p0\.update\.zero_stage = 0 keeps no float32 weights"):
        best(config(policy={"update": {"backend": "torch", "zero_stage": 0}}), 1)  # too large for one rank
