"""The graph of a run is true: what worked, after what, how often, which branch, and what was never asked."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import HOSTILE, Says, agent, made, ran, turn
from one_jail import in_jail

from viewer.graphs.run_graph import MOST_ARROWS, MOST_BOXES, run_graph
from viewer.graphs.run_order import Paths
from viewer.reading.run_outcome import outcome_of
from viewer.reading.traces import ReadRun, read_trace
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
    ToolRegistry,
    Workflow,
    WorkflowNode,
)
from workflow.completion import CompletionRequest
from workflow.graph import GraphNode, describe
from workflow.limits import Limits
from workflow.trace import CodeRan, EnvironmentStepped

ENDS = {"question", "answer", "no answer", "failed"}


class Drawn:
    """A drawing, by the names of its boxes."""

    def __init__(self, run: ReadRun, graph: GraphNode | None = None) -> None:
        made = run_graph(run.trace, graph, outcome_of(run))
        self.notes = made.notes
        self.nodes: list[dict[str, Any]] = made.drawing["nodes"]
        self._by_id = {node["id"]: node for node in self.nodes}
        self.boxes = {node["lines"][0]: node for node in self.nodes if node["lines"] and not node.get("group")}
        self.frames = {node["lines"][0]: node for node in self.nodes if node.get("group")}
        self.edges: list[dict[str, Any]] = made.drawing["edges"]

    def name(self, id_: str) -> str:
        lines = self._by_id[id_]["lines"]
        return lines[0] if lines else f"•{id_}"

    def inside(self, name: str) -> list[str]:
        """The frames around a box, the innermost first."""
        found: list[str] = []
        node = self.boxes[name]
        while "parent" in node:
            node = self._by_id[node["parent"]]
            found.append(node["lines"][0])
        return found

    def ways(self, state: str = "ran") -> dict[tuple[str, str], str]:
        """(from, to) -> label."""
        return {
            (self.name(edge["from"]), self.name(edge["to"])): edge.get("label", "")
            for edge in self.edges
            if edge["state"] == state
        }

    def follows(self) -> Counter[tuple[str, str]]:
        """How often one came after the other, joins left out of the way; without beginning and end."""
        direct: Counter[tuple[str, str]] = Counter()
        for (source, target), label in self.ways().items():
            first = re.match(r"([\d,]+)×", label)  # `3×: again 2×`, or `refine 2×; again 1×`
            counts = [first[1]] if first else re.findall(r" ([\d,]+)×", label)
            direct[source, target] = sum(int(count.replace(",", "")) for count in counts) or 1
        joins = {name for pair in direct for name in pair if name.startswith("•")}
        found: Counter[tuple[str, str]] = Counter()
        for (source, target), count in direct.items():
            if source in joins:
                continue
            ends = [b for a, b in direct if a == target] if target in joins else [target]
            found.update({(source, end): count for end in ends})
        return Counter({pair: count for pair, count in found.items() if not ENDS & set(pair)})


def alike(*pairs: str) -> Counter[tuple[str, str]]:
    """`A B 2` -> A led to B twice."""
    found: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        source, target, *count = pair.split()
        found[source, target] = int(count[0]) if count else 1
    return found


def says_by_turn(**replies: list[str]) -> Any:
    """Each agent's replies, one after the other."""
    left = {name: iter(texts) for name, texts in replies.items()}
    return lambda request: next(left[request.agent])


# Programs written by hand, in this process


def test_a_chain() -> None:
    flow = Workflow("w").add_nodes([agent("A"), agent("B"), agent("C")])
    drawn = Drawn(ran(flow), describe(flow))
    assert drawn.ways() == {("question", "A"): "", ("A", "B"): "", ("B", "C"): "", ("C", "answer"): ""}
    assert drawn.ways("unused") == {}
    assert [drawn.boxes[name]["lines"][1] for name in "ABC"] == ["1×: no. 1", "1×: no. 2", "1×: no. 3"]
    assert [drawn.boxes[name]["goto"] for name in "ABC"] == ["e1", "e3", "e5"]
    assert drawn.boxes["C"]["state"] == "ran answered"
    assert drawn.boxes["answer"]["lines"] == ["answer", "ok"]


