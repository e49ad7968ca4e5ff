"""What is DeepSpeed's own: it learns what plain torch learns, on any number of ranks, and what goes wrong on one rank
goes wrong on all."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("deepspeed")

import torch
from device import DEVICE
from test_every_backend import CLOSE, CONTEXT, POLICY, RATE, assert_alike, digest, mixed, sample
from two_ranks import Ranks, need

from benchmarks.tiny_models import make_model
from trainer.update import DeepSpeedBackend, DeepSpeedSettings, TorchBackend
from trainer.update.backend import (
    ImitationObjective,
    LoraSettings,
    ModelUnusable,
    PolicyObjective,
    UpdateFailed,
)
from trainer.update.deepspeed_group import Facts

pytestmark = pytest.mark.xdist_group("two_ranks")
KIND = "tested_rank:TestedRank"
BFLOAT16 = {"rtol": 1e-4, "atol": 1e-4}
"""Of log-probabilities in bfloat16 after gradients were summed in another order. A weight that is rounded the other way
would show, and none is: 0 is what was seen."""
ADAPTERS = {"rtol": 0.05, "atol": 0.2}
"""The same with adapters: those are float32, differ in the last digits, and have the layers round to other sides."""


def close(settings: dict[str, Any]) -> dict[str, float]:
    return CLOSE if settings.get("dtype") != "bfloat16" else ADAPTERS if settings.get("lora") else BFLOAT16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    make_model(path, context=CONTEXT, layers=3)
    return path


@pytest.fixture(scope="session")
def one_rank() -> Iterator[Ranks]:
    need(1)
    ranks = Ranks(1)
    yield ranks
    ranks.close()


Make = Callable[..., DeepSpeedBackend]


@pytest.fixture
def make(two_ranks: Ranks, folder: Path) -> Iterator[Make]:
    made: list[DeepSpeedBackend] = []

    def one(stage: int = 3, ranks: Ranks = two_ranks, path: Path = folder, **settings: Any) -> DeepSpeedBackend:
        if settings.get("lora"):
            pytest.importorskip("peft")
        shown = {"check_calls": True, "persistence_threshold": 40, "live_weights": 0}
        given = {"learning_rate": RATE, **shown, **settings}
        group = ranks.group(DeepSpeedSettings(model=str(path), zero_stage=stage, **given), KIND)
        made.append(DeepSpeedBackend(group))
        return made[-1]

    yield one
    for backend in made:
        backend.close()


def ask(backend: DeepSpeedBackend, method: str, *arguments: Any, each: Any = None) -> list[Any]:
    return backend._opened().call(method, *arguments, each=each)


# What plain torch learns


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("offload", [False, True])
def test_it_learns_what_plain_torch_learns(make: Make, folder: Path, stage: int, dtype: Any, offload: bool) -> None:
    """Seven samples on two ranks, with weights that decay. In bfloat16 each by itself: how many share a matrix product
    decides how it is rounded."""
    if stage == 0 and (offload or dtype == "bfloat16"):
        pytest.skip("stage 0 refuses it")
    settings = {"dtype": dtype, "max_tokens_per_micro_batch": 60 if dtype == "float32" else 1, "weight_decay": 0.1}
    ours = make(stage, offload_optimizer=offload, **settings)
    plain = TorchBackend(folder, learning_rate=RATE, device=DEVICE, **settings)
    for seed in range(2):
        here, there = ours.update(mixed(7, seed), POLICY), plain.update(mixed(7, seed), POLICY)
        assert here.gradient_norm == pytest.approx(there.gradient_norm, rel=1e-5 if dtype == "float32" else 1e-3)
        assert_alike(ours, plain, mixed(7), **close(settings))


@pytest.mark.parametrize(
    ("settings", "objective"),
    [
        ({"keeps_reference": True}, PolicyObjective(kl_coefficient=0.1, mini_batches=3)),
        ({"lora": LoraSettings(rank=4)}, PolicyObjective(kl_coefficient=0.1, mini_batches=2)),
        ({"lora": LoraSettings(rank=4), "dtype": "bfloat16"}, POLICY),
        ({"gradient_checkpointing": True}, POLICY),
        ({"gradient_checkpointing": True, "lora": LoraSettings(rank=4)}, ImitationObjective()),
        ({"chunk_logits": 259 * 3}, ImitationObjective()),
    ],
    ids=["reference", "lora", "lora-bfloat16", "checkpointing", "lora-checkpointing", "chunks"],
)
@pytest.mark.parametrize("stage", range(4))
def test_it_learns_so_in_every_way(
    make: Make, folder: Path, stage: int, settings: dict[str, Any], objective: Any
) -> None:
    if stage == 0 and settings.get("dtype") == "bfloat16":
        pytest.skip("stage 0 refuses it")
    settings = {"max_tokens_per_micro_batch": 1 if "dtype" in settings else 60, **settings}
    ours = make(stage, **settings)
    same = {name: value for name, value in settings.items() if name != "chunk_logits"}
    plain = TorchBackend(folder, learning_rate=RATE, device=DEVICE, **same)
    samples = mixed(7)
    # Norms that are summed in another order differ by 4e-8, after which a weight may be rounded the other way: by 2^-8.
    close_to = 4e-3 if "dtype" in settings else 1e-3
    for _ in range(2):
        here, there = ours.update(samples, objective), plain.update(samples, objective)
        for name in ("loss", "gradient_norm", "kl", "entropy", "ratio_max", "gap_p99"):
            assert getattr(here, name) == pytest.approx(getattr(there, name), rel=close_to, abs=1e-5), name
        assert here.steps == there.steps
    assert_alike(ours, plain, samples, **close(settings))
    if "dtype" not in settings:
        merged = plain.weights()
        for name, tensor in ours.weights().items():
            assert torch.allclose(tensor, merged[name].cpu(), rtol=1e-4, atol=1e-5), name


@pytest.mark.parametrize("stage", range(4))
def test_any_number_of_samples_goes_to_any_number_of_ranks(make: Make, folder: Path, stage: int) -> None:
    """Also one, of which the second rank has none, and those whose lengths and logits differ most."""
    ours = make(stage, max_tokens_per_micro_batch=64, chunk_logits=259 * 16)
    plain = TorchBackend(folder, learning_rate=RATE, device=DEVICE)
    long = [sample(5, 1, 200), *(sample(seed, 3, 1) for seed in range(9))]
    for samples in [[], *([mixed(count)] for count in (1, 2, 3)), long, [sample(1, 5, 0), *mixed(2)]]:
        samples = samples[0] if samples and isinstance(samples[0], list) else samples
        here, there = ours.update(samples, POLICY), plain.update(samples, POLICY)
        assert (here.steps, here.computed_samples, here.tokens) == (there.steps, there.computed_samples, there.tokens)
        assert here.loss == pytest.approx(there.loss, rel=1e-4)
        assert_alike(ours, plain, samples, **CLOSE)
    assert ours.steps == plain.steps == 5


def test_buffers_stay_float32(make: Make) -> None:
    """Rotary frequencies in bfloat16 move log-probabilities by 0.17, and say nothing."""
    for stage in (1, 2, 3):
        for found in ask(make(stage, dtype="bfloat16"), "buffers"):
            assert {name: kind for name, kind in found.items() if "inv_freq" in name}
            assert set(found.values()) == {"torch.float32"}


def test_at_stage_3_a_rank_keeps_no_whole_weight_but_small_ones(make: Make) -> None:
    backend = make(3)
    for _ in range(2):
        backend.update(mixed(), POLICY)
        backend.weights()
        backend.probe([1, 2, 3])
        for kept in ask(backend, "kept"):
            assert {size for size in kept.values() if size} <= {32}, "of the norms"
    for kept in ask(make(2), "kept"):
        assert all(kept.values())


@pytest.mark.parametrize("checkpointing", [False, True])
def test_weights_that_stay_gathered_change_nothing(make: Make, checkpointing: bool) -> None:
    """DeepSpeed has seen a backward pass follow, and gathers for it where nothing is learned, too."""
    staying, parted = (make(3, live_weights=live, gradient_checkpointing=checkpointing) for live in (10**9, 0))
    for seed in range(3):
        for backend in (staying, parted):
            backend.update(mixed(seed=seed), POLICY)
            backend.logprobs(mixed())
            large = [size for size in ask(backend, "kept")[0].values() if size > 40]
            assert bool(large) == (backend is staying)
        assert digest(staying) == digest(parted)
    assert staying.probe(range(30)).logprobs == parted.probe(range(30)).logprobs


# Weights, a layer at a time


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("stage", [2, 3])
def test_weights_come_a_layer_at_a_time_and_once(make: Make, tmp_path: Path, stage: int, tied: bool) -> None:
    make_model(tmp_path, context=CONTEXT, tied=tied)
    backend = make(stage, path=tmp_path, lora=LoraSettings(rank=4))
    first, second = ask(backend, "streamed", False)
    names = [[name for name, _ in layer] for layer in first]
    assert [len({name.split(".")[2] for name in layer if ".layers." in name}) for layer in names] == (
        [0, 1, 1, 0] if tied else [0, 1, 1, 0, 0]
    )
    flat = [name for layer in names for name in layer]
    weights = backend.weights()
    assert set(weights) - set(flat) == ({"lm_head.weight"} if tied else set())
    assert len(flat) == len(set(flat))
    assert {name: shape for layer in first for name, shape in layer} == {
        name: tuple(weights[name].shape) for name in flat
    }
    assert [[name for name, _ in layer] for layer in second] == names
    assert {shape for layer in second for _, shape in layer} == {(0,)}
    assert ask(backend, "streamed", True) == [first, first]


def test_adapters_on_a_tied_head_are_merged_as_peft_merges_them(make: Make, tmp_path: Path) -> None:
    make_model(tmp_path / "tied", context=CONTEXT, tied=True)
    settings = {"lora": LoraSettings(rank=4, targets=("lm_head", "q_proj"))}
    ours = make(3, path=tmp_path / "tied", **settings)
    plain = TorchBackend(tmp_path / "tied", learning_rate=RATE, device=DEVICE, **settings)
    before = ours.weights()["lm_head.weight"]
    for backend in (ours, plain):
        backend.update(mixed(), ImitationObjective())
    found, expected = ours.weights(), plain.weights()
    assert not torch.equal(found["lm_head.weight"], before)
    assert torch.equal(found["lm_head.weight"], found["model.embed_tokens.weight"])
    for name, tensor in found.items():
        assert torch.allclose(tensor, expected[name].cpu(), rtol=1e-4, atol=1e-5), name


# Files, on other numbers of ranks and other stages


CHANGES = [
    (2, 3, 1, 3, {}),
    (1, 3, 2, 3, {}),
    (2, 2, 1, 0, {}),
    (1, 0, 2, 1, {}),
    (2, 0, 2, 3, {}),
    (2, 3, 1, 1, {"dtype": "bfloat16"}),
    (1, 2, 2, 3, {"dtype": "bfloat16"}),
    (2, 1, 2, 2, {"dtype": "bfloat16", "offload_optimizer": True}),
    (1, 1, 2, 3, {"lora": LoraSettings(rank=4, dropout=0.1)}),
    (2, 3, 1, 2, {"lora": LoraSettings(rank=4), "dtype": "bfloat16"}),
]


@pytest.mark.parametrize(("before", "stage", "after", "other", "settings"), CHANGES)
def test_another_number_of_ranks_goes_on(
    make: Make, two_ranks: Ranks, one_rank: Ranks, tmp_path: Path, before: int, stage: int, after: int, other: int,
    settings: dict[str, Any],
) -> None:  # fmt: skip
    ranks, settings = {1: one_rank, 2: two_ranks}, {"max_tokens_per_micro_batch": 1, **settings}
    one = make(stage, ranks[before], **settings)
    one.update(mixed(seed=1), PolicyObjective(mini_batches=2))
    one.save(tmp_path / "saved")
    again = make(other, ranks[after], **settings, seed=7)
    again.update(mixed(seed=2), POLICY)
    again.load(tmp_path / "saved")
    assert (digest(again), again.steps) == (digest(one), 2), "to the bit"
    assert_alike(again, one, mixed(), **close(settings))
    again.save(tmp_path / "again")
    assert held_in(tmp_path / "again").keys() == held_in(tmp_path / "saved").keys()
    for name, tensor in held_in(tmp_path / "again").items():
        assert torch.equal(tensor, held_in(tmp_path / "saved")[name]), name
    if "lora" in settings and settings["lora"].dropout:
        return  # drops other values on other ranks
    reports = [backend.update(mixed(seed=3), POLICY) for backend in (one, again)]
    assert reports[0].gradient_norm == pytest.approx(reports[1].gradient_norm, rel=1e-2 if "lora" in settings else 1e-4)
    assert_alike(again, one, mixed(), **close(settings))


def held_in(folder: Path) -> dict[str, torch.Tensor]:
    """What the optimizer's fragments are together, by kind and parameter."""
    from trainer.update import policy_files

    pieces: dict[str, list[tuple[int, torch.Tensor]]] = {}
    for path in (folder / "optimizer").glob("*.safetensors"):
        tensors = policy_files.read_tensors(path)
        for name, tensor in tensors.items():
            kind, _, parameter = name.partition("/")
            if kind in ("master", "exp_avg", "exp_avg_sq"):
                pieces.setdefault(name, []).append((int(tensors[f"offset/{parameter}"]), tensor))
    for found in pieces.values():
        found.sort(key=lambda one: one[0])
    return {name: torch.cat([tensor for _, tensor in found]) for name, found in pieces.items()}


