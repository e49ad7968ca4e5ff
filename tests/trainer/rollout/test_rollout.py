"""The rollout tree: its shape, its pace, bad ends as data, infrastructure as a loud stop, traces from step 0."""

import asyncio
import errno
import gc
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from one_jail import in_jail
from small_problems import CHECKED, FOUR, PLAYS, RAISES, SINGLE, SIX
from token_engine import TokenEngine

from designer.sample import DesignTurn
from engine import retries
from engine.session import Run
from sandbox import ProcessSandbox
from sandbox.protocol import Sandbox
from tasks import PlanPathLevel, Problem
from tasks.environments import problem_of
from trainer.config import RolloutConfig
from trainer.credit import ROLES, outcomes, paper_reward
from trainer.rollout.rollout import Rollout, derived_seed
from trainer.rollout.trace_file import OpenFiles
from trainer.run.step_report import Timings, step_report
from trainer.trees import DesignResult, Execution, QuestionTree
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed, SandboxUnavailable
from workflow.limits import Limits
from workflow.trace import AgentTurn, Rewarded, Trace


def designs(*programs: str) -> Callable[[CompletionRequest], str]:
    """A Designer that writes the programs in turn: design i gets program i."""
    return lambda request: f"<code>\n{programs[int(request.key.split('/')[1]) % len(programs)]}\n</code>"


def grow(
    problems: list[Problem],
    designer: TokenEngine,
    executor: TokenEngine,
    folder: Path | None = None,
    watch: Callable[[DesignResult | Execution], None] = lambda _: None,
    seed: int = 1,
    **settings: object,
) -> list[QuestionTree]:
    config = RolloutConfig.model_validate({"designs": 2, "executions": 3, **settings})
    return in_jail(
        lambda sandbox: Rollout(
            config=config, designer=designer, executor=executor, sandbox=sandbox, reward=paper_reward, watch=watch
        ).step(problems, seed, folder)
    )


def test_a_tree_has_m_designs_with_n_executions_each_and_every_token_in_a_trajectory() -> None:
    designer = TokenEngine(designs(SINGLE, CHECKED))
    executor = TokenEngine(lambda r: "Verdict: CORRECT" if r.agent == "Critic" else "It is \\boxed{4}.")
    trees = grow([FOUR, SIX], designer, executor)
    assert [tree.problem.id for tree in trees] == ["p/4", "p/6"]
    for tree, total in zip(trees, (1.4, 0.4), strict=True):
        assert [design.index for design in tree.designs] == [0, 1]
        assert [[run.index for run in design.executions] for design in tree.designs] == [[0, 1, 2]] * 2
        single, checked = tree.designs
        assert [run.reward.total for run in single.executions] == [total] * 3
        assert [[t.coordinates.agent for t in run.trajectories] for run in checked.executions] == [
            ["Critic", "Solver"]
        ] * 3
        # Neither the solver nor the critic marked what it hands on.
        assert [term.value for term in checked.executions[0].reward.terms][1:] == [1.0, 0.0]
        assert [t.coordinates.design for t in checked.trajectories] == [1]
    said = sum(
        len(t.token_ids) - t.loss_mask.count(0) for tree in trees for r in tree.executions for t in r.trajectories
    )
    assert said == sum(run.usage.completion_tokens for tree in trees for run in tree.executions)
    # Executions of one design differ in their seeds, and so do designs.
    seeds = [request.sampling.seed for request in executor.requests if request.agent == "Solver"]
    assert len(set(seeds)) == len(seeds) == 2 * 2 * 3
    assert len({request.sampling.seed for request in designer.requests}) == 4


def test_seeds_depend_on_the_place_in_the_tree_alone() -> None:
    one, other = TokenEngine("\\boxed{4}"), TokenEngine("\\boxed{4}", pause_s=0.01)
    for engine, settings in ((one, {}), (other, {"max_concurrent": 1})):
        grow([FOUR, SIX], TokenEngine(designs(SINGLE)), engine, **settings)
    assert {r.sampling.seed for r in one.requests} == {r.sampling.seed for r in other.requests}
    assert derived_seed(1, "p/4", 0, 1) != derived_seed(1, "p/4", 1, 0) != derived_seed(2, "p/4", 1, 0)