def test_a_loop_says_how_often() -> None:
    loop = LoopWorkflow("loop", 3).add_nodes([agent("Coder"), agent("Tester")])
    flow = Workflow("w").add_node(agent("Plan")).add_node(loop)
    drawn = Drawn(ran(flow), describe(flow))
    assert drawn.follows() == alike("Plan Coder", "Coder Tester 3", "Tester Coder 2")
    assert drawn.ways()["Tester", "Coder"] == "again 2×"
    assert drawn.boxes["Coder"]["lines"][1] == "3×: no. 2, 4, 6"
    assert drawn.frames["loop"]["lines"][1] == "LoopWorkflow, at most 3 passes · ran 3 passes"
    assert drawn.inside("Coder") == ["loop", "w"]
    back = [edge for edge in drawn.edges if edge.get("back")]
    assert [(drawn.name(edge["from"]), drawn.name(edge["to"])) for edge in back] == [("Tester", "Coder")]


def test_a_loop_that_stops_early_has_not_gone_again() -> None:
    loop = LoopWorkflow("loop", 5).add_node(agent("Coder")).add_node(agent("Tester"))
    assert isinstance(loop, LoopWorkflow)
    loop.set_loop_condition(lambda context: False)
    drawn = Drawn(ran(loop), describe(loop))
    assert drawn.follows() == alike("Coder Tester")
    assert drawn.ways("unused") == {("Tester", "Coder"): "again"}
    assert drawn.frames["loop"]["lines"][1].endswith("ran 1 pass")


def router(*names: str) -> RouterNode:
    chosen = itertools.cycle(names)
    return RouterNode("Router", {name: agent(name) for name in names}, lambda context: next(chosen))


@pytest.mark.parametrize(
    ("parts", "passes"),
    [
        (lambda: [router("A", "B"), agent("Judge")], 4),
        (lambda: [router("A", "B")], 4),
        (lambda: [Workflow("chain").add_nodes([agent("A"), agent("B")])], 4),
        (lambda: [EnsembleNode("vote", [agent("A"), agent("B")])], 4),
        (lambda: [Workflow("chain").add_node(EnsembleNode("vote", [router("A", "B"), agent("C")]))], 4),
        (lambda: [LoopWorkflow("inner", 2).add_node(agent("A")), agent("Last")], 4),
        (lambda: [DebateNode("d1", [agent("A"), agent("B")], None, 2), LoopWorkflow("i", 3).add_node(agent("C"))], 4),
        (lambda: [agent("A"), agent("A")], 4),
        (lambda: [DebateNode("d1", [agent("A"), agent("B")], None, 2)], 4),
    ],
)
def test_the_passes_of_a_loop_are_told_whatever_its_parts_are(parts: Any, passes: int) -> None:
    loop = LoopWorkflow("loop", 4).add_nodes(parts())
    drawn = Drawn(ran(loop), describe(loop))
    told = drawn.frames["loop"]["lines"][1]
    assert told == f"LoopWorkflow, at most 4 passes · ran {passes} passes"


def test_the_rounds_of_a_debate_are_told_whoever_debates() -> None:
    debate = DebateNode("debate", [Workflow("chain").add_nodes([agent("A"), agent("B")]), agent("C")], None, 3)
    drawn = Drawn(ran(debate), describe(debate))
    assert drawn.frames["debate"]["lines"][1].endswith("ran 3 rounds")


def test_the_way_that_a_router_took_and_the_ways_that_it_did_not() -> None:
    routes = {
        "math": agent("Mathematician"),
        "code": agent("Coder"),
        "talk": Workflow("chat").add_node(agent("Talker")),
    }
    router = RouterNode("Router", routes, lambda context: "code", default_route="math")
    flow = Workflow("w").add_node(agent("Sorter")).add_node(router).add_node(agent("Last"))
    drawn = Drawn(ran(flow), describe(flow))
    assert drawn.follows() == alike("Sorter Coder", "Coder Last")
    assert drawn.ways()["Sorter", "Coder"] == "code"
    assert drawn.ways("unused") == {("Sorter", "Mathematician"): "math", ("Sorter", "Talker"): "talk"}
    assert drawn.boxes["Mathematician"]["state"] == "unused"
    assert drawn.boxes["Talker"]["lines"] == ["Talker", "not asked"]
    assert drawn.frames["Router"]["lines"][1].endswith("took code 1×")
    assert "goto" not in drawn.boxes["Talker"]


