"""AT-GRPO in miniature: its teacher against the games themselves, its arms, and pages from figures worked by hand."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from one_jail import in_jail

from speedrun.at_grpo import __main__ as command
from speedrun.at_grpo import playing_runs as runs
from speedrun.at_grpo import start_gate
from speedrun.at_grpo.kept_runs import KeptRun, Played, kept_at, left, run_all
from speedrun.at_grpo.levels import GAMES, PROGRAMS, TURNS, program, way
from speedrun.at_grpo.matchups import (
    ARMS,
    COMPARISONS,
    DETOURS,
    DIRECT,
    FACTORS,
    GREEDY,
    SAMPLED,
    START,
    tools_in,
)
from speedrun.at_grpo.player import Chances, Teacher
from speedrun.at_grpo.playing_runs import Job, Settings
from speedrun.at_grpo.result_pages import Shown, System, budgets, tuned, write_page
from speedrun.intervals import Rates
from speedrun.kept import read_as, write
from speedrun.own_programs import without_jails
from speedrun.starts import POLICY, digest
from speedrun.versions import code_of_project
from tasks import Problem
from tasks.environments import begins, generate, played
from trainer.evaluate import Spread
from trainer.run import StepReport
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed
from workflow.trace import AgentTurn, EnvironmentStepped

NEVER, ALWAYS = Chances(tool=0, planner=0, adopts=0), Chances(tool=1, planner=1, adopts=1)


def play(problem: Problem, tools: int, chances: Chances, seed: int = 0, acts: str = "Planner") -> Any:
    source, teacher = program(tools, acts), Teacher(chances)
    return in_jail(
        lambda box: box.run_program(source, problem.question, engine=teacher, seed=seed, game=begins(problem))
    )


@pytest.mark.parametrize("tools", [0, 1, 3])
@pytest.mark.parametrize("game", GAMES)
def test_a_teacher_without_mistakes_solves_every_level(game: Any, tools: int) -> None:
    for problem in generate(GAMES[game].knobs, 12, split="train", seed=3, turns=TURNS):
        run = play(problem, tools, NEVER)
        assert run.failure is None
        steps = [step for step, _ in played(problem, run.trace.events)]
        assert [step.agent for step in steps[: tools + 1]] == [*(f"Tool{n + 1}" for n in range(tools)), "Planner"]
        assert all(step.legal for step in steps)
        assert steps[-1].solved


class Babbler:
    """Replies by what is asked, whatever the seed; satisfies `engine.protocol.Engine`."""

    name = "babbler"

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append((request.agent, request.messages))
        dice = random.Random(repr(self.asked[-1]))
        action = [dice.choice("UDLR") for _ in range(2)] if dice.random() < 0.5 else [[dice.randint(1, 4)] * 3]
        return Completion(text=f"Well.\n#### {json.dumps(action)}" if dice.random() < 0.8 else "I do not know.")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("source", [program(0), program(0, "Tool1"), program(1), program(3)])
def test_without_a_jail_our_program_does_the_same(game: Any, source: str) -> None:
    problems = generate(GAMES[game].knobs, 4, split="train", seed=8, turns=TURNS)

    async def play_all(sandbox: Any) -> list[Any]:
        found = []
        for problem in problems:
            engine = Babbler()
            run = await sandbox.run_program(source, problem.question, engine=engine, game=begins(problem))
            steps = [step for step in run.trace.events if isinstance(step, EnvironmentStepped)]
            told = [(step.agent, step.action, step.legal, step.after, step.from_agent) for step in steps]
            found.append((engine.asked, told, run.answer, run.answer_from, run.failure))
        return found

    assert in_jail(lambda box: play_all(without_jails(box, PROGRAMS))) == in_jail(play_all)


def test_programs_of_others_stay_in_their_jail() -> None:
    [problem] = generate(GAMES["sudoku"].knobs, 1, split="train", seed=8, turns=TURNS)

    async def jail_of(sandbox: Any, source: str) -> str:
        sandbox = without_jails(sandbox, PROGRAMS)
        run = await sandbox.run_program(source, problem.question, engine=Babbler(), game=begins(problem))
        return run.jail

    ours = program(0)
    assert not in_jail(lambda box: jail_of(box, ours))
    assert in_jail(lambda box: jail_of(box, f"{ours}\n# and more")).startswith("process/")


@pytest.mark.thorough
@pytest.mark.parametrize("game", GAMES)
def test_mistakes_are_made_at_their_rates(game: Any) -> None:
    """And mended: a planner that never errs undoes what others have done to a grid."""
    levels = generate(GAMES[game].knobs, 30, split="train", seed=4, turns=TURNS)
    solved = [
        sum(played(each, play(each, 1, chances, seed).trace.events)[-1][0].solved for seed, each in enumerate(levels))
        for chances in (ALWAYS, Chances(tool=1, planner=0, adopts=0.3), Chances(tool=1, planner=0, adopts=0))
    ]
    assert solved[0] < solved[1] <= solved[2] == 30


@pytest.mark.thorough
def test_a_mistake_is_a_digit_that_is_wrong() -> None:
    for seed, level in enumerate(generate(GAMES["sudoku"].knobs, 20, split="train", seed=6, turns=TURNS)):
        steps = [step for step, _ in played(level, play(level, 1, ALWAYS, seed).trace.events)]
        right = [step for step, _ in played(level, play(level, 1, NEVER, seed).trace.events)]
        [[row, column, digit]], [[_, _, solution]] = steps[0].action, right[0].action
        assert digit in {1, 2, 3, 4} - {solution}
        assert [row, column] == list(right[0].action[0])[:2]


def test_a_tool_may_act_alone() -> None:
    [level] = generate(GAMES["plan_path"].knobs, 1, split="train", seed=5, turns=TURNS)
    run = play(level, 0, NEVER, acts="Tool1")
    assert {turn.agent for turn in run.trace.events if isinstance(turn, AgentTurn)} == {"Tool1"}
    assert {turn.messages[0]["content"] for turn in run.trace.events if isinstance(turn, AgentTurn)} == {"Propose."}


def test_the_teacher_knows_nothing_else() -> None:

    request = CompletionRequest(
        agent="Planner", key="k", messages=[{"role": "user", "content": "2 + 2?"}], sampling=Sampling()
    )
    with pytest.raises(EngineFailed, match="agent Planner shows no position"):
        asyncio.run(Teacher(NEVER).complete(request))


def config(name: str, **changes: Any) -> Any:
    job = Job(name=name, game="plan_path", seed=2, **changes)
    return runs.rl_config(job, Settings(), Path("m"), Path("d.jsonl"), Path("p.py"))


@pytest.mark.parametrize("name", [name for name, arm in ARMS.items() if arm.learns])
def test_every_arm_is_a_run(name: str) -> None:
    made = config(name)
    assert (made.seed, made.schedule) == (2, "executor-only")
    assert made.reward.kind == ("run" if "runs" in name else "turns")
    rollout, arm = made.rollout, ARMS[name]
    assert (rollout.branching is None) == (made.credit != "at-grpo")
    runs_of_a_level = rollout.executions if rollout.branching is None else rollout.branching.candidates
    agents = arm.tools + 1
    replies = rollout.questions * runs_of_a_level * agents * TURNS
    usual = config("AT-GRPO, shared").rollout
    expected = usual.questions * 4 * 2 * TURNS
    if " of " in name or " alone" in name:  # as many for each policy, or each agent
        expected = expected * agents // 2
    assert replies == expected, "as many replies a step"
    doubled = config(name, factor=2.0)
    assert {name: policy.learning_rate for name, policy in doubled.policies.items()} == {
        name: 2 * policy.learning_rate for name, policy in made.policies.items()
    }


def test_policies_of_their_own() -> None:
    made = config("AT-GRPO, per role")
    assert made.roles.agents == {"Tool1": "tool", "Planner": "planner"}
    assert made.policies.keys() == {"tool", "planner"}
    assert made.policies["tool"] == made.policies["planner"] == config("AT-GRPO, shared").policies["p0"]


def test_who_plays_with_others_policies_is_told_apart_by_how_they_were_trained() -> None:
    exchanged = [
        Job(name="together, exchanged", game="sudoku", seed=1, factors=(("AT-GRPO, per role", factor),))
        for factor in (1.0, 2.0)
    ]
    assert exchanged[1].taken == [Job(name="AT-GRPO, per role", game="sudoku", seed=1, factor=2.0)]
    made = [runs.made_by(job, Settings()) for job in exchanged]
    assert made[0] != made[1]
    assert made[1]["taken"] == [runs.made_by(exchanged[1].taken[0], Settings())]
    assert all(Job.of(json.loads(json.dumps(asdict(job)))) == job for job in exchanged)
    assert all(runs.in_todays_terms(each) == each for each in made)


def test_what_is_played_with_is_told_apart() -> None:
    def made(name: str, *overrides: str) -> Any:
        return runs.made_by(Job(name=name, game="sudoku", seed=1), Settings(overrides=overrides))

    assert made("MAS") != made("MAS", "rollout.executor_temperature=0.5")
    assert made("MAS")["play"] != made("MAS", "rollout.max_tokens=40")["play"]
    assert made("MAS of 3")["program"] != made("MAS of 5")["program"]
    assert made(START)["play"] == made("MAS")["play"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that a process was started for, in this order; a start leaves a policy of its own."""
    jobs: list[Job] = []

    def ended(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        job, out = Job.of(json.loads(command[command.index("--one") + 1])), Path(command[command.index("--out") + 1])
        jobs.append(job)
        policy = job.folder(out) / POLICY
        if job.name == START and not policy.exists():
            policy.mkdir()
            (policy / "model.safetensors").write_text(f"{job.seed} of {out}")
            (policy / "tokenizer.json").write_text("{}")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", ended)
    return jobs


def test_arms_that_are_played_with_are_trained_at_the_factors_that_were_chosen(
    tmp_path: Path, asked: list[Job]
) -> None:
    job = Job(name="together, exchanged", game="sudoku", seed=1, factors=(("AT-GRPO, per role", 2.0),))
    run_all([job], Settings(), tmp_path / "out", 1, tmp_path / "kept")
    assert asked == [job.start, *job.taken, job]
    asked.clear()
    run_all([job], Settings(), tmp_path / "out", 1, tmp_path / "kept")
    assert asked == [], "what is done is not done again"
    slower = Job(name=job.name, game="sudoku", seed=1, factors=(("AT-GRPO, per role", 1.0),))
    with pytest.raises(ValueError, match=r"holds .* with job[.=]"):
        run_all([slower], Settings(), tmp_path / "out", 1, tmp_path / "kept")


def test_who_plays_whom_is_what_a_run_was_made_by(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(name="together, exchanged", game="sudoku", seed=1, factors=(("AT-GRPO, per role", 1.0),))
    before = runs.made_by(job, Settings())
    arm = replace(ARMS[job.name], played_by={"Tool1": ("AT-GRPO, per role", "tool")})
    monkeypatch.setattr(runs, "ARMS", {**ARMS, job.name: arm})
    assert runs.made_by(job, Settings()) != before


def test_arms_begin_from_the_start_that_is_kept(tmp_path: Path, asked: list[Job]) -> None:
    kept = tmp_path / "kept"
    arm, other = Job(name="K=2", game="plan_path", seed=1), Job(name="K=8", game="plan_path", seed=1)
    run_all([arm], Settings(), tmp_path / "one", 1, kept)
    began = digest(arm.start.folder(kept))
    assert asked == [arm.start, arm]
    run = read_as(kept_at(arm, kept), KeptRun)
    assert run is not None
    assert (run.start, run.code) == (began, code_of_project())
    asked.clear()
    run_all([arm, other], Settings(), tmp_path / "elsewhere", 1, kept)
    assert asked == [other], "on another machine, too, nothing is taught again"
    assert digest(arm.start.folder(tmp_path / "elsewhere")) == began != ""
    shutil.rmtree(arm.start.folder(kept))
    assert left([arm, other, arm.start], Settings(), kept) == [arm, other, arm.start]
    asked.clear()
    run_all([arm], Settings(), tmp_path / "two", 1, kept)
    assert asked == [arm.start, arm]
    assert left([arm, other], Settings(), kept) == [other], "arms of two starts are never paired"
    with pytest.raises(ValueError, match=r"one/plan_path/seed-1/start/policy is another one than .*Fix: another --out"):
        run_all([other], Settings(), tmp_path / "one", 1, kept)


def started(solved: dict[int, int]) -> KeptRun:
    played = {runs.team(agents): [Played(f"{n}", n < of, 1) for n in range(10)] for agents, of in solved.items()}
    return KeptRun(made_by={}, start="", code="", played=played)


def test_nothing_is_compared_where_there_is_too_little_or_too_much_to_learn() -> None:
    found = start_gate.solved_before([started({1: 3, 2: 5, 7: 9}), started({1: 3, 2: 5, 7: 8})], [2, 7])
    start_gate.check("sudoku", found)
    assert start_gate.table(found)[-1] == "| 7 | 0.850 | 0.900, 0.800 |"
    found = start_gate.solved_before([started({1: 2, 2: 6})], [1])
    with pytest.raises(ValueError, match=r"single agent .*: 0\.200 of .*Fix: lower .*\n.*MAS .*: 0\.600 .*raise"):
        start_gate.check("sudoku", found)


def test_starts_that_solve_too_much_end_it_before_an_arm_is_trained(
    tmp_path: Path, asked: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speedrun.at_grpo.kept_runs.kept_of", lambda *_: started({1: 9, 2: 9}))
    with pytest.raises(ValueError, match="plan_path, single agent"):
        command.compare("tree", range(3), Settings(), tmp_path / "out", tmp_path / "pages", 1, "c")
    assert [job.name for job in asked] == [START] * 3
    assert not list((tmp_path / "pages").glob("*.md"))


def test_starts_play_with_teams_of_every_size() -> None:
    assert (tools_in("plan_path"), tools_in("sudoku")) == ([0, 1, 2, 4, 6], [0, 1])


def test_every_comparison_has_its_arms() -> None:
    for comparison in COMPARISONS.values():
        assert {name for pair in comparison.pairs for name in pair} <= set(comparison.systems) <= ARMS.keys()
        assert comparison.about.startswith("It can tell ")
    for arm in ARMS.values():
        assert arm.learns or not arm.overrides
        assert all(ARMS[name].learns for name, _ in arm.played_by.values())
        assert arm.rates_of is None or ARMS[arm.rates_of].rates_of is None
    assert 1.0 in FACTORS


def test_what_is_kept_is_told_apart(tmp_path: Path, asked: list[Job]) -> None:
    job = Job(name="K=2", game="plan_path", seed=1)
    kept = tmp_path / "kept"
    run_all([job], Settings(), tmp_path / "out", 1, kept)
    run = read_as(kept_at(job, kept), KeptRun)
    assert run is not None
    run = run.model_copy(update={"played": {SAMPLED: [Played("a", True, 2)]}})
    write(kept_at(job, kept), run)
    assert read_as(kept_at(job, kept), KeptRun) == run
    assert left([job], Settings(), kept) == []
    assert left([job], Settings(test=301), kept) == [job]
    older = {**run.made_by, "settings": {k: v for k, v in run.made_by["settings"].items() if k != "validation"}}
    older["rl"] = {key: value for key, value in older["rl"].items() if key not in ("kl_roles", "format_weight")}
    write(kept_at(job, kept), run.model_copy(update={"made_by": older}))
    assert left([job], Settings(), kept) == [], "keys that came later have what was done before"
    faster = Job(name="K=2", game="plan_path", seed=1, factor=2.0)
    assert left([faster], Settings(), kept) == [faster]
    kept_at(job, kept).write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"holds no run that was kept: .* Fix: remove it"):
        left([job], Settings(), kept)


def test_a_factor_acts_on_whatever_rate_is_set() -> None:
    job, settings = (
        Job(name="K=2", game="plan_path", seed=1, factor=2.0),
        Settings(overrides=("policies.p0.learning_rate=0.01",)),
    )
    made = runs.rl_config(job, settings, Path("m"), Path("d.jsonl"), Path("p.py"))
    assert made.policies["p0"].learning_rate == 0.02


def test_levels_of_a_seed_are_no_others(tmp_path: Path) -> None:
    small = Settings(cold=20, train=20, validation=20, test=20)
    found = [
        {each.question for each in runs.levels_of(Job(name=START, game="plan_path", seed=seed), small, tmp_path, name)}
        for seed in (0, 1)
        for name in ("cold", "train", "validation", "test", "detours", "misleading", "direct")
    ]
    assert all(len(each) == 20 for each in found)
    assert all(not one & other for n, one in enumerate(found) for other in found[:n])


def test_direct_levels_are_as_long_as_those_with_detours(tmp_path: Path) -> None:
    """An arm that is misled learns from others with detours."""
    small, job = Settings(train=30, test=60), Job(name="best, misled", game="plan_path", seed=0)
    detours, direct = (runs.levels_of(job, small, tmp_path, name) for name in (DETOURS, DIRECT))
    assert sorted(way(each)[0] for each in detours) == sorted(way(each)[0] for each in direct)
    assert all(moves >= 1.5 * manhattan for moves, manhattan in map(way, detours))
    assert all(moves == manhattan for moves, manhattan in map(way, direct))
    assert runs.levels_of(job, small, tmp_path, DIRECT) == direct
    assert runs.made_by(job, small)["levels"] == "misleading"
    assert config("best, misled").reward.alpha == 10
    made = {select: config(f"{select}, misled").rollout.branching.select for select in ("best", "first", "random")}
    assert made == {"best": "best", "first": "first", "random": "random"}


def system(name: str, solved: int, learns: bool = True, tokens: int = 50) -> System:
    played = {
        levels: [Played(f"{n}", n < solved + more, 2 + n % 2) for n in range(100)]
        for levels, more in ((SAMPLED, 0), (GREEDY, 10), (DETOURS, -10), (DIRECT, 5))
    }
    agents = {
        agent: {"replies": 10, "reward": 0.1 * step, "terms": {}, "entropy": 1.0, "silent": 0.25}
        for step, agent in ((1, "Planner"), (2, "Tool1"))
    }
    step: dict[str, Any] = {
        "active": ["executor"], "questions": 4, "designs": 4, "executions": 4, "reward": 0.5, "terms": {},
        "ready": 1.0, "agents": agents, "usage": {"executor": {"completion_tokens": 50}},
    }  # fmt: skip
    steps = [
        StepReport.model_construct(**{**step, "step": n, "correct": n / 10, "turns_to_solve": 3.0 - n / 10,
                                      "agents": {k: StepReportAgent(**v) for k, v in agents.items()},
                                      "usage": {"executor": Tokens(tokens)}, "lengths": {"executor": Spread(count=20)}})
        for n in range(8)
    ]  # fmt: skip
    watched = [step.model_copy(update={"step": 5 * step.step, "correct": 0.4}) for step in steps]
    run = KeptRun.model_construct(
        code=name[:1], played=played, steps=steps if learns else [], watched=watched if ARMS[name].watched else []
    )
    return System(name, [run] * 3)


def rates(solved: int) -> Rates:
    return {f"{n}": float(n < solved) for n in range(10)}


def test_another_rate_is_taken_where_it_is_better_beyond_chance() -> None:
    pytest.importorskip("numpy")
    found = {"AT-GRPO, shared": {0.5: rates(5), 1.0: rates(4), 2.0: rates(3)}}
    assert command.factor_of("AT-GRPO, shared", found) == 1.0, "one level more of ten says nothing"
    found["AT-GRPO, shared"][2.0] = rates(9)
    for name in ("AT-GRPO, shared", "K=2", "K=8", "first", "random", "no tree", "AT-GRPO, outcome", "AT-GRPO of 7"):
        assert command.factor_of(name, found) == 2.0, "and by arms that vary it"
    assert (command.factor_of("MAS", found), command.factor_of("MAS + GRPO", found)) == (1.0, 1.0)


def test_budgets_are_told_where_they_differ() -> None:
    pair = [system("AT-GRPO, shared", 1, tokens=52), system("MAS + GRPO", 1)]
    assert not budgets(pair)[-1].endswith(".")
    assert "| MAS + GRPO | 8 | 32 | 160 | 400 | 25.0% |  |" in budgets(pair), "it compares within questions"
    pair[0] = system("AT-GRPO, shared", 1, tokens=53)
    assert budgets(pair)[-1] == "AT-GRPO, shared generated 1.06 times the tokens of MAS + GRPO."
    assert not budgets([pair[1], system("tool alone", 1, tokens=25)])[-1].endswith("."), "half a budget each"
    assert config("AT-GRPO, shared").generated_tokens == 2 * config("tool alone").generated_tokens > 0
    sudoku = runs.rl_config(Job(name="MAS + GRPO", game="sudoku", seed=0), Settings(), Path("m"), Path("d"), Path("p"))
    assert sudoku.generated_tokens == 440_000


def test_a_factor_at_the_edge_of_the_grid_is_told() -> None:
    shown = Shown("plan_path", [], {"K=2": {0.5: rates(2), 1.0: rates(4)}}, {"K=2": 0.5})
    assert tuned(shown)[-1] == "K=2 takes 0.5, the last one that was tried: lower ones may be better."
    assert "tried:" not in tuned(replace(shown, factors={"K=2": 1.0}))[-1]


class Tokens:
    def __init__(self, count: int) -> None:
        self.completion_tokens = count


class StepReportAgent:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def test_a_page_by_hand(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("vl_convert")
    rows = {name: system(name, 30 + 10 * n, ARMS[name].learns) for n, name in enumerate(COMPARISONS["tree"].systems)}
    tried = {"AT-GRPO, shared": {0.5: rates(2), 1.0: rates(4)}}
    shown = Shown("plan_path", list(rows.values()), tried, {"AT-GRPO, shared": 1.0})
    page = write_page("tree", [shown], "python -m speedrun.at_grpo tree --seeds 3", tmp_path).read_text()
    assert "| MAS | 0.300 [" in page
    assert "| 0.300, 0.300, 0.300 | 0.400 [" in page
    assert "| 2.50 | 0.200 [" in page
    assert "| AT-GRPO, shared less K=2 | -0.100 [" in page
    assert "| -0.100, -0.100, -0.100 | below | -0.100 [" in page
    assert "| AT-GRPO, shared | 8 | 32 | 160 | 400 |  | 25.0% |" in page
    assert "It cannot tell whether a greedy successor is right in general" in page
    assert "| MAS | 8 |" not in page
    # 0 to 0.7 in eight steps: 0.05 and 0.65, 0.45 before; variances 0.005 of two each
    assert "| no tree | 0.050 | 0.650 | +0.200 ± 0.141, still moves |" in page
    assert "| AT-GRPO, shared | 0.400 | 0.400 | +0.000 ± 0.000 |" in page, "its checkpoints, one reply at a time"
    assert "| K=2 | 0." not in page.partition("first and in the last quarter")[2], "nobody looked at them"
    assert "| AT-GRPO, shared | 0.200 | **0.400** |" in page
    assert "the last one that was tried" not in page
    assert "The runs are of 6 versions of the project's code." in page  # M A K f r n
    assert (tmp_path / "tree-plan-path.png").stat().st_size > 5000


def test_a_step_without_a_value_keeps_its_place() -> None:
    made = system("AT-GRPO, shared", 50)
    per_step = dict(enumerate([None, 4.0, 3.0] + [2.0] * 5))
    found = made.curve(lambda step: per_step[step.step])
    assert str(found[:3]) == "[nan, 4.0, 3.0]"


def test_curves_have_their_pictures(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("vl_convert")
    shown = Shown("sudoku", [system(name, 50) for name in COMPARISONS["curves"].systems], {}, {})
    page = write_page("curves", [shown], "c", tmp_path).read_text()
    pictures = [line.partition("](")[2].rstrip(")") for line in page.splitlines() if line.startswith("![")]
    assert pictures == ["curves-sudoku.png", "curves-sudoku-shared.png", "curves-sudoku-apart.png"]
    assert all((tmp_path / picture).stat().st_size > 5000 for picture in pictures)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which comparison? Fix: name one of training, together, outcome, curves, members, tree, detours"),
        (["tree", "--seeds", "2"], "--seeds 2: intervals over seeds need three at least"),
        (["tree", "--first-seed", "998"], "--first-seed 998: seeds are 0 or more, and 1000 is for tuning"),
        (["tree", "--jobs", "0"], "--jobs 0: at least one runs at a time"),
    ],
)
def test_what_makes_no_sense_is_told(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert said in capsys.readouterr().err


def test_settings_that_are_none_are_told(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"levels": 3}))
    with pytest.raises(SystemExit, match=r"s\.json holds no settings of this miniature"):
        command.main(["tree", "--out", str(tmp_path / "out"), "--settings", str(tmp_path / "s.json")])
