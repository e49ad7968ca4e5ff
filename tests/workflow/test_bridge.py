"""Plain code that asks for things: suspended at any depth, resumed by whoever drives it."""

from typing import Any

import pytest

from workflow import AgentNode, Context, Workflow, bridge
from workflow.bridge import as_steps, perform
from workflow.failures import NoEngineConnected
from workflow.requests import AgentCall, AgentReply


def ask(text: str) -> str:
    return perform(AgentCall(text, [])).text


def test_requests_come_out_and_replies_go_in() -> None:
    steps = as_steps(lambda a, *, b: ask(a) + ask(b), "1", b="2")
    assert next(steps).agent == "1"
    assert steps.send(AgentReply("one ")).agent == "2"
    with pytest.raises(StopIteration) as stop:
        steps.send(AgentReply("two"))
    assert stop.value.value == "one two"


def test_a_call_that_asks_nothing_just_returns() -> None:
    with pytest.raises(StopIteration) as stop:
        next(as_steps(max, 3, 4))
    assert stop.value.value == 4


def test_suspends_at_any_depth() -> None:
    def deep(levels: int) -> str:
        return ask("bottom") if levels == 0 else max(map(deep, [levels - 1]))

    steps = as_steps(deep, 100)
    assert next(steps).agent == "bottom"
    with pytest.raises(StopIteration) as stop:
        steps.send(AgentReply("up"))
    assert stop.value.value == "up"


def test_errors_go_both_ways() -> None:
    def careful() -> str:
        try:
            return ask("1")
        except KeyError as error:
            raise ValueError("wrapped") from error

    steps = as_steps(careful)
    next(steps)
    with pytest.raises(ValueError, match="wrapped") as caught:
        steps.throw(KeyError("thrown in"))
    assert isinstance(caught.value.__cause__, KeyError)


def test_calls_within_calls() -> None:
    inner = as_steps(ask, "inner")

    def outer() -> list[Any]:
        first = next(inner)
        second = ask("outer")
        try:
            inner.send(AgentReply("x"))
        except StopIteration as stop:
            return [first.agent, second, stop.value]
        return []

    steps = as_steps(outer)
    assert next(steps).agent == "outer"
    with pytest.raises(StopIteration) as stop:
        steps.send(AgentReply("y"))
    assert stop.value.value == ["inner", "y", "x"]


def test_interleaved_calls_keep_apart() -> None:
    calls = [as_steps(lambda name=name: [name, ask(name), ask(name)]) for name in "abc"]
    for call in calls:
        next(call)
    for call, reply in zip(reversed(calls), "zyx", strict=True):
        call.send(AgentReply(reply))
    results = []
    for call, reply in zip(calls, "123", strict=True):
        with pytest.raises(StopIteration) as stop:
            call.send(AgentReply(reply))
        results.append(stop.value.value)
    assert results == [["a", "x", "1"], ["b", "y", "2"], ["c", "z", "3"]]


@pytest.mark.parametrize("abandon", [lambda steps: steps.close(), lambda steps: None])
def test_an_abandoned_call_is_unwound(abandon: Any) -> None:
    log: list[str] = []

    def call() -> None:
        try:
            ask("1")
        except Exception:
            log.append("caught")
        finally:
            log.append("finally")

    steps = as_steps(call)
    next(steps)
    abandon(steps)
    del steps
    assert log == ["finally"]


def test_exit_inside_a_call_is_an_error_and_not_an_exit() -> None:
    with pytest.raises(RuntimeError, match=r"exit\(3\) was called inside a node or tool"):
        next(as_steps(exit, 3))


def test_outside_of_a_run_the_connected_driver_serves() -> None:
    seen: list[Any] = []

    def driver(request: Any) -> AgentReply:
        seen.append(request)
        return AgentReply("from the driver")

    try:
        bridge.connect(driver)
        assert ask("1") == "from the driver"
        steps = as_steps(ask, "2")  # inside a run, whoever drives it serves
        assert next(steps).agent == "2"
        assert [request.agent for request in seen] == ["1"]
    finally:
        bridge.connect(None)
    with pytest.raises(NoEngineConnected):
        ask("3")


def test_workflows_in_plain_code_are_requests() -> None:
    workflow = Workflow("w").add_node(AgentNode("A", "p"))
    request = next(as_steps(workflow.run, "Q?"))
    assert request.node is workflow
    assert request.context == Context.for_question("Q?")
