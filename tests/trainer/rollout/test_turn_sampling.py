"""Tree sampling at agents' turns (Stronger-MAS, Alg. 1): groups of K from one state, scored, and who goes on."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from one_jail import in_jail
from small_problems import FOUR, PLAYS, SIX
from token_engine import TokenEngine

from engine.session import Run
from sandbox import ProcessSandbox
from sandbox.conformance.scripted import until
from sandbox.protocol import Sandbox
from search import AgentStep, Branching, Decision
from search.branching import Position
from search.held import HeldRun
from tasks import PlanPathLevel, Problem
from tasks.environments import problem_of
from trainer.config import RolloutConfig
from trainer.credit import paper_reward, samples_by_policy, turn_reward
from trainer.credit.advantages import credited
from trainer.rollout.rollout import Rollout
from trainer.run.step_report import Timings, step_report
from trainer.trees import Candidate, Execution, QuestionTree
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed, LimitExceeded
from workflow.trace import AgentTurn, CandidateDrawn, Rewarded, RewardTerm, Trace, TurnRewarded

TWO = """
from workflow import AgentNode, Workflow
first, second = AgentNode("First", "Say a.", max_turns=1), AgentNode("Second", "Say b.", max_turns=1)
workflow = Workflow("w").add_node(first).add_node(second)
"""
SAYS = {"First": (1, 3, 2, 0), "Second": (7, 5, 6, 8)}
"""What each agent says when it is asked with one prompt, time after time."""


async def tens(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
    """10 a + b, of what the two have said; -1 for a run that failed."""
    said = {turn.agent: int(turn.completion.text) for turn in run.trace.agent_turns if turn.completion is not None}
    total = -1.0 if run.failure is not None else 10.0 * said["First"] + said["Second"]
    return Rewarded(total=total, terms=[RewardTerm(name="tens", value=total, weight=1.0, reason="as it is")])


def in_turn() -> TokenEngine:
    asked: dict[str, int] = defaultdict(int)

    def reply(request: CompletionRequest) -> str:
        prompt = repr(request.messages)
        asked[prompt] += 1
        return str(SAYS[request.agent][(asked[prompt] - 1) % 4])

    return TokenEngine(reply)


def by_seed(request: CompletionRequest) -> str:
    return str((request.sampling.seed or 0) % 10)


def grow(
    engine: Any,
    *,
    program: str = TWO,
    problems: tuple[Problem, ...] = (FOUR,),
    reward: Callable[..., Any] = tens,
    folder: Path | None = None,
    seed: int = 1,
    retries: int = 0,
    limits: dict[str, Any] | None = None,
    turn_reward: Any = None,
    executions: int = 1,
    parts: bool = True,
    **branching: Any,
) -> list[QuestionTree]:
    config = RolloutConfig.model_validate(
        {"designs": 1, "executions": executions, "branching": branching if parts else None, "retries": retries,
         "limits": limits or {}}
    )  # fmt: skip

    async def go(sandbox: ProcessSandbox) -> list[QuestionTree]:
        rollout = Rollout(
            config=config,
            designer=engine,
            executor=engine,
            sandbox=sandbox,
            reward=reward,
            turn_reward=turn_reward,
            program=program,
        )
        return await rollout.step(problems, seed, folder)

    return in_jail(go)


def the_run(trees: list[QuestionTree]) -> Execution:
    [tree] = trees
    [run] = tree.executions
    return run


def rewards(candidates: list[Candidate]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for each in candidates:
        found[each.trajectory.coordinates.agent].append(each.reward.total)
    return dict(found)


def test_alg_1_with_two_agents_and_four_candidates() -> None:
    engine = in_turn()
    trees = grow(engine)
    run = the_run(trees)
    # The first agent's replies are scored with the second's first reply, 7; 3 is the best, and what comes is shown it.
    assert rewards(run.candidates) == {"First": [17, 37, 27, 7], "Second": [37, 35, 36, 38]}
    assert [each.chosen for each in run.candidates] == [False, True, False, False, False, False, False, True]
    assert run.reward.total == 38
    shown = {request.messages[-1]["content"] for request in engine.requests if request.agent == "Second"}  # pyright: ignore
    assert len(shown) == 4, "one prompt for each thing that the first may have said"
    assert len(engine.requests) == 4 + 4 + 3, "the reply that a score was drawn with is the first candidate"
    last = [request for request in engine.requests if request.agent == "Second"][-3:]
    assert all(re.search(r"\b3\b", request.messages[-1]["content"]) for request in last)  # pyright: ignore
    assert run.usage.completion_tokens == 11

    advantages = [advantage for _, advantage in credited(trees, "executor", "at-grpo")]
    # Mean 22, deviation sqrt(125); mean 36.5, deviation sqrt(1.25).
    assert advantages == pytest.approx([-0.4472, 1.3416, 0.4472, -1.3416, 0.4472, -1.3416, -0.4472, 1.3416], abs=1e-4)
    samples = samples_by_policy(trees, "at-grpo", {"designer": "p0", "executor": "p0"}, ["executor"])["p0"]
    assert len(samples) == 8
    assert sorted(len([s for s in samples if s.group == group]) for group in {s.group for s in samples}) == [4, 4]
    assert [sum(sample.loss_mask) for sample in samples] == [1] * 8, "of each only what was said at this turn"
    assert {c.trajectory.coordinates.execution for c in run.candidates} == {0, 1, 2, 3}


GAME = problem_of(PlanPathLevel(level="@..\n.#.\n..G", turns=2))
MOVES = {
    "Tool": ['["L"]', '["R"]', '["R", "R"]', "right"],
    "Planner": ['["R", "D"]', '["R"]', '["R", "R"]', '["R", "R", "D", "D"]'],
}


def test_eq_3_scores_each_turn_by_itself() -> None:
    asked: dict[str, int] = defaultdict(int)

    def reply(request: CompletionRequest) -> str:
        prompt = repr(request.messages)
        asked[prompt] += 1
        moves = MOVES[request.agent][: 3 if request.agent == "Planner" and "Turn 1" in prompt else 4]
        return moves[(asked[prompt] - 1) % len(moves)]

    engine = TokenEngine(reply)
    trees = grow(
        engine, program=PLAYS, problems=(GAME,), reward=paper_reward, score="turn", turn_reward=partial(turn_reward)
    )
    run = the_run(trees)
    found = rewards(run.candidates)
    # The first turns from d = 4: illegal; R: 1/4 + 1; R, R: 2/4 + 1; unreadable. The planner goes on with R, R, and the
    # tool's next turn is at the right edge: L brings nothing and is further off, R is a wall, and so is R, R.
    assert found["Tool"][:4] == pytest.approx([0.1, 1.25, 1.5, 0.0])
    assert found["Planner"][:4] == pytest.approx([0.25 + 0.1, 1.25, 1.5, 0.25 + 0.1])
    assert found["Tool"][4:] == pytest.approx([0.2, 0.1, 0.1, 0.0])
    assert run.candidates[4].trajectory.coordinates.agent == "Planner"
    shown = {request.messages[-1]["content"] for request in engine.requests if request.agent == "Planner"}  # pyright: ignore
    assert len(shown) == 2, "all four are asked with what the tool's best proposed"
    assert any('Proposed: ["R", "R"]' in each for each in shown)
    assert len(engine.requests) == len(run.candidates) == 16, "nobody is run on to the end"
    assert [each.chosen for each in run.candidates[:8]] == [False, False, True, False, False, False, True, False]
    advantages = [advantage for _, advantage in credited(trees, "executor", "at-grpo")]
    # 0.1, 1.25, 1.5, 0: mean 0.7125, deviation 0.66932
    assert advantages[:4] == pytest.approx([-0.91511, 0.80306, 1.17657, -1.06452], abs=1e-4)
    assert sum(advantages[:4]) == pytest.approx(0)


PLAYED = {
    ("Tool", 0): '["R"]',
    ("Planner", 0): '["R", "R"]',
    ("Tool", 1): "right",
    ("Planner", 1): '["D", "D"]',
}


def play(request: CompletionRequest) -> str:
    return PLAYED[request.agent, int("Turn 2" in repr(request.messages))]


def test_eq_3_scores_each_turn_of_a_run_that_does_not_part(tmp_path: Path) -> None:
    """MAS + GRPO: one group for the turns of all agents."""
    engine = TokenEngine(play)
    trees = grow(
        engine, program=PLAYS, problems=(GAME,), reward=paper_reward, turn_reward=partial(turn_reward), parts=False,
        folder=tmp_path, executions=2,
    )  # fmt: skip
    assert len(engine.requests) == 8, "one reply to each call"
    for index, run in enumerate(trees[0].executions):
        assert run.correct, "solved"
        assert run.trajectories == []
        assert [each.reward.total for each in run.candidates] == pytest.approx([1.25, 1.5, 0.0, 2.0])
        assert all(each.chosen for each in run.candidates)
        places = [(each.trajectory.coordinates.execution, each.trajectory.coordinates.turn) for each in run.candidates]
        assert places == [(index, 0), (index, 0), (index, 1), (index, 1)]
    advantages = [advantage for _, advantage in credited(trees, "executor", "tree")]
    # Mean 1.1875, deviation sqrt(0.54296875).
    assert advantages == pytest.approx([0.08482, 0.42409, -1.61156, 1.10264] * 2, abs=1e-4)
    samples = samples_by_policy(trees, "tree", {"designer": "p0", "executor": "p0"}, ["executor"])["p0"]
    assert len({sample.group for sample in samples}) == 1
    [first, _] = sorted(tmp_path.rglob("*.jsonl"))
    trace = Trace.from_lines(first.read_text().splitlines(True))
    earned = [event for event in trace.events if isinstance(event, TurnRewarded)]
    assert [(event.agent, event.reward) for event in earned] == [
        ("Tool", 1.25), ("Planner", 1.5), ("Tool", 0.0), ("Planner", 2.0),
    ]  # fmt: skip
    assert [event.key for event in earned] == [turn.key for turn in trace.agent_turns]
    assert [term.name for term in earned[1].terms] == ["team", "format", "legal", "shortest"]


def test_turns_that_are_scored_one_by_one_are_compared_agent_by_agent() -> None:
    """agent-turn: the same turn of the same agent in two runs, one of which goes another way."""
    first = iter([True])

    def reply(request: CompletionRequest) -> str:
        if request.agent == "Tool" and "Turn 1" in repr(request.messages) and next(first, False):
            return "right"
        return play(request)

    trees = grow(
        TokenEngine(reply), program=PLAYS, problems=(GAME,), reward=paper_reward, turn_reward=partial(turn_reward),
        parts=False, executions=2,
    )  # fmt: skip
    found = sorted(
        (t.coordinates.agent, t.coordinates.turn, round(advantage, 3))
        for t, advantage in credited(trees, "executor", "agent-turn")
    )
    assert found == [
        ("Planner", 0, 0.0), ("Planner", 0, 0.0), ("Planner", 1, 0.0), ("Planner", 1, 0.0),
        ("Tool", 0, -1.0), ("Tool", 0, 1.0), ("Tool", 1, 0.0), ("Tool", 1, 0.0),
    ]  # fmt: skip


HANGS = (
    TWO.replace("workflow = ", "flow = ")
    + """
