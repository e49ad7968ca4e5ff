"""Every process has its place, no node more than it has, and what cannot be placed is told with numbers."""

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.cluster.advice import Unplaceable
from trainer.cluster.assembly import Assembly
from trainer.cluster.layout import SMALLEST_SHARE, engines_alone, layout
from trainer.cluster.places import Layout, Node, shown
from trainer.config import ClusterConfig, EngineConfig, TrainConfig

GIB = 1 << 30


def config(policies: dict[str, tuple[int, int, int]], **cluster: Any) -> TrainConfig:
    """`policies`: by name ranks, replicas, tensor_parallel."""
    backend = {"backend": "deepspeed"}
    names = list(policies)
    return TrainConfig.model_validate(
        {
            "policies": {
                name: {
                    "model": "m",
                    "update": {**backend, "ranks": ranks},
                    "engine": {"replicas": replicas, "tensor_parallel": parallel},
                }
                for name, (ranks, replicas, parallel) in policies.items()
            },
            "roles": {"designer": names[0], "executor": names[-1]},
            "data": [{"format": "aime", "path": Path("x.jsonl")}],
            "cluster": {"layout": "disaggregated", **cluster},
        }
    )


def nodes(count: int, gpus: int = 8, cpus: float = 64) -> list[Node]:
    return [Node(f"id{number:03}", f"10.0.0.{number}", cpus, gpus, 512 * GIB) for number in range(count)]


def places(placed: Layout, kind: Any, policy: str = "p0") -> list[str]:
    return [each.node for each in placed.of(kind, policy)]


# By hand


def test_ranks_and_engines_apart_on_two_nodes() -> None:
    placed = layout(config({"p0": (8, 4, 2)}, nodes=2), nodes(2))
    assert places(placed, "rank") == ["id000"] * 8
    assert places(placed, "engine") == ["id001"] * 4
    assert {each.gpus for each in placed.of("engine")} == {2.0}
    assert [bundle.resources for bundle in placed.bundles[:3]] == [{"CPU": 4.0}, {"CPU": 4.0}, {"CPU": 1.0, "GPU": 1.0}]
    assert [(each.node, each.bundle) for each in placed.of("keeper")] == [("id000", 0), ("id001", 1)]
    assert [each.number for each in placed.of("run_worker")] == list(range(8))
    assert [(each.node, each.bundle) for each in placed.of("driver")] == [("id000", None)]


def test_who_does_the_same_shares_the_cores_of_a_node() -> None:
    placed = layout(config({"p0": (2, 1, 1), "p1": (3, 1, 1)}, nodes=1), nodes(1, cpus=64))
    assert {placed.threads(each) for each in placed.of("rank")} == {12}
    assert {placed.threads(each) for each in placed.of("engine")} == {32}
    few = layout(config({"p0": (3, 1, 1)}, nodes=1, gpus_per_node=0), nodes(1, 0, 2))
    assert {few.threads(each) for each in few.of("rank")} == {1}
    parts = layout(config({"p0": (2, 2, 1), "p1": (1, 3, 2)}, nodes=1, gpus_per_node=0), nodes(1, 0, 48))
    assert {parts.threads(each) for each in parts.of("engine")} == {6}, "of 2 + 3 x 2 parts"
    both = layout(config({"p0": (4, 2, 2)}, nodes=1, gpus_per_node=0, layout="colocated"), nodes(1, 0, 48))
    assert {both.threads(each) for each in (*both.of("engine"), *both.of("rank"))} == {12}


