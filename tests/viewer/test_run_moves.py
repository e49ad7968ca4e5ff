"""What is told of ways, passes, rounds, reviews and routes is what the scheduler did, or it is not told."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import agent, made, ran

from viewer.graphs.program_graph import program_graph
from viewer.graphs.run_graph import run_graph
from viewer.graphs.run_moves import Moves, moves_of
from viewer.graphs.run_order import Paths, acts_of
from viewer.reading.run_outcome import outcome_of
from viewer.reading.traces import ReadRun
from workflow import (
    AgentGraph,
    AgentNode,
    ConditionalWorkflow,
    Context,
    DebateNode,
    EnsembleNode,
    LoopWorkflow,
    Message,
    ReflectionNode,
    RouterNode,
    Workflow,
    WorkflowNode,
)
from workflow.completion import CompletionRequest
from workflow.graph import GraphNode, describe
from workflow.limits import Limits
from workflow.scheduler import Scheduler
from workflow.trace import AgentTurn

RUNS_IT = "for part in parts:\n    answer = flow.run(part)\n"


class Ran:
    """An activation of a node."""

    def __init__(self, node: WorkflowNode, path: str, above: Ran | None) -> None:
        self.node, self.path, self.above = node, tuple(path.split("/")), above
        self.parts: list[Ran] = []
        self.asked = False
        """Whether it asked an agent: else a Trace does not show it."""


def rounds(parts: Sequence[Ran], size: int) -> tuple[int, int]:
    """Of so many parts each: those in which an agent was asked, and all. A condition that raises leaves some unseen."""
    chunks = [parts[at : at + size] for at in range(0, len(parts), size)]
    return sum(any(part.asked for part in chunk) for chunk in chunks), len(chunks)


class Truth:
    """What the scheduler really did: each activation of a node, with the parts that it ran, in order."""

    def __init__(self) -> None:
        self.all: list[Ran] = []
        self._of_frame: dict[int, Ran] = {}
        self._kept: list[Any] = []

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        enter = Scheduler._enter

        def watched(scheduler: Scheduler, branch: Any, path: str, call: Any, index: str = "") -> None:
            above = branch.frames[-1] if branch.frames else branch.parent.frames[-1] if branch.parent else None
            enter(scheduler, branch, path, call, index)
            frame = branch.frames[-1]
            self._kept.append(frame)
            made = self._of_frame[id(frame)] = Ran(call.node, frame.path, self._of_frame.get(id(above)))
            self.all.append(made)
            if made.above is not None:
                made.above.parts.append(made)
            each = made if isinstance(call.node, AgentNode) else None
            while each is not None:
                each.asked, each = True, each.above

        patch.setattr(Scheduler, "_enter", watched)

    def counts(self) -> dict[tuple[tuple[str, ...], str], tuple[int, int]]:
        """At least, and at most."""
        found: dict[tuple[tuple[str, ...], str], tuple[int, int]] = {}

        def note(each: Ran, kind: str, seen: int, made: int) -> None:
            low, high = found.get((each.path, kind), (0, 0))
            found[each.path, kind] = low + seen, high + made

        for each in self.all:
            node, parts = each.node, each.parts
            if not isinstance(node, AgentNode):
                note(each, "visit", int(each.asked), 1)
            if isinstance(node, LoopWorkflow):
                note(each, "pass", *rounds(parts, len(node.nodes)))
            elif isinstance(node, DebateNode):
                judges = bool(parts) and parts[-1].node is node.judge
                note(each, "round", *rounds(parts[: len(parts) - judges], len(node.debaters)))
            elif isinstance(node, ReflectionNode):
                note(each, "review", sum(part.asked for part in parts[1::2]), len(parts[1::2]))
        return found

    def ways(self) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
        """Of nodes whose parts work one after the other; of a loop that goes round, from its last part to its first."""
        for each in self.all:
            if not isinstance(each.node, (Workflow, RouterNode, AgentGraph, ReflectionNode)):
                continue
            before: tuple[str, ...] = ()
            for number, part in enumerate(each.parts):
                if isinstance(each.node, LoopWorkflow) and number and number % len(each.node.nodes) == 0:
                    yield each.path, (*each.path, each.node.nodes[-1].name), (*each.path, each.node.nodes[0].name)
                    before = ("again",)
                if part.asked and before != ("again",):
                    yield each.path, before, part.path
                before = part.path if part.asked else before


def moves(run: ReadRun, graph: GraphNode) -> Moves:
    names = [node.name for node in graph.walk()]
    return moves_of(run.trace, acts_of(run.trace, Paths(names)), graph)


def joined(runs: Sequence[ReadRun]) -> ReadRun:
    """The runs that one program makes, one after the other."""
    events: list[AgentTurn] = []
    for number, run in enumerate(runs):
        turns = [event for event in run.trace.events if isinstance(event, AgentTurn)]
        events += [dataclasses.replace(event, t=event.t + 1_000 * number) for event in turns]
    return made(*events, program=RUNS_IT)


def frames(run: ReadRun, graph: GraphNode) -> dict[str, str]:
    nodes = run_graph(run.trace, graph, outcome_of(run)).drawing["nodes"]
    return {node["lines"][0]: node["lines"][1] for node in nodes if node.get("group") and len(node["lines"]) > 1}


def arrows(run: ReadRun, graph: GraphNode) -> dict[tuple[str, str, str], str]:
    """(from, to, state) -> label."""
    drawing = run_graph(run.trace, graph, outcome_of(run)).drawing
    names = {node["id"]: (node["lines"] or ["•"])[0] for node in drawing["nodes"]}
    return {(names[each["from"]], names[each["to"]], each["state"]): each.get("label", "") for each in drawing["edges"]}


def in_turn(*replies: str) -> Callable[[CompletionRequest], str]:
    left = iter(replies)
    return lambda request: next(left)


# Any program


class Shapes:
    """Makes programs out of what hypothesis draws; conditions, routes and verdicts are a seed's."""

    def __init__(self, draw: st.DrawFn, chance: random.Random, own: bool) -> None:
        self._draw, self._chance, self._own = draw, chance, own
        self._raises = draw(st.sampled_from([0.0, 0.0, 0.1]))
        self._numbers = iter(range(1, 1_000))

    def _yes(self, chance: float) -> bool:
        """What a condition of the program says, unless it raises."""
        if self._chance.random() < self._raises:
            raise ValueError("a condition went wrong")
        return self._chance.random() < chance

    def _one_of(self, names: Sequence[str]) -> str:
        self._yes(0)
        return self._chance.choice(names)

    def node(self, depth: int) -> WorkflowNode:
        kinds = ["chain", "loop", "conditional", "router", "reflection", "debate", "ensemble", "graph"]
        kind = self._draw(st.sampled_from(["agent", *kinds, *(["own"] if self._own else [])] if depth else ["agent"]))
        name = f"{kind}{next(self._numbers)}"
        if kind == "agent":
            return agent(name)
        parts = [self.node(depth - 1) for _ in range(self._draw(st.integers(1, 3)))]
        if kind in ("chain", "loop"):
            flow = LoopWorkflow(name, self._draw(st.integers(1, 4))) if kind == "loop" else Workflow(name)
            if isinstance(flow, LoopWorkflow) and self._draw(st.booleans()):
                flow.set_loop_condition(lambda context: self._yes(0.6))
            again = [parts[0]] if self._draw(st.booleans()) else []
            return flow.add_nodes([*parts, *again])
        if kind == "conditional":
            flow = ConditionalWorkflow(name)
            for part in parts:
                flow.add_node(part, (lambda context: self._yes(0.5)) if self._draw(st.booleans()) else None)
            return flow.add_node(agent(f"agent{next(self._numbers)}"))
        if kind == "router":
            routes = {f"r{number}": part for number, part in enumerate(parts)}
            return RouterNode(name, routes, lambda context: self._one_of([*routes]), "r0")
        if kind == "reflection":
            critic = agent(f"agent{next(self._numbers)}") if self._draw(st.booleans()) else parts[-1]
            return ReflectionNode(name, parts[0], self._draw(st.integers(0, 3)), critic_agent=critic)
        if kind in ("debate", "ensemble"):
            members = [*parts, parts[0]]
            judge = agent(f"agent{next(self._numbers)}") if self._draw(st.booleans()) else None
            if kind == "ensemble":
                return EnsembleNode(name, members, "majority_vote", judge)
            return DebateNode(name, members, judge, self._draw(st.integers(1, 3)))
        if kind == "own":
            return Calls(name, parts, self._chance)
        graph = AgentGraph(name, 6)
        for part in parts:
            graph.add_node(part)
        names: dict[Any, str | WorkflowNode] = {each.name: each for each in parts}
        for part in parts:
            graph.add_conditional_edges(part, lambda context: self._one_of([*names, "nobody"]), names)
        return graph