def test_a_router_at_the_beginning_has_its_ways_from_the_question() -> None:
    router = RouterNode("Router", {"a": agent("A"), "b": agent("B")}, lambda context: "a")
    drawn = Drawn(ran(router), describe(router))
    assert drawn.ways() == {("question", "A"): "a", ("A", "answer"): ""}
    assert drawn.ways("unused") == {("question", "B"): "b"}


def test_without_the_programs_graph_only_what_ran_is_told() -> None:
    router = RouterNode("Router", {"a": agent("A"), "b": agent("B")}, lambda context: "a")
    drawn = Drawn(ran(Workflow("w").add_node(router).add_node(agent("C"))))
    assert set(drawn.boxes) == {"question", "A", "C", "answer"}
    assert drawn.ways("unused") == {}
    assert drawn.frames["w"]["lines"] == ["w"]


@pytest.mark.parametrize("static", [True, False])
def test_members_of_an_ensemble_are_side_by_side(static: bool) -> None:
    ensemble = EnsembleNode("vote", [agent("Same"), agent("Same"), agent("Other")], "consensus", agent("Judge"))
    run = ran(Workflow("w").add_node(agent("First")).add_node(ensemble))
    graph = run_graph(run.trace, describe(ensemble) if static else None).drawing
    names = {node["id"]: node["lines"][0] for node in graph["nodes"]}
    pairs = Counter((names[edge["from"]], names[edge["to"]]) for edge in graph["edges"])
    assert pairs["First", "Same"] == 2, "two members of one name are two boxes"
    assert pairs["Same", "Judge"] == 2
    assert pairs["First", "Other"] == pairs["Other", "Judge"] == 1
    assert sum(pairs.values()) == 1 + 3 + 3 + 1


def test_a_judge_that_members_did_not_need_was_not_asked() -> None:
    ensemble = EnsembleNode("vote", [agent("A"), agent("B")], "majority_vote", agent("Judge"))
    drawn = Drawn(ran(ensemble, r"\boxed{4}"), describe(ensemble))
    assert drawn.follows() == Counter()
    assert drawn.boxes["Judge"]["state"] == "unused"
    assert drawn.ways("unused") == {("A", "Judge"): "split", ("B", "Judge"): "split"}
    split = Drawn(ran(ensemble, lambda request: rf"\boxed{{{request.agent}}}"), describe(ensemble))
    assert split.ways()["A", "Judge"] == "split"
    assert split.ways("unused") == {}


def test_rounds_of_a_debate_wait_for_all() -> None:
    debate = DebateNode("debate", [agent("P"), agent("Q")], agent("Judge"), num_rounds=3)
    drawn = Drawn(ran(debate), describe(debate))
    assert drawn.follows() == alike("P P 2", "P Q 2", "Q P 2", "Q Q 2", "P Judge", "Q Judge")
    assert drawn.frames["debate"]["lines"][1].endswith("ran 3 rounds")
    assert len([node for node in drawn.nodes if node.get("state") == "join"]) == 1


def test_reviews_of_a_reflection() -> None:
    reflection = ReflectionNode("check", agent("Solver"), 3, critic_agent=agent("Critic"))
    replies = says_by_turn(Solver=["a", "b"], Critic=["Verdict: INCORRECT", "Verdict: CORRECT"])
    drawn = Drawn(ran(reflection, replies), describe(reflection))
    assert drawn.follows() == alike("Solver Critic 2", "Critic Solver")
    assert drawn.ways()["Critic", "Solver"] == "refine"
    assert drawn.frames["check"]["lines"][1].endswith("ran 2 reviews")
    at_once = Drawn(ran(reflection, "Verdict: CORRECT"), describe(reflection))
    assert at_once.ways("unused") == {("Critic", "Solver"): "refine"}


