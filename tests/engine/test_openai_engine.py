"""OpenAIEngine against a local server that misbehaves in every way we know of."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
import time
from email.utils import formatdate
from typing import Any

import pytest
from scripted_server import USAGE, Answer, Handler, Server, answer, chat, cut_short, drip, hang_up, raw, silent

from engine.openai.client import OpenAIEngine
from engine.protocol import Engine
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed, LimitExceeded


def ask(server: Server, *script: Answer, request: CompletionRequest | None = None, **options: Any) -> Completion:
    server.script = list(script)
    options = {"timeout_s": 5.0, "max_attempts": 3} | options

    async def run() -> Completion:
        engine = OpenAIEngine("m", server.url, **options)
        assert isinstance(engine, Engine)
        try:
            return await engine.complete(request or question())
        finally:
            await engine.close()
            await engine.close()

    return asyncio.run(run())


def question(**sampling: Any) -> CompletionRequest:
    return CompletionRequest(messages=[{"role": "user", "content": "hi"}], sampling=Sampling(**sampling))


def failure(server: Server, *script: Answer, **options: Any) -> EngineFailed:
    with pytest.raises(EngineFailed) as caught:
        ask(server, *script, **options)
    assert caught.value.engine == f"openai:m@{server.url}"
    assert "Fix: " in str(caught.value)
    return caught.value


def test_a_reply_with_usage_and_cost(server: Server) -> None:
    reply = ask(server, chat("hello"), prices=(2.0, 10.0))
    assert (reply.text, reply.finish_reason, reply.model) == ("hello", "stop", "served")
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (12, 3)
    assert reply.usage.cost_usd == pytest.approx((12 * 2 + 3 * 10) / 1e6)
    assert reply.token_ids is None
    assert reply.logprobs is None
    path, body, headers = server.asked[0]
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8192,
        "temperature": 1.0,
        "top_p": 1.0,
    }
    assert headers["authorization"] == "Bearer none"


def test_without_prices_there_is_no_cost(server: Server) -> None:
    assert ask(server, chat()).usage.cost_usd is None


def test_sampling_reaches_the_server(server: Server) -> None:
    request = question(temperature=0.5, top_p=0.9, top_k=7, max_tokens=11, stop=("END",), seed=3)
    ask(server, chat(), request=request, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    body = server.bodies()[0]
    del body["messages"]
    assert body == {
        "model": "m",
        "max_tokens": 11,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "stop": ["END"],
        "seed": 3,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_what_is_off_is_said_so_that_a_server_cannot_fill_it_in(server: Server) -> None:
    """vLLM takes what is left out from the model's generation_config.json: top_k 20 and top_p 0.95 for Qwen3."""
    logprobs = {"logprobs": {"content": [{"logprob": -0.5}]}}
    ask(server, chat(choice=logprobs), request=question(logprobs=True))
    ask(server, chat(), extra_body={"return_token_ids": True})
    ask(server, chat())
    ask(server, chat(), extra_body={"return_token_ids": True, "top_k": 0})
    bodies = server.bodies()
    assert [body["top_p"] for body in bodies] == [1.0] * 4
    assert [body.get("top_k") for body in bodies] == [-1, -1, None, 0], "only where the server must know it"


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "<think>\nit is <b>\n</think>\n\nfour"}, "four", "it is <b>"),
        ({"content": "the prompt began it</think>four"}, "four", "the prompt began it"),
        ({"content": "<think>cut off"}, "", "cut off"),
        ({"content": "four", "reasoning_content": "it is\n"}, "four", "it is"),
        ({"content": "four </think>", "reasoning": "it is"}, "four </think>", "it is"),
        ({"content": None, "reasoning": "cut off"}, "", "cut off"),
        ({"content": "four", "reasoning": {"effort": "high"}, "reasoning_content": None}, "four", None),
        ({"content": "a <think> later </think> stays"}, "a <think> later </think> stays", None),
        ({"content": "four"}, "four", None),
    ],
)
def test_a_thought_is_no_part_of_the_text(
    server: Server, message: dict[str, object], text: str, reasoning: str | None
) -> None:
    reply = ask(server, chat(message=message), max_attempts=1)
    assert (reply.text, reply.reasoning) == (text, reasoning)


