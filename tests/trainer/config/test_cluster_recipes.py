"""Recipes for clusters: what they change, that they can be placed, and that they fit the GPUs that they name."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.cluster.layout import layout
from trainer.cluster.places import Node
from trainer.config import TrainConfig
from trainer.config.toml_file import read_config
from trainer.run.needs import ClusterNeeds, PolicyNeeds
from trainer.run.planning import plan

RECIPES = Path(__file__).parents[3] / "recipes"
ALL = sorted(path.stem for path in (RECIPES / "cluster").glob("*.toml"))
SHAPE: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
SHAPES = {
    "Qwen/Qwen3-8B": SHAPE,
    "Qwen/Qwen3-4B": SHAPE | {"hidden_size": 2560, "intermediate_size": 9728, "tie_word_embeddings": True},
    "model": SHAPE | {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 192, "vocab_size": 2000},
}
GIB = 1 << 30


def recipe(name: str) -> TrainConfig:
    return read_config(RECIPES / "cluster" / f"{name}.toml")


def here(name: str, folder: Path) -> TrainConfig:
    """The recipe with its models in a folder: of each the `config.json`."""
    overrides = []
    for policy, settings in recipe(name).policies.items():
        place = folder / policy
        place.mkdir()
        (place / "config.json").write_text(json.dumps(SHAPES[settings.model]))
        overrides.append(f"policies.{policy}.model={place}")
    return read_config(RECIPES / "cluster" / f"{name}.toml", overrides)


def needs(config: TrainConfig) -> dict[str, ClusterNeeds]:
    return {each.gpu: each for each in plan(config).cluster}


def most(policy: PolicyNeeds, phase: Any) -> float:
    """GiB of the fullest GPU in a phase."""
    return max(each.phases[phase].total for each in policy.gpus) / GIB


@pytest.mark.parametrize("name", ALL)
def test_each_is_planned_placed_and_fits(name: str, tmp_path: Path) -> None:
    config = here(name, tmp_path)
    planned = plan(config)
    assert planned.disk_bytes
    assert planned.device_bytes is None
    gpus = config.cluster.gpus_per_node
    assert [each.gpu for each in planned.cluster] == (["H100", "H200"] if gpus else [""])
    for each in planned.cluster:
        assert each.lacking == []
        for policy in each.policies:
            assert policy.cached_requests >= 4
            assert policy.sync_bytes > 0
    nodes = [Node(str(n), f"10.0.0.{n}", 96 if gpus else 2, gpus, 512 * GIB) for n in range(config.cluster.nodes)]
    placed = layout(config, nodes)
    for node in nodes:
        assert sum(bundle.gpus for bundle in placed.bundles if bundle.node == node.id) == gpus


PAPER = read_config(RECIPES / "metaagent_x_qwen3_8b.toml")


def placeless(config: TrainConfig) -> dict[str, Any]:
    """All but where it is computed: no cluster, ranks, engines, and one model for all."""
    values = config.model_dump(exclude={"cluster"})
    for policy in values["policies"].values():
        del policy["update"], policy["model"]
        for key in ("replicas", "tensor_parallel", "options"):
            del policy["engine"][key]
    return values


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("eight_gpus_8b", ["Qwen/Qwen3-8B"]),
        ("eight_gpus_4b", ["Qwen/Qwen3-4B"]),
        ("eight_gpus_8b_split", ["Qwen/Qwen3-8B"] * 2),
        ("eight_gpus_4b_split", ["Qwen/Qwen3-4B"] * 2),
        ("two_nodes", ["Qwen/Qwen3-8B"]),
    ],
)
def test_nothing_of_the_papers_setting_is_changed(name: str, models: list[str]) -> None:
    config = recipe(name)
    assert [policy.model for policy in config.policies.values()] == models
    paper = placeless(PAPER)
    if len(models) == 2:
        paper["roles"] = {"designer": "p0", "executor": "p1", "agents": {}}
        paper["policies"] = {"p0": paper["policies"]["p0"], "p1": paper["policies"]["p0"]}
    assert placeless(config) == paper
    assert sum(policy.update.ranks for policy in config.policies.values()) == (4 if name == "two_nodes" else 8)


def test_what_the_comments_say_of_memory(tmp_path: Path) -> None:
    def of(name: str) -> dict[str, ClusterNeeds]:
        (tmp_path / name).mkdir()
        return needs(here(name, tmp_path / name))

    shared = of("eight_gpus_8b")["H100"].policies[0]
    assert most(shared, "update") == pytest.approx(28, abs=0.5)
    assert shared.host_bytes < 500e9
    assert [round(most(each, "update")) for each in of("eight_gpus_8b_split")["H200"].policies] == [45, 45]
    apart = of("two_nodes")["H100"].policies[0]
    assert apart.gpus[0].holds == "rank"
    assert apart.gpus[0].phases["update"].total / GIB == pytest.approx(45, abs=0.5)
    (both,) = of("one_gpu_lora")["H100"].policies[0].gpus
    update = both.phases["update"]
    engine = update.engine_weights + update.engine_cache + update.engine_workspace
    assert engine == int(0.6 * 80e9)
    assert (update.total - engine) / GIB == pytest.approx(25, abs=0.5)


def test_two_nodes_are_divided_as_is_predicted_to_be_fastest(tmp_path: Path) -> None:
    from trainer.predict.division import best_division
    from trainer.predict.workload import assumed_workload
    from trainer.run.gpus import GPUS
    from trainer.run.needs import known_sizes

    config = here("two_nodes", tmp_path)
    best = best_division(config, 2, known_sizes(config), GPUS["H100"], assumed_workload(config)).config
    policy, chosen = config.policies["p0"], best.policies["p0"]
    assert best.cluster.layout == config.cluster.layout
    assert (chosen.update.ranks, chosen.engine.replicas) == (policy.update.ranks, policy.engine.replicas)


def test_the_miniature_differs_in_its_places_only() -> None:
    tiny, cluster = read_config(RECIPES / "tiny.toml"), recipe("tiny_cluster")
    assert cluster.cluster.gpus_per_node == 0
    update = cluster.policies["p0"].update
    assert (update.backend, update.ranks, update.zero_stage) == ("deepspeed", 2, 3)
    alone = {
        name: policy.model_copy(update={"update": tiny.policies[name].update})
        for name, policy in cluster.policies.items()
    }
    assert cluster.model_copy(update={"cluster": tiny.cluster, "policies": alone}) == tiny