def test_each_role_is_sampled_at_its_own_temperature() -> None:
    designer, executor = TokenEngine(designs(SINGLE)), TokenEngine("\\boxed{4}")
    grow([FOUR], designer, executor, designer_temperature=0.5, executor_temperature=0.9, max_tokens=77)
    for engine, temperature in ((designer, 0.5), (executor, 0.9)):
        sampled = {(r.sampling.temperature, r.sampling.max_tokens, r.sampling.logprobs) for r in engine.requests}
        assert sampled == {(temperature, 77, True)}


def test_bad_designs_and_bad_runs_are_data() -> None:
    def fate(request: CompletionRequest) -> str:
        index = int(request.key.split("/")[1])
        return ["no program here", f"<code>\n{RAISES}</code>", f"<code>\n{SINGLE}</code>"][index]

    (tree,) = grow([FOUR], TokenEngine(fate), TokenEngine("\\boxed{4}"), designs=3, executions=2)
    rejected, raised, good = tree.designs
    assert rejected.failure == "program_rejected"
    assert len(rejected.trajectories) == 1
    assert [(run.reward.total, run.failure, run.trajectories) for run in rejected.executions] == [
        (0.0, "program_rejected", [])
    ] * 2
    assert {run.reward.total for run in raised.executions} == {0.0}
    assert {run.failure for run in raised.executions} <= {"program_failed", "program_rejected"}
    assert [run.reward.total for run in good.executions] == [1.4, 1.4]


class Hanging(TokenEngine):
    """Never answers all requests but the first `answered`."""

    def __init__(self, answered: int) -> None:
        super().__init__("\\boxed{4}")
        self.answered = answered
        self.asked: list[CompletionRequest] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append(request)
        if len(self.requests) >= self.answered:
            await asyncio.Event().wait()
        return await super().complete(request)


def test_a_run_does_not_pay_for_a_slow_engine() -> None:
    """The engine takes longer for each reply than the run has."""
    slow, fast = (
        grow(
            [FOUR],
            TokenEngine(designs(SINGLE, CHECKED)),
            TokenEngine(lambda r: "Verdict: CORRECT" if r.agent == "Critic" else "It is \\boxed{4}.", pause_s=pause_s),
            limits=Limits(wall_s=0.9),
        )
        for pause_s in (1.0, 0.0)
    )
    for one, other in zip(slow[0].executions, fast[0].executions, strict=True):
        assert (one.reward.total, one.failure, one.trajectories) == (other.reward.total, None, other.trajectories)
        assert not one.timed_out


SPINS = """from workflow import AgentNode, Workflow, WorkflowNode
class Spins(WorkflowNode):
    def process(self, context):
        while True: pass
workflow = Workflow("w").add_node(AgentNode("Solver", "Put the answer in \\\\boxed{}.")).add_node(Spins("s"))
"""


def test_a_run_whose_own_wall_clock_strikes_is_told_apart_from_one_by_another_limit() -> None:
    def timed_out(**limits: float) -> set[tuple[str | None, bool]]:
        (tree,) = grow(
            [FOUR],
            TokenEngine(designs(SPINS)),
            TokenEngine("\\boxed{4}"),
            designs=1,
            executions=2,
            limits=Limits.model_validate(limits),
        )
        assert all(run.trajectories for run in tree.executions)
        return {(run.failure, run.timed_out) for run in tree.executions}

    assert timed_out(wall_s=1.5) == {("limit_exceeded", True)}
    assert timed_out(cpu_s=1) == {("limit_exceeded", False)}


CATCHES = """from workflow import AgentNode, Workflow, WorkflowNode
class Tries(WorkflowNode):
    def process(self, context):
        import subprocess
        try:
            subprocess.run(["python", "-c", "import time; time.sleep(60)"], timeout=0.1)
        except subprocess.TimeoutExpired:
            pass
        return context.get_latest_message()
workflow = Workflow("w").add_node(AgentNode("Solver", "Put the answer in \\\\boxed{}.")).add_node(Tries("t"))
"""


