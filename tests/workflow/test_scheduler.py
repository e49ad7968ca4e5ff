"""The scheduler alone: what it asks for and returns is a function of the program and the replies."""

import inspect
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflow import (
    AgentNode,
    Context,
    DebateNode,
    EnsembleNode,
    Message,
    ReflectionNode,
    ToolRegistry,
    Workflow,
    WorkflowNode,
)
from workflow.bridge import as_steps
from workflow.place import Place, could_see, escaped, unescaped
from workflow.requests import AgentCall, AgentReply, NodeCall, Parallel, Steps, ToolCall, ToolReply
from workflow.scheduler import Issued, Scheduler


class Imperative(WorkflowNode):
    """Plain Python that calls its parts one after the other, on a context of its own; may catch what they raise."""

    def __init__(self, name: str, parts: list[WorkflowNode], careful: bool) -> None:
        super().__init__(name)
        self.parts, self.careful = parts, careful

    def process(self, context: Context) -> Message:
        said = []
        for part in self.parts:
            try:
                message = part.process(context)
            except ValueError as error:
                if not self.careful:
                    raise
                message = Message(f"caught {error}")
            context.add_message(message)
            said.append(message.delivery)
        return Message(" ".join(said), sender=self.name)


class Fork(WorkflowNode):
    """A node that asks for `Parallel` itself, whatever the outcomes are."""

    def __init__(self, name: str, parts: list[WorkflowNode]) -> None:
        super().__init__(name)
        self.parts = parts

    def steps(self, context: Context) -> Steps:
        outcomes = yield Parallel([NodeCall(part, context.extended()) for part in self.parts])
        said = [f"failed {each}" if isinstance(each, Exception) else each.delivery for each in outcomes]
        return Message(" | ".join(said), sender=self.name)


TOOLS = ToolRegistry()
TOOLS.register("echo", lambda text="": f"heard {text}")

