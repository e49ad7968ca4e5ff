"""What a server or a trace file says, fuzzed: it is read, or refused with the one exception that each reader names."""

import json
from contextlib import suppress
from functools import partial

import pytest
from growth import check_linear
from hypothesis import example, given
from hypothesis import strategies as st

from engine.openai.refusal import Fault, context_overflow, status_fault
from engine.openai.reply import read_reply
from workflow.completion import ChatMessage, Completion, CompletionRequest, Sampling
from workflow.trace import Trace

REQUEST = CompletionRequest(
    messages=[ChatMessage(role="user", content="hi")], sampling=Sampling(logprobs=True), agent="a", key="k"
)
HUGE = "9" * 5000
ODD = st.sampled_from([None, "", "\x00", "\ud800", 10**40, -1, True, [], {}, [[]], "stop", "1" * 5000, 1.5])
VALUE = st.recursive(
    st.one_of(ODD, st.text(max_size=10), st.floats(), st.integers()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def either(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """An object with some of these fields, each of them as it should be or not; or something else."""
    return st.fixed_dictionaries({}, optional={name: value | VALUE for name, value in fields.items()}) | VALUE


CALL = either(function=either(name=st.text(max_size=5), arguments=st.text(max_size=5)))
CHOICE = either(
    message=either(content=st.text(max_size=9), refusal=st.text(max_size=9), tool_calls=st.lists(CALL, max_size=2)),
    text=st.text(max_size=9),
    finish_reason=st.sampled_from(["stop", "length", "x"]),
    logprobs=either(token_logprobs=st.lists(st.floats(), max_size=3)),
    token_ids=st.lists(st.integers(), max_size=3),
)
BODY = either(
    choices=st.lists(CHOICE, max_size=2),
    usage=either(prompt_tokens=st.integers(0, 9), completion_tokens=st.integers(0, 9)),
    model=st.text(max_size=5),
    error=VALUE,
)


@given(BODY.map(json.dumps) | st.text(max_size=200))
@example(f'{{"error": {HUGE}}}')
@example(f'{{"error": [{HUGE}]}}')
@example(f'{{"choices": [{{"text": "a"}}], "usage": {{"prompt_tokens": {HUGE}}}}}')
@example("[" * 100_000)
@example('{"choices": [{"message": {"content": "\\ud800"}}], "usage": {"prompt_tokens": 1}}')
def test_a_reply_is_a_completion_or_a_fault(body: str) -> None:
    with suppress(Fault):
        assert isinstance(read_reply(body, REQUEST), Completion)


HEADERS = st.dictionaries(
    st.sampled_from(["retry-after", "retry-after-ms"]),
    st.text(max_size=30)
    | st.sampled_from(
        ["nan", "inf", "-1", "1e400", "Wed, 21 Oct 2015 07:28:00 GMT", "1 Jan 0001 00:00:00 -0000", HUGE]
    ),
)


@given(st.integers(400, 599), st.none() | st.text(max_size=20), st.text(max_size=300), HEADERS)
@example(429, None, "", {"retry-after": "Mon, 01 Jan 0001 00:00:00 -0000"})
@example(429, None, "", {"retry-after": "Mon, 01 Jan 0001 00:00:00 +2359"})
@example(429, None, "", {"retry-after": "Mon, 01 Jan 2001 00:00:00 +999999"})
@example(400, None, "maximum context length is 999999999 999999999 tokens", {})
def test_an_error_status_is_a_fault(status: int, code: str | None, body: str, headers: dict[str, str]) -> None:
    context_overflow(status, code, body)
    fault = status_fault(status, code, body, headers)
    assert fault.retry_after_s is None or fault.retry_after_s >= 0


@given(st.lists(VALUE.map(json.dumps) | st.text(max_size=50), max_size=4))
def test_trace_lines_are_events_or_a_value_error(lines: list[str]) -> None:
    with suppress(ValueError):
        Trace.from_lines(lines)


FAMILIES = {
    "deep lists": lambda n: "[" * n,
    "an error of many parts": lambda n: '{"error": [' + "1," * n + "1]}",
    "many broken choices": lambda n: '{"choices": [' + "1," * n + "1]}",
    "many choices": lambda n: '{"choices": [' + "{}," * n + "{}]}",
    "spaces": lambda n: " " * n,
    "numbers of tokens": lambda n: "maximum context length is 5 " + "7 " * n,
    "digits": lambda n: "maximum context length is " + "7" * n,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reply_costs_time_in_proportion_to_its_size(family: str) -> None:
    def read(body: str) -> None:
        with suppress(Fault):
            read_reply(body, REQUEST)
        context_overflow(400, None, body)
        status_fault(500, None, body, {})

    check_linear(family, lambda size: partial(read, FAMILIES[family](size)), 20_000)