def test_a_run_whose_code_a_clock_ended_is_left_out_though_it_went_on() -> None:
    (tree,) = grow([FOUR], TokenEngine(designs(CATCHES)), TokenEngine("\\boxed{4}"), designs=1, executions=1)
    [run] = tree.designs[0].executions
    assert (run.failure, run.correct, run.timed_out) == (None, True, True)
    assert [outcomes([tree], role)[0] for role in ROLES] == [[], []]


def test_a_run_whose_grading_a_clock_ended_is_left_out_with_its_design(tmp_path: Path) -> None:
    async def late(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
        return replace(await paper_reward(problem, run, sandbox), timed_out=not graded.append(run) and len(graded) == 1)

    graded: list[Run] = []
    config = RolloutConfig(designs=2, executions=3, max_concurrent=1)
    designer, executor = TokenEngine(designs(SINGLE)), TokenEngine("\\boxed{4}")
    [tree] = in_jail(
        lambda sandbox: Rollout(config=config, designer=designer, executor=executor, sandbox=sandbox, reward=late).step(
            [FOUR], 1, tmp_path
        )
    )
    left_out = [run.timed_out for design in tree.designs for run in design.executions]
    assert sorted(left_out) == [False] * 5 + [True]
    assert [len(outcomes([tree], role)[0]) for role in ROLES] == [1, 5]
    traces = [Trace.from_lines(path.read_text().splitlines()) for path in tmp_path.rglob("*.jsonl")]
    assert sorted(bool(trace.reward and trace.reward.timed_out) for trace in traces) == sorted(left_out)
    assert step_report(1, ["executor"], [tree], "tree", {}, {}, Timings()).timed_out == 1


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_reward_that_hangs_is_asked_again_and_then_stops_the_step(
    stubborn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def judge(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
        asked.append(run)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(5 * stubborn)
            raise
        return Rewarded(total=1.0, terms=[])

    monkeypatch.setattr("trainer.rollout.rollout.REWARD_S", 0.2)
    asked: list[Run] = []
    config = RolloutConfig(designs=1, executions=1, retries=1)
    designer, executor = TokenEngine(designs(SINGLE)), TokenEngine("\\boxed{4}")

    async def step(sandbox: ProcessSandbox) -> None:
        rollout = Rollout(config=config, designer=designer, executor=executor, sandbox=sandbox, reward=judge)
        async with asyncio.timeout(30):
            await rollout.step([FOUR], 1, None)

    with pytest.raises(SandboxUnavailable, match=r"a reward did not come within 0\.2 s\. Fix: see what the reward"):
        in_jail(step)
    assert len(asked) == 2


@pytest.mark.parametrize("role", ["designer", "executor"])
def test_an_engine_that_hangs_is_asked_again_and_then_stops_the_step(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)
    hanging, other = Hanging(0), TokenEngine(designs(SINGLE))
    with pytest.raises(EngineFailed, match=r"engine tokens failed: no reply within reply_s=0\.3\. Fix: "):
        grow(
            [FOUR],
            hanging if role == "designer" else other,
            hanging,
            designs=1,
            executions=2,
            retries=2,
            limits=Limits(reply_s=0.3),
        )
    asked = [request.sampling.seed for request in hanging.asked]
    assert max(asked.count(seed) for seed in asked) == 3  # the same call, with the same seed


def test_runs_are_paced_and_none_is_dropped() -> None:
    executor = TokenEngine("\\boxed{4}", pause_s=0.005)
    trees = grow([FOUR, SIX], TokenEngine(designs(SINGLE)), executor, executions=8, max_concurrent=3)
    assert executor.most <= 3
    assert sum(len(tree.executions) for tree in trees) == len(executor.requests) == 32


def test_a_failing_engine_is_tried_again_and_then_stops_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)
    asked: dict[str, int] = {}

    def flaky(request: CompletionRequest) -> str:
        asked[str(request.sampling.seed)] = asked.get(str(request.sampling.seed), 0) + 1
        if asked[str(request.sampling.seed)] < 3:
            raise EngineFailed("tokens", "gone for a moment")
        return "\\boxed{4}"

    (tree,) = grow([FOUR], TokenEngine(designs(SINGLE)), TokenEngine(flaky), retries=2)
    assert {run.reward.total for run in tree.executions} == {1.4}
    asked.clear()
    with pytest.raises(EngineFailed, match="gone for a moment"):
        grow([FOUR], TokenEngine(designs(SINGLE)), TokenEngine(flaky), retries=1)


def test_a_designer_that_cannot_be_asked_stops_the_step_and_never_becomes_a_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)

    def one_of_two_fails(request: CompletionRequest) -> str:
        if request.key.startswith("designer/1/"):
            raise EngineFailed("tokens", "no")
        return f"<code>\n{SINGLE}</code>"

    with pytest.raises(EngineFailed):
        grow([FOUR], TokenEngine(one_of_two_fails), TokenEngine("\\boxed{4}"))


def test_a_sandbox_that_breaks_stops_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)

    async def work(sandbox: ProcessSandbox) -> None:
        async def broken(*_: object, **__: object) -> None:
            raise SandboxUnavailable("the jails are gone", "start them")

        monkeypatch.setattr(sandbox, "run_program", broken)
        designer, executor = TokenEngine(designs(SINGLE)), TokenEngine("\\boxed{4}")
        config = RolloutConfig(designs=1, executions=1)
        await Rollout(config=config, designer=designer, executor=executor, sandbox=sandbox, reward=paper_reward).step(
            [FOUR], 0
        )

    with pytest.raises(SandboxUnavailable, match="the jails are gone"):
        in_jail(work)


