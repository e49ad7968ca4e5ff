"""Every recipe can be read, and says what the paper says."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from one_jail import in_jail

from designer.check import check_program
from engine.session import Run
from sandbox import ProcessSandbox
from sandbox.conformance.scripted import Scripted
from tasks.environments import begins, played, problem_of
from tasks.grading import grade
from tasks.problems import PlanPathLevel, Problem, SokobanLevel, StdinTest, StdinTests, SudokuLevel
from trainer.config import RewardConfig, TrainConfig
from trainer.config.toml_file import read_config
from trainer.credit import check_turns
from trainer.run.cast import cast_of
from trainer.run.planning import plan
from trainer.update import PolicyObjective
from workflow.completion import CompletionRequest

RECIPES = Path(__file__).parents[3] / "recipes"
ALL = sorted(
    path.relative_to(RECIPES).as_posix()
    for path in RECIPES.rglob("*.toml")
    if "commands" not in tomllib.loads(path.read_text())  # those are told in tests/metaagent/commands
)
BASE = "metaagent_x_qwen3_8b.toml"


def recipe(name: str) -> TrainConfig:
    return read_config(RECIPES / name)


@pytest.mark.parametrize("name", ALL)
def test_every_recipe_can_be_read_and_planned(name: str) -> None:
    planned = plan(recipe(name))
    assert planned.runs_per_step > 0
    assert (RECIPES / name).read_text().startswith("# ")


def test_the_papers_setting() -> None:
    """Section 4.1, Appendix B."""
    config = recipe(BASE)
    assert list(config.policies) == ["p0"]
    policy, rollout = config.policies["p0"], config.rollout
    assert policy.model == "Qwen/Qwen3-8B"
    assert policy.learning_rate == 5e-6
    assert policy.engine.thinking is False
    assert policy.lora is None
    assert (rollout.questions, rollout.designs, rollout.executions) == (8, 4, 4)
    assert (rollout.max_prompt_tokens, rollout.max_tokens) == (8192, 8192)
    assert (config.schedule, config.stage_length, config.credit, config.format_weight) == ("stagewise", 30, "tree", 0.4)
    planned = plan(config)
    assert planned.stages[0].roles == ["executor"]
    assert [(source.name.partition(":")[0], source.per_step) for source in planned.sources] == [
        ("polaris", 4), ("apps", 2), ("code_contests", 2),
    ]  # fmt: skip


def changed(name: str, base_name: str = BASE) -> dict[str, Any]:
    """What a recipe sets otherwise than the paper's main one: its own lines, not what it extends."""
    base, other = recipe(base_name).model_dump(), recipe(name).model_dump()
    flat: dict[str, Any] = {}
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(base[key], dict):
            flat |= {f"{key}.{part}": new for part, new in value.items() if new != base[key].get(part)}
        elif value != base[key]:
            flat[key] = value
    return flat


@pytest.mark.parametrize(
    ("name", "difference"),
    [
        ("ablations/m8_n1.toml", {"rollout.designs": 8, "rollout.executions": 1, "credit": "flat"}),
        ("ablations/coupled.toml", {"schedule": "coupled"}),
        ("ablations/designer_only.toml", {"schedule": "designer-only"}),
        ("ablations/executor_only.toml", {"schedule": "executor-only"}),
        ("ablations/stage_length_1.toml", {"stage_length": 1}),
        ("ablations/stage_length_10.toml", {"stage_length": 10}),
        (
            "ablations/single_agent_grpo.toml",
            {
                "schedule": "executor-only",
                "credit": "single-agent",
                "rollout.program": RECIPES / "ablations" / "single_agent.py",
                "rollout.designs": 1,
                "rollout.executions": 16,
            },
        ),
    ],
)
def test_an_ablation_differs_in_nothing_else(name: str, difference: dict[str, Any]) -> None:
    assert changed(name) == difference