for number in range(3):
    flow.run(question)
while True:
    pass
"""
)


def test_what_the_clock_ends_teaches_nobody_where_runs_do_not_part() -> None:
    async def some(*_: Any) -> Rewarded:
        return Rewarded(total=1.0, terms=[])

    engine = TokenEngine(lambda request: "1")
    trees = grow(engine, program=HANGS, turn_reward=some, reward=some, parts=False, limits={"wall_s": 2})
    run = the_run(trees)
    assert run.timed_out
    assert len(run.candidates) == 6
    assert all(each.timed_out for each in run.candidates)
    assert credited(trees, "executor", "tree") == []


def test_runs_that_do_not_part_are_never_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they are more than may wait at the calls of trees by default."""

    class Slow(TokenEngine):
        async def complete(self, request: CompletionRequest) -> Any:
            await asyncio.sleep(0.2)
            return await super().complete(request)

    async def some(*_: Any) -> Rewarded:
        return Rewarded(total=1.0, terms=[])

    engine, begun = Slow(lambda request: "1"), []
    begin = HeldRun.__init__
    monkeypatch.setattr(HeldRun, "__init__", lambda self, *rest: (begun.append(1), begin(self, *rest))[1])
    grow(engine, turn_reward=some, reward=some, parts=False, executions=80)
    assert len(engine.requests) == 160
    assert len(begun) == 80