def test_traces_are_on_disk_with_their_rewards_explained(tmp_path: Path) -> None:
    (tree,) = grow([FOUR], TokenEngine(designs(SINGLE)), TokenEngine("\\boxed{4}"), tmp_path)
    question = tmp_path / "question-0000"
    files = sorted(path.name for path in question.iterdir())
    assert files == [
        "design-00-execution-00.jsonl", "design-00-execution-01.jsonl", "design-00-execution-02.jsonl",
        "design-00.json",
        "design-01-execution-00.jsonl", "design-01-execution-01.jsonl", "design-01-execution-02.jsonl",
        "design-01.json",
    ]  # fmt: skip
    trace = Trace.from_lines((question / files[0]).read_text().splitlines(keepends=True))
    assert trace.reward is not None
    assert trace.reward.total == tree.executions[0].reward.total == sum(t.value * t.weight for t in trace.reward.terms)
    assert trace.agent_turns[0].completion is not None
    assert json.loads((question / "design-00.json").read_text())["source"].strip() == SINGLE.strip()


def test_traces_grow_while_runs_are_under_way(tmp_path: Path) -> None:
    seen: list[int] = []

    def reply(_: CompletionRequest) -> str:
        seen.append(sum(len(path.read_text().splitlines()) for path in tmp_path.rglob("*execution*.jsonl")))
        return "\\boxed{4}"

    grow([FOUR], TokenEngine(designs(SINGLE)), TokenEngine(reply), tmp_path, designs=1, executions=1)
    assert seen == [1]  # the run's start stood there before its first agent had answered


def traces_on_a_full_disk(monkeypatch: pytest.MonkeyPatch, after: int) -> list[Path]:
    """Writing to a trace that has `after` events fails from now on as on a full disk, and is listed."""
    usual, failed = OpenFiles.append, []

    def append(files: OpenFiles, path: Path, data: bytes) -> None:
        if len(path.read_bytes().splitlines() if path.exists() else []) < after:
            usual(files, path, data)
            return
        failed.append(path)
        with Path("/dev/full").open("ab", buffering=0) as full:  # a real ENOSPC
            full.write(data)

    monkeypatch.setattr(OpenFiles, "append", append)
    return failed


