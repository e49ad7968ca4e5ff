"""A whole run's prediction: by hand where it can be, by what must hold where not, and against real runs."""

import asyncio
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicted import ONE, SIZE_8B, config, costs, workload

from trainer.config import TrainConfig
from trainer.predict.costs import CPU_CORE, Costs, costs_of
from trainer.predict.fit import fit, read_run
from trainer.predict.observed import usage_of
from trainer.predict.rollout_model import NeverDone
from trainer.predict.simulate import Prediction, simulate
from trainer.predict.workload import Lengths, Requests, Workload, assumed_workload
from trainer.run.gpus import GPUS
from trainer.run.needs import known_sizes
from workflow.usage import PolicyRole

PARTS = {"update_s": 4.0, "sync_s": 0.5}
"""Beside a rollout of 1 s."""


def predicted(spent: Costs | None = None, content: Workload | None = None, **changes: Any) -> Prediction:
    changes = {"rollout": ONE, "schedule": "executor-only", **changes}
    return simulate(config(**changes), spent or costs(**PARTS), content or workload(reply=100))


# By hand


def test_one_after_another_without_staleness() -> None:
    found = predicted()
    assert (found.rollout_s, found.update_s, found.sync_s) == pytest.approx((1.0, 4.0, 0.5))
    assert found.step_s == pytest.approx(1.0 + 4.0 + 0.5)
    assert found.total_s == pytest.approx(8 * 5.5)
    assert found.tokens_per_s == pytest.approx(100 / 5.5)
    assert found.idle == {
        "ranks": pytest.approx(1 - 4 / 5.5),
        "engines": pytest.approx(1 - 1 / 5.5),
        "run_workers": 1.0,
    }


def test_a_budget_of_tokens_ends_before_the_last_step() -> None:
    assert predicted(generated_tokens=250).total_s == pytest.approx(3 * 5.5), "100 a step"
    assert predicted(generated_tokens=2500).total_s == pytest.approx(8 * 5.5)


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_pipeline_waits_for_the_longer_part(staleness: int) -> None:
    found = predicted(cluster={"staleness": staleness})
    assert found.step_s == pytest.approx(max(1.0, 4.0) + 0.5)
    assert found.total_s == pytest.approx(staleness * 1.0 + 8 * 4.5)  # rollouts before the first update
    long = predicted(content=workload(reply=700), cluster={"staleness": staleness})
    assert long.step_s == pytest.approx(7.0 + 0.5)
    assert long.idle["engines"] == pytest.approx(1 - 7 / 7.5)


def test_shared_gpus_change_hands() -> None:
    spent = costs(**PARTS, turn_s=2.0)
    found = predicted(spent, cluster={"layout": "colocated"})
    assert (found.step_s, found.turn_s) == pytest.approx((5.5 + 2 * 2.0, 4.0))


def test_stages_decide_who_learns() -> None:
    spent = costs(update_token_s=0.01)
    content = workload(reply=100, designer=50)
    rollout = {"questions": 1, "designs": 2, "executions": 3}
    found = predicted(spent, content, schedule="stagewise", stage_length=2, steps=8, rollout=rollout)
    # Two designs of 50 tokens, six runs of 100.
    assert found.step_s_by_roles == {"executor": pytest.approx(1.5 + 6.0), "designer": pytest.approx(1.5 + 1.0)}
    assert found.step_s == pytest.approx((7.5 + 2.5) / 2)
    both = predicted(spent, content, schedule="coupled", rollout=rollout)
    assert both.step_s_by_roles == {"designer and executor": pytest.approx(1.5 + 7.0)}
    uneven = predicted(spent, content, schedule="stagewise", stage_length=6, steps=8, rollout=rollout)
    assert uneven.step_s == pytest.approx((6 * 7.5 + 2 * 2.5) / 8)


def test_split_policies_learn_side_by_side_but_for_one_process() -> None:
    each = costs(**PARTS).policies["p0"]
    spent = Costs(policies={"p0": each, "p1": each}, run_s=0.0)
    split: dict[str, Any] = {"schedule": "coupled", "roles": {"designer": "p0", "executor": "p1"}}
    content = workload(reply=100, designer=100)
    assert predicted(spent, content, **split).step_s == pytest.approx(2.0 + 4.0 + 0.5)
    policy = {"update": {"backend": "torch"}}
    alone = predicted(spent, content, policy=policy, cluster={"layout": "one-process"}, **split)
    assert alone.step_s == pytest.approx(2.0 + 2 * 4.0 + 2 * 0.5)


def test_only_what_has_an_advantage_is_computed() -> None:
    asked = Requests(reply=Lengths(mean=100), prompt=20, learned=0.5)
    content = Workload(designer=None, executor=asked)
    found = predicted(costs(update_token_s=0.01), content, rollout={**ONE, "executions": 4})
    assert found.update_s == pytest.approx(2 * 120 * 0.01)