def test_a_thought_is_no_part_of_calls_and_completions_either(server: Server) -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    reply = ask(server, chat("<think>add?</think>", "tool_calls", message={"tool_calls": calls}))
    assert reply.reasoning == "add?"
    assert reply.text.startswith("<tool_call>")
    choice = {"index": 0, "text": "hm</think>four", "finish_reason": "stop"}
    reply = ask(
        server, answer(200, {"choices": [choice], "usage": USAGE}), request=CompletionRequest(token_ids=[3, 1, 4])
    )
    assert (reply.text, reply.reasoning) == ("four", "hm")


@pytest.mark.parametrize(
    ("reported", "meaning"),
    [("stop", "stop"), ("length", "length"), ("tool_calls", "stop"), ("content_filter", "abort"), (None, "stop")],
)
def test_finish_reasons(server: Server, reported: str | None, meaning: str) -> None:
    assert ask(server, chat(finish=reported)).finish_reason == meaning


def test_tools_and_their_results_travel_as_text(server: Server) -> None:
    tool = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {}}}
    request = CompletionRequest(
        messages=[
            {"role": "system", "content": "You add."},
            {"role": "user", "content": "1+2"},
            {"role": "assistant", "content": "calls"},
            {"role": "tool", "content": "3"},
            {"role": "tool", "content": "4"},
        ],
        tools=[tool],
    )
    ask(server, chat(), request=request)
    body = server.bodies()[0]
    assert "tools" not in body
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user"]
    system = body["messages"][0]["content"]
    assert system.startswith("You add.\n")
    assert json.dumps(tool) in system
    assert body["messages"][3]["content"] == (
        "<tool_response>\n3\n</tool_response>\n<tool_response>\n4\n</tool_response>"
    )


def test_native_tool_calls_become_text(server: Server) -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "2", "type": "function", "function": {"name": "stop", "arguments": ""}},
    ]
    reply = ask(server, chat(None, "tool_calls", message={"tool_calls": calls}))
    assert reply.text == (
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    )
    assert reply.finish_reason == "stop"


def test_logprobs_and_token_ids_come_back(server: Server) -> None:
    logprobs = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.25}]}
    reply = ask(
        server,
        chat(choice={"logprobs": logprobs, "token_ids": [5, 6]}, prompt_token_ids=[1, 2]),
        request=question(logprobs=True),
    )
    assert server.bodies()[0]["logprobs"] is True
    assert (reply.logprobs, reply.token_ids, reply.prompt_token_ids) == ([-0.5, -1.25], [5, 6], [1, 2])


def test_logprobs_that_are_missing_or_do_not_fit_are_refused(server: Server) -> None:
    error = failure(server, chat(), request=question(logprobs=True))
    assert "no log-probabilities" in str(error)
    assert error.attempts == 1
    choice = {"logprobs": {"content": [{"logprob": -0.5}]}, "token_ids": [5, 6]}
    assert "2 token ids" in str(failure(server, chat(choice=choice), request=question(logprobs=True)))


def test_logprobs_of_another_distribution_are_not_asked_for(server: Server) -> None:
    error = failure(server, chat(), request=question(logprobs=True, temperature=0.7))
    assert "temperature=0.7" in str(error)
    assert server.asked == []
    logprobs = {"content": [{"logprob": -0.5}]}
    request = question(logprobs=True, temperature=0.7)
    reply = ask(server, chat(choice={"logprobs": logprobs}), request=request, processed_logprobs=True)
    assert reply.logprobs == [-0.5]