class Calls(WorkflowNode):
    """Calls any of its parts, as often as it likes."""

    def __init__(self, name: str, parts: Sequence[WorkflowNode], chance: random.Random) -> None:
        super().__init__(name)
        self.parts, self._chance = list(parts), chance

    def process(self, context: Context) -> Message:
        calls = [self._chance.choice(self.parts) for _ in range(self._chance.randint(0, 3))]
        return ([part.process(context) for part in calls] or [Message("nobody was asked", sender=self.name)])[-1]


@st.composite
def programs(draw: st.DrawFn, own: bool) -> tuple[WorkflowNode, random.Random]:
    chance = random.Random(draw(st.integers(0, 10_000)))
    return Workflow("root").add_node(Shapes(draw, chance, own).node(3)), chance


def agrees(made_of: tuple[WorkflowNode, random.Random], times: int, failing: float) -> Moves:
    root, chance = made_of
    truth = Truth()

    def reply(request: CompletionRequest) -> str:
        if chance.random() < failing:
            raise RuntimeError("no")
        return chance.choice(["Verdict: CORRECT", "Verdict: INCORRECT", r"\boxed{1}", r"\boxed{2}"])

    with pytest.MonkeyPatch.context() as patch:
        truth.watch(patch)
        runs = [ran(root, reply, limits=Limits(agent_calls=400)) for _ in range(times)]
    run, graph = joined(runs) if times > 1 else runs[0], describe(root)
    found = moves(run, graph)
    run_graph(run.trace, graph, outcome_of(run))
    if any(each.trace.ended is not None and each.trace.ended.failure for each in runs):
        return found  # what was begun when a run failed is not in its trace
    for (path, kind), (low, high) in truth.counts().items():
        told = found.count(path, kind)
        assert not told or low <= told <= high, f"{kind} of {path}: {told} is told, {low} to {high} is true"
    nodes = program_graph(graph).nodes
    for path, source, target in truth.ways():  # under a path that is shorter than the program's, nothing is told
        assert path not in nodes or not found.not_taken(path, source, target), (
            f"in {path} work went from {source} to {target}"
        )
    return found


