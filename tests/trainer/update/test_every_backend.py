"""What every update backend must do alike, on one tiny model: it learns from samples, and loses nothing.

`BACKENDS` says how to make each; one that this environment lacks is skipped, with the reason. Nothing here looks inside
a backend: what it holds is seen through its weights, its log-probabilities and its files.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from device import DEVICE

from trainer.samples import Sample
from trainer.update.backend import Backend, ImitationObjective, LoraSettings, PolicyObjective, UpdateFailed

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import torch

CONTEXT = 256
VOCABULARY = 259
RATE = 1e-3
POLICY = PolicyObjective()
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
"""Of log-probabilities that only differ by the rounding of float32."""


Make = Callable[..., Backend]
"""Given a model's folder and what `TorchBackend` is given."""


def torch_backends(request: pytest.FixtureRequest) -> Make:
    from trainer.update.torch_backend import TorchBackend

    return lambda folder, **settings: TorchBackend(folder, device=DEVICE, **settings)


def deepspeed_backends(stage: int) -> Callable[[pytest.FixtureRequest], Make]:
    """On two ranks. At stage 3 they keep weights of more than 40 elements in parts, whenever they are not used."""

    def backends(request: pytest.FixtureRequest) -> Make:
        pytest.importorskip("deepspeed")
        from trainer.update import DeepSpeedBackend, DeepSpeedSettings

        ranks: Any = request.getfixturevalue("two_ranks")

        def make(folder: Path, **settings: Any) -> Backend:
            if "shared_prompts" in settings:
                pytest.skip("DeepSpeed's ranks compute every prompt for itself")
            shown = {"check_calls": True, "persistence_threshold": 40, "live_weights": 0}
            given = {"zero_stage": stage, **shown, **settings}
            if stage == 0 and settings.get("dtype") == "bfloat16":
                with pytest.raises(ValueError, match=r"zero_stage = 0 keeps no float32 weights.*Fix: "):
                    DeepSpeedSettings(model=str(folder), **given)
                pytest.skip("stage 0 refuses bfloat16")
            return DeepSpeedBackend(ranks.group(DeepSpeedSettings(model=str(folder), **given)))

        return make

    return backends