@pytest.mark.parametrize(("said", "rank", "engine"), [(None, "12", "32"), ("3", "3", "3")])
def test_processes_are_told_their_threads_unless_the_driver_says_otherwise(
    said: str | None, rank: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    if said:
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0-7|8-15")
    for gpus in (0, 8):
        run = config({"p0": (5, 1, 2)}, nodes=1, gpus_per_node=gpus)
        placed = layout(run, nodes(1, cpus=64))
        assembly = Assembly(run, None, None, Path(), lambda *_: None)  # pyright: ignore[reportArgumentType]
        assembly.seats = SimpleNamespace(placed=placed)  # pyright: ignore[reportAttributeAccessIssue]
        assert assembly._rank_seat(placed.of("rank")[0]).environment["OMP_NUM_THREADS"] == rank
        told = assembly._engine_seat(placed.of("engine")[0]).environment
        if gpus:
            assert told == {}, "vLLM knows best"
        else:
            binding = "0-7|8-15" if said else "nobind"
            assert (told["OMP_NUM_THREADS"], told["VLLM_CPU_OMP_THREADS_BIND"]) == (engine, binding)
            assert told["CUDA_VISIBLE_DEVICES"] == ""


def test_where_ranks_would_be_in_the_way_of_engines_they_take_what_is_left() -> None:
    placed = layout(config({"p0": (6, 2, 5)}, nodes=2), nodes(2))
    assert places(placed, "engine") == ["id000", "id001"]
    assert places(placed, "rank") == ["id000"] * 3 + ["id001"] * 3


def test_a_rank_and_an_engine_share_a_gpu() -> None:
    placed = layout(config({"p0": (4, 2, 2), "p1": (4, 4, 1)}, nodes=1, layout="colocated"), nodes(1))
    gpus = [bundle for bundle in placed.bundles if bundle.gpus]
    assert [bundle.resources for bundle in gpus] == [{"CPU": 2.0, "GPU": 1.0}] * 8
    for policy in ("p0", "p1"):
        ranks, engines = placed.of("rank", policy), placed.of("engine", policy)
        assert [each.bundle for each in ranks] == [each.bundle for each in engines]
        assert {each.gpus for each in [*ranks, *engines]} == {0.5}
    assert [(each.number, each.part) for each in placed.of("engine", "p0")] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [(each.number, each.part) for each in placed.of("engine", "p1")] == [(n, 0) for n in range(4)]


def test_two_cores_hold_two_ranks_an_engine_and_two_run_workers() -> None:
    tiny = config({"p0": (2, 1, 1)}, nodes=1, gpus_per_node=0, run_workers_per_node=2)
    placed = layout(tiny, nodes(1, gpus=0, cpus=2))
    assert {each.cpus for each in placed.processes} == {0.4, 0.0}
    assert sum(bundle.cpus for bundle in placed.bundles) == pytest.approx(2.0)
    assert shown(placed) == [
        "10.0.0.0  2 CPUs (2 taken), 512 GiB: driver, keeper, 2 run workers",
        "  0.4 CPUs for each process, as there are more processes than CPUs",
        "  p0: ranks 0-1, engine 0",
    ]


def test_two_machines_without_gpus_hold_ranks_together() -> None:
    placed = layout(config({"p0": (2, 1, 1)}, nodes=2, gpus_per_node=0, run_workers_per_node=1), nodes(2, 0, 2))
    assert (places(placed, "rank"), places(placed, "engine")) == (["id000"] * 2, ["id001"])


def test_the_drivers_node_comes_first_and_nodes_without_enough_gpus_are_passed_over() -> None:
    there = [nodes(1, gpus=0)[0], *reversed(nodes(4)[1:])]
    placed = layout(config({"p0": (8, 8, 1)}, nodes=2), there)
    assert [node.id for node in placed.nodes] == ["id001", "id002"]
    assert placed.of("driver")[0].node == "id000"
    assert shown(placed)[-1] == "the driver is on a node that has nothing else"
    assert layout(config({"p0": (8, 8, 1)}, nodes=2), there) == placed


def test_a_layout_is_shown_node_by_node() -> None:
    apart = config({"p0": (4, 2, 2), "p1": (3, 1, 4)}, nodes=2)
    assert shown(layout(apart, nodes(2))) == [
        "10.0.0.0  8 GPUs (7 taken), 64 CPUs (11 taken), 512 GiB: driver, keeper, 4 run workers",
        "  p0: ranks 0-3",
        "  p1: ranks 0-2",
        "10.0.0.1  8 GPUs (8 taken), 64 CPUs (12 taken), 512 GiB: keeper, 4 run workers",
        "  p0: engines 0-1 of 2 GPUs each",
        "  p1: engine 0 of 4 GPUs each",
    ]
    together = config({"p0": (8, 2, 4)}, nodes=1, layout="colocated")
    assert shown(layout(together, nodes(1)))[1] == (
        "  p0: ranks 0-7 beside engines 0-1 of 4 GPUs each on the same GPUs"
    )


# Refused


@pytest.mark.parametrize(
    ("policies", "cluster", "there", "told"),
    [
        (
            {"p0": (8, 1, 1)},
            {"layout": "one-process"},
            nodes(1),
            None,
        ),
        (
            {"p0": (8, 4, 1)},
            {"layout": "colocated", "nodes": 1},
            nodes(1),
            "policies.p0: 8 ranks and 4 engines x 1 (tensor_parallel) = 4 cannot share GPUs one to one. Fix: "
            "policies.p0.update.ranks = 4, or policies.p0.engine.replicas = 8, or "
            'cluster.layout = "disaggregated" with cluster.nodes = 2',
        ),
        ({"p0": (8, 4, 1)}, {"nodes": 2}, [], "cluster.nodes = 2, and there is no node. Fix: start Ray on 2"),
        (
            {"p0": (8, 4, 1)},
            {"nodes": 3},
            [*nodes(1), *nodes(3, gpus=4)[1:]],
            "cluster.nodes = 3, and there are 1 of 8 GPUs; 2 more have 4, 4: 2 too few. Fix: start 2 more, or "
            "cluster.gpus_per_node = 4, or cluster.nodes = 1 with fewer ranks and engines",
        ),
        (
            {"p0": (2, 1, 1)},
            {"nodes": 3},
            [*nodes(1), *nodes(2, gpus=4)[1:], *nodes(3, gpus=2)[2:]],
            "cluster.nodes = 3, and there are 1 of 8 GPUs; 2 more have 4, 2: 2 too few. Fix: start 2 more, or "
            "cluster.gpus_per_node = 2, or cluster.nodes = 1",
        ),
        (
            {"p0": (2, 1, 1)},
            {"nodes": 1},
            nodes(1, gpus=0),
            "cluster.nodes = 1, and there are 0 of 8 GPUs; 1 more have 0: 1 too few. Fix: start 1 more, or "
            "cluster.gpus_per_node = 0, for CPUs in their place",
        ),
        (
            {"p0": (8, 4, 1), "p1": (4, 1, 2)},
            {"nodes": 2},
            nodes(2),
            "18 GPUs are needed (policies.p0 8 ranks x 1, policies.p0 4 engines x 1, policies.p1 4 ranks x 1, "
            "policies.p1 1 engines x 2), and 2 nodes x 8 = 16 are there: 2 too few. Fix: cluster.nodes = 3, or fewer "
            "ranks or engine.replicas",
        ),
        (
            {"p0": (8, 8, 1)},
            {"nodes": 1},
            nodes(1),
            "16 GPUs are needed (policies.p0 8 ranks x 1, policies.p0 8 engines x 1), and 1 nodes x 8 = 8 are there: "
            '8 too few. Fix: cluster.nodes = 2, or fewer ranks or engine.replicas, or cluster.layout = "colocated"',
        ),
        (
            {"p0": (1, 1, 16)},
            {"nodes": 3},
            nodes(3),
            "an engine of tensor_parallel = 16 needs 16 GPUs of one node, and nodes have 8: 8 too few. Fix: "
            "policies.p0.engine.tensor_parallel = 8",
        ),
        (
            {"p0": (1, 3, 5)},
            {"nodes": 2},
            nodes(2),
            "16 GPUs are needed (policies.p0 1 ranks x 1, policies.p0 3 engines x 5), and 2 nodes x 8 = 16 are there, "
            "but no way was found that keeps each engine's GPUs on one node. Fix: cluster.nodes = 3, or "
            "policies.p0.engine.tensor_parallel = 4, or policies.p0.engine.tensor_parallel = 2, or "
            "policies.p0.engine.tensor_parallel = 1",
        ),
        (
            {"p0": (20, 1, 1)},
            {"nodes": 1, "gpus_per_node": 0},
            nodes(1, 0, 2),
            "node 10.0.0.0 has 2 CPUs for 25 processes, which is less than 0.1 for each: 0.5 too few. Fix: a smaller "
            "cluster.run_workers_per_node, fewer ranks or engine.replicas, or more nodes",
        ),
    ],
)
def test_what_cannot_be_placed_is_told_with_numbers(
    policies: dict[str, tuple[int, int, int]], cluster: dict[str, Any], there: list[Node], told: str | None
) -> None:
    if told is None:
        run = config(policies)
        run = run.model_copy(update={"cluster": run.cluster.model_copy(update=cluster)})
        told = 'cluster.layout = "one-process" needs no places. Fix: cluster.layout = "disaggregated" or "colocated"'
    else:
        run = config(policies, **cluster)
    with pytest.raises(Unplaceable) as caught:
        layout(run, there)
    assert str(caught.value) == told


# For all


def applied(run: TrainConfig, option: str) -> dict[str, Any] | None:
    """The configuration with what an option says, if it says it in full."""
    values = run.model_dump(mode="json")
    said = re.findall(r'([a-z_]+\.[\w.]+) = (?:"([\w-]+)"|(\d+))', option)
    rest = re.sub(r'([a-z_]+\.[\w.]+) = ("[\w-]+"|\d+)|, for CPUs in their place| and | with ', "", option)
    if not said or rest:
        return None
    for key, word, number in said:
        *sections, name = key.split(".")
        part = values
        for section in sections:
            part = part[section]
        part[name] = word or int(number)
    return values


@given(
    policies=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(1, 16)), min_size=1, max_size=2),
    cluster=st.fixed_dictionaries(
        {
            "layout": st.sampled_from(["colocated", "disaggregated"]),
            "nodes": st.integers(1, 4),
            "gpus_per_node": st.sampled_from([0, 1, 4, 8]),
        },
        optional={"staleness": st.integers(0, 1), "transport": st.sampled_from(["auto", "store", "nccl", "ipc"])},
    ),
    torch=st.booleans(),
    gpus=st.lists(st.sampled_from([0, 2, 4, 8]), min_size=1, max_size=5),
)
def test_what_is_advised_is_accepted(
    policies: list[tuple[int, int, int]], cluster: dict[str, Any], torch: bool, gpus: list[int]
) -> None:
    named = {f"p{number}": sizes for number, sizes in enumerate(policies)}
    try:
        values = config(named).model_dump(mode="json")
        for policy in values["policies"].values() if torch else ():
            policy["update"] = {}
        run = TrainConfig.model_validate({**values, "cluster": {"layout": "disaggregated", **cluster}})
    except ValueError:
        return  # refused for other reasons
    there = [Node(f"n{number}", "a", 512, each, 0) for number, each in enumerate(gpus)]
    more = [Node(f"more{number}", "a", 512, max(gpus), 0) for number in range(300)]
    try:
        layout(run, there)
    except Unplaceable as error:
        fix = str(error).partition("Fix: ")[2]
    else:
        return
    for option in fix.split(", or "):
        values = applied(run, option)
        if values is not None:
            changed = TrainConfig.model_validate(values)
            layout(changed, [*there, *(more if changed.cluster.nodes > run.cluster.nodes else [])])
        else:
            assert re.search(r"^start \d+ more|fewer ranks|run_workers_per_node|more nodes", option), option