def test_each_rank_writes_its_own_part_and_no_pickle(make: Make, tmp_path: Path) -> None:
    for stage in range(4):
        backend = make(stage)
        backend.update(mixed(), POLICY)
        backend.save(tmp_path / str(stage))
        files = sorted((tmp_path / str(stage) / "optimizer").iterdir())
        assert [file.name for file in files] == ["rank-0-of-2.safetensors", "rank-1-of-2.safetensors", "state.json"]
        sizes = [file.stat().st_size for file in files[:2]]
        assert max(sizes) < 1.1 * min(sizes), "neither has all"
        assert {file.suffix for file in (tmp_path / str(stage)).rglob("*") if file.is_file()} <= {
            ".safetensors", ".json", ".jinja",
        }  # fmt: skip


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_fragments_that_do_not_fit_change_nothing_on_any_rank(make: Make, tmp_path: Path, stage: int) -> None:
    """Each is wrong in the second rank's file, where the first one may not look."""
    from safetensors.torch import load_file, save_file

    source = make(stage)
    source.update(mixed(), POLICY)
    source.save(tmp_path / "saved")
    backend, other = make(stage), make(stage)
    before = digest(backend)
    path = tmp_path / "saved" / "optimizer" / "rank-1-of-2.safetensors"
    whole = path.read_bytes()
    name = next(key.removeprefix("offset/") for key in load_file(path) if key.startswith("offset/"))

    def refused(told: str, **changes: Any) -> None:
        tensors = {key: tensor.clone() for key, tensor in load_file(path).items()}
        for key, change in changes.items():
            key = key if key == "step" else f"{key}/{name}"
            changed = change(tensors.get(key))
            tensors.pop(key, None)
            if changed is not None:
                tensors[key] = changed
        save_file(tensors, path)
        with pytest.raises(ValueError, match=f"{told}.*Fix: "):
            backend.load(tmp_path / "saved")
        assert (digest(backend), backend.steps) == (before, 0)
        path.write_bytes(whole)

    kinds = ("master", "exp_avg", "exp_avg_sq")
    refused("rank-1-of-2.*master.*not finite", master=lambda each: each.index_fill(0, torch.tensor([0]), math.nan))
    refused("rank-1-of-2.*exp_avg_sq.*not finite", exp_avg_sq=lambda each: each.fill_(math.inf))
    refused("different values of", master=lambda each: each + 1)
    refused("rank-1-of-2.*from element 0 on|which has", offset=lambda each: torch.zeros_like(each) - (each == 0).long())
    refused("which has", offset=lambda each: each + (1 << 40))
    refused("rank-1-of-2.*has no 'exp_avg/", exp_avg=lambda each: None)
    refused("rank-1-of-2.*has no|unknown", offset=lambda each: None)
    refused("where .* should be", **{kind: lambda each: each[:-1].clone() for kind in kinds})
    refused("rank-1-of-2.*as torch.float64", master=lambda each: each.double())
    refused("rank-1-of-2.*as torch.float32", offset=lambda each: each.float())
    refused("of step 5.0, rank 0's file of 1.0", step=lambda each: each.fill_(5))
    refused("of step -1.0", step=lambda each: each.fill_(-1))
    refused("not finite", step=lambda each: each.fill_(math.nan))
    refused("has no 'step'", step=lambda each: None)
    state = tmp_path / "saved" / "optimizer" / "state.json"
    text = state.read_text()
    for ranks, told in (("1", "cannot be read"), ("3", "cannot be read"), ("0", "cannot be read"), ("1e9", "read")):
        state.write_text(text.replace('"ranks": 2', f'"ranks": {ranks}'))
        with pytest.raises(ValueError, match=f"{told}.*Fix: "):
            backend.load(tmp_path / "saved")
    assert (digest(backend), backend.steps) == (before, 0)
    for each in (backend, other):
        each.update(mixed(), POLICY)
    assert digest(backend) == digest(other), "nor is anything left behind"