@pytest.mark.thorough
@pytest.mark.parametrize("after", range(4), ids=["start", "reply", "end", "reward"])
def test_a_full_disk_under_a_trace_stops_the_step_and_names_file_and_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    failed = traces_on_a_full_disk(monkeypatch, after)
    heard: list[DesignResult | Execution] = []
    executor = TokenEngine("\\boxed{4}")
    with pytest.raises(OSError, match=r"No space left on device \(Fix: make room .*\): '.*'") as caught:
        grow(
            [FOUR], TokenEngine(designs(SINGLE)), executor, tmp_path, heard.append,
            designs=1, executions=1,
        )  # fmt: skip
    path = tmp_path / "question-0000" / "design-00-execution-00.jsonl"
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert heard == []  # it became no failure of the run
    assert set(failed) == {path}
    assert len(executor.requests) <= 1  # nor was it tried again


def test_a_full_disk_under_a_design_stops_the_step_and_names_file_and_fix(tmp_path: Path) -> None:
    path = tmp_path / "question-0000" / "design-00.json"
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    executor = TokenEngine("\\boxed{4}")
    with pytest.raises(OSError, match=r"No space left on device \(Fix: make room .*\): '.*'") as caught:
        grow([FOUR], TokenEngine(designs(SINGLE)), executor, tmp_path, designs=1)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert executor.requests == []


def test_what_only_the_traces_need_is_not_held_while_runs_are_under_way() -> None:
    alive: list[int] = []

    def held() -> int:
        gc.collect()
        return sum(isinstance(each, DesignTurn | AgentTurn) for each in gc.get_objects())

    gc.collect()
    gc.freeze()  # what other tests have left is not looked through each time
    of_other_tests = held()

    def reply(_: CompletionRequest) -> str:
        alive.append(held() - of_other_tests)
        return "\\boxed{4}"

    try:
        grow([FOUR], TokenEngine(designs(SINGLE)), TokenEngine(reply), executions=8, max_concurrent=1)
    finally:
        gc.unfreeze()
    # Of 2 Designers' turns and 16 agents': the one that is being asked, and perhaps the one before.
    assert len(alive) == 16
    assert max(alive) <= 2


def test_a_fixed_program_needs_no_designer() -> None:
    async def work(sandbox: ProcessSandbox) -> list[QuestionTree]:
        config = RolloutConfig(designs=1, executions=2, program=Path("single.py"))
        designer = TokenEngine(lambda _: pytest.fail("the Designer was asked"))
        return await Rollout(
            config=config,
            designer=designer,
            executor=TokenEngine("\\boxed{4}"),
            sandbox=sandbox,
            reward=paper_reward,
            program=SINGLE,
        ).step([FOUR], 0)

    (tree,) = in_jail(work)
    assert [run.reward.total for run in tree.executions] == [1.4, 1.4]
    assert tree.designs[0].trajectories == []


@pytest.mark.parametrize("program", [SINGLE, PLAYS])
def test_an_action_that_no_parser_can_walk_is_an_ordinary_reply(program: str, tmp_path: Path) -> None:
    deep = "[" * 3000
    said = f'#### ["{"]" * 3000}",{deep}\n<tool_call>{{"name": "x", "arguments": {{"x": {deep}}}}}</tool_call>'
    level = problem_of(PlanPathLevel(level="@.G"))
    [tree] = grow([level], TokenEngine(designs(program)), TokenEngine(lambda _: said), tmp_path)
    assert len(tree.executions) == 6
    assert not any(execution.failure for execution in tree.executions)
    assert {execution.reward.terms[0].value for execution in tree.executions} == {0.0}
    assert all(Trace.from_lines(path.read_text().splitlines(True)) for path in tmp_path.rglob("*execution*.jsonl"))


def test_a_watcher_hears_of_everything_once() -> None:
    heard: list[str] = []
    grow([FOUR, SIX], TokenEngine(designs(SINGLE)), TokenEngine("1"), watch=lambda it: heard.append(type(it).__name__))
    assert sorted(heard) == ["DesignResult"] * 4 + ["Execution"] * 12