SAID = {
    "Reasoner": [r"\\boxed{3}", r"\\boxed{5}", "none", r"\\boxed{4}"],
    "Tool": ["```python\nprint(5)\n```", "```python\nprint(4)\n```", "none", "```python\n1/0\n```"],
}


def test_math_is_scored_turn_by_turn() -> None:
    """B.1, with the program of the recipe."""
    asked: dict[str, int] = defaultdict(int)

    def reply(request: CompletionRequest) -> str:
        asked[repr(request.messages)] += 1
        return SAID[request.agent][(asked[repr(request.messages)] - 1) % 4]

    math = (Path(__file__).parents[3] / "recipes" / "programs" / "math.py").read_text()
    engine = TokenEngine(reply)
    trees = grow(
        engine, program=math, problems=(FOUR,), reward=paper_reward, score="turn", turn_reward=partial(turn_reward)
    )
    run = the_run(trees)
    found = rewards(run.candidates)
    assert found["Reasoner"] == pytest.approx([0.2, 0.2, 0.0, 2.0])
    assert found["Tool"] == pytest.approx([0.2, 2.0, 0.0, 0.0])
    assert [each.chosen for each in run.candidates] == [False, False, False, True, False, True, False, False]
    assert len(engine.requests) == 8, "with the best of both they agree"
    assert run.reward.total == 1.4, "the run's own is Eq. 10's"
    advantages = [advantage for _, advantage in credited(trees, "executor", "at-grpo")]
    # 0.2, 0.2, 0, 2: mean 0.6, deviation sqrt(0.66); 0.2, 2, 0, 0: mean 0.55, deviation 0.843...
    assert advantages[:4] == pytest.approx([-0.49237, -0.49237, -0.73855, 1.72328], abs=1e-4)
    assert sum(advantages[4:]) == pytest.approx(0)