def test_separate_policies_are_alike() -> None:
    config = recipe("ablations/separate_policies.toml")
    assert changed("ablations/separate_policies.toml").keys() == {"roles.executor", "policies.p1"}
    assert config.policies["p0"] == config.policies["p1"]


def test_the_smaller_model_differs_in_its_model_only() -> None:
    config, base = recipe("metaagent_x_qwen3_4b.toml"), recipe(BASE)
    policy = base.policies["p0"].model_copy(update={"model": "Qwen/Qwen3-4B"})
    assert config == base.model_copy(update={"policies": {"p0": policy}})


def test_every_ablation_is_looked_at() -> None:
    ablations = [name for name in ALL if name.startswith("ablations/") and not name.startswith(AT_GRPO)]
    assert {tomllib.loads((RECIPES / name).read_text()).get("extends") for name in ablations} == {f"../{BASE}"}
    assert len(ablations) == 8


def test_the_single_agent_may_run() -> None:
    report = in_jail(lambda sandbox: check_program((RECIPES / "ablations" / "single_agent.py").read_text(), sandbox))
    assert report.graph is not None
    assert report.findings == []


AT_GRPO = "ablations/at_grpo"
BRANCHES = {"candidates": 4, "turns": 4, "select": "best", "score": "turn", "max_open": 64}
NO_TREE = {"rollout.branching": None, "rollout.executions": 4}


@pytest.mark.parametrize(
    ("name", "difference"),
    [
        ("outcome", {"reward.shaping": "outcome"}),
        ("no_tree", {"credit": "agent-turn", **NO_TREE}),
        ("mas_grpo", {"credit": "tree", **NO_TREE}),
        (
            "single_agent_grpo",
            {"credit": "tree", "rollout.program": RECIPES / "programs" / "game_alone.py", **NO_TREE},
        ),
        ("select_first", {"rollout.branching": {**BRANCHES, "select": "first"}}),
        ("select_random", {"rollout.branching": {**BRANCHES, "select": "random"}}),
    ],
)
def test_an_ablation_of_at_grpo_differs_in_nothing_else(name: str, difference: dict[str, Any]) -> None:
    found = changed(f"{AT_GRPO}/{name}.toml", "at_grpo_plan_path.toml")
    if "rollout.program" in found:
        found["rollout.program"] = found["rollout.program"].resolve()
    assert found == difference


def test_turns_of_one_run_are_compared_with_one_another() -> None:
    config = read_config(RECIPES / AT_GRPO / "mas_grpo.toml", ["rollout.executions=1"])
    assert (config.rollout.designs, config.rollout.executions, config.credit) == (1, 1, "tree")


def test_specialised_policies_are_alike() -> None:
    config = recipe(f"{AT_GRPO}/specialised.toml")
    assert config.roles.agents == {"Tool": "p0", "Planner": "p1"}
    assert not config.roles.has_others
    assert config.policies["p0"] == config.policies["p1"]
    assert changed(f"{AT_GRPO}/specialised.toml", "at_grpo_plan_path.toml").keys() == {"roles.agents", "policies.p1"}


def test_every_ablation_of_at_grpo_is_looked_at() -> None:
    found = [name for name in ALL if name.startswith(AT_GRPO)]
    assert {tomllib.loads((RECIPES / name).read_text()).get("extends") for name in found} == {
        "../../at_grpo_plan_path.toml"
    }
    assert len(found) == 7


GAMES = ("plan_path", "sokoban", "sudoku")
OTHERS = {"math": ("programs/math.py", 8192, "polaris"), "code": ("programs/code.py", 8192, "apps")}