def test_an_agent_that_reviews_itself_is_one_box() -> None:
    reflection = ReflectionNode("check", agent("Solver"), 1)
    drawn = Drawn(ran(reflection, "Verdict: INCORRECT"), describe(reflection))
    assert drawn.follows() == alike("Solver Solver 2")
    assert drawn.boxes["Solver"]["lines"][1] == "3×: no. 1–3"


def test_the_edges_of_a_graph_that_were_taken_and_those_that_were_not() -> None:
    graph = AgentGraph("graph")
    for name in ("Plan", "Solve", "Verify", "Publish"):
        graph.add_node(name.lower(), agent(name))
    graph.add_edge("plan", "solve").add_edge("solve", "verify")
    graph.add_conditional_edges(
        "verify",
        lambda context: context.messages[-1].content,
        {"redo": "solve", "replan": "plan", "good": "publish"},
    )
    graph.set_finish_point("publish")
    replies = says_by_turn(Plan=["p"], Solve=["a", "b"], Verify=["redo", "good"], Publish=["done"])
    drawn = Drawn(ran(graph, replies), describe(graph))
    assert drawn.follows() == alike("Plan Solve", "Solve Verify 2", "Verify Solve", "Verify Publish")
    assert drawn.ways()["Verify", "Solve"] == "redo"
    assert drawn.ways()["Verify", "Publish"] == "good"
    assert drawn.ways("unused") == {("Verify", "Plan"): "replan"}


def test_a_step_that_a_condition_left_out() -> None:
    flow = ConditionalWorkflow("w")
    flow.add_node(agent("A"))
    flow.add_node(agent("B"), lambda context: False)
    flow.add_node(agent("C"))
    drawn = Drawn(ran(flow), describe(flow))
    assert drawn.follows() == alike("A C")
    assert set(drawn.ways("unused")) == {("A", "B"), ("B", "C")}
    assert [name for name in drawn.boxes if name in "ABC"] == ["A", "B", "C"], "it stands where it would have worked"


def test_nodes_within_nodes() -> None:
    inner = EnsembleNode(
        "inner", [agent("A"), Workflow("pair").add_nodes([agent("B"), agent("C")])], "consensus", agent("J")
    )
    flow = Workflow("outer").add_node(LoopWorkflow("twice", 2).add_node(inner).add_node(agent("Last")))
    drawn = Drawn(ran(flow), describe(flow))
    assert drawn.follows() == alike("A J 2", "B C 2", "C J 2", "J Last 2", "Last A", "Last B")
    assert drawn.inside("C") == ["pair[1]", "inner", "twice"]
    assert drawn.ways("unused") == {}


class Twice(WorkflowNode):
    """Decides by itself, in plain Python, with asyncio."""

    def __init__(self, name: str, *parts: WorkflowNode) -> None:
        super().__init__(name)
        self.parts = parts

    def process(self, context: Context) -> Message:
        async def ask(part: WorkflowNode) -> Message:
            return part.process(context)

        async def main() -> list[Message]:
            return await asyncio.gather(*[ask(part) for part in self.parts])

        return asyncio.run(main())[-1]


def test_a_plain_node_in_this_process_asks_one_after_the_other() -> None:
    """`asyncio.gather` runs in one thread, which each call of an agent holds."""
    node = Twice("own", agent("A"), agent("B"))
    flow = Workflow("w").add_node(node).add_node(agent("C"))
    drawn = Drawn(ran(flow), describe(flow))
    assert drawn.follows() == alike("A B", "B C")
    assert drawn.frames["own"]["lines"] == ["own", "Twice"]


def test_an_agent_of_a_plain_node_that_was_not_asked() -> None:
    class Lazy(Twice):
        def process(self, context: Context) -> Message:
            return self.parts[0].process(context)

    drawn = Drawn(ran(node := Lazy("own", agent("A"), agent("B"))), describe(node))
    assert drawn.boxes["B"]["state"] == "unused"
    assert drawn.ways("unused") == {}, "nobody knows how work would have come there"