def test_token_ids_go_to_the_completions_endpoint(server: Server) -> None:
    choice = {"index": 0, "text": " four", "finish_reason": "length", "logprobs": {"token_logprobs": [-0.25]}}
    request = CompletionRequest(token_ids=[3, 1, 4], sampling=Sampling(max_tokens=1, logprobs=True, seed=9))
    reply = ask(server, answer(200, {"choices": [choice], "usage": USAGE}), request=request)
    path, body, _ = server.asked[0]
    assert path == "/v1/completions"
    sampled = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "seed": 9, "logprobs": 1}
    assert body == {"model": "m", "prompt": [3, 1, 4], "max_tokens": 1} | sampled
    assert (reply.text, reply.finish_reason, reply.logprobs) == (" four", "length", [-0.25])
    assert reply.prompt_token_ids == [3, 1, 4]
    assert reply.model == "m"


def test_a_byte_order_mark_before_a_reply_is_no_part_of_it(server: Server) -> None:
    body = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}], "usage": USAGE}
    assert ask(server, raw(200, "\ufeff" + json.dumps(body))).text == "hello"


def test_what_helps_against_too_many_requests_is_no_option_that_a_command_lacks(server: Server) -> None:
    assert "Fix: wait, ask less at once" in str(failure(server, answer(429, {}), max_attempts=1))


TRANSIENT: dict[str, tuple[Answer, int | None, str]] = {
    "status 429": (answer(429, {"error": {"message": "slow down"}}), 429, "slow down"),
    "status 500": (answer(500, {"error": {"message": "oops"}}), 500, "oops"),
    "status 503, not JSON": (raw(503, "<html>busy</html>", "text/html"), 503, "busy"),
    "not JSON": (raw(200, "<html>sign in</html>", "text/html"), 200, "sign in"),
    "half a JSON": (raw(200, '{"choices": ['), 200, '{"choices": ['),
    "no body": (raw(200, ""), 200, "malformed"),
    "a list": (raw(200, "[]"), 200, "malformed"),
    "packed": (raw(200, gzip.compress(b"{}"), Content_Encoding="gzip"), 200, "packed ('gzip')"),
    "error with status 200": (answer(200, {"error": {"message": "overloaded", "code": 502}}), 200, "overloaded"),
    "no choices": (answer(200, {"choices": [], "usage": USAGE}), 200, "no choices"),
    "null choices": (answer(200, {"choices": None, "usage": USAGE}), 200, "no choices"),
    "null message": (answer(200, {"choices": [{"message": None}], "usage": USAGE}), 200, "neither"),
    "null content": (chat(None), 200, "no content"),
    "number for content": (chat(message={"content": 3}), 200, "neither a text nor a list of parts"),
    "number for text": (chat(choice={"message": None, "text": 3}), 200, "choices.0.text"),
    "a part without a text": (chat(message={"content": [{"type": "text"}]}), 200, "has no text"),
    "a part of another kind": (chat(message={"content": [{"type": "image_url"}]}), 200, "'image_url'"),
    "token ids below zero": (chat(choice={"token_ids": [1, -1]}), 200, "token_ids holds -1"),
    "a token id of many digits": (chat(choice={"token_ids": [10**40]}), 200, "token_ids holds a number of 133 bits"),
    "hangs up": (hang_up, None, "broke off"),
    "cut short": (cut_short, None, "broke off"),
}


@pytest.mark.parametrize("name", TRANSIENT)
def test_a_fault_that_passes_is_survived(server: Server, name: str) -> None:
    fault, _, _ = TRANSIENT[name]
    assert ask(server, fault, fault, chat("at last")).text == "at last"
    assert len(server.asked) == 3


@pytest.mark.parametrize("name", TRANSIENT)
def test_a_fault_that_stays_is_named(server: Server, name: str) -> None:
    fault, status, words = TRANSIENT[name]
    error = failure(server, fault)
    assert len(server.asked) == 3
    assert (error.status, error.attempts) == (status, 3)
    assert "after 3 attempts" in str(error)
    assert words in str(error)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_refusal_is_not_retried(server: Server, status: int) -> None:
    error = failure(server, answer(status, {"error": {"message": "bad thing"}}))
    assert len(server.asked) == 1
    assert (error.status, error.attempts) == (status, 1)
    assert "bad thing" in str(error)