@pytest.mark.parametrize("game", [*GAMES, *OTHERS])
def test_at_grpo_is_stronger_mas_setting(game: str) -> None:
    """Section 5.1 and Appendix C.1; its shared setting."""
    config = recipe(f"at_grpo_{game}.toml")
    policy, rollout, branching = config.policies["p0"], config.rollout, config.rollout.branching
    assert (policy.model, policy.learning_rate, policy.weight_decay) == ("Qwen/Qwen3-1.7B", 1e-6, 0.01)
    assert policy.max_gradient_norm == 1.0
    assert config.objective == PolicyObjective(mini_batches=2)
    assert (config.objective.clip_low, config.objective.clip_high, config.objective.kl_coefficient) == (0.2, 0.2, 0)
    assert branching is not None
    assert (branching.candidates, branching.turns, branching.select, branching.score) == (4, 4, "best", "turn")
    assert (rollout.questions, rollout.designs, rollout.executions, config.steps) == (32, 1, 1, 150)
    program, prompt, format = OTHERS.get(game, ("programs/game.py", 16384, "problems"))
    assert (rollout.max_prompt_tokens, rollout.max_tokens, rollout.executor_temperature) == (prompt, 4096, 1.0)
    assert config.reward == RewardConfig(kind="turns", alpha=1.0, shaping="dense")
    assert rollout.program == RECIPES / program
    assert [source.format for source in config.data] == [format]