def test_turns_after_tools_are_one_visit_and_tools_are_counted() -> None:
    tools = ToolRegistry()
    tools.register("look", lambda: "seen", "Look.", {"type": "object", "properties": {}})
    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    flow = Workflow("w").add_node(AgentNode("Solver", "s", tools, 4)).add_node(agent("Last"))
    drawn = Drawn(ran(flow, says_by_turn(Solver=[call, call, "done"], Last=["ok"])), describe(flow))
    assert drawn.boxes["Solver"]["lines"] == ["Solver", "1×, 3 turns: no. 1–3", "look 2×"]
    assert drawn.follows() == alike("Solver Last")


def test_an_agent_whose_tool_asks_another() -> None:
    tools = ToolRegistry()
    helper = agent("Helper")

    def ask() -> str:
        return helper.process(Context.for_question("help")).content

    tools.register("ask", ask, "Ask.", {"type": "object", "properties": {}})
    call = '<tool_call>{"name": "ask", "arguments": {}}</tool_call>'
    flow = Workflow("w").add_node(AgentNode("Solver", "s", tools, 3))
    drawn = Drawn(ran(flow, says_by_turn(Solver=[call, "done"], Helper=["so"])), describe(flow))
    assert drawn.follows() == alike("Solver Helper", "Helper Solver")


def test_what_failed_and_what_was_not_reached() -> None:
    flow = Workflow("w").add_nodes([agent("A"), agent("B"), agent("C")])
    drawn = Drawn(ran(flow, limits=Limits(agent_calls=1)), describe(flow))
    assert drawn.boxes["failed"]["lines"] == ["failed", "limit exceeded"]
    assert drawn.ways() == {("question", "A"): "", ("A", "failed"): ""}
    assert drawn.ways("unused") == {("A", "B"): "", ("B", "C"): ""}

    def fails(request: CompletionRequest) -> str:
        if request.agent == "B":
            raise RuntimeError("no")
        return "ok"

    broken = Drawn(ran(flow, fails), describe(flow))
    assert broken.boxes["B"]["state"] == "failed"
    assert broken.boxes["B"]["lines"][-1] == "1 without a reply"


def test_a_run_that_asked_nobody() -> None:
    flow = Workflow("w").add_nodes([agent("A"), agent("B")])
    drawn = Drawn(ran(flow, limits=Limits(agent_calls=0)), describe(flow))
    assert drawn.ways() == {("question", "failed"): ""}
    assert drawn.ways("unused") == {("question", "A"): "", ("A", "B"): ""}


def test_a_graph_of_another_program_is_not_mixed_in() -> None:
    drawn = Drawn(ran(Workflow("w").add_node(agent("A"))), describe(Workflow("other").add_node(agent("Z"))))
    assert "Z" not in drawn.boxes
    assert drawn.notes == ["What ran is not in the program's static graph, so that only what ran is drawn."]


# Programs in the jail

GATHERS = """
import asyncio
from workflow import AgentNode, Workflow
first = [Workflow(name).add_node(AgentNode(name, "s", max_turns=1)) for name in ("A", "B")]
last = Workflow("Z").add_node(AgentNode("Z", "s", max_turns=1))
async def ask(flow):
    return await asyncio.to_thread(flow.run, question)
async def main():
    return await asyncio.gather(*[ask(flow) for flow in first])
asyncio.run(main())
answer = last.run(question).content
"""
RUNS_CODE = """
import subprocess, sys
from workflow import AgentNode, Workflow
flow = Workflow("w").add_node(AgentNode("A", "s", max_turns=1))
for number in range(2):
    flow.run(question)
    subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, timeout=10)
answer = "1"
"""