def test_advice_for_engines_alone_is_accepted_too() -> None:
    cluster = ClusterConfig(nodes=2, gpus_per_node=8)
    engines = {"executor": EngineConfig(replicas=3, tensor_parallel=6)}
    with pytest.raises(Unplaceable, match=r"18 GPUs.*Fix: cluster\.nodes = 3, or fewer engine\.replicas$"):
        engines_alone(cluster, engines, nodes(2))
    with pytest.raises(Unplaceable, match=r"Fix: start 1 more, or cluster\.nodes = 1 with fewer ranks and engines$"):
        engines_alone(cluster, engines, nodes(1))
    few = {"executor": EngineConfig(replicas=2)}
    with pytest.raises(Unplaceable, match=r"Fix: start 1 more, or cluster\.nodes = 1$"):
        engines_alone(cluster, few, nodes(1))


def test_a_refusal_of_a_large_run_is_quick() -> None:
    with pytest.raises(Unplaceable, match=r"8000 GPUs are needed .*Fix: cluster\.nodes = 1000, "):
        layout(config({"p0": (4000, 4000, 1)}, nodes=1), nodes(1))


sizes = st.tuples(st.integers(1, 12), st.integers(1, 6), st.sampled_from([1, 2, 4, 8]))


@given(
    policies=st.lists(sizes, min_size=1, max_size=2),
    colocated=st.booleans(),
    count=st.integers(1, 5),
    gpus=st.sampled_from([0, 1, 4, 8]),
    cpus=st.sampled_from([2, 7.5, 64]),
    workers=st.integers(1, 6),
)
def test_nothing_is_over_capacity_and_everything_has_one_place(
    policies: list[tuple[int, int, int]], colocated: bool, count: int, gpus: int, cpus: float, workers: int
) -> None:
    if colocated:
        policies = [(replicas * parallel, replicas, parallel) for _, replicas, parallel in policies]
    named = {f"p{number}": sizes for number, sizes in enumerate(policies)}
    run = config(
        named,
        layout="colocated" if colocated else "disaggregated",
        nodes=count,
        gpus_per_node=gpus,
        run_workers_per_node=workers,
    )
    there = nodes(count, gpus, cpus)
    needed = sum(ranks + (0 if colocated else replicas * parallel) for ranks, replicas, parallel in policies)
    widest = max(parallel for _, _, parallel in policies)
    # Sizes divide each other and the nodes here, so that room is found wherever there is some.
    roomy = not gpus or (needed <= count * gpus and widest <= gpus)
    share = min(1.0, cpus / (workers + 2 * needed))  # with everything on one node
    try:
        placed = layout(run, there)
    except Unplaceable as error:
        refused = str(error)
    else:
        refused = ""
    if not roomy or share >= SMALLEST_SHARE:
        assert roomy == (not refused)
    if refused:
        return
    by_node = {node.id: node for node in there}
    # Bundles within nodes, processes within bundles.
    for node in there:
        held = [bundle for bundle in placed.bundles if bundle.node == node.id]
        assert sum(bundle.cpus for bundle in held) <= node.cpus + 1e-9
        assert sum(bundle.gpus for bundle in held) <= node.gpus
    for number, bundle in enumerate(placed.bundles):
        inside = [each for each in placed.processes if each.bundle == number]
        assert inside
        assert {each.node for each in inside} == {bundle.node} <= set(by_node)
        assert sum(each.cpus for each in inside) == pytest.approx(bundle.cpus)
        assert sum(each.gpus for each in inside) == pytest.approx(bundle.gpus)
    # Everything once.
    counted = Counter((each.kind, each.policy, each.number, each.part) for each in placed.processes)
    assert set(counted.values()) == {1}
    assert len(placed.of("run_worker")) == count * workers
    assert [each.node for each in placed.of("keeper")] == [node.id for node in placed.nodes]
    assert len(placed.of("driver")) == 1
    for name, (ranks, replicas, parallel) in named.items():
        assert [each.number for each in placed.of("rank", name)] == list(range(ranks))
        engines = placed.of("engine", name)
        assert sorted({each.number for each in engines}) == list(range(replicas))
        for number in range(replicas):
            parts = [each for each in engines if each.number == number]
            assert len({each.node for each in parts}) == 1
            taken = sum(each.gpus for each in parts)
            assert taken == (0 if not gpus else parallel / 2 if colocated else parallel)
        if gpus and len(named) == 1 and needed + gpus <= count * gpus:  # engines have room without splitting ranks
            assert len({each.node for each in placed.of("rank", name)}) == -(-ranks // gpus)
        if colocated:
            assert [each.bundle for each in placed.of("rank", name)] == [each.bundle for each in engines]
    assert layout(run, there) == placed
    assert len(shown(placed)) >= count