WAYS = {
    "plan_path": (PlanPathLevel(level="@#.\n..G"), '["D"]', '["R", "R"]'),
    "sokoban": (SokobanLevel(level="#######\n#@$  .#\n#######"), '["R"]', '["R", "R"]'),
    "sudoku": (SudokuLevel(level="1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 . ."), "[[4, 3, 2]]", "[[4, 4, 1]]"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("game", GAMES)
def test_the_program_of_games_is_played_by_a_tool_and_a_planner(game: str) -> None:
    level, first, second = WAYS[game]
    problem, source = problem_of(level), (RECIPES / "programs" / "game.py").read_text()
    asked: list[CompletionRequest] = []

    def reply(request: CompletionRequest) -> str:
        asked.append(request)
        action = first if len(asked) <= 2 else second
        return f"```python\nprint({action!r})\n```" if request.agent == "Tool" else f"I adopt it.\n#### {action}"

    async def go(sandbox: ProcessSandbox) -> Run:
        report = await check_program(source, sandbox)
        assert report.findings == []
        return await sandbox.run_program(source, problem.question, engine=Scripted(reply), game=begins(problem))

    run = in_jail(go)
    assert run.failure is None
    steps = [step for step, _ in played(problem, run.trace.events)]
    assert [(step.agent, step.commit, step.legal) for step in steps] == [
        ("Tool", False, True), ("Planner", True, True), ("Tool", False, True), ("Planner", True, True),
    ]  # fmt: skip
    assert all(step.from_agent for step in steps)
    assert steps[-1].solved
    prompts = [request.messages[-1]["content"] for request in asked]  # pyright: ignore
    assert all(problem.question in prompt for prompt in prompts)
    assert f"It printed:\n\n{first}" in prompts[1]
    assert f"Action 1: {first}" in prompts[2]
    assert "Turn 2 of 4." in prompts[2], "the position now, and not the first one"
    assert "Turn 1 of 4." not in prompts[2]


@pytest.mark.parametrize("game", GAMES)
def test_a_planner_plays_alone(game: str) -> None:
    level, *moves = WAYS[game]
    problem, source, left = problem_of(level), (RECIPES / "programs" / "game_alone.py").read_text(), iter(moves)
    engine = Scripted(lambda _: f"So.\n#### {next(left)}")
    run = in_jail(lambda box: box.run_program(source, problem.question, engine=engine, game=begins(problem)))
    assert run.failure is None
    steps = [step for step, _ in played(problem, run.trace.events)]
    assert [(step.agent, step.commit, step.from_agent) for step in steps] == [("Planner", True, "Planner")] * 2
    assert steps[-1].solved


def test_a_tool_that_writes_no_code_proposes_nothing() -> None:
    problem = problem_of(WAYS["plan_path"][0])

    source, engine = (RECIPES / "programs" / "game.py").read_text(), Scripted("No idea.")
    run = in_jail(lambda sandbox: sandbox.run_program(source, problem.question, engine=engine, game=begins(problem)))
    assert [(step.agent, step.commit, step.action) for step, _ in played(problem, run.trace.events)] == [
        ("Planner", True, None)
    ] * 4
    assert run.failure is None


def test_the_miniature_is_given_model_and_data_on_the_command_line(tmp_path: Path) -> None:
    overrides = [f"policies.p0.model={tmp_path}", f"data.0.path={tmp_path}/rows.jsonl"]
    config = read_config(RECIPES / "tiny.toml", overrides)
    assert config.policies["p0"].model == str(tmp_path)
    assert config.data[0].path == tmp_path / "rows.jsonl"
    assert (config.policies["p0"].engine.kind, config.policies["p0"].engine.dtype) == ("transformers", "float64")


PLAYED = {
    "math": (
        Problem(id="m", question="What is 2 + 2?", domain="math", gold="4"),
        [
            ("Reasoner", r"So \boxed{3}."),
            ("Tool", "```python\nprint(2 + 2)\n```"),
            ("Reasoner", r"I was wrong: \boxed{4.0}"),
            ("Tool", "Again.\n```python\nprint(4)\n```"),
        ],
        ["Its boxed answer: 3", "It printed: 4", "print(2 + 2)"],
    ),
    "code": (
        Problem(
            id="c",
            question="Square n.",
            domain="code",
            tests=StdinTests(tests=[StdinTest(stdin="3\n", stdout="9\n")]),
            reference="print(int(input()) ** 2)",
        ),
        [
            ("Coder", "```python\nprint(int(input()) * 2)\n```"),
            ("Tester", "**Test Input:**\n3\n**Test Output:**\n9"),
            ("Coder", "```python\nprint(int(input()) ** 2)\n```"),
            ("Tester", "**Test Input:**\n```\n4\n```\n**Test Output:**\n```\n16\n```\nIt tells them apart."),
        ],
        ["Input of the test:\n\n3", "Expected output:\n\n9", "It printed:\n\n6", "print(int(input()) * 2)"],
    ),
}


@pytest.mark.parametrize("domain", PLAYED)
def test_the_programs_of_math_and_code_go_on_until_both_agree(domain: str) -> None:
    problem, script, shown = PLAYED[domain]
    source, replies = (RECIPES / "programs" / f"{domain}.py").read_text(), iter(script)
    asked: list[CompletionRequest] = []

    def reply(request: CompletionRequest) -> str:
        asked.append(request)
        agent, said = next(replies)
        assert request.agent == agent
        return said

    async def go(sandbox: ProcessSandbox) -> tuple[Run, bool]:
        assert [str(each) for each in (await check_program(source, sandbox)).findings] == []
        check_turns([problem], await cast_of(source, sandbox), {})
        run = await sandbox.run_program(source, problem.question, engine=Scripted(reply))
        return run, (await grade(problem, run.answer or "", sandbox)).correct

    run, correct = in_jail(go)
    assert run.failure is None
    assert correct
    assert next(replies, None) is None
    first, second, *later = [str(request.messages[-1]["content"]) for request in asked]  # pyright: ignore
    assert first == second, "apart at first"
    assert all(text in prompt for text in shown for prompt in later)


def test_the_programs_of_math_and_code_end_without_an_agreement() -> None:
    for domain, (problem, _, _) in PLAYED.items():
        source = (RECIPES / "programs" / f"{domain}.py").read_text()
        engine = Scripted("I don't know.")
        run = in_jail(lambda sandbox, s=source, p=problem, e=engine: sandbox.run_program(s, p.question, engine=e))
        assert run.failure is None
        assert len(run.trace.agent_turns) == 8
        assert run.answer == "I don't know."