TALKS = """
from workflow import AgentNode, ToolRegistry, Workflow
tools = ToolRegistry()
tools.register("same", lambda: "same", "Say same.", {"type": "object", "properties": {}})
first = AgentNode("First", "Use the tool, then say a.", max_turns=3, tool_registry=tools)
second = AgentNode("Second", "Say b.", max_turns=1)
workflow = Workflow("w").add_node(first).add_node(second)
"""


def test_turns_of_one_agent_are_apart_and_what_is_beyond_the_horizon_teaches_nothing() -> None:
    def reply(request: CompletionRequest) -> str:
        if request.agent == "First" and len(request.messages or []) < 6:
            return '<tool_call>{"name": "same", "arguments": {}}</tool_call>'
        return by_seed(request)

    async def last(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
        text = run.trace.agent_turns[-1].completion
        total = float(text.text) if text is not None and text.text.isdigit() else 0.0
        return Rewarded(total=total, terms=[])

    for turns, expected in ((1, {("First", 0), ("Second", 0)}), (2, {("First", 0), ("First", 1), ("Second", 0)})):
        run = the_run(grow(TokenEngine(reply), program=TALKS, reward=last, turns=turns))
        places = {(c.trajectory.coordinates.agent, c.trajectory.coordinates.turn) for c in run.candidates}
        assert places == expected
        points = {c.trajectory.coordinates.point for c in run.candidates}
        assert len(points) == len(expected)
        assert len(run.candidates) == 4 * len(expected)
        for each in run.candidates:
            mask = each.trajectory.loss_mask.tolist()
            assert mask == sorted(mask), "the turns before are a part of the prompt"
    assert run.failure is None


@pytest.mark.parametrize(("select", "chosen"), [("best", [1, 3]), ("first", [0, 0])])
def test_which_reply_goes_on_is_configured(select: str, chosen: list[int]) -> None:
    run = the_run(grow(in_turn(), select=select))
    assert [c.trajectory.coordinates.execution for c in run.candidates if c.chosen] == chosen


def test_a_random_choice_is_the_seeds() -> None:
    def chosen(seed: int) -> list[int | None]:
        run = the_run(grow(TokenEngine(by_seed), select="random", candidates=6, seed=seed))
        return [c.trajectory.coordinates.execution for c in run.candidates if c.chosen]

    several = [chosen(seed) for seed in range(6)]
    assert [chosen(seed) for seed in range(6)] == several
    assert len(set(map(tuple, several))) > 1


def test_ties_go_to_the_first() -> None:
    run = the_run(grow(TokenEngine("4")))
    assert [c.trajectory.coordinates.execution for c in run.candidates if c.chosen] == [0, 0]
    trees = [QuestionTree(problem=FOUR, designs=[])]
    assert credited(trees, "executor", "at-grpo") == []


@pytest.mark.parametrize("score", ["end", "turn"])
@pytest.mark.parametrize("select", ["best", "first", "random"])
def test_candidates_that_are_the_same_go_on_once(
    select: str, score: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing that is learned from is another for it."""
    went: list[Any] = []
    plain = Branching.go_on

    async def go_on(self: Branching, decision: Any, reply: Any) -> Any:
        went.append(decision)
        return await plain(self, decision, reply)

    async def length(problem: Problem, decision: Any, position: Any, sandbox: Sandbox) -> Rewarded:
        scored.append(position)
        return Rewarded(total=float(position.path.decisions[-1].reply.text), terms=[])

    def what(name: str) -> Any:
        trees = grow(
            TokenEngine(lambda request: str((request.sampling.seed or 0) % 3)),
            candidates=6,
            select=select,
            score=score,
            turn_reward=length if score == "turn" else None,
            folder=tmp_path / name,
        )
        [file] = (tmp_path / name).rglob("*.jsonl")
        trace = Trace.from_lines(file.read_text().splitlines(keepends=True))
        said = [event.completion for event in trace.events if isinstance(event, AgentTurn | CandidateDrawn)]
        run = the_run(trees)
        advantages = credited(trees, "executor", "at-grpo")
        return said, run.candidates, run.trajectories, run.reward.total, run.usage, advantages

    scored: list[Any] = []
    monkeypatch.setattr(Branching, "go_on", go_on)
    shared, few, fewer = repr(what("shared")), len(went), len(scored)
    went.clear()
    scored.clear()
    monkeypatch.setattr("trainer.rollout.turn_sampling._state", lambda *_: object())
    assert repr(what("apart")) == shared
    assert few < len(went) - 4
    assert score == "end" or fewer <= 6 < len(scored) == 12


@pytest.mark.parametrize("max_open", [1, 3, 64])
def test_how_many_runs_are_open_changes_nothing(max_open: int, tmp_path: Path) -> None:
    def what(trees: list[QuestionTree]) -> Any:
        return [
            (c.trajectory.coordinates, c.trajectory.token_ids, c.reward.total, c.chosen)
            for tree in trees
            for run in tree.executions
            for c in run.candidates
        ]

    plain = grow(TokenEngine(by_seed), problems=(FOUR, SIX), candidates=3)
    other = grow(TokenEngine(by_seed, pause_s=0.005), problems=(FOUR, SIX), candidates=3, max_open=max_open)
    assert what(other) == what(plain)


def test_the_trace_has_the_run_its_candidates_and_their_terms(tmp_path: Path) -> None:
    run = the_run(grow(in_turn(), folder=tmp_path))
    [file] = tmp_path.rglob("*.jsonl")
    trace = Trace.from_lines(file.read_text().splitlines(keepends=True))
    drawn = [event for event in trace.events if isinstance(event, CandidateDrawn)]
    assert [(each.agent, each.number, each.reward, each.chosen) for each in drawn] == [
        (c.trajectory.coordinates.agent, c.trajectory.coordinates.execution, c.reward.total, c.chosen)
        for c in run.candidates
    ]
    turns = {event.key: event.completion for event in trace.events if isinstance(event, AgentTurn)}
    assert all(turns[each.key] == each.completion for each in drawn if each.chosen)
    assert trace.reward is not None
    assert trace.reward.total == 38


def test_a_run_that_fails_is_a_bad_reply_and_an_engine_that_fails_is_none() -> None:
    def long(request: CompletionRequest) -> str:
        if request.agent == "Second" and " 0" in request.messages[-1]["content"][-40:]:  # pyright: ignore
            raise LimitExceeded("context_tokens", 10, 20)
        return in_turn_again(request)

    in_turn_again = in_turn()._reply
    assert callable(in_turn_again)
    run = the_run(grow(TokenEngine(long)))
    assert rewards(run.candidates)["First"][:3] == [17, 37, 27]

    def gone(request: CompletionRequest) -> str:
        if request.agent == "Second":
            raise EngineFailed("tokens", "gone")
        return "1"

    with pytest.raises(EngineFailed, match="gone"):
        grow(TokenEngine(gone))
    tried = TokenEngine(gone)
    with pytest.raises(EngineFailed, match="gone"):
        grow(tried, retries=1)
    assert sum(request.agent == "First" for request in tried.requests) == 8


def test_a_reply_whose_run_hits_the_wall_clock_teaches_nobody() -> None:
    program = TWO.replace(
        'workflow = Workflow("w").add_node(first).add_node(second)',
        """
import time
from workflow.nodes import WorkflowNode
class Slow(WorkflowNode):
    def process(self, context):
        said = first.process(context)
        import subprocess
        if "0" in said.content:
            subprocess.run(["python", "-c", "import time; time.sleep(20)"])
        return second.process(context)
workflow = Workflow("w").add_node(Slow("Slow"))""",
    )
    trees = grow(in_turn(), program=program, limits={"wall_s": 1.5})
    run = the_run(trees)
    firsts = [c for c in run.candidates if c.trajectory.coordinates.agent == "First"]
    assert [c.timed_out for c in firsts] == [False, False, False, True], run
    learned = [t for t, _ in credited(trees, "executor", "at-grpo") if t.coordinates.agent == "First"]
    assert [t.coordinates.execution for t in learned] == [0, 1, 2]


def test_a_reply_whose_code_a_clock_ended_before_the_run_goes_on_teaches_nobody() -> None:
    """Though it is scored there, where the run only waits for another agent."""
    program = TWO.replace(
        'workflow = Workflow("w").add_node(first).add_node(second)',
        """
from workflow.nodes import WorkflowNode
class Tries(WorkflowNode):
    def process(self, context):
        said = first.process(context)
        import subprocess
        try:
            subprocess.run(["python", "-c", "import time; time.sleep(20 * ('0' in '%s'))" % said.content], timeout=0.5)
        except subprocess.TimeoutExpired:
            pass
        return second.process(context)
workflow = Workflow("w").add_node(Tries("Tries"))""",
    )

    async def by_length(problem: Problem, decision: Decision, position: Position, sandbox: Sandbox) -> Rewarded:
        return Rewarded(total=float(len(position.path.steps)), terms=[])

    run = the_run(trees := grow(in_turn(), program=program, turn_reward=by_length))
    firsts = [c for c in run.candidates if c.trajectory.coordinates.agent == "First"]
    assert [c.timed_out for c in firsts] == [False, False, False, True]
    learned = [t for t, _ in credited(trees, "executor", "at-grpo") if t.coordinates.agent == "First"]
    assert [t.coordinates.execution for t in learned] == [0, 1, 2]


@pytest.mark.parametrize("select", ["best", "first"])
@pytest.mark.parametrize("scored", ["end", "turn"])
def test_a_reply_whose_grading_a_clock_ended_is_neither_learned_from_nor_gone_on_with(
    select: str, scored: str, tmp_path: Path
) -> None:
    """Though it comes first, and has the largest reward."""

    def of(said: str) -> Rewarded:
        return Rewarded(total=99.0 if said == "1" else float(said), terms=[], timed_out=said == "1")

    async def late(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
        said = {turn.agent: turn.completion.text for turn in run.trace.agent_turns if turn.completion is not None}
        return of(said["First"])

    async def late_turn(problem: Problem, decision: Decision, position: Position, sandbox: Sandbox) -> Rewarded:
        step = position.path.steps[len(decision.path.steps)]
        assert isinstance(step, AgentStep)
        assert isinstance(step.reply, Completion)
        return of(step.reply.text)

    turn_reward = late_turn if scored == "turn" else None
    trees = grow(in_turn(), reward=late, turn_reward=turn_reward, select=select, folder=tmp_path)
    run = the_run(trees)
    firsts = [c for c in run.candidates if c.trajectory.coordinates.agent == "First"]
    assert [c.timed_out for c in firsts] == [True, False, False, False]
    assert [c.chosen for c in firsts] == [False, True, False, False]
    learned = [t for t, _ in credited(trees, "executor", "at-grpo") if t.coordinates.agent == "First"]
    assert [t.coordinates.execution for t in learned] == [1, 2, 3]
    [trace] = [Trace.from_lines(path.read_text().splitlines()) for path in tmp_path.rglob("*.jsonl")]
    drawn = [event.timed_out for event in trace.events if isinstance(event, CandidateDrawn) and event.agent == "First"]
    assert drawn == [True, False, False, False]
    report = step_report(1, ["executor"], trees, "at-grpo", {}, {}, Timings())
    assert (report.timed_out, report.candidates_timed_out) == (0, 1)
    assert "1 single replies were ended by" in report.warnings[0]


def test_a_call_beyond_its_limit_is_never_gone_on_with_and_each_run_is_graded_once() -> None:
    """A reward that likes failures must not make one the best reply."""
    graded: list[Run] = []

    async def failing_is_best(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
        graded.append(run)
        return Rewarded(total=0.0 if run.failure is not None else -1.0, terms=[])

    asked: dict[str, int] = defaultdict(int)

    def reply(request: CompletionRequest) -> str:
        asked[repr(request.messages)] += 1
        if request.agent == "First" and asked[repr(request.messages)] == 2:
            raise LimitExceeded("context_tokens", 10, 20)
        return str(asked[repr(request.messages)])

    run = the_run(grow(TokenEngine(reply), reward=failing_is_best, candidates=3))
    assert run.failure is None
    firsts = [c for c in run.candidates if c.trajectory.coordinates.agent == "First"]
    assert [(c.trajectory.coordinates.execution, c.chosen) for c in firsts] == [(0, True), (2, False)]
    assert len(graded) == len({id(each) for each in graded}) == 5, "three, then two more beside the one that is known"


def test_a_deep_run_can_be_cancelled() -> None:
    chain = """
from workflow import AgentNode, Workflow
w = Workflow("w").add_node(AgentNode("A", "Say.", max_turns=1))
for n in range(1200):
    w.run("q")
answer = "1"
"""

    async def any_reward(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
        return Rewarded(total=0.0, terms=[])

    config = RolloutConfig.model_validate(
        {"designs": 1, "executions": 1, "branching": {"candidates": 2, "turns": 1200}, "limits": {"agent_calls": 1300}}
    )

    async def go() -> None:
        async with ProcessSandbox() as sandbox:
            engine = TokenEngine("1")
            rollout = Rollout(
                config=config, designer=engine, executor=engine, sandbox=sandbox, reward=any_reward, program=chain
            )
            step = asyncio.create_task(rollout.step([FOUR], 1))
            await until(lambda: len(engine.requests) > 300, 100)
            step.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(step, 30)

    asyncio.run(asyncio.wait_for(go(), 150))