BACKENDS: dict[str, Callable[[pytest.FixtureRequest], Make]] = {
    "torch": torch_backends,
    **{f"deepspeed-z{stage}": deepspeed_backends(stage) for stage in range(4)},
}
GROUPED = [
    pytest.param(name, marks=[pytest.mark.xdist_group("two_ranks")] if name.startswith("deepspeed") else [])
    for name in BACKENDS
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from benchmarks.tiny_models import make_model

    path = tmp_path_factory.mktemp("tiny")
    make_model(path, context=CONTEXT)
    return path


@pytest.fixture(params=GROUPED)
def make(request: pytest.FixtureRequest, folder: Path) -> Iterator[Make]:
    """Makes backends of one kind on the tiny model, closed at the end."""
    made: list[Backend] = []
    new = BACKENDS[request.param](request)

    def one(path: Path = folder, **settings: Any) -> Backend:
        if settings.get("lora"):
            pytest.importorskip("peft")
        made.append(new(path, **{"learning_rate": RATE, **settings}))
        return made[-1]

    yield one
    for backend in made:
        backend.close()


def sample(seed: int, prompt: int, chosen: int, advantage: float = 1.0, **given: Any) -> Sample:
    """Random tokens, of which two are a tool's in the middle of the chosen ones."""
    dice = random.Random(seed)
    mask = [0] * prompt + [1] * chosen
    if chosen > 4:
        mask[prompt + 2 : prompt + 4] = [0, 0]
    return Sample(
        policy="p0",
        token_ids=[dice.randrange(250) for _ in mask],
        loss_mask=mask,
        behaviour_logprobs=[-4 * dice.random() if one else 0.0 for one in mask],
        advantage=advantage,
        **given,
    )


def mixed(count: int = 8, seed: int = 0) -> list[Sample]:
    """Samples of many lengths, temperatures, groups and advantages, none of them 0."""
    dice = random.Random(seed)
    return [
        sample(
            dice.randrange(1 << 30),
            dice.randrange(1, 20),
            dice.randrange(1, 40),
            dice.choice([-1.5, -0.5, 0.5, 2.0]),
            temperature=dice.choice([0.7, 1.0]),
            group=dice.choice("ab"),
        )
        for _ in range(count)
    ]


def sharing(seed: int = 0) -> list[Sample]:
    """Samples of many lengths, of which one to four begin with the same prompt of 1 to 20 tokens."""
    samples = []
    for number, (length, count) in enumerate([(1, 2), (2, 3), (7, 1), (7, 4), (20, 3)]):
        first = sample(seed + number, length, 1).token_ids[:length]
        for each in mixed(count, seed + 100 + number):
            chosen = each.loss_mask.index(1)
            samples.append(
                replace(
                    each,
                    token_ids=[*first, *each.token_ids[chosen:]],
                    loss_mask=[0] * length + list(each.loss_mask[chosen:]),
                    behaviour_logprobs=[0.0] * length + list(each.behaviour_logprobs[chosen:]),
                )
            )
    random.Random(seed).shuffle(samples)
    return samples


def from_policy(backend: Backend, samples: Sequence[Sample]) -> list[Sample]:
    """The same with the backend's own log-probabilities as the engine's."""
    return [replace(s, behaviour_logprobs=found) for s, found in zip(samples, backend.logprobs(samples), strict=True)]


def digest(backend: Backend) -> str:
    from engine.weights import fingerprint

    return fingerprint(backend.weights())


def assert_alike(one: Backend, other: Backend, samples: Sequence[Sample], **tolerance: float) -> None:
    for found, expected in zip(one.logprobs(samples), other.logprobs(samples), strict=True):
        assert found == pytest.approx(expected, rel=tolerance["rtol"], abs=tolerance["atol"])


# The same numbers, however they are computed


def test_logprobs_are_those_of_plain_transformers(make: Make, folder: Path) -> None:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    samples = [*mixed(), sample(1, 5, 0), replace(sample(2, 3, 6), loss_mask=[0, 0, 0, 1, 1, 0, 0, 0, 0])]
    for each, found in zip(samples, make().logprobs(samples), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([each.token_ids])).logits[0, :-1] / each.temperature
        expected = logits.log_softmax(-1).gather(-1, torch.tensor(each.token_ids[1:])[:, None])[:, 0].tolist()
        assert found == pytest.approx(
            [p if m else 0.0 for p, m in zip([0.0, *expected], each.loss_mask, strict=True)], rel=1e-4, abs=1e-5
        )


OBJECTIVES = pytest.mark.parametrize(
    "objective",
    [
        POLICY,
        PolicyObjective(ratio="sequence-mean", aggregation="group", mini_batches=2),
        PolicyObjective(aggregation="token", kl_coefficient=0.1),
        ImitationObjective(),
    ],
    ids=["eq2", "groups-of-2-steps", "tokens-and-kl", "imitation"],
)


def assert_learn_alike(one: Backend, others: Sequence[Backend], samples: Sequence[Sample], objective: Any) -> None:
    """Two updates have the same reports, and lead to the same policy."""
    exact = ("steps", "samples", "computed_samples", "tokens")
    for _ in range(2):
        here = one.update(samples, objective)
        for there in (other.update(samples, objective) for other in others):
            assert [getattr(here, name) for name in exact] == [getattr(there, name) for name in exact]
            for name in set(type(here).model_fields) - {*exact, "duration_s"}:
                assert getattr(here, name) == pytest.approx(getattr(there, name), rel=1e-3, abs=1e-6), name
    for other in others:
        assert_alike(one, other, samples, rtol=1e-3, atol=1e-4)


@OBJECTIVES
def test_micro_batches_change_no_number(make: Make, objective: Any) -> None:
    """Batch 1 x accumulation 8 (budget 1), in between, and 8 x 1."""
    whole, *cut = (make(keeps_reference=True, max_tokens_per_micro_batch=each) for each in (1 << 14, 1, 60, 200))
    assert_learn_alike(whole, cut, mixed(), objective)


@pytest.mark.parametrize("budget", [1, 60, 1 << 14])
@OBJECTIVES
def test_shared_prompts_change_no_number(make: Make, objective: Any, budget: int) -> None:
    settings = {"keeps_reference": True, "max_tokens_per_micro_batch": budget}
    whole, shared = make(**settings, shared_prompts=False), make(**settings)
    assert_alike(shared, whole, sharing(), **CLOSE)
    assert_learn_alike(shared, [whole], sharing(), objective)


def test_shared_prompts_change_no_number_of_adapters(make: Make) -> None:
    whole, shared = (make(lora=LoraSettings(rank=4), shared_prompts=each) for each in (False, True))
    assert_learn_alike(shared, [whole], sharing(), PolicyObjective(kl_coefficient=0.1))


def test_micro_batches_change_little_in_bfloat16(make: Make) -> None:
    whole, cut = (make(dtype="bfloat16", max_tokens_per_micro_batch=budget) for budget in (1 << 14, 1))
    one, other = (backend.update(mixed(), ImitationObjective()) for backend in (whole, cut))
    assert other.loss == pytest.approx(one.loss, rel=0.01)
    assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=0.01)


