"""Arms: each a valid run, differing in what its name says; the control deals rewards anew and changes nothing else."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from one_jail import in_jail

from designer.check import check_program, check_reply
from sandbox.protocol import Description
from speedrun import phases
from speedrun.arms import Job, arm_settings, bank_texts, in_todays_terms, made_by
from speedrun.own_programs import without_jails
from speedrun.settings import SpeedrunSettings
from speedrun.tuning import factor_of, tuner
from speedrun.variants import ALONE, ARMS, BASE, COMPARISONS, GATE, HALF, HALVED, RATES, START, STARTS
from tasks.math import grade_math
from trainer.config import TrainConfig
from trainer.config.toml_file import ConfigError
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.trace import CodeRan


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
    of_steps = {name for name in ARMS if ", half" in name and not name.startswith("separate, ")}  # not of size
    assert of_steps == {name for name, arm in ARMS.items() if arm.half}
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
    def asked(name: str, coefficient: float, key: str = "designer_kl_coefficient") -> dict[str, Any]:
        settings = SpeedrunSettings(overrides=(f"{key}={coefficient}",))
        return arm_settings(settings, ARMS[name]).recipe()

    assert asked("executor only", 1) == asked("executor only", 2)
    assert asked("designer only", 1) != asked("designer only", 2)
    # Who designs alone has one coefficient, under either name; where the Executor learns, too, they are two.
    assert asked("designer only", 1) == asked("designer only", 1, "objective.kl_coefficient")
    assert asked("executor only", 1) != asked("executor only", 1, "objective.kl_coefficient")
    for name in ("stagewise", "coupled"):
        assert asked(name, 1) != asked(name, 2)
        assert asked(name, 1) != asked(name, 1, "objective.kl_coefficient")


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


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("designer only, shuffled", {"shuffled": False}),
        ("designer only", {"valid_only": True}),
        ("coupled", {"start": HALF}),
    ],
)
def test_an_arm_that_was_changed_is_another_one(
    name: str, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made_by(Job(name=name, seed=1), SpeedrunSettings())
    monkeypatch.setitem(ARMS, name, replace(ARMS[name], **changed))
    assert made_by(Job(name=name, seed=1), SpeedrunSettings()) != before


def test_another_program_played_alone_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    [name, *_] = ALONE
    before = made_by(Job(name=name, seed=1), SpeedrunSettings())
    monkeypatch.setitem(ALONE, name, "vote, at once")
    assert made_by(Job(name=name, seed=1), SpeedrunSettings()) != before


@pytest.mark.parametrize("name", [START, *ALONE, "coupled"])
@pytest.mark.parametrize(
    "override",
    [
        "rollout.executor_temperature=0.3",
        "rollout.max_tokens=48",
        "rollout.limits.agent_calls=3",
        "rollout.repair=true",
    ],
)
def test_a_recipe_that_plays_otherwise_makes_all_again(
    name: str, override: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temperatures, lengths and limits of the recipe hold where nothing is trained, too."""
    made = made_by(Job(name=name, seed=1), SpeedrunSettings())
    changed = SpeedrunSettings(overrides=(override,)).rl(Path("model"), Path("problems.jsonl"))
    monkeypatch.setattr(SpeedrunSettings, "rl", lambda self, *_: changed)
    assert made_by(Job(name=name, seed=1), SpeedrunSettings())["settings"] == made["settings"], "the file was changed"
    assert made_by(Job(name=name, seed=1), SpeedrunSettings()) != made


def test_another_learning_rate_of_the_recipe_leaves_starts_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    start, arm = Job(name=START, seed=1), Job(name="coupled", seed=1)
    made = [made_by(job, SpeedrunSettings()) for job in (start, arm)]
    faster = SpeedrunSettings(overrides=("policies.executor.learning_rate=3e-4",)).rl(Path("m"), Path("d"))
    monkeypatch.setattr(SpeedrunSettings, "rl", lambda self, *_: faster)
    assert [made_by(job, SpeedrunSettings()) == before for job, before in zip((start, arm), made, strict=True)] == [
        True,
        False,
    ]


def test_other_credit_makes_what_learned_by_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(name=name, seed=1) for name in (START, next(iter(ALONE)), "coupled", "coupled, half")]
    made = [made_by(job, SpeedrunSettings()) for job in jobs]
    monkeypatch.setattr("speedrun.arms.learning_code", lambda *_: "another sign")
    assert [made_by(job, SpeedrunSettings()) == before for job, before in zip(jobs, made, strict=True)] == [
        True,
        True,
        False,
        False,
    ]


def test_what_was_written_before_a_key_came_has_its_default() -> None:
    made = made_by(Job(name="coupled", seed=1), SpeedrunSettings())
    assert in_todays_terms(made) == made
    older = {**made, "play": {part: dict(of) for part, of in made["play"].items()}}
    del older["play"]["rollout"]["repair"], older["play"]["policy"]["weight_decay"], older["rl"]["seed"]
    older["rl"]["seed"] = 1
    assert older != made
    assert in_todays_terms(older) == made


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


def test_a_jail_that_failed_once_is_asked_for_the_same_program_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = next(iter(phases.programs().values())).program

    async def described(sandbox: Any) -> list[Any]:
        own, calls = without_jails(sandbox, bank_texts()), 0

        async def failing(*_: Any) -> Description:
            nonlocal calls
            calls += 1
            return Description() if calls == 1 else await type(sandbox).describe(sandbox, source)

        monkeypatch.setattr(sandbox, "describe", failing)
        found = [(await own.describe(source)).graph for _ in range(3)]
        return [graph is None for graph in found] + [calls]

    assert in_jail(described) == [True, False, False, 2]


def test_a_text_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that all attempts have would cost a jail each."""
    source = next(iter(phases.programs().values())).program

    async def checked(sandbox: Any) -> None:
        own, asked = without_jails(sandbox, bank_texts()), []

        async def call(target: str, payload: Any, **limits: Any) -> Any:
            asked.append(target)
            return await type(sandbox).call(sandbox, target, payload, **limits)

        monkeypatch.setattr(sandbox, "call", call)
        reports = [await check_program(text, own, "Which?") for text in (source, source, "x = 1", source, "x = 1")]
        assert len(asked) == 2
        assert [bool(each.graph) for each in reports] == [True, True, False, True, False]
        assert reports[0] == reports[3] == await check_program(source, sandbox, "Which?")
        said = [await check_reply(f"<code>\n{source}</code>", own) for _ in range(2)]
        assert said[0] == said[1]
        assert said[0][1].graph == reports[0].graph
        grades = [await grade_math(own, "x^2", "x * x") for _ in range(2)]
        assert [each.correct for each in grades] == [True, True]
        assert len(asked) == 6, "only what depends on nothing else is kept"

    in_jail(checked)