@pytest.mark.parametrize(
    ("program", "follows"),
    [
        (GATHERS, alike("A Z", "B Z")),
        (
            RUNS_CODE,
            Counter({("A", "code that the program runs"): 2, ("code that the program runs", "A"): 1}),
        ),
    ],
    ids=["gather", "code"],
)
def test_a_program_in_the_jail(program: str, follows: Counter[tuple[str, str]]) -> None:
    async def both(sandbox: Any) -> tuple[ReadRun, GraphNode | None]:
        run = await sandbox.run_program(program, "Q?", engine=Says())
        return read_trace("run.jsonl", run.trace), (await sandbox.describe(program, "Q?")).graph

    run, graph = in_jail(both)
    assert run.trace.ended is not None
    assert run.trace.ended.failure is None
    for static in (graph, None):
        drawn = Drawn(run, static)
        assert drawn.follows() == follows
        assert drawn.ways("unused") == {}
        assert not drawn.notes
        assert "task[0]" not in drawn.frames, "what the program started has no name of its own"


def test_a_game_and_its_players() -> None:
    def act(t: float, legal: bool, solved: bool) -> EnvironmentStepped:
        return EnvironmentStepped(
            t=t, agent="P", text="R", commit=True, legal=legal, before="a", after="b", done=solved, solved=solved
        )

    run = made(turn("P/P", 0, 1), act(1.5, False, False), turn("P/P", 2, 3, number=1), act(3.5, True, True))
    drawn = Drawn(run)
    assert drawn.follows() == Counter({("P", "the game"): 2, ("the game", "P"): 1})
    assert drawn.boxes["the game"]["lines"][1] == "2 actions, 1 not legal, solved"


# What only time tells


def test_parts_that_waited_for_one_another_came_after_all_of_them() -> None:
    """A program gathers twice: `task[0]` is one thing and then another."""
    run = made(
        turn("task[0]/A/A", 0, 1),
        turn("task[1]/B/B", 0, 9),
        turn("task[0]/C/C", 9.01, 12),
        turn("task[1]/D/D", 9.02, 11),
    )
    assert Drawn(run).follows() == alike("A C", "A D", "B C", "B D")


def test_parts_that_did_not_wait_came_after_their_own() -> None:
    run = made(turn("p/x[0]/A", 0, 1), turn("p/y[1]/C", 0, 5), turn("p/x[0]/B", 1.01, 2), turn("p/y[1]/D", 5.01, 9))
    assert Drawn(run).follows() == alike("A B", "C D")
    served_in_turn = made(
        turn("p/x[0]/A", 0, 1), turn("p/y[1]/C", 1, 2), turn("p/x[0]/B", 2, 3), turn("p/y[1]/D", 3, 4)
    )
    assert Drawn(served_in_turn).follows() == alike("A B", "C D")


def test_another_node_under_an_index_is_another_time() -> None:
    run = made(turn("p/A[0]", 0, 1), turn("p/B[1]", 0, 1), turn("p/C[0]", 2, 3), turn("p/D[1]", 2, 3))
    assert Drawn(run).follows() == alike("A C", "A D", "B C", "B D")


# Any workflow: what it should have done is worked out beside it


@st.composite
def workflows(draw: st.DrawFn, depth: int = 3, names: Iterator[int] | None = None) -> tuple[WorkflowNode, Any]:
    """A workflow and its shape: a name, or (kind, parts, times)."""
    names = names if names is not None else iter(range(1, 1_000))
    kind = draw(st.sampled_from(["agent", "chain", "loop", "ensemble", "debate"] if depth else ["agent"]))
    number = next(names)
    if kind == "agent":
        return agent(f"A{number}"), f"A{number}"
    if kind in ("chain", "loop"):
        # An agent at the end: parts that work side by side and then again leave open whether they waited.
        parts = [draw(workflows(depth=depth - 1, names=names)) for _ in range(draw(st.integers(1, 2)))]
        parts.append(draw(workflows(depth=0, names=names)))
        times = draw(st.integers(1, 3)) if kind == "loop" else 1
        flow = LoopWorkflow(f"l{number}", times) if kind == "loop" else Workflow(f"w{number}")
        return flow.add_nodes([node for node, _ in parts]), ("chain", [shape for _, shape in parts], times)
    below = 0 if kind == "debate" else depth - 1
    parts = [draw(workflows(depth=below, names=names)) for _ in range(draw(st.integers(2, 3)))]
    members = [node for node, _ in parts]
    shapes = [shape for _, shape in parts]
    if kind == "debate":
        rounds = draw(st.integers(1, 3))
        return DebateNode(f"d{number}", members, None, rounds), ("beside", shapes, rounds)
    return EnsembleNode(f"e{number}", members), ("beside", shapes, 1)