# What goes wrong on one rank


@pytest.mark.parametrize(
    ("stage", "where", "ranks"),
    [
        (0, "forward", [1]), (1, "forward", [0]), (2, "forward", [1]), (0, "backward", [1]), (1, "backward", [1]),
        (0, "backward", [0, 1]), (3, "forward", [0, 1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_memory_that_runs_out_fails_an_update_on_all_ranks_alike(
    make: Make, stage: int, where: str, ranks: list[int], dtype: Any
) -> None:
    """In the second of several micro-batches, and a rank that had enough goes on as if nothing had been."""
    if stage == 0 and dtype == "bfloat16":
        pytest.skip("stage 0 refuses it")
    settings = {"max_tokens_per_micro_batch": 1, "dtype": dtype}
    backend, other = make(stage, **settings), make(stage, **settings)
    for each in (backend, other):
        each.update(mixed(seed=1), POLICY)
    before = digest(backend)
    for at in (1, 2):
        ask(backend, "run_out", ranks, where, at)
        with pytest.raises(UpdateFailed, match=r"memory ran out after 0 steps of this update, with at most 1 .*Fix: "):
            backend.update(mixed(), POLICY)
        ask(backend, "behave")
        assert (digest(backend), backend.steps) == (before, 1)
    for seed in (2, 3):
        for each in (backend, other):
            each.update(mixed(seed=seed), POLICY)
    assert digest(backend) == digest(other)


def test_memory_that_runs_out_later_says_how_far_it_came(make: Make) -> None:
    """Passes of the second rank: old log-probabilities of the second mini-batch, the first one's step, the second's."""
    backend = make(1)
    ask(backend, "run_out", [1], "forward", 3)
    with pytest.raises(UpdateFailed, match="after 1 steps of this update"):
        backend.update(mixed(), PolicyObjective(mini_batches=2))
    assert backend.steps == 1


@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("offload", [False, True])
def test_gradients_that_are_not_finite_leave_every_stage_as_it_was(make: Make, stage: int, offload: bool) -> None:
    dtypes: list[Any] = ["float32"] if stage == 0 else ["float32", "bfloat16"]
    for dtype in dtypes if not (offload and stage == 0) else []:
        settings = {"dtype": dtype, "offload_optimizer": offload}
        backend, other = make(stage, **settings), make(stage, **settings)
        huge = [replace(each, advantage=1e38) for each in mixed(3)]
        for each in (backend, other):
            each.update(mixed(seed=1), POLICY)
        before = digest(backend)
        for samples in (huge, huge[:1]):
            with pytest.raises(UpdateFailed, match=r"gradient norm is (inf|nan)|loss of sample \d is.*Fix: "):
                backend.update(samples, PolicyObjective(truncation=3e38))
            assert (digest(backend), backend.steps) == (before, 1)
        for seed in (2, 3):
            for each in (backend, other):
                each.update(mixed(seed=seed), POLICY)
        assert digest(backend) == digest(other)


def test_an_infinite_loss_is_told_by_all_ranks_alike(make: Make) -> None:
    """Of the first such sample, whichever rank has it."""
    backend = make(2)
    samples = mixed()
    for index in (6, 3, 5):
        behaviour = [-1e30 if one else 0.0 for one in samples[index].loss_mask]
        samples[index] = replace(samples[index], behaviour_logprobs=behaviour, advantage=2.0)
    work = backend._work(samples, [dict.fromkeys(range(8), 0.1)])
    first, second = ask(backend, "failing", PolicyObjective(truncation=3e38), each=work)
    assert first == second
    assert re.search(r"^UpdateFailed: the loss of sample 3 is -?inf \(advantage 2\.0\)", first)


def test_a_rank_that_calls_other_modules_is_found(make: Make) -> None:
    for stage in (0, 2):
        backend = make(stage)
        ask(backend, "wander", 1)
        with pytest.raises(
            RuntimeError, match=r"ranks call different modules. Call \d+ is of .*causal.*norm on rank 1"
        ):
            backend.update(mixed(), POLICY)
        ask(backend, "behave")
    quiet = make(0, check_calls=False)
    ask(quiet, "wander", 1)
    assert quiet.update(mixed(), POLICY).steps == 1


def test_a_model_that_cannot_be_used_is_named_and_the_ranks_go_on(make: Make, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelUnusable, match=r"cannot load the model '.*empty': .*Fix: name a folder or a hub id"):
        make(path=tmp_path / "empty")
    assert make(1).update(mixed(), POLICY).steps == 1


def test_ranks_that_differ_are_refused() -> None:
    settings = DeepSpeedSettings(model="m", learning_rate=1e-3)
    facts = Facts(settings=settings, vocabulary=5, context=None, tied={}, start="a", steps=0)

    class Group:
        size = 2

        def call(self, method: str, *arguments: Any, each: Sequence[Any] | None = None) -> list[Any]:
            return [facts, replace(facts, start="b")]

        def close(self) -> None: ...

    with pytest.raises(ValueError, match=r"rank 1 has another model.*start='b'.*Fix: "):
        DeepSpeedBackend(Group())


@pytest.mark.parametrize(
    "wrong",
    [
        {"zero_stage": 0, "dtype": "bfloat16"},
        {"zero_stage": 0, "offload_optimizer": True},
        {"max_tokens_per_micro_batch": 0},
        {"max_gradient_norm": 0.0},
        {"zero_stage": 4},
        {"lerning_rate": 1.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DeepSpeedSettings(**{"model": "m", "learning_rate": 1e-3, **wrong})


# Memory that is given away


@pytest.mark.parametrize(
    ("stage", "settings"),
    [
        (0, {}), (1, {}), (1, {"dtype": "bfloat16"}), (2, {"dtype": "bfloat16"}),
        (3, {"dtype": "bfloat16", "keeps_reference": True}), (3, {"lora": LoraSettings(rank=4)}),
    ],
)  # fmt: skip
def test_memory_is_given_away_and_comes_back_bit_for_bit(make: Make, stage: int, settings: dict[str, Any]) -> None:
    backend, other = make(stage, **settings), make(stage, **settings)
    objective = PolicyObjective(kl_coefficient=0.1 if len(settings) > 1 or "lora" in settings else 0.0)
    for seed in range(2):
        for each in (backend, other):
            each.update(mixed(seed=seed), objective)
        for waiting, held in ask(backend, "park"):
            assert waiting > 0
            assert held == 0
        with pytest.raises(RuntimeError, match=r"given away. Fix: reload\(\)"):
            backend.update(mixed(), objective)
        backend.reload()
        backend.reload()
        assert digest(backend) == digest(other)
    assert backend.logprobs(mixed()) == other.logprobs(mixed())


@pytest.mark.skipif(DEVICE != "cpu", reason="of CPUs")
def test_a_cpu_has_no_memory_to_give(make: Make) -> None:
    backend = make(3)
    before = digest(backend)
    assert backend.offload() == 0
    assert digest(backend) == before
    backend.reload()
    assert backend.update(mixed(), POLICY).steps == 1