def test_gradient_checkpointing_changes_no_number(make: Make) -> None:
    plain, saving = make(), make(gradient_checkpointing=True)
    for _ in range(2):
        one, other = plain.update(mixed(), POLICY), saving.update(mixed(), POLICY)
        assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-5)
    assert_alike(plain, saving, mixed(), **CLOSE)


def test_the_same_calls_give_the_same_bits(make: Make) -> None:
    one, other = make(), make()
    for seed in range(2):
        first = one.update(mixed(seed=seed), PolicyObjective(mini_batches=2))
        torch.rand(3)  # whatever else draws random numbers
        again = other.update(mixed(seed=seed), PolicyObjective(mini_batches=2))
        assert first.model_dump(exclude={"duration_s"}) == again.model_dump(exclude={"duration_s"})
    assert digest(one) == digest(other)


def test_bfloat16_is_close_to_float32_and_loses_no_small_step(make: Make) -> None:
    """A weight of 0.5 has neighbours 4e-3 apart in bfloat16: steps of 3e-4 would leave it where it is."""
    rough, fine = (make(dtype=dtype, learning_rate=3e-4) for dtype in ("bfloat16", "float32"))
    samples = mixed()
    first = [backend.update(samples, ImitationObjective()) for backend in (rough, fine)]
    assert first[0].loss == pytest.approx(first[1].loss, rel=0.02)
    assert first[0].gradient_norm == pytest.approx(first[1].gradient_norm, rel=0.05)
    for _ in range(30):
        last = [backend.update(samples, ImitationObjective()).loss for backend in (rough, fine)]
    assert last[0] == pytest.approx(last[1], rel=0.02)
    assert last[1] < first[1].loss - 1
    assert {tensor.dtype for tensor in rough.weights().values()} == {torch.bfloat16}


# What an update does


def test_it_makes_good_tokens_likelier_and_bad_ones_less(make: Make) -> None:
    backend = make()
    samples = from_policy(backend, [sample(1, 6, 12, 1.0), sample(2, 6, 12, -1.0)])
    before = [sum(row) for row in backend.logprobs(samples)]
    report = backend.update(samples, POLICY)
    after = [sum(row) for row in backend.logprobs(samples)]
    assert after[0] > before[0]
    assert after[1] < before[1]
    assert (report.steps, backend.steps, report.samples, report.computed_samples, report.tokens) == (1, 1, 2, 2, 20)
    assert report.loss == pytest.approx(0, abs=1e-6)  # -(1 - 1) / 2 where the ratio is 1
    assert (report.ratio_mean, report.ratio_max, report.clipped, report.truncated) == (1, 1, 0, 0)
    assert report.gap_max < 1e-4
    assert 0 < report.entropy < math.log(VOCABULARY)


def test_the_report_tells_the_gap_to_the_engine(make: Make) -> None:
    backend = make()
    ours = from_policy(backend, [sample(1, 6, 104, 1.0)])[0]
    behaviour = [value - 0.5 * one for value, one in zip(ours.behaviour_logprobs, ours.loss_mask, strict=True)]
    behaviour[6] -= 1.0
    report = backend.update([replace(ours, behaviour_logprobs=behaviour)], PolicyObjective(truncation=2.0))
    assert report.gap_mean == pytest.approx((101 * 0.5 + 1.5) / 102, rel=1e-3)
    assert report.gap_p99 == pytest.approx(0.5, rel=1e-3)
    assert report.gap_max == pytest.approx(1.5, rel=1e-3)
    assert report.truncated == pytest.approx(1 / 102)
    assert report.loss == pytest.approx(-(101 * math.exp(0.5) + 2.0) / 102, rel=1e-3)


