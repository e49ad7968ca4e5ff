"""ServedEngine against a scripted server: what it asks, what it believes, what it says is wrong. The conformance suite
puts it before a real vLLM."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import pytest
from scripted_server import USAGE, Answer, Server, answer

from engine.spec import parse_engine
from engine.vllm.served import ServedEngine
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed, LimitExceeded

ASK = CompletionRequest(messages=[{"role": "user", "content": "hi"}], sampling=Sampling(seed=3, stop=("|",)), agent="A")


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    pytest.importorskip("transformers")
    from benchmarks.tiny_models import make_tokenizer

    made = make_tokenizer()
    made.save_pretrained(tmp_path)
    return made


def text(tokens: list[int] | None, **choice: Any) -> Answer:
    said = {"index": 0, "text": "as the server decodes", "finish_reason": "stop", "token_ids": tokens} | choice
    return answer(200, {"id": "x", "model": "served", "choices": [said], "usage": USAGE})


def ask(server: Server, folder: Path | str, *script: Answer, **options: Any) -> Completion:
    server.script = list(script)

    async def go() -> Completion:
        engine = ServedEngine(str(folder), server.url, timeout_s=60.0, **options)
        try:
            return await engine.complete(ASK)
        finally:
            await engine.close()

    return asyncio.run(asyncio.wait_for(go(), 120))


def test_it_asks_with_ids_and_reads_the_ids_that_come_back(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    tokens = [*tokenizer("<think>why</think>it is|so").input_ids, tokenizer.eos_token_id]
    reply = ask(server, tmp_path, answer(500, {}), text(tokens), served_name="m", extra_body={"top_k": 5})
    path, body, _ = server.asked[-1]
    assert path == "/v1/completions"
    prompt = tokenizer.apply_chat_template(
        ASK.messages, add_generation_prompt=True, tokenize=False, enable_thinking=False
    )
    assert body["prompt"] == tokenizer(prompt).input_ids == reply.prompt_token_ids
    assert (body["model"], body["return_token_ids"], body["top_k"]) == ("m", True, 5)
    assert (body["repetition_penalty"], body["min_p"]) == (1.0, 0.0), "not those of generation_config.json"
    assert "messages" not in body
    assert (reply.text, reply.reasoning, reply.token_ids) == ("it is", "why", tokens)
    assert len(server.asked) == 2, "retries are the endpoint's"


def test_a_server_without_token_ids_is_not_believed(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match=r"sends no token ids\. Fix: serve with vLLM 0\.10\.2") as caught:
        ask(server, tmp_path, text(None))
    assert caught.value.engine == f"vllm:{tmp_path}@{server.url}"


def test_failures_and_limits_of_the_endpoint_are_its_own(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="status 404") as caught:
        ask(server, tmp_path, answer(404, {"error": {"message": "no such model"}}))
    assert caught.value.engine == f"vllm:{tmp_path}@{server.url}"
    told = "This model's maximum context length is 16 tokens; your prompt contains 50 tokens"
    with pytest.raises(LimitExceeded, match="context_tokens"):
        ask(server, tmp_path, answer(400, {"error": {"message": told}}))


def test_a_tokenizer_that_is_not_there_is_named(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineFailed, match=r"(?s)cannot load the tokenizer '.*empty'.* or give tokenizer="):
        ask(server, "m", tokenizer=str(tmp_path / "empty"))
    assert not server.asked


def test_all_who_wait_share_one_attempt_to_load_and_no_longer_than_their_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    attempts: list[int] = []

    def load(self: ServedEngine) -> Any:
        attempts.append(1)
        time.sleep(0.3)
        raise EngineFailed(self.name, "no such hub", 0)

    async def go(timeout_s: float) -> list[Any]:
        engine = ServedEngine("m", server.url, timeout_s=timeout_s)
        outcomes = await asyncio.gather(*(engine.complete(ASK) for _ in range(5)), return_exceptions=True)
        await engine.close()
        return outcomes

    monkeypatch.setattr(ServedEngine, "_load", load)
    assert all("no such hub" in str(one) for one in asyncio.run(go(5.0)))
    assert len(attempts) == 1
    assert all("not loaded within timeout_s=0.05" in str(one) for one in asyncio.run(go(0.05)))


def test_a_template_that_raises_fails_the_call(server: Server, tokenizer: Any, tmp_path: Path) -> None:
    file = tmp_path / "chat_template.jinja"
    assert file.exists() or "chat_template" in json.loads((tmp_path / "tokenizer_config.json").read_text())
    tokenizer.chat_template = "{{ raise_exception('never') }}"
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(EngineFailed, match=r"agent 'A': cannot make a prompt: .*never"):
        ask(server, tmp_path)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineFailed, match=r'transformers not installed\. Fix: pip install "metaagent\[local\]"'):
        ServedEngine("m", "http://h/v1")


def test_it_has_a_name_on_the_command_line() -> None:
    pytest.importorskip("transformers")
    engine = parse_engine("vllm:org/model@http://h:1/v1")
    assert isinstance(engine, ServedEngine)
    assert engine.name == "vllm:org/model@http://h:1/v1"
    with pytest.raises(ValueError, match="Fix: write vllm:FOLDER_OR_HUB_ID, or vllm:FOLDER_OR_HUB_ID@BASE_URL"):
        parse_engine("vllm:m@localhost:8000/v1")