def test_an_empty_account_is_not_retried(server: Server) -> None:
    error = failure(server, answer(429, {"error": {"message": "pay", "code": "insufficient_quota"}}))
    assert len(server.asked) == 1
    assert "credit" in str(error)


@pytest.mark.parametrize("fault", [silent, drip], ids=["silent", "drip"])
def test_an_attempt_ends_at_its_timeout(server: Server, fault: Answer) -> None:
    start = time.monotonic()
    error = failure(server, fault, timeout_s=0.3, max_attempts=2)
    assert "timeout_s=0.3" in str(error)
    assert error.attempts == 2
    assert 0.6 <= time.monotonic() - start < 4


def test_nobody_listens(server: Server) -> None:
    server.shutdown()
    server.server_close()
    error = failure(server, chat(), max_attempts=2)
    assert (error.status, error.attempts) == (None, 2)
    assert server.url in str(error)


@pytest.mark.parametrize(
    "headers",
    [{"Retry_After": "0.4"}, {"retry_after_ms": "400"}],
)
def test_retry_after_is_respected(server: Server, headers: dict[str, str]) -> None:
    start = time.monotonic()
    ask(server, answer(429, {}, **headers), chat())
    assert 0.4 <= time.monotonic() - start < 3


def test_retry_after_as_a_date(server: Server) -> None:
    start = time.time()
    ask(server, answer(503, {}, Retry_After=formatdate(start + 2, usegmt=True)), chat())
    assert 0.9 <= time.time() - start < 5  # dates have whole seconds