def test_mini_batches_are_steps_against_the_policy_before_them(make: Make) -> None:
    backend = make(learning_rate=1e-2)
    samples = from_policy(backend, [sample(n, 6, 12) for n in range(6)])
    report = backend.update(samples, PolicyObjective(mini_batches=3))
    assert report.steps == backend.steps == 3
    assert report.ratio_max > 1.01  # the later ones are compared with what was there before the first step
    assert report.gap_max < 1e-4  # the engine had the weights from before the first step


def test_a_learning_rate_can_be_set_between_updates(make: Make) -> None:
    backend, other = make(learning_rate=1e-2), make(learning_rate=1e-3)
    assert backend.learning_rate == 1e-2
    backend.learning_rate = 1e-3
    backend.update(mixed(), POLICY)
    other.update(mixed(), POLICY)
    assert digest(backend) == digest(other)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "lora"])
def test_gradients_are_clipped_to_the_norm_that_is_set(make: Make, kind: str, tmp_path: Path) -> None:
    """Adam's first moment after its first step is (1 - 0.9) times the gradient that it was given, all weights together:
    0.1 * 1e-3, whatever the gradient was before."""
    from trainer.update import policy_files

    limit, settings = 1e-3, KINDS[kind]

    def moments(folder: Path) -> list[torch.Tensor]:
        files = [policy_files.read_tensors(path) for path in sorted((folder / "optimizer").glob("*.safetensors"))]
        return [tensor.double() for held in files for name, tensor in held.items() if name.startswith("exp_avg/")]

    free, clipped = make(**settings, max_gradient_norm=1e6), make(**settings, max_gradient_norm=limit)
    norms = []
    for name, backend in {"free": free, "clipped": clipped}.items():
        report = backend.update(mixed(), POLICY)
        backend.save(tmp_path / name)
        squares = sum(float(each.square().sum()) for each in moments(tmp_path / name))
        norms.append((report.gradient_norm, math.sqrt(squares)))
    (before, unclipped), (told, moment) = norms
    assert before > 10 * limit
    assert unclipped == pytest.approx(0.1 * before, rel=1e-3)
    assert told == before  # the report's norm is the one before clipping
    assert moment == pytest.approx(0.1 * limit, rel=1e-3)


def test_zero_advantages_take_no_step(make: Make) -> None:
    backend = make()
    before = digest(backend)
    report = backend.update([replace(each, advantage=0.0) for each in mixed()], PolicyObjective(mini_batches=2))
    assert (report.steps, report.samples, report.computed_samples, report.tokens) == (0, 8, 0, 0)
    assert backend.steps == 0
    assert digest(backend) == before
    assert backend.update([], POLICY).steps == backend.update([], ImitationObjective()).steps == 0


def test_zero_advantages_count_in_denominators(make: Make) -> None:
    samples = [sample(1, 6, 10), sample(2, 6, 10)]
    silent = [replace(sample(n, 6, 10), advantage=0.0) for n in range(2)]
    alone, diluted = make().update(samples, POLICY), make().update([*samples, *silent], POLICY)
    assert diluted.computed_samples == 2
    assert diluted.loss == pytest.approx(alone.loss / 2, rel=1e-4)
    assert diluted.gradient_norm == pytest.approx(alone.gradient_norm / 2, rel=1e-4)


def test_imitation_is_the_mean_over_tokens(make: Make) -> None:
    backend, samples = make(), mixed()
    values = [v for row, s in zip(backend.logprobs(samples), samples, strict=True) for v in row if v and s]
    report = backend.update(samples, ImitationObjective())
    assert report.loss == pytest.approx(-math.fsum(values) / len(values), rel=1e-4)
    assert backend.update(samples, ImitationObjective()).loss < report.loss


def test_tokens_after_the_last_chosen_one_change_nothing(make: Make) -> None:
    one, other = make(), make()
    short = sample(1, 6, 10)
    tail = {"token_ids": 9, "loss_mask": 0, "behaviour_logprobs": 0.0}
    longer = replace(short, **{name: [*getattr(short, name), *[value] * 7] for name, value in tail.items()})
    one.update([short], POLICY)
    other.update([longer], POLICY)
    assert digest(one) == digest(other)