@settings(max_examples=60, deadline=None)
@given(programs(own=False), st.integers(1, 3), st.sampled_from([0.0, 0.0, 0.1]))
def test_what_is_told_of_a_program_is_what_it_did(
    made_of: tuple[WorkflowNode, random.Random], times: int, failing: float
) -> None:
    found = agrees(made_of, times, failing)
    assert found.known or found.too_many or failing


@settings(max_examples=40, deadline=None)
@given(programs(own=True), st.integers(1, 2), st.sampled_from([0.0, 0.1]))
def test_what_is_told_where_own_code_decides_is_what_it_did(
    made_of: tuple[WorkflowNode, random.Random], times: int, failing: float
) -> None:
    agrees(made_of, times, failing)


# Programs made by hand


def rerun(flow: WorkflowNode, *replies: list[str]) -> tuple[ReadRun, GraphNode]:
    """What a program does that runs a workflow once with each of these lists of replies."""
    return joined([ran(flow, in_turn(*each)) for each in replies]), describe(flow)


WRONG, RIGHT = "Verdict: INCORRECT", "Verdict: CORRECT"


def reflection(most: int = 3) -> ReflectionNode:
    return ReflectionNode("Check", agent("Solver"), most, critic_agent=agent("Critic"))


def test_a_reflection_that_is_repeated_has_not_refined() -> None:
    loop = LoopWorkflow("loop", 3).add_node(reflection())
    run, graph = rerun(loop, ["a", RIGHT, "b", WRONG, "c", RIGHT, "d", RIGHT])
    assert arrows(run, graph)["Critic", "Solver", "ran"] == "again 2×; refine 1×"
    assert frames(run, graph)["Check"].endswith("ran 4 reviews in 3 visits")
    assert frames(run, graph)["loop"].endswith("ran 3 passes")


