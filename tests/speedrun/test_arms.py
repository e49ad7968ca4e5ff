"""Arms: each a valid run, differing in what its name says; the control deals rewards anew and changes nothing else."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from one_jail import in_jail

from speedrun import phases
from speedrun.arms import Job, arm_settings, bank_texts, made_by, shuffled, unpunished
from speedrun.own_programs import without_jails
from speedrun.settings import SpeedrunSettings
from speedrun.tuning import factor_of, tuner
from speedrun.variants import ALONE, ARMS, BASE, COMPARISONS, GATE, HALF, HALVED, RATES, START, STARTS
from tasks.problems import Problem
from trainer.config import TrainConfig
from trainer.config.toml_file import ConfigError
from trainer.credit import RULES, Outcome
from trainer.samples import Coordinates
from trainer.trees import DesignResult, Execution, QuestionTree
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.trace import CodeRan, Rewarded, RewardTerm


def config(name: str, factor: float = 1.0) -> TrainConfig:
    return arm_settings(SpeedrunSettings(seed=7), ARMS[name], factor).rl(Path("/m"), Path("/d.jsonl"))


@pytest.mark.parametrize("name", ARMS)
def test_every_arm_is_a_run_with_as_many_executions_a_step(name: str) -> None:
    found, base = config(name), config(BASE)
    executions = [each.rollout.questions * each.rollout.designs * each.rollout.executions for each in (found, base)]
    assert executions[0] == executions[1]
    assert (found.seed, found.data[0].path) == (7, Path("/d.jsonl"))
    assert {policy.model for policy in found.policies.values()} == {"/m"}


def test_arms_differ_in_what_their_names_say() -> None:
    shapes = {name: (config(name).rollout.designs, config(name).rollout.executions) for name in ("2x8", "8x2", "16x1")}
    assert shapes == {"2x8": (2, 8), "8x2": (8, 2), "16x1": (16, 1)}
    names = ("coupled", "designer only", "executor only, shuffled", "shared, coupled by trajectory, half")
    assert [config(name).schedule for name in names] == ["coupled", "designer-only", "executor-only", "coupled"]
    assert [config(name).objective.aggregation for name in names] == ["group", "group", "group", "trajectory"]
    assert [len(config(name).policies) for name in names] == [2, 2, 2, 1]
    assert [config(name).stage_length for name in ("K=1", "K=5", BASE, "K=20")] == [1, 5, 10, 20]
    assert [config(name).steps for name in ("coupled", "coupled, half", "designer only, half")] == [40, 20, 20]
    assert all(config(name).steps == 20 for name, arm in ARMS.items() if arm.half)
    assert {name for name in ARMS if name.endswith(", half")} == {name for name, arm in ARMS.items() if arm.half}
    assert {name for name, arm in ARMS.items() if arm.shuffled} == {name for name in ARMS if "shuffled" in name}


@pytest.mark.parametrize("rate", RATES)
def test_arms_of_sharing_learn_at_the_same_rate_in_both_roles(rate: str) -> None:
    names = [f"{how}, {rate}" for how in ("separate", "separate, half", "shared", "shared, KL on both roles")]
    found = [config(name) for name in names]
    assert [len(each.policies) for each in found] == [2, 2, 1, 1]
    assert [each.kl_roles for each in found] == ["active", "active", "active", "all"]
    for each in found:
        assert {each.learning_rate(each.role_policies[role], {role}) for role in ("designer", "executor")} == {
            float(rate)
        }
    learns = {"learning_rate", "designer_learning_rate"}
    first, *others = [policy.model_dump(exclude=learns) for each in found for policy in each.policies.values()]
    assert all(policy == first for policy in others)
    assert [ARMS[name].start for name in names] == [START, HALF, START, START]


def test_half_the_weights_are_half_as_many() -> None:
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from transformers import Qwen3ForCausalLM

    from speedrun.tiny_policy import model_config

    with torch.device("meta"):
        whole, half = (
            sum(weights.numel() for weights in Qwen3ForCausalLM(model_config(each, each.vocabulary)).parameters())
            for each in (SpeedrunSettings().architecture, HALVED)
        )
    assert half / whole == pytest.approx(0.5, abs=0.02)


def test_a_factor_multiplies_the_learning_rates_that_an_arm_does_not_name() -> None:
    def learning(name: str, factor: float) -> list[float]:
        return [policy.learning_rate for policy in config(name, factor).policies.values()]

    assert learning("coupled", 2) == pytest.approx([2 * rate for rate in learning("coupled", 1)])
    assert learning("separate, 1e-4", 2) == [1e-4, 1e-4]
    assert not any(ARMS[name].tuned for name in COMPARISONS["sharing"].systems.values() if name in ARMS)


def test_what_a_schedule_never_asks_for_is_no_part_of_a_run() -> None:
    def asked(name: str, coefficient: float) -> dict[str, Any]:
        settings = SpeedrunSettings(overrides=(f"designer_kl_coefficient={coefficient}",))
        return arm_settings(settings, ARMS[name]).recipe()

    assert asked("executor only", 1) == asked("executor only", 2)
    assert asked("designer only", 1) != asked("designer only", 2)


def test_each_job_has_a_folder_of_its_own(tmp_path: Path) -> None:
    arm = Job(name="coupled", seed=1)
    tried = Job(name="coupled", seed=1000, factor=0.5, tuning=True)
    assert arm.folder(tmp_path) == tmp_path / "seed-1" / "coupled"
    assert tried.folder(tmp_path) == tmp_path / "tuning" / "seed-1000" / "coupled at 0.5"
    assert tried.start.folder(tmp_path) == tmp_path / "tuning" / "seed-1000" / START
    assert Job(name="separate, half, 1e-4", seed=2).start.folder(tmp_path) == tmp_path / "seed-2" / HALF
    assert {Job(name=name, seed=2, factor=2.0).start for name in ALONE} == {Job(name=START, seed=2)}


def test_what_made_a_result_names_all_that_it_depends_on() -> None:
    settings, arm = SpeedrunSettings(), Job(name="coupled", seed=1)
    first = made_by(arm, settings)
    others = [
        made_by(replace(arm, seed=2), settings),
        made_by(replace(arm, factor=2.0), settings),
        made_by(replace(arm, tuning=True), settings),
        made_by(replace(arm, name="coupled, half"), settings),
        made_by(arm, SpeedrunSettings(overrides=("rollout.questions=8",))),
    ]
    assert all(other != first for other in others)
    assert made_by(replace(arm, factor=2.0), settings)["rl"]["policies"]["executor"]["learning_rate"] == 2e-4
    assert "rl" not in made_by(Job(name=START, seed=1), settings)


def test_half_the_steps_are_half_of_those_that_there_are() -> None:
    few = SpeedrunSettings(overrides=("steps=6",))
    found = [arm_settings(few, ARMS[name]).rl(Path("/m"), Path("/d")).steps for name in ("coupled", "coupled, half")]
    assert found == [6, 3]


def rates(right: int) -> dict[str, float]:
    return {str(problem): float(problem < right) for problem in range(400)}


def test_arms_have_the_rates_of_the_recipe_unless_others_are_better_beyond_chance() -> None:
    pytest.importorskip("numpy")
    found = {
        "designer only": {0.5: rates(120), 1.0: rates(160), 2.0: rates(80)},
        BASE: {0.5: rates(180), 1.0: rates(160), 2.0: rates(190)},
    }
    names = ("designer only", "designer only, shuffled", "designer only, half", BASE, "2x8", "separate, 1e-4", START)
    assert [factor_of(name, found) for name in names] == [1.0, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0]
    # Three more of 400, each on a problem of its own, may be chance.
    found[BASE] = {1.0: rates(160), 2.0: {**rates(160), "1": 0.0, "2": 0.0, **{str(n): 1.0 for n in range(200, 205)}}}
    assert [factor_of(name, found) for name in names] == [1.0] * 7
    assert factor_of("coupled", {"coupled": {0.5: rates(90), 1.0: rates(160)}}) == 1.0
    assert [tuner(name) for name in names] == [*["designer only"] * 3, BASE, BASE, None, None]


def test_comparisons_name_known_systems_and_a_wrong_override_is_said() -> None:
    known = {*STARTS, *ALONE, *ARMS}
    assert all(set(comparison.systems.values()) <= known for comparison in COMPARISONS.values())
    assert [ARMS[name].shuffled for name in list(COMPARISONS[GATE].systems.values())[1:]] == [False, False, True, True]
    with pytest.raises(ConfigError, match=r"rollout\.design"):
        SpeedrunSettings(overrides=("rollout.design=3",)).rl(Path("/m"), Path("/d"))


def tree() -> QuestionTree:
    def execution(index: int, reward: float) -> Execution:
        correct = RewardTerm(name="correct", value=reward, weight=1.0, reason="said")
        return Execution(
            index=index,
            reward=Rewarded(total=reward, terms=[correct]),
            failure="program_rejected" if index == 3 else None,
            duration_s=index,
        )

    designs = [
        DesignResult(
            index=number,
            program=f"program {number}",
            graph=None,
            failure=None,
            trajectories=[],
            executions=[execution(index, float(index == 0 or number == 1)) for index in range(4)],
        )
        for number in range(3)
    ]
    problem = Problem(id="p", question="What is 1 + 1?", domain="math", gold="2")
    return QuestionTree(problem=problem, designs=designs)


def test_shuffled_rewards_are_the_same_ones_at_other_executions() -> None:
    def dealt(made: QuestionTree) -> list[float]:
        return [each.reward.terms[0].value for each in made.executions]

    before = tree()
    after = [shuffled(before, seed) for seed in range(400)]
    assert all(Counter(dealt(each)) == Counter(dealt(before)) for each in after)
    assert shuffled(before, 3) == shuffled(before, 3)
    assert len({tuple(dealt(each)) for each in after}) > 100
    # 6 of 12 are right: each execution is in about half of the deals, whatever it was before.
    for place in range(12):
        assert sum(dealt(each)[place] for each in after) / 400 == pytest.approx(0.5, abs=0.1)
    for one, other in zip(before.designs, after[0].designs, strict=True):
        assert (one.program, one.index) == (other.program, other.index)
        assert [(e.index, e.failure, e.duration_s) for e in one.executions] == [
            (e.index, e.failure, e.duration_s) for e in other.executions
        ]


def test_designs_that_are_none_can_be_left_unpunished() -> None:
    before = tree()
    one, two, three = before.designs
    rejected = replace(one, failure="program_rejected", executions=[
        replace(each, reward=Rewarded(total=0.0, terms=each.reward.terms)) for each in one.executions
    ])  # fmt: skip
    after = unpunished(replace(before, designs=[rejected, two, three]))
    assert [design.failure for design in after.designs] == ["program_rejected", None, None]
    assert after.designs[1:] == [two, three]
    # Of the others 4 of 4 runs are right, and 1 of 4.
    assert [each.reward.total for each in after.designs[0].executions] == [5 / 8] * 4
    outcomes = [
        Outcome(Coordinates(question="p", design=design.index, execution=each.index), each.reward.total)
        for design in after.designs
        for each in design.executions
    ]
    advantages = RULES["tree"]["designer"](outcomes)[::4]
    assert advantages[0] == pytest.approx(0, abs=1e-9)
    assert advantages[1] == -advantages[2] > 1
    none = replace(before, designs=[rejected])
    assert unpunished(none) == none


class Babbler:
    """Replies by what is asked and by the seed; satisfies `engine.protocol.Engine`."""

    name = "babbler"

    async def complete(self, request: CompletionRequest) -> Completion:
        dice = random.Random(repr((request.agent, request.messages, request.sampling)))
        return Completion(
            text=f"Well, \\boxed{{{dice.randint(1, 3)}}}\nVerdict: {dice.choice(['CORRECT', 'INCORRECT'])}"
        )

    async def close(self) -> None:
        pass


CALLS = (
    '{"a": 17, "b": -23}',
    '{"a": "12", "b": "3"}',
    '{"a": 2.5, "b": 4}',
    '{"a": "007", "b": 4}',
    '{"a": 0, "b": true}',
    '{"a": "0) or (open(\'/etc/passwd\').read()", "b": 1}',
    '{"a": "__import__(\'os\').getpid()", "b": 0}',
    '{"a": "9", "b": "9)\\nimport os\\nprint(os.getcwd()"}',
    '{"a": "\u0663", "b": 4}',
    '{"a": 4}',
    "{",
)


class Multiplier(Babbler):
    """Calls the tool first, with one of `CALLS`, and says its result."""

    async def complete(self, request: CompletionRequest) -> Completion:
        said = [message for message in request.messages or [] if message["role"] == "assistant"]
        if said:
            return Completion(text=f"\\boxed{{{len(repr(request.messages)) % 7}}}")
        call = CALLS[(request.sampling.seed or 0) % len(CALLS)]
        return Completion(text=f'<tool_call>{{"name": "multiply", "arguments": {call}}}</tool_call>')


@pytest.mark.parametrize("name", phases.programs())
def test_without_a_jail_programs_of_the_bank_do_the_same(name: str) -> None:
    source = phases.programs()[name].program
    sampling = Sampling(temperature=0.9, max_tokens=50)
    engine = Multiplier() if name.startswith("tool") else Babbler()

    async def run(sandbox: Any) -> list[Any]:
        found = []
        for seed in range(len(CALLS) if name.startswith("tool") else 3):
            chosen = sampling.with_seed(seed)
            told = await sandbox.run_program(source, "Which?", engine=engine, sampling=chosen, seed=seed)
            turns = [(turn.key, turn.messages, turn.sampling, turn.completion) for turn in told.trace.agent_turns]
            code = [each for each in told.trace.events if isinstance(each, CodeRan)]
            ran = [
                (each.path, each.code, each.exit_status, each.stdout, each.stderr[-40:], each.limit) for each in code
            ]
            found.append((told.answer, told.answer_from, told.failure, turns, ran, told.usage))
        return [*found, await sandbox.describe(source, "Which?"), await sandbox.describe(source, "And which?")]

    async def both(sandbox: Any) -> list[Any]:
        alone = without_jails(sandbox, bank_texts())
        assert not (await alone.run_program(source, "Which?", engine=engine)).jail
        return [await run(alone), await run(sandbox)]

    ours, jailed = in_jail(both)
    assert ours == jailed
    if name.startswith("tool"):
        assert "'-391\\n'" in repr(ours)
        assert "Error: " in repr(ours), "code that a jail refuses was in one"