def test_eq9_in_a_designer_stage_executor_samples_change_no_bit(make: Make) -> None:
    """One policy plays both roles; the executor's trajectories hold other tokens in the second run."""
    from trainer.credit.advantages import samples_by_policy
    from trainer.credit.stages import active_roles
    from trainer.samples import Coordinates, Trajectory
    from trainer.trees import DesignResult, Execution, QuestionTree

    def updated(step: int, seed: int) -> Backend:
        def trajectory(role: Any, design: int, execution: int | None, of: Sample) -> Trajectory:
            place = Coordinates(question="q", design=design, execution=execution, agent=role)
            fields = {name: getattr(of, name) for name in ("token_ids", "loss_mask", "behaviour_logprobs")}
            return Trajectory(role=role, coordinates=place, **fields)

        def run(design: int, index: int) -> Execution:
            drawn = trajectory("executor", design, index, sample(seed + 2 * design + index, 5, 9))
            return Execution(index=index, reward=Rewarded(total=design + index, terms=[]), trajectories=[drawn])

        def design(index: int) -> DesignResult:
            written = trajectory("designer", index, None, sample(index, 8, 20))
            return DesignResult(
                index=index,
                program="",
                graph=None,
                failure=None,
                trajectories=[written],
                executions=[run(index, n) for n in (0, 1)],
            )

        problem = Problem(id="q", question="?", domain="math", gold="1")
        tree = QuestionTree(problem=problem, designs=[design(0), design(1)])
        roles: Any = {"designer": "p0", "executor": "p0"}
        samples = samples_by_policy([tree], "tree", roles, active_roles(step, "stagewise", 30))["p0"]
        backend = make()
        assert backend.update(samples, POLICY).steps == 1
        return backend

    from tasks import Problem
    from workflow.trace import Rewarded

    assert digest(updated(30, 100)) == digest(updated(30, 200))
    assert digest(updated(0, 100)) != digest(updated(0, 200))


# The reference policy


@pytest.mark.parametrize("settings", [{"keeps_reference": True}, {"lora": LoraSettings(rank=4)}], ids=["copy", "lora"])
def test_divergence_from_the_reference_is_0_at_the_start_then_grows(make: Make, settings: dict[str, Any]) -> None:
    backend = make(**settings, learning_rate=1e-2)
    objective = PolicyObjective(kl_coefficient=0.1)
    reports = [backend.update([*mixed(), *sharing()], objective) for _ in range(2)]
    assert reports[0].kl == 0
    assert reports[1].kl > 1e-3
    # With KL, samples without an advantage are computed too, and draw the policy back.
    silent = [replace(each, advantage=0.0) for each in mixed()]
    report = backend.update(silent, objective)
    assert (report.steps, report.computed_samples) == (1, 8)
    assert report.loss == pytest.approx(0.1 * report.kl, rel=0.5)


def test_divergence_without_a_reference_is_refused(make: Make) -> None:
    with pytest.raises(ValueError, match=r"kl_coefficient is 0\.1.*Fix: .*keeps_reference"):
        make().update(mixed(), PolicyObjective(kl_coefficient=0.1))


# Adapters


def test_lora_changes_only_what_has_adapters(make: Make) -> None:
    backend = make(lora=LoraSettings(rank=4, targets=("q_proj", "down_proj")))
    before = {name: tensor.clone() for name, tensor in backend.weights().items()}
    backend.update(mixed(), POLICY)
    after = backend.weights()
    assert after.keys() == before.keys()
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if "q_proj" in name or "down_proj" in name}


def test_dropout_is_on_where_it_learns_and_off_where_it_is_asked(make: Make) -> None:
    without, dropping = (make(lora=LoraSettings(rank=4, dropout=dropout)) for dropout in (0.0, 0.5))
    norms = [backend.update(mixed(), POLICY).gradient_norm for backend in (without, dropping)]
    assert abs(norms[0] - norms[1]) > 0.01 * norms[0]
    assert dropping.logprobs(mixed()) == dropping.logprobs(mixed())


# Engines and files