def test_a_program_that_runs_a_reflection_several_times_has_not_refined() -> None:
    run, graph = rerun(Workflow("w").add_node(reflection()), ["a", RIGHT], ["b", RIGHT], ["c", WRONG, "d", RIGHT])
    assert arrows(run, graph)["Critic", "Solver", "ran"] == "3×: refine 1×"
    assert frames(run, graph)["Check"].endswith("ran 4 reviews in 3 visits")


def test_a_program_that_runs_a_loop_several_times_has_not_gone_again() -> None:
    loop = LoopWorkflow("loop", 4).add_nodes([agent("A"), agent("B")])
    run, graph = rerun(loop, ["a"] * 8, ["a"] * 8)
    assert arrows(run, graph)["B", "A", "ran"] == "7×: again 6×"
    assert frames(run, graph)["loop"].endswith("ran 8 passes in 2 visits")


def test_all_routes_are_counted_also_those_that_come_twice_in_a_row() -> None:
    ways = iter("xxyyyzxx")
    routes = {"x": agent("X"), "y": Workflow("long").add_nodes([agent("Y"), agent("Z")]), "z": agent("W")}
    node = RouterNode("Kind", routes, lambda context: next(ways), "x")
    loop = LoopWorkflow("loop", 8).add_node(node)
    run, graph = rerun(loop, ["ok"] * 20)
    assert frames(run, graph)["Kind"].endswith("took x 4× · took y 3× · took z 1×")
    told = arrows(run, graph)
    assert told["X", "X", "ran"] == "again, x 2×"
    assert told["Z", "Y", "ran"] == "again, y 2×"
    assert not [pair for pair in told if pair[2] == "unused"], "every way was taken"


def test_a_router_that_a_program_runs_several_times() -> None:
    ways = iter("xxyyy")
    node = RouterNode("Kind", {"x": agent("X"), "y": agent("Y")}, lambda context: next(ways), "x")
    run, graph = rerun(Workflow("w").add_node(node), *[["ok"]] * 5)
    assert frames(run, graph)["Kind"].endswith("took y 3× · took x 2×")
    assert not [pair for pair in arrows(run, graph) if pair[2] == "unused"]


def test_routes_to_one_agent_cannot_be_told_apart() -> None:
    one = agent("One")
    node = RouterNode("Kind", {"x": one, "y": one}, lambda context: "y", "x")
    run, graph = rerun(Workflow("w").add_node(node), ["ok"])
    assert "took" not in frames(run, graph)["Kind"]
    assert arrows(run, graph)["question", "One", "ran"] == ""
    assert not [pair for pair in arrows(run, graph) if pair[2] == "unused"]


def test_a_critic_that_is_several_agents_leaves_open_whether_it_was_refined() -> None:
    critic = Workflow("critics").add_nodes([agent("C1"), agent("C2")])
    loop = LoopWorkflow("loop", 5).add_node(ReflectionNode("Check", agent("Solver"), 3, critic_agent=critic))
    run, graph = rerun(loop, ["a", "x", RIGHT] * 5)
    assert "again" not in arrows(run, graph)["C2", "Solver", "ran"]
    assert "refine" not in arrows(run, graph)["C2", "Solver", "ran"]
    assert "in all" in frames(run, graph)["Check"]