def expected(shape: Any, follows: Counter[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """First and last agents of a shape; counts which agent came directly after which."""
    if isinstance(shape, str):
        return [shape], [shape]
    kind, parts, times = shape
    first: list[str] = []
    last: list[str] = []
    for _ in range(times):
        for step in [[part] for part in parts] if kind == "chain" else [parts]:
            begins: list[str] = []
            ends: list[str] = []
            for part in step:
                entry, exit_ = expected(part, follows)
                begins += entry
                ends += exit_
            follows.update((source, target) for source in last for target in begins)
            first, last = first or begins, ends
    return first, last


@settings(max_examples=60)
@given(workflows(), st.booleans())
def test_what_came_after_what_is_what_the_workflow_says(made: tuple[WorkflowNode, Any], static: bool) -> None:
    node, shape = made
    flow = Workflow("root").add_node(node)
    follows: Counter[tuple[str, str]] = Counter()
    first, last = expected(shape, follows)
    drawn = Drawn(ran(flow, limits=Limits(agent_calls=10_000)), describe(flow) if static else None)
    assert drawn.follows() == follows
    ways = drawn.ways()
    assert {target for source, target in ways if source == "question"} == set(first)
    assert {source for source, target in ways if target == "answer"} == set(last)
    assert not any(node["state"] == "unused" for node in drawn.nodes if "state" in node)


# Names and numbers that nobody would choose


def test_names_with_slashes_are_whole() -> None:
    paths = Paths(["a/b", "x"])
    assert paths.split("w/a/b[1]/x") == ("w", "a/b[1]", "x")
    assert paths.split("w/a%2Fb[1]/x") == ("w", "a/b[1]", "x")
    assert paths.split("") == ()
    flow = Workflow("in/out").add_nodes([agent("a/b"), agent("c")])
    drawn = Drawn(ran(flow), describe(flow))
    assert drawn.follows() == Counter({("a/b", "c"): 1})
    assert drawn.inside("c") == ["in/out"]


def test_hostile_names_are_shown_and_nothing_else() -> None:
    events = [turn(f"w/{text}", 1.0 * number, number + 0.5) for number, text in enumerate(HOSTILE)]
    drawn = Drawn(made(*events))
    told = repr(drawn.nodes)
    for hidden in ("\u202e", "\x1b", "\ud800", "\u2028"):
        assert hidden not in told


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1e300, 1e300])
def test_times_that_are_none(number: float) -> None:
    run = made(turn("w/A", 0, 1), turn("w/B", number, number))
    assert {"A", "B"} <= set(Drawn(run).boxes)


def test_very_many_places_are_bounded() -> None:
    events = [turn(f"p/A{number}[{number}]", 0, 1) for number in range(3_000)]
    events += [turn(f"p/B{number}[{number}]", 2, 3) for number in range(3_000)]
    drawn = Drawn(made(*events))
    assert len(drawn.nodes) <= MOST_BOXES + 5
    assert len(drawn.edges) <= MOST_ARROWS
    assert any("more places" in note for note in drawn.notes)
    deep = made(*(turn("/".join(f"n{level}" for level in range(depth)), depth, depth + 1) for depth in range(1, 500)))
    assert len(Drawn(deep).nodes) < 2 * MOST_BOXES


def test_code_of_an_agents_tool_is_the_agents() -> None:
    ran_code = CodeRan(t=1.5, path="w/A", code="1", exit_status=0, stdout="", stderr="")
    drawn = Drawn(made(turn("w/A", 0, 1), ran_code, turn("w/A", 2, 3, turn=1, number=1)))
    assert set(drawn.boxes) == {"question", "A", "no answer"}
    assert drawn.boxes["A"]["lines"][1] == "1×, 2 turns: no. 1–2"