def test_a_failed_rank_takes_the_run_back_to_its_checkpoint() -> None:
    steady = predicted(steps=400, checkpoint_every=10)
    spent = costs(**PARTS, failures_per_hour=20, recovery_s=60)
    failing = predicted(spent, steps=400, checkpoint_every=10)
    # A failure costs 60 s, and on average half of ten steps and half a step.
    expected = 20 / 3600 * (60 + 5 * 5.5)
    assert failing.total_s / steady.total_s - 1 == pytest.approx(expected / (1 - expected), rel=0.5)
    assert failing.failures == pytest.approx(20 * 2 * failing.total_s / 3600)
    often = predicted(spent, steps=400, checkpoint_every=2)
    assert steady.total_s < often.total_s < failing.total_s
    with pytest.raises(NeverDone, match="a smaller checkpoint_every"):
        predicted(costs(**PARTS, failures_per_hour=2000), steps=400, checkpoint_every=400)


# What must hold


sizes = st.fixed_dictionaries(
    {"questions": st.integers(1, 4), "designs": st.integers(1, 4), "executions": st.integers(1, 3)}
)


@given(rollout=sizes, seed=st.integers(0, 50))
@settings(max_examples=25)
def test_what_cannot_make_a_run_longer_does_not(rollout: dict[str, int], seed: int) -> None:
    content = assumed_workload(config())
    spent = costs_of(config(), {"p0": SIZE_8B}, GPUS["H100"], content)

    def took(run: TrainConfig, spent: Costs = spent) -> float:
        return simulate(run, spent, content, seed=seed, draws=2).step_s

    waits = took(config(rollout=rollout))
    stale = took(config(rollout=rollout, cluster={"staleness": 1}))
    assert stale <= waits
    assert took(config(rollout=rollout, cluster={"staleness": 3})) == stale
    assert took(config(rollout=rollout, ranks=4)) <= waits
    shared = config(rollout=rollout, cluster={"layout": "colocated"})
    turning = {"p0": spent.policies["p0"].model_copy(update={"turn_s": 1.0})}
    assert took(shared, spent.model_copy(update={"policies": turning})) == pytest.approx(waits + 2.0)
    quick = {"p0": spent.policies["p0"].model_copy(update={"sync_rate": 1e15})}
    assert took(config(rollout=rollout), spent.model_copy(update={"policies": quick})) < waits


def test_more_work_takes_longer() -> None:
    content = assumed_workload(config())
    spent = costs_of(config(), {"p0": SIZE_8B}, GPUS["H100"], content)
    took = [
        simulate(config(rollout={"questions": count}, steps=60), spent, content).step_s for count in (2, 8, 32, 128)
    ]
    assert took == sorted(took)
    assert took[-1] > 3 * took[0]


# Real runs


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_at_one_size_predicts_those_at_others(tmp_path: Path) -> None:
    """What they generate, which no busy machine changes; seconds are compared by `benchmarks.cluster`."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from training import configured, teach, write_problems

    from sandbox import ProcessSandbox
    from trainer.run.loop import train
    from trainer.run.one_process import OneProcess

    model = teach(tmp_path / "policy", right=0.6, steps=40)
    problems = write_problems(tmp_path / "problems.jsonl")
    runs = {}

    async def run(questions: int) -> None:
        config = configured(model, problems, steps=16, checkpoint_every=16, rollout={"questions": questions})
        still = config.policies["p0"].model_copy(update={"learning_rate": 1e-9})  # designs stay as they are
        config = config.model_copy(update={"policies": {"p0": still}})
        async with ProcessSandbox(preload=("designer.check", "tasks.math.worker")) as sandbox:
            await train(OneProcess(config, sandbox), tmp_path / str(questions))
        runs[questions] = read_run(tmp_path / str(questions))

    for questions in (4, 8, 16):
        asyncio.run(run(questions))
    config, lines = runs[8]
    found = fit(config, lines, known_sizes(config), CPU_CORE)
    predictions, generated, guesses = {}, {}, {}
    for questions, (each, seen) in runs.items():
        costs = costs_of(each, known_sizes(each), CPU_CORE, found.workload, found.seen)
        predictions[questions] = simulate(each, costs, found.workload, draws=20)
        guesses[questions] = predictions[questions].tokens_per_s * predictions[questions].step_s
        generated[questions] = fmean(
            sum(usage_of(line, role).completion_tokens for role in get_args(PolicyRole)) for line in seen[1:]
        )
    assert generated[4] < generated[8] < generated[16]
    assert guesses == pytest.approx(generated, rel=0.2)
    taken = [predictions[questions].step_s for questions in (4, 8, 16)]
    assert taken == sorted(taken)
    assert taken[2] > 1.5 * taken[0]