@pytest.mark.parametrize(
    "settings", [{}, {"lora": LoraSettings(rank=4)}, {"dtype": "bfloat16"}], ids=["whole", "lora", "bfloat16"]
)
def test_an_engine_takes_the_weights_and_agrees(make: Make, folder: Path, settings: dict[str, Any]) -> None:
    from engine.local.transformers import TransformersEngine

    backend = make(**settings, learning_rate=1e-2)
    ids = list(range(40))
    before = backend.probe(ids)
    backend.update(mixed(), ImitationObjective())
    probe = backend.probe(ids)
    assert probe.difference(before.logprobs)  # an engine with the old weights would be found out

    async def sync() -> str:
        engine = TransformersEngine(str(folder), DEVICE, settings.get("dtype", "float32"))
        try:
            return await asyncio.wait_for(engine.update_weights(1, backend.weights(), probe), 60)
        finally:
            await engine.close()

    assert asyncio.run(sync()) == digest(backend)


KINDS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "reference": {"keeps_reference": True},
    "lora": {"lora": LoraSettings(rank=4, dropout=0.2)},
    "lora-bfloat16": {"lora": LoraSettings(rank=4), "dtype": "bfloat16"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_break_it_goes_on_bit_for_bit(make: Make, kind: str, tmp_path: Path) -> None:
    settings = KINDS[kind]
    objective = PolicyObjective(mini_batches=2, kl_coefficient=0.1 if kind in ("reference", "lora") else 0.0)
    one = make(**settings)
    one.update(mixed(seed=1), objective)
    one.save(tmp_path / "saved")
    torch.rand(3)
    other = make(**settings, seed=5)
    other.update(mixed(seed=3), POLICY)  # something else, that is forgotten
    other.load(tmp_path / "saved")
    assert (digest(other), other.steps) == (digest(one), 2)
    for seed in (2, 3):
        first, again = one.update(mixed(seed=seed), objective), other.update(mixed(seed=seed), objective)
        assert first.model_dump(exclude={"duration_s"}) == again.model_dump(exclude={"duration_s"})
    assert (digest(other), other.steps) == (digest(one), 6)
    one.save(tmp_path / "one")
    other.save(tmp_path / "other")
    files = sorted(p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*") if p.is_file())
    assert [p.as_posix() for p in files if p.suffix in (".bin", ".pt", ".pkl", ".pickle")] == []
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes(), name


def test_one_that_never_learnt_can_be_saved_and_loaded(make: Make, tmp_path: Path) -> None:
    start = make()
    start.save(tmp_path / "saved")
    other = make()
    other.update(mixed(), POLICY)
    other.load(tmp_path / "saved")
    assert (digest(other), other.steps) == (digest(start), 0)
    start.update(mixed(seed=4), POLICY)
    other.update(mixed(seed=4), POLICY)
    assert digest(other) == digest(start)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("settings", [{}, {"lora": LoraSettings(rank=4)}, {"dtype": "bfloat16"}])
def test_plain_transformers_loads_what_was_saved(
    make: Make, settings: dict[str, Any], tied: bool, tmp_path: Path
) -> None:
    import transformers

    from benchmarks.tiny_models import make_model
    from engine.weights import fingerprint

    make_model(tmp_path / "start", context=CONTEXT, tied=tied)
    backend = make(tmp_path / "start", **settings)
    backend.update(mixed(), ImitationObjective())
    backend.save(tmp_path / "saved")
    folder = tmp_path / "saved" / "model"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert fingerprint(model.state_dict()) == digest(backend)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hello"}], tokenize=False)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert (folder / "generation_config.json").is_file()


def test_it_saves_into_empty_folders_only(make: Make, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"is not empty\. Fix: "):
        make().save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


# What goes wrong


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "lora"])
def test_a_loss_that_is_not_finite_changes_nothing(make: Make, kind: str) -> None:
    backend, other = make(**KINDS[kind]), make(**KINDS[kind])
    for each in (backend, other):
        each.update(mixed(seed=1), POLICY)
    samples = mixed()
    behaviour = [-1e30 if one else 0.0 for one in samples[3].loss_mask]
    broken = [*samples[:3], replace(samples[3], behaviour_logprobs=behaviour, advantage=2.0), *samples[4:]]
    before = digest(backend)
    with pytest.raises(UpdateFailed, match=r"sample 3 is -?inf.*Fix: "):
        backend.update(broken, PolicyObjective(truncation=3e38))
    assert (digest(backend), backend.steps) == (before, 1)
    for each in (backend, other):
        each.update(samples, POLICY)
    assert digest(backend) == digest(other)


