"""A rollout's events against seconds worked out by hand."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from predicted import ONE, config, costs, workload

from trainer.config import TrainConfig
from trainer.predict.costs import Costs
from trainer.predict.rollout_model import NeverDone, Rolled, rolled_out
from trainer.predict.workload import Drawn, DrawnDesign, DrawnRun, Lengths, Requests, Workload, drawn, sequences


def rolled(run: TrainConfig, spent: Costs, content: Workload, seed: int = 0) -> Rolled:
    return rolled_out(run, spent, content, drawn(content, run.rollout, seed), seed)


def test_one_request_without_load() -> None:
    found = rolled(config(rollout=ONE), costs(), workload(reply=100))
    assert found.seconds == pytest.approx(1.0)
    assert found.engine_busy_s == {"p0": pytest.approx(1.0)}
    assert (found.worker_busy_s, found.generated) == (0.0, 100.0)


def test_one_request_with_all_its_parts() -> None:
    spent = costs(run_s=0.5, request_token_s=0.001, prompt_token_s=0.002)
    content = workload(reply=100, prompt=50, designer=10)
    # Design: 50 x 0.002 + 10 x 0.011. Run: 0.5, then 50 x 0.002 + 100 x 0.011.
    assert rolled(config(rollout=ONE), spent, content).seconds == pytest.approx(0.21 + 0.5 + 1.2)
    half = content.model_copy(update={"executor": content.executor.model_copy(update={"fresh": 0.5})})
    assert rolled(config(rollout=ONE), spent, half).seconds == pytest.approx(0.21 + 0.5 + 1.15)


def two(first: float, second: float, *, rounds: bool = False) -> Drawn:
    return Drawn([[DrawnDesign(0.0, [DrawnRun([[first], [second]] if rounds else [[first, second]])])]])


@pytest.mark.parametrize(
    ("batch", "engines", "seconds"),
    [
        (64, 1, 100 * 0.03 + 100 * 0.02),  # side by side, then the longer one alone
        (1, 1, 300 * 0.02),
        (64, 2, 200 * 0.02),
    ],
)
def test_two_requests_share_an_engine(batch: int, engines: int, seconds: float) -> None:
    policy = {"engine": {"replicas": engines, "max_batch": batch}}
    found = rolled_out(config(policy=policy), costs(request_token_s=0.01), workload(), two(100, 200))
    assert found.seconds == pytest.approx(seconds)


def test_rounds_wait_for_each_other() -> None:
    found = rolled_out(config(), costs(request_token_s=0.01), workload(), two(100, 200, rounds=True))
    assert found.seconds == pytest.approx(300 * 0.02)


def test_decoding_waits_while_a_prompt_is_read() -> None:
    content = workload(prompt=10)
    found = rolled_out(config(), costs(prompt_token_s=0.1), content, two(100, 100))
    assert found.seconds == pytest.approx(2 * 10 * 0.1 + 100 * 0.01)


def test_what_is_decoded_waits_for_the_prompt_of_a_later_request() -> None:
    run = config(rollout={**ONE, "executions": 2}, cluster={"run_workers_per_node": 1})
    # The first run asks at 0.5 s and is read until 1.5 s; the second asks at 1.0 s: neither decodes before 2.5 s.
    found = rolled(run, costs(run_s=0.5, prompt_token_s=0.1), workload(reply=100, prompt=10))
    assert found.seconds == pytest.approx(2.5 + 1.0)


def test_runs_wait_for_a_worker_and_for_a_turn() -> None:
    sizes = {"questions": 1, "designs": 1, "executions": 4}
    spent, content = costs(run_s=0.5), workload(reply=100)
    on_two = config(rollout=sizes, cluster={"run_workers_per_node": 2})
    found = rolled(on_two, spent, content)
    assert found.seconds == pytest.approx(2 * 0.5 + 1.0)
    assert found.worker_busy_s == pytest.approx(4 * 0.5)
    one_at_a_time = config(rollout={**sizes, "max_concurrent": 1}, cluster={"run_workers_per_node": 2})
    assert rolled(one_at_a_time, spent, content).seconds == pytest.approx(4 * 1.5)


def test_runs_begin_when_all_designs_of_their_question_are_there() -> None:
    step = Drawn([[DrawnDesign(reply, [DrawnRun([[100.0]])]) for reply in (10.0, 50.0)]])
    assert rolled_out(config(), costs(), workload(designer=30), step).seconds == pytest.approx(0.5 + 1.0)


def test_designs_that_cannot_run_have_no_runs() -> None:
    content = workload(designer=100, ready=0.5)
    run = config(rollout={"questions": 2, "designs": 4, "executions": 3})
    found = sequences(content, drawn(content, run.rollout, 0))
    assert found == {"designer": [100.0] * 8, "executor": [100.0] * 4 * 3}
    nothing = rolled(config(rollout=ONE), costs(), workload(designer=100, ready=0.0))
    assert nothing.seconds == pytest.approx(1.0)


def test_each_role_asks_its_own_policy() -> None:
    run = config(roles={"designer": "p0", "executor": "p1"}, rollout=ONE)
    slow = costs().policies["p0"].model_copy(update={"token_s": 0.1})
    spent = Costs(policies={"p0": costs().policies["p0"], "p1": slow}, run_s=0.0)
    found = rolled(run, spent, workload(reply=100, designer=50))
    assert found.engine_busy_s == {"p0": pytest.approx(0.5), "p1": pytest.approx(10.0)}
    assert found.seconds == pytest.approx(10.5)


def test_a_failed_engine_has_its_requests_asked_again() -> None:
    run = config(rollout=ONE)
    content = workload(reply=1000)
    steady = rolled(run, costs(), content).seconds
    spent = costs(failures_per_hour=400, recovery_s=7)
    failing = [rolled(run, spent, content, seed).seconds for seed in range(40)]
    hit = [seconds for seconds in failing if seconds > steady]
    assert min(failing) == pytest.approx(steady)
    assert len(hit) in range(20, 36)  # 1 - exp(-400 x 10 s / h) = 0.67 of them
    assert all(seconds >= steady + 7 for seconds in hit)
    two_engines = [rolled(config(engines=2, rollout=ONE), spent, content, seed).seconds for seed in range(40)]
    assert sum(two_engines) < sum(failing)  # the other one takes over without waiting


def test_what_fails_all_the_time_is_told() -> None:
    with pytest.raises(NeverDone, match="Fix: a smaller failure rate"):
        rolled(config(rollout=ONE), costs(failures_per_hour=1e5, recovery_s=1e5), workload(reply=10_000))


counts = st.integers(1, 4)


@given(
    questions=counts, designs=counts, executions=counts, engines=counts, batch=st.sampled_from([1, 3, 64]),
    workers=counts, agents=st.floats(1, 5), rounds=st.floats(1, 5), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=50)
def test_a_rollout_takes_what_it_must_at_least(
    questions: int, designs: int, executions: int, engines: int, batch: int, workers: int, agents: float,
    rounds: float, seed: int,
) -> None:  # fmt: skip
    sizes = {"questions": questions, "designs": designs, "executions": executions}
    policy: dict[str, Any] = {"engine": {"replicas": engines, "max_batch": batch}}
    run = config(policy=policy, rollout=sizes, cluster={"run_workers_per_node": workers})
    asked = Requests(reply=Lengths(mean=80, p95=200, longest=500), prompt=20)
    content = Workload(designer=asked, executor=asked, per_run=agents, rounds=rounds, ready=0.75)
    spent = costs(run_s=0.3, request_token_s=0.002, prompt_token_s=0.001)
    step = drawn(content, run.rollout, seed)
    found = rolled_out(run, spent, content, step)
    chains = [
        0.012 * (max(design.reply for design in question) + sum(max(each) for each in one.rounds)) + 0.3
        for question in step.questions
        for design in question
        for one in design.runs
    ]
    assert found.seconds >= max(chains, default=0) - 1e-9
    assert found.seconds >= 0.002 * found.generated / engines - 1e-9
    assert found.seconds >= found.worker_busy_s / workers - 1e-9
    assert 0 < found.engine_busy_s["p0"] <= engines * found.seconds + 1e-9
    # All twice as slow is twice as long.
    slow = costs(run_s=0.6, token_s=0.02, request_token_s=0.004, prompt_token_s=0.002)
    assert rolled_out(run, slow, content, step).seconds == pytest.approx(2 * found.seconds)
    # The same again is the same.
    assert rolled_out(run, spent, content, step) == found


def test_lengths_have_the_mean_and_the_quantile_that_are_asked_for() -> None:
    import random

    dice = random.Random(1)
    values = sorted(Lengths(mean=500, p95=1200).draw(dice) for _ in range(20_000))
    assert sum(values) / len(values) == pytest.approx(500, rel=0.02)
    assert values[19_000] == pytest.approx(1200, rel=0.03)
    assert {Lengths(mean=500, p95=400).draw(dice) for _ in range(5)} == {500}
    assert max(Lengths(mean=500, p95=1200, longest=900).draw(dice) for _ in range(1000)) == 900


def test_counts_with_a_fraction_are_met_in_the_mean() -> None:
    content = workload(per_run=2.25, rounds=1.5)
    run = config(rollout={"questions": 100, "designs": 10, "executions": 1})
    runs = [one for question in drawn(content, run.rollout, 0).questions for design in question for one in design.runs]
    assert sum(len(each) for one in runs for each in one.rounds) / len(runs) == pytest.approx(2.25, abs=0.05)
    assert sum(len(one.rounds) for one in runs) / len(runs) == pytest.approx(1.5, abs=0.05)