def test_a_loop_whose_parts_may_all_be_left_out_says_no_passes() -> None:
    body = ConditionalWorkflow("body")
    body.add_node(agent("A"), lambda context: True)
    loop = LoopWorkflow("loop", 3).add_node(body)
    run, graph = rerun(loop, ["a"] * 3)
    assert "ran" not in frames(run, graph)["loop"]
    assert arrows(run, graph)["A", "A", "ran"] == "again, if condition 2×"


def test_loops_in_loops_are_told_where_their_limits_decide() -> None:
    inner = LoopWorkflow("inner", 2).add_node(agent("A"))
    run, graph = rerun(LoopWorkflow("outer", 2).add_node(inner), ["a"] * 4)
    assert frames(run, graph) == {
        "outer": "LoopWorkflow, at most 2 passes · ran 2 passes",
        "inner": "LoopWorkflow, at most 2 passes · ran 4 passes in 2 visits",
    }
    wide = LoopWorkflow("inner", 4).add_node(agent("A"))
    run, graph = rerun(LoopWorkflow("outer", 4).add_node(wide), ["a"] * 16)
    stopped = made(*run.trace.agent_turns[:9], program=RUNS_IT)
    assert "ran" not in frames(stopped, graph)["outer"], "nobody knows whose passes nine were, until they are sixteen"


def test_members_come_by_the_way_of_the_first_of_them() -> None:
    debate = DebateNode("D", [agent("P"), agent("Q")], agent("J"), 2)
    run, graph = rerun(LoopWorkflow("loop", 3).add_node(debate), ["ok"] * 15)
    told = arrows(run, graph)
    assert told["J", "P", "ran"] == told["J", "Q", "ran"] == "again 2×"
    assert frames(run, graph)["D"].endswith("ran 6 rounds in 3 visits")


def test_one_agent_in_several_nodes_and_twice_in_a_chain() -> None:
    one = agent("A")
    flow = Workflow("w").add_nodes([one, one, LoopWorkflow("l", 2).add_nodes([one, agent("B")]), one])
    run, graph = rerun(flow, ["ok"] * 7)
    assert frames(run, graph)["l"].endswith("ran 2 passes")
    assert not [pair for pair in arrows(run, graph) if pair[2] == "unused"]


def test_nodes_of_one_name_that_are_not_alike_share_a_frame_that_says_its_name() -> None:
    first = LoopWorkflow("same", 2).add_nodes([agent("A"), agent("B")])
    second = RouterNode("same", {"c": agent("C"), "d": agent("D")}, lambda context: "c", "c")
    run, graph = rerun(Workflow("w").add_nodes([first, second]), ["ok"] * 5)
    assert "same" not in frames(run, graph)
    assert arrows(run, graph)["B", "C", "ran"] == "c"


def test_own_code_that_calls_own_code_leaves_its_name_out_of_paths() -> None:
    class All(Calls):
        def process(self, context: Context) -> Message:
            return [part.process(context) for part in self.parts][-1]

    chance = random.Random(0)
    run = ran(Workflow("w").add_node(All("outer", [All("inner", [agent("A"), agent("B")], chance)], chance)))
    graph = describe(Workflow("w").add_node(All("outer", [All("inner", [agent("A"), agent("B")], chance)], chance)))
    drawing = run_graph(run.trace, graph).drawing
    assert not [node for node in drawing["nodes"] if node.get("state") == "unused"], "both were asked"


def test_a_trace_with_a_gap_tells_no_ways() -> None:
    run, graph = rerun(LoopWorkflow("loop", 4).add_nodes([agent("A"), agent("B")]), ["ok"] * 8)
    drawing = run_graph(run.trace, graph, whole=False).drawing
    assert not any("ran" in node["lines"][1] for node in drawing["nodes"] if node.get("group"))
    assert all("again" not in edge.get("label", "") for edge in drawing["edges"])
    assert all(edge["state"] == "ran" for edge in drawing["edges"]), "nor that a way was not taken"