def test_a_gradient_that_is_not_finite_changes_nothing(make: Make) -> None:
    backend, other = make(), make()
    huge = [replace(each, advantage=1e30) for each in mixed(2)]
    before = digest(backend)
    with pytest.raises(UpdateFailed, match=r"gradient norm is (inf|nan).*Fix: "):
        backend.update(huge, PolicyObjective(truncation=None))
    assert (digest(backend), backend.steps) == (before, 0)
    for each in (backend, other):
        each.update(mixed(), POLICY)
    assert digest(backend) == digest(other)


GOOD = sample(1, 6, 10)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"loss_mask": [0, 1]}, "16 token_ids and 2 loss_mask"),
    ({"behaviour_logprobs": [0.0]}, "16 token_ids and 1 behaviour_logprobs"),
    ({"token_ids": [*GOOD.token_ids[:-1], VOCABULARY]}, f"token id {VOCABULARY}, the model has {VOCABULARY}"),
    ({"token_ids": [-1, *GOOD.token_ids[1:]]}, "token id -1"),
    ({"loss_mask": [0] * 15 + [2]}, r"loss_mask of \[0, 2\]"),
    ({"loss_mask": [1] * 16}, "chosen token without any before it"),
    ({"behaviour_logprobs": [0.0] * 15 + [math.nan]}, "behaviour log-probability nan at token 15"),
    ({"advantage": math.inf}, "advantage inf"),
    ({"temperature": 0.0}, r"temperature 0\.0"),
    ({"policy": "p1"}, "policy 'p1'"),
    (
        {"token_ids": [1] * 257, "loss_mask": [0] * 257, "behaviour_logprobs": [0.0] * 257},
        "257 tokens, the model's context is 256",
    ),
]


def test_samples_that_do_not_fit_are_named(make: Make) -> None:
    backend = make()
    before = digest(backend)
    for wrong, told in WRONG:
        with pytest.raises(ValueError, match=f"sample 1 .*{told}.*Fix: "):
            backend.update([GOOD, replace(GOOD, **wrong)], POLICY)
        assert (digest(backend), backend.steps) == (before, 0), told


def test_files_that_do_not_fit_change_nothing(make: Make, tmp_path: Path) -> None:
    from benchmarks.tiny_models import make_model

    source = make()
    source.update(mixed(), POLICY)
    source.save(tmp_path / "saved")
    make_model(tmp_path / "wider", context=CONTEXT, width=64)
    make_model(tmp_path / "deeper", context=CONTEXT, layers=3)
    make_model(tmp_path / "other-start", context=CONTEXT, seed=9)
    reference = make(tmp_path / "other-start", keeps_reference=True)
    reference.save(tmp_path / "referring")
    shutil.copytree(tmp_path / "saved", tmp_path / "mingled")
    deeper = make(tmp_path / "deeper")
    deeper.update(mixed(), POLICY)
    deeper.save(tmp_path / "saved-deeper")
    shutil.copytree(tmp_path / "saved-deeper" / "optimizer", tmp_path / "mingled" / "optimizer", dirs_exist_ok=True)
    for backend, folder in [
        (make(tmp_path / "wider"), "saved"),
        (make(tmp_path / "deeper"), "saved"),
        (make(dtype="bfloat16"), "saved"),
        (make(lora=LoraSettings()), "saved"),
        (make(keeps_reference=True), "referring"),
        (make(), "mingled"),
        (make(), "nowhere"),
    ]:
        before = digest(backend)
        with pytest.raises(ValueError, match="Fix: "):
            backend.load(tmp_path / folder)
        assert (digest(backend), backend.steps) == (before, 0)