names = st.sampled_from(["A", "B", "A[1]", "f[1]/A"])  # few, so that agents of one name stand in many places
agents = st.builds(lambda name, tools: AgentNode(name, "p", TOOLS if tools else None, 3), names, st.booleans())
programs = st.recursive(
    agents,
    lambda inner: st.one_of(
        st.builds(Imperative, st.just("i"), st.lists(inner, max_size=3), st.booleans()),
        st.builds(Fork, st.just("f"), st.lists(inner, max_size=3)),
        st.builds(lambda parts: EnsembleNode("e", parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: DebateNode("d", parts), st.lists(inner, min_size=2, max_size=2)),
        st.builds(lambda parts: Workflow("w").add_nodes(parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda agent, critic: ReflectionNode("r", agent, 1, critic_agent=critic), inner, inner),
    ),
    max_leaves=8,
)


def answer(issued: Issued, salt: int) -> Any:
    """A reply that depends on what was asked and on nothing else."""
    request = issued.request
    if isinstance(request, ToolCall):
        return ToolReply()
    assert isinstance(request, AgentCall)
    code = zlib.crc32(f"{salt} {issued.key} {request.messages}".encode())
    if code % 11 == 0:
        return ValueError(f"no answer at {issued.key}")
    call = '<tool_call>{"name": "echo", "arguments": {"text": "x"}}</tool_call>' if code % 5 == 0 else ""
    return AgentReply(f"{call} \\boxed{{{code % 3}}} <delivery>{code % 97}</delivery>")


@dataclass
class Played:
    outcome: str = ""
    asked: dict[str, str] = field(default_factory=dict)
    replies: list[tuple[str, Any]] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    had: dict[str, set[str]] = field(default_factory=dict)
    """For each key those that had a reply when it was asked."""
    open_after: list[set[str]] = field(default_factory=list)
    """The keys that wait for a reply, after 0, 1, 2, ... replies."""


def give(scheduler: Scheduler, key: str, reply: Any) -> None:
    if isinstance(reply, Exception):
        scheduler.throw(key, reply)
    else:
        scheduler.reply(key, reply)


def play(node: WorkflowNode, salt: int, pick: Callable[[list[str]], str], by_place: bool = False) -> Played:
    """`by_place`: what waits is picked from in the order of places, not of arrival."""
    played = Played()
    scheduler = Scheduler(node.steps(Context.for_question("Q?")))
    waiting: dict[str, Issued] = {}
    while True:
        for issued in scheduler.take():
            if issued.key:
                assert issued.key not in played.asked, "a key was used twice"
                played.asked[issued.key] = repr(issued.request)
                played.places[issued.key] = issued.place
                played.had[issued.key] = {key for key, _ in played.replies}
                waiting[issued.key] = issued
        played.open_after.append(set(waiting))
        if scheduler.done:
            break
        key = pick(sorted(waiting, key=played.places.__getitem__) if by_place else list(waiting))
        reply = answer(waiting.pop(key), salt)
        played.replies.append((key, reply))
        give(scheduler, key, reply)
    assert not waiting
    try:
        message = scheduler.result()
        played.outcome = f"{message.content} {message.metadata}"
    except Exception as error:
        played.outcome = repr(error)
    return played


@settings(deadline=None)
@given(programs, st.integers(0, 99), st.randoms(use_true_random=False))
def test_keys_requests_and_result_do_not_depend_on_the_order_of_replies(
    node: WorkflowNode, salt: int, order: random.Random
) -> None:
    first_come = play(node, salt, lambda keys: keys[0])
    for pick in (order.choice, order.choice, lambda keys: keys[-1]):
        other = play(node, salt, pick)
        assert other.asked == first_come.asked
        assert other.places == first_come.places
        assert other.outcome == first_come.outcome


@settings(deadline=None)
@given(programs, st.integers(0, 99), st.randoms(use_true_random=False))
def test_places_are_the_order_of_branches_that_follow_one_another(
    node: WorkflowNode, salt: int, order: random.Random
) -> None:
    in_turn = play(node, salt, lambda keys: keys[0], by_place=True)
    assert [key for key, _ in in_turn.replies] == sorted(in_turn.places, key=in_turn.places.__getitem__)
    assert len(set(in_turn.places.values())) == len(in_turn.places)
    backwards = play(node, salt, lambda keys: keys[-1], by_place=True)
    shuffled = play(node, salt, order.choice)
    for later, earlier in permutations(in_turn.places, 2):
        sees = could_see(in_turn.places[later], in_turn.places[earlier])
        assert sees == (earlier in in_turn.had[later] and earlier in backwards.had[later])
        assert not sees or earlier in shuffled.had[later]


@settings(deadline=None)
@given(programs, st.integers(0, 99), st.randoms(use_true_random=False))
def test_replaying_a_prefix_of_replies_reaches_the_same_open_requests(
    node: WorkflowNode, salt: int, order: random.Random
) -> None:
    played = play(node, salt, order.choice)
    for length in range(len(played.replies) + 1):
        scheduler = Scheduler(node.steps(Context.for_question("Q?")))
        asked = {issued.key: repr(issued.request) for issued in scheduler.take() if issued.key}
        for key, reply in played.replies[:length]:
            give(scheduler, key, reply)
            asked |= {issued.key: repr(issued.request) for issued in scheduler.take() if issued.key}
        assert asked.keys() - {key for key, _ in played.replies[:length]} == played.open_after[length]
        assert asked == {key: played.asked[key] for key in asked}
        assert scheduler.done == (length == len(played.replies))
        scheduler.close()


def agent(name: str) -> AgentNode:
    return AgentNode(name, "p")


def started(node: WorkflowNode) -> tuple[Scheduler, list[str]]:
    scheduler = Scheduler(node.steps(Context.for_question("Q?")))
    return scheduler, [issued.key for issued in scheduler.take() if issued.key]


def test_keys_are_paths_with_branches_and_occurrences() -> None:
    inner = Imperative("i", [agent("A"), agent("A"), agent("B")], careful=False)
    scheduler, keys = started(EnsembleNode("e", [inner, inner, agent("A")]))
    assert keys == ["i[0]/A#0", "i[1]/A#0", "A[2]#0"]
    scheduler.reply("i[1]/A#0", AgentReply("x"))
    assert [issued.key for issued in scheduler.take() if issued.key] == ["i[1]/A#1"]
    scheduler.reply("i[1]/A#1", AgentReply("x"))
    assert [issued.key for issued in scheduler.take() if issued.key] == ["i[1]/B#0"]
    scheduler.close()


@given(st.text("AB%25F/[]1#", max_size=8), st.text("AB%25F/[]1#", max_size=8))
def test_names_in_paths_are_told_apart(one: str, other: str) -> None:
    assert unescaped(escaped(one)) == one
    assert (escaped(one) == escaped(other)) == (one == other)
    assert not {"/", "[", "]"} & set(escaped(one))


def test_all_members_ask_before_any_reply() -> None:
    nested = EnsembleNode("e", [agent("A"), EnsembleNode("f", [agent("B"), agent("C")]), Fork("g", [agent("D")])])
    scheduler, keys = started(nested)
    assert keys == ["A[0]#0", "f[1]/B[0]#0", "f[1]/C[1]#0", "g[2]/D[0]#0"]
    scheduler.close()


def test_an_exception_in_a_branch_becomes_an_outcome() -> None:
    class Broken(WorkflowNode):
        def process(self, context: Context) -> Message:
            raise KeyError("broken")

    class NotEvenSteps(WorkflowNode):
        def steps(self, context: Context) -> Steps:
            raise OSError("no steps")

    scheduler, keys = started(Fork("f", [agent("A"), Broken("b"), NotEvenSteps("n"), agent("C")]))
    scheduler.throw(keys[0], ValueError("thrown in"))
    scheduler.reply(keys[1], AgentReply("fine"))
    assert scheduler.result().content == "failed thrown in | failed 'broken' | failed no steps | fine"


def test_a_thrown_error_can_be_caught_where_the_request_was_made() -> None:
    scheduler, keys = started(Imperative("i", [agent("A"), agent("B")], careful=True))
    scheduler.throw(keys[0], ValueError("thrown in"))
    (issued,) = [each for each in scheduler.take() if each.key]
    scheduler.reply(issued.key, AgentReply("fine"))
    assert scheduler.result().content == "caught thrown in fine"


def test_errors_that_are_false_are_errors_all_the_same() -> None:
    class Empty(Exception):
        def __len__(self) -> int:
            return 0

    scheduler, keys = started(Workflow().add_node(agent("A")))
    scheduler.throw(keys[0], Empty())
    with pytest.raises(Empty):
        scheduler.result()


def test_no_calls_in_parallel_make_no_outcomes() -> None:
    scheduler, keys = started(Fork("f", []))
    assert (keys, scheduler.result().content) == ([], "")


def test_result_before_the_end_says_so() -> None:
    scheduler, _ = started(agent("A"))
    with pytest.raises(RuntimeError, match="not over"):
        scheduler.result()


@pytest.mark.parametrize(
    ("garbage", "message"),
    [
        ("hello", r"g yielded str, not a request"),
        (None, r"g yielded NoneType, not a request"),
        (AgentNode("A", "p"), r"g yielded AgentNode, not a request"),
        (NodeCall("A", Context()), r"g ran str, which is not a node"),
        (Parallel([AgentNode("A", "p")]), r"g ran AgentNode in parallel, not a NodeCall"),
        (Parallel(iter([])), r"has no len"),
    ],
)
def test_a_node_that_yields_garbage_gets_a_clear_error(garbage: Any, message: str) -> None:
    class Garbage(WorkflowNode):
        def steps(self, context: Context) -> Steps:
            outcomes = yield garbage
            raise outcomes[0]

    for node, path in ((Workflow().add_node(Garbage("g")), "g"), (Fork("f", [Garbage("g")]), r"g\[0\]")):
        scheduler, _ = started(node)
        assert scheduler.done
        with pytest.raises((TypeError, RuntimeError), match=message.replace("g ", f"{path} ") + "|^failed"):
            raise RuntimeError(scheduler.result().content)


def test_steps_that_are_no_generator_get_a_clear_error() -> None:
    class Plain(WorkflowNode):
        def steps(self, context: Context) -> Any:
            return Message("x")

    scheduler, _ = started(Workflow().add_node(Plain("p")))
    with pytest.raises(TypeError, match="Plain 'p': steps returned Message, not a generator"):
        scheduler.result()


def test_garbage_can_be_recovered_from() -> None:
    class Recovers(WorkflowNode):
        def steps(self, context: Context) -> Steps:
            try:
                yield "garbage"
            except TypeError:
                reply = yield AgentCall("A", [])
            return Message(reply.text)

    scheduler, keys = started(Recovers("r"))
    scheduler.reply(keys[0], AgentReply("fine"))
    assert scheduler.result().content == "fine"


# Abandoning a run


def test_close_unwinds_generators_and_plain_calls_members_first() -> None:
    log: list[str] = []

    class Plain(WorkflowNode):
        def process(self, context: Context) -> Message:
            try:
                try:
                    return agent("A").process(context)
                except Exception:
                    return Message("an abandoned call is no Exception to catch")
            finally:
                log.append(f"plain {self.name}")

    class Outer(WorkflowNode):
        def __init__(self, name: str, parts: list[WorkflowNode]) -> None:
            super().__init__(name)
            self.fork = Fork("f", parts)

        def steps(self, context: Context) -> Steps:
            try:
                yield NodeCall(self.fork, context)
            finally:
                log.append(f"generator {self.name}")

    class PlainOuter(WorkflowNode):
        def process(self, context: Context) -> Message:
            try:
                return Outer("inner", [Plain("1"), Plain("2")]).process(context)
            finally:
                log.append(f"plain {self.name}")

    steps = Outer("outer", [PlainOuter("po"), Plain("3"), Plain("4")]).steps(Context.for_question("Q?"))
    scheduler = Scheduler(steps)
    assert len(scheduler.take()) == 4
    scheduler.reply("f/4[2]/A#0", AgentReply("done"))
    assert log == ["plain 4"]
    log.clear()
    scheduler.close()
    assert sorted(log) == ["generator inner", "generator outer", "plain 1", "plain 2", "plain 3", "plain po"]
    position = {entry: log.index(entry) for entry in log}
    assert max(position["plain 1"], position["plain 2"]) < position["generator inner"] < position["plain po"]
    assert max(position["plain po"], position["plain 3"]) < position["generator outer"]
    assert inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED
    scheduler.close()  # again is harmless
    assert len(log) == 6


def test_close_goes_on_when_nodes_misbehave() -> None:
    log: list[str] = []

    class Misbehaves(WorkflowNode):
        def steps(self, context: Context) -> Steps:
            try:
                yield AgentCall("A", [])
            finally:
                log.append(self.name)
                if self.name == "raises":
                    raise ValueError("while unwinding")
                if self.name == "asks":
                    yield AgentCall("A", [])

    class Asks(WorkflowNode):
        def process(self, context: Context) -> Message:
            try:
                return agent("A").process(context)
            finally:
                log.append(self.name)
                agent("A").process(context)

    class Refuses(WorkflowNode):
        def process(self, context: Context) -> Message:
            while True:
                try:
                    return agent("A").process(context)
                except BaseException:
                    log.append(self.name)

    parts = [Misbehaves("asks"), Misbehaves("raises"), Asks("plain"), Refuses("stubborn"), Misbehaves("good")]
    scheduler, keys = started(Fork("f", parts))
    scheduler.close()
    assert set(log) == {"asks", "raises", "plain", "stubborn", "good"}
    assert scheduler.take() == []
    with pytest.raises(KeyError):
        scheduler.reply(keys[0], AgentReply("too late"))


# Depth


def test_deep_and_long_programs_do_not_overflow_the_stack() -> None:
    node: WorkflowNode = agent("A")
    for _ in range(3_000):
        node = Workflow("w").add_node(node)
    scheduler, keys = started(node)
    assert keys == ["w/" * 2_999 + "A#0"]
    scheduler.reply(keys[0], AgentReply("deep"))
    assert scheduler.result().content == "deep"


def test_deep_plain_nodes_and_errors_through_them() -> None:
    def build() -> WorkflowNode:
        node: WorkflowNode = agent("A")
        for _ in range(1_000):
            node = Imperative("i", [Workflow("w").add_node(EnsembleNode("e", [node]))], careful=False)
        return node

    scheduler, keys = started(build())
    scheduler.reply(keys[0], AgentReply("<delivery>deep</delivery>"))
    assert scheduler.result().delivery == "deep"
    scheduler, keys = started(build())
    scheduler.throw(keys[0], ValueError("from below"))
    with pytest.raises(RuntimeError, match="every member failed"):
        scheduler.result()
    scheduler, keys = started(build())
    scheduler.close()


def test_a_long_chain() -> None:
    class Step(WorkflowNode):
        def process(self, context: Context) -> Message:
            context.set_state("n", context.get_state("n", 0) + 1)
            return Message(str(context.get_state("n")))

    scheduler, _ = started(Workflow().add_nodes([Step("s")] * 3_000))
    assert scheduler.result().content == "3000"
    scheduler, keys = started(Imperative("i", [agent("A")] * 1_000, careful=False))
    for number in range(1_000):
        assert keys == [f"A#{number}"]
        scheduler.reply(keys[0], AgentReply(""))
        keys = [issued.key for issued in scheduler.take() if issued.key]
    assert scheduler.done


@pytest.mark.parametrize("wrap", [lambda node: node, lambda node: EnsembleNode("e", [node])])
def test_a_node_that_contains_itself_ends_with_a_clear_error(wrap: Callable[[WorkflowNode], WorkflowNode]) -> None:
    loop = Workflow("loop")
    loop.add_node(wrap(loop))
    scheduler, keys = started(loop)
    assert (scheduler.done, keys) == (True, [])
    with pytest.raises((RecursionError, RuntimeError), match="does a node contain itself"):
        scheduler.result()


def test_reports_have_no_key_and_come_in_order() -> None:
    scheduler = Scheduler(as_steps(lambda: agent("A").process(Context.for_question("Q?"))))
    (call,) = scheduler.take()
    scheduler.reply(call.key, AgentReply("<delivery>x</delivery>"))
    (report,) = scheduler.take()
    assert (report.key, report.path, type(report.request).__name__) == ("", "A", "Delivery")