@pytest.mark.parametrize("value", ["0", "-5", formatdate(0, usegmt=True)], ids=["zero", "negative", "a past date"])
def test_a_retry_after_of_no_time_waits_as_we_would(
    server: Server, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setattr("engine.openai.client.FIRST_DELAY_S", 0.5)
    start = time.monotonic()
    ask(server, answer(429, {}, Retry_After=value), chat())
    assert time.monotonic() - start >= 0.25


def test_a_retry_after_of_an_hour_fails_at_once(server: Server) -> None:
    error = failure(server, answer(429, {}, Retry_After="3600"))
    assert len(server.asked) == 1
    assert "wait 3600 s" in str(error)


def test_a_spent_budget_is_a_short_reply_not_a_fault(server: Server) -> None:
    reply = ask(server, chat(None, "length"))
    assert (reply.text, reply.finish_reason) == ("", "length")


def test_an_empty_reply_and_a_refusal_are_replies(server: Server) -> None:
    assert ask(server, chat("")).text == ""
    assert ask(server, chat(None, message={"refusal": "I will not."})).text == "I will not."


def test_the_concurrency_cap_holds_and_is_used(server: Server) -> None:
    def slow(handler: Handler) -> None:
        time.sleep(0.05)
        chat()(handler)

    server.script = [slow]

    async def run() -> None:
        engine = OpenAIEngine("m", server.url, concurrency=3)
        await asyncio.gather(*(engine.complete(question()) for _ in range(12)))
        await engine.close()

    asyncio.run(run())
    assert len(server.asked) == 12
    assert server.most_busy == 3


def test_a_cancelled_call_frees_its_slot(server: Server) -> None:
    server.script = [silent, chat("second")]

    async def run() -> str:
        engine = OpenAIEngine("m", server.url, concurrency=1)
        first = asyncio.create_task(engine.complete(question()))
        while not server.asked:
            await asyncio.sleep(0.01)
        first.cancel()
        reply = await asyncio.wait_for(engine.complete(question()), 5)
        await engine.close()
        return reply.text

    assert asyncio.run(run()) == "second"


def test_one_engine_serves_one_event_loop_after_another(server: Server) -> None:
    server.script = [chat("again")]
    engine = OpenAIEngine("m", server.url)
    assert [asyncio.run(engine.complete(question())).text for _ in range(2)] == ["again", "again"]


def test_a_closed_engine_says_so(server: Server) -> None:
    async def run() -> None:
        engine = OpenAIEngine("m", server.url)
        await engine.close()
        await engine.complete(question())

    with pytest.raises(EngineFailed, match="closed"):
        asyncio.run(run())


@pytest.mark.parametrize("value", ["\ud800", {1}], ids=["broken Unicode", "a set"])
def test_a_request_that_cannot_be_written_says_so(server: Server, value: object) -> None:
    request = CompletionRequest(messages=[{"role": "user", "content": "hi"}], tools=[{"name": value}])
    error = failure(server, chat(), request=request)
    assert "cannot be sent" in str(error)
    assert (error.attempts, server.asked) == (1, [])


def test_keys_and_urls(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    with pytest.raises(EngineFailed, match="OPENAI_API_KEY"):
        OpenAIEngine("m")
    with pytest.raises(EngineFailed, match="http://localhost:8000/v1"):
        OpenAIEngine("m", "localhost:8000/v1")
    with pytest.raises(ValueError, match="max_attempts=0"):
        OpenAIEngine("m", server.url, max_attempts=0)
    monkeypatch.setenv("OPENAI_API_KEY", "from-env\n")
    ask(server, chat())
    ask(server, chat(), api_key="given")
    assert [headers["authorization"] for _, _, headers in server.asked] == ["Bearer from-env", "Bearer given"]
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert OpenAIEngine("m").name == f"openai:m@{server.url}"


def test_openai_itself_gets_its_own_name_for_the_limit(server: Server) -> None:
    engine = OpenAIEngine("m", api_key="k")
    assert engine._chat_body(question(max_tokens=5))["max_completion_tokens"] == 5
    assert "max_tokens" not in engine._chat_body(question())
    assert not {"top_p", "top_k"} & engine.sent(question(logprobs=True))["body"].keys(), "its o3 refuses them"


def test_importing_the_engine_does_not_import_the_library() -> None:
    code = "import engine.openai.client, sys; assert 'openai' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("status", "error", "limit", "used"),
    [
        (
            400,
            "This model's maximum context length is 8192 tokens. However, you requested 4096 output tokens and your "
            "prompt contains at least 9000 input tokens",
            8192,
            9000,
        ),
        (400, "maximum context length is 100 tokens", 100, 101),
        (400, {"code": "context_length_exceeded", "message": "too long"}, 0, 1),
    ],
)
def test_a_prompt_beyond_the_context_is_a_limit_and_no_failure_of_the_engine(
    server: Server, status: int, error: object, limit: int, used: int
) -> None:
    server.script = [answer(status, {"error": error if isinstance(error, dict) else {"message": error}})]
    engine = OpenAIEngine("m", server.url)
    with pytest.raises(LimitExceeded) as caught:
        asyncio.run(engine.complete(CompletionRequest(messages=[{"role": "user", "content": "x"}])))
    assert (caught.value.limit_kind, caught.value.limit, caught.value.used) == ("context_tokens", limit, used)
    assert len(server.asked) == 1, "asking again would not help"


MAXIMUM = "This model's maximum context length is"


def vllm(context: int, prompt: int) -> Answer:
    """A server with this context, whose prompt has so many tokens, in the words of vLLM 0.32."""

    def reply(handler: Handler) -> None:
        asked = handler.server.bodies()[-1]["max_tokens"]
        if asked > context:
            told = f"max_tokens={asked} cannot be greater than max_model_len={context}. Please request fewer tokens."
        elif prompt + asked > context:
            told = (
                f"{MAXIMUM} {context} tokens. However, you requested {asked} output tokens and your prompt "
                f"contains at least {context - asked + 1} input tokens, for a total of at least {context + 1} tokens. "
                f"(parameter=input_tokens, value={context - asked + 1})"
            )
        else:
            return chat("cut", "length")(handler)
        return answer(400, {"error": {"message": told, "type": "BadRequestError", "code": 400}})(handler)

    return reply


@pytest.mark.parametrize(
    ("told", "then"),
    [
        ("max_tokens=8192 cannot be greater than max_model_len=4096. Please request fewer output tokens.", 2048),
        ("max_tokens=8192 cannot be greater than max_model_len=max_total_tokens=4096.", 2048),
        (
            f"{MAXIMUM} 8192 tokens. However, you requested 8192 output tokens and your prompt contains 581 characters "
            "(more than 0 characters, which is the upper bound for 0 input tokens).",
            4096,
        ),
        (
            f"'max_tokens' or 'max_completion_tokens' is too large: 8192. {MAXIMUM} 4096 tokens and your request has "
            "12 input tokens (8192 > 4096 - 12).",
            4084,
        ),
        (
            f"{MAXIMUM} 9097 tokens. However, you requested 9192 tokens (1000 in the messages, 8192 in the completion)",
            8097,
        ),
        (f"{MAXIMUM} 9097 tokens. However, you requested 9192 tokens.", 4096),
        (
            "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of "
            "9000 tokens: 808 tokens from the input messages and 8192 tokens for the completion.",
            7384,
        ),
    ],
)
def test_a_reply_that_does_not_fit_is_asked_for_again_and_cut(server: Server, told: str, then: int) -> None:
    reply = ask(server, answer(400, {"error": {"message": told}}), chat("cut", "length"), max_attempts=1)
    assert (reply.text, reply.finish_reason) == ("cut", "length")
    first, second = server.bodies()
    assert (first.pop("max_tokens"), second.pop("max_tokens")) == (8192, then)
    assert first == second


@pytest.mark.parametrize(("context", "prompt"), [(4096, 12), (4096, 3000), (32768, 25000), (4096, 4095), (8192, 1)])
def test_whatever_leaves_room_is_answered(server: Server, context: int, prompt: int) -> None:
    reply = ask(server, vllm(context, prompt), max_attempts=1)
    asked = [body["max_tokens"] for body in server.bodies()]
    assert (reply.text, reply.finish_reason) == ("cut", "length")
    assert asked[0] == 8192
    assert (context - prompt) // 4 <= asked[-1] <= context - prompt
    assert len(asked) < 16


def test_the_room_for_token_ids_is_known(server: Server) -> None:
    told = "max_tokens=8192 cannot be greater than max_model_len=4096"
    choice = {"index": 0, "text": " four", "finish_reason": "length"}
    last = answer(200, {"choices": [choice], "usage": USAGE})
    ask(server, answer(400, {"error": {"message": told}}), last, request=CompletionRequest(token_ids=[7] * 4000))
    assert [body["max_tokens"] for body in server.bodies()] == [8192, 96]


@pytest.mark.parametrize("prompt", [4096, 9000])
def test_a_prompt_that_fills_the_context_is_found_out(server: Server, prompt: int) -> None:
    with pytest.raises(LimitExceeded) as caught:
        ask(server, vllm(4096, prompt), max_attempts=1)
    assert (caught.value.limit_kind, caught.value.limit, caught.value.used) == ("context_tokens", 4096, 4097)
    assert len(server.asked) < 16


@pytest.mark.parametrize("ids", [None, [7] * 12])
def test_a_server_that_refuses_what_fits_is_at_fault_itself(server: Server, ids: list[int] | None) -> None:
    told = f"{MAXIMUM} 4096 tokens and your request has 12 input tokens"
    request = CompletionRequest(token_ids=ids) if ids else question()
    error = failure(server, answer(400, {"error": {"message": told}}), request=request)
    assert "a prompt of 12 tokens and max_tokens=1 are refused for a context of 4096" in str(error)
    assert error.attempts == 1
    assert len(server.asked) < 16