def test_damaged_files_change_nothing(make: Make, tmp_path: Path) -> None:
    source = make()
    source.update(mixed(), POLICY)
    source.save(tmp_path / "saved")
    backend = make()
    before = digest(backend)
    files = [p for p in (tmp_path / "saved").rglob("*") if p.suffix == ".safetensors" or p.parent.name == "optimizer"]
    assert len(files) >= 3
    for path in files:
        whole = path.read_bytes()
        for damaged in (None, b"", whole[: len(whole) // 2], b"\xff" * 8 + whole[8:]):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(ValueError, match="Fix: "):
                backend.load(tmp_path / "saved")
            assert (digest(backend), backend.steps) == (before, 0), path
            path.write_bytes(whole)
    backend.load(tmp_path / "saved")
    assert digest(backend) == digest(source)


def test_tampered_files_change_nothing(make: Make, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from trainer.update import policy_files

    source = make()
    source.update(mixed(), POLICY)
    source.save(tmp_path / "saved")
    backend = make()
    before = digest(backend)
    weights = tmp_path / "saved" / "model" / "model.safetensors"
    optimizers = sorted((tmp_path / "saved" / "optimizer").glob("*.safetensors"))
    state = tmp_path / "saved" / policy_files.STATE

    def refused(told: str) -> None:
        with pytest.raises(ValueError, match=f"{told}.*Fix: "):
            backend.load(tmp_path / "saved")
        assert (digest(backend), backend.steps) == (before, 0)

    def with_tensor(path: Path, pick: Callable[[str], bool], change: Callable[[torch.Tensor], Any], told: str) -> None:
        whole = path.read_bytes()
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        name = next(filter(pick, tensors))
        changed = change(tensors[name])
        if changed is None:
            del tensors[name]
        else:
            tensors[name] = changed
        save_file(tensors, path, metadata={"format": "pt"})
        refused(told)
        path.write_bytes(whole)

    nan = math.nan
    with_tensor(weights, lambda name: True, lambda each: each.fill_(nan), "not finite")
    dice = "rng/cpu"
    for optimizer in optimizers:
        with_tensor(optimizer, lambda name: name.startswith("exp_avg/"), lambda each: each.fill_(nan), "not finite")
        step = "step".__eq__ if "step" in load_file(optimizer) else lambda name: name.startswith("step/")
        with_tensor(optimizer, step, lambda each: each.fill_(math.inf), "not finite")
        with_tensor(optimizer, dice.__eq__, lambda each: each[:-1].clone(), "no state of random numbers")
        with_tensor(optimizer, dice.__eq__, lambda each: each.float(), "no state of random numbers")
        with_tensor(optimizer, dice.__eq__, lambda each: torch.full_like(each, 255), "no state of random numbers")
        with_tensor(optimizer, dice.__eq__, lambda each: None, "has no 'rng/cpu'")
    for path in (weights, *optimizers, state):
        whole = path.read_bytes()
        path.rename(tmp_path / "outside")
        path.symlink_to(tmp_path / "outside")
        refused("cannot be read")
        path.unlink()
        os.mkfifo(path)
        refused("cannot be read")
        path.unlink()
        path.write_bytes(whole)
    text = state.read_text()
    for change in ('"steps": -1', '"steps": "many"', '"steps": NaN'):
        state.write_text(re.sub(r'"steps": \d+', change, text))
        refused("cannot be read")
    state.write_text("[" * 100_000)
    refused("cannot be read")
    state.write_text(text)
    # What lies beside is not read, and an index leads to files of the folder alone.
    shutil.copy(weights, tmp_path / "outside.safetensors")
    zeros = {name: torch.zeros_like(tensor) for name, tensor in load_file(weights).items()}
    save_file(zeros, weights.with_name("zzz.safetensors"), metadata={"format": "pt"})
    weights.with_name("pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    backend.load(tmp_path / "saved")
    assert digest(backend) == digest(source)
    backend = make()
    index = weights.with_name("model.safetensors.index.json")
    weights.unlink()
    for name in ("../../outside.safetensors", str(tmp_path / "outside.safetensors"), "pytorch_model.bin", ""):
        index.write_text(json.dumps({"weight_map": dict.fromkeys(zeros, name)}))
        refused("cannot be read")
    for broken in ("{}", "[" * 100_000, '{"weight_map": 3}'):
        index.write_text(broken)
        refused("cannot be read")


def test_random_numbers_are_its_own(make: Make) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    backend = make(lora=LoraSettings(rank=4, dropout=0.5))
    backend.update(mixed(), POLICY)
    assert torch.equal(torch.rand(2), expected)


def test_a_closed_backend_says_so(make: Make) -> None:
    backend = make()
    backend.close()
    backend.close()
    with pytest.raises(RuntimeError, match="closed"):
        backend.update(mixed(), POLICY)
