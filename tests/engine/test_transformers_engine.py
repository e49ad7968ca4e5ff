"""TransformersEngine on a tiny model with random weights, built here; skipped without torch and transformers."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tiny_models import CHATML, make_model
from engine.local.transformers import TransformersEngine
from engine.protocol import Engine, LiveEngine
from workflow.completion import ChatMessage, Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed, LimitExceeded

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

CONTEXT = 1024


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    make_model(path)
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def chat(text: str, **sampling: Any) -> CompletionRequest:
    sampling = {"max_tokens": 24} | sampling
    return CompletionRequest(messages=[{"role": "user", "content": text}], sampling=Sampling(**sampling))


def run(folder: Path, *waves: list[CompletionRequest], **options: Any) -> list[list[Completion]]:
    """The completions of each wave; the requests of one wave are made at once, in the given order."""

    async def go() -> list[list[Completion]]:
        engine = TransformersEngine(str(folder), "cpu", **options)
        assert isinstance(engine, Engine)
        try:
            return [await asyncio.gather(*(engine.complete(r) for r in wave)) for wave in waves]
        finally:
            await engine.close()
            await engine.close()

    return asyncio.run(go())


def scores(model: Any, prompt: list[int], tokens: list[int]) -> Any:
    """Logits that a plain forward pass, without cache, padding or batch, gives for each completion token."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0]
    return logits[len(prompt) - 1 : -1].float()


def mixed_requests() -> list[CompletionRequest]:
    return [
        chat("hi", seed=1),
        chat("a much longer question than the others, " * 3, seed=2, temperature=0.7),
        chat("greedy", temperature=0, max_tokens=7),
        chat("filtered", seed=4, top_k=5, max_tokens=40),
        chat("nucleus", seed=5, top_p=0.6),
        chat("hi", seed=6),
    ]


def test_tokens_do_not_depend_on_the_neighbours_or_the_order_of_arrival(folder: Path) -> None:
    requests = mixed_requests()
    alone, together, backwards, pairs = (
        run(folder, *[[request] for request in requests]),
        run(folder, requests),
        run(folder, requests[::-1]),
        run(folder, requests, max_batch=2),
    )
    expected = [completion.token_ids for [completion] in alone]
    assert [completion.token_ids for completion in together[0]] == expected
    assert [completion.token_ids for completion in backwards[0]][::-1] == expected
    assert [completion.token_ids for completion in pairs[0]] == expected
    assert expected[0] != expected[5], "another seed must give other tokens"


def test_waves_are_shared_and_joined_where_there_is_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.local import generation

    begun, joined = list[int](), list[tuple[int, int]]()
    real = generation.generate

    def counting(model: Any, rows: Any, ends: Any, joining: Any) -> None:
        def come_in(under_way: int) -> Any:
            new = joining(under_way)
            if new:
                joined.append((under_way, len(new)))
            return new

        begun.append(len(rows))
        real(model, rows, ends, come_in)

    monkeypatch.setattr(generation, "generate", counting)
    run(folder, [chat("x", seed=i, temperature=1e-6, max_tokens=2) for i in range(5)], max_batch=3)
    assert (begun, joined) == ([3], [(0, 2)])


def test_a_completion_does_not_wait_for_the_longest_nor_for_a_wave(folder: Path) -> None:
    """A short one is answered while a long one goes on, and so is one that was asked for after that."""
    ended: list[int] = []

    async def go() -> None:
        engine = TransformersEngine(str(folder), "cpu")

        async def ask(length: int) -> None:
            await engine.complete(chat("hi", temperature=0, max_tokens=length))
            ended.append(length)

        long = asyncio.create_task(ask(600))
        await ask(3)
        await ask(4)
        assert not long.done()
        await long
        await engine.close()

    asyncio.run(go())
    assert ended == [3, 4, 600]


def test_nobody_joins_a_wave_while_new_weights_wait(folder: Path, model: Any, gate: Gate) -> None:
    async def go() -> list[Completion]:
        engine = TransformersEngine(str(folder), "cpu")
        first = asyncio.create_task(engine.complete(chat("hi", seed=1, max_tokens=40)))
        while not gate.reached.is_set():
            await asyncio.sleep(0.005)
        update = asyncio.create_task(engine.update_weights(7, new_weights(model)))
        await asyncio.sleep(0.01)
        late = asyncio.create_task(engine.complete(chat("hi", seed=1, max_tokens=40)))
        await asyncio.sleep(0.01)
        gate.opened.set()
        await update
        replies = [await first, await late]
        await engine.close()
        return replies

    first, late = asyncio.run(asyncio.wait_for(go(), 60))
    assert (first.weights_version, late.weights_version) == (0, 7)
    assert len(first.token_ids or []) > 16, "there was time to join"


def test_without_a_seed_completions_differ(folder: Path) -> None:
    [completions] = run(folder, [chat("hi") for _ in range(4)])
    assert len({tuple(completion.token_ids or []) for completion in completions}) == 4


def test_logprobs_are_those_of_a_plain_forward_pass(folder: Path, model: Any) -> None:
    requests = [chat("hello " * n, seed=n, logprobs=True) for n in (1, 5, 12)]
    [completions] = run(folder, requests)
    for completion in completions:
        assert completion.token_ids
        assert completion.prompt_token_ids
        logits = scores(model, completion.prompt_token_ids, completion.token_ids)
        chosen = torch.tensor(completion.token_ids)[:, None]
        expected = logits.log_softmax(-1).gather(-1, chosen)[:, 0].tolist()
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)


def test_logprobs_are_those_of_the_sampling_in_use(folder: Path, model: Any) -> None:
    request = chat("hello", seed=3, temperature=0.5, top_k=6, top_p=0.8, logprobs=True)
    [[completion]] = run(folder, [request])
    assert completion.token_ids
    assert completion.logprobs
    for row, token, logprob in zip(
        scores(model, completion.prompt_token_ids or [], completion.token_ids),
        completion.token_ids,
        completion.logprobs,
        strict=True,
    ):
        # By hand: the six likeliest at temperature 0.5, of these the fewest that reach 0.8.
        ranked = sorted(((math.exp(x / 0.5), i) for i, x in enumerate(row.tolist())), reverse=True)[:6]
        total = sum(weight for weight, _ in ranked)
        kept: dict[int, float] = {}
        for weight, index in ranked:
            if sum(kept.values()) >= 0.8 * total:
                break
            kept[index] = weight
        assert logprob == pytest.approx(math.log(kept[token] / sum(kept.values())), abs=1e-4)


def test_temperature_zero_takes_the_likeliest_token(folder: Path, model: Any) -> None:
    [completions] = run(folder, [chat("hello", temperature=0, seed=seed, logprobs=True) for seed in (1, 2)])
    first, second = completions
    assert first.token_ids
    assert first.token_ids == second.token_ids
    logits = scores(model, first.prompt_token_ids or [], first.token_ids)
    assert logits.argmax(-1).tolist() == first.token_ids
    assert first.logprobs == pytest.approx(logits.log_softmax(-1).amax(-1).tolist(), abs=1e-4)


def test_draws_follow_the_distribution() -> None:
    from engine.local.generation import draw

    logits = torch.tensor([[0.0, 1.0, 2.0, -math.inf]]).repeat(4000, 1)
    points = [(i + 0.5) / 4000 for i in range(4000)]
    tokens, logprobs = draw(logits, [Sampling()] * 4000, points)
    shares = torch.bincount(tokens, minlength=4) / 4000
    expected = torch.tensor([0.0900, 0.2447, 0.6652, 0.0])  # softmax of 0, 1, 2 by hand
    assert torch.allclose(shares, expected, atol=1e-3)
    assert torch.allclose(logprobs, expected.log()[tokens], atol=1e-3)
    first, _ = draw(torch.tensor([[-math.inf, 1.0, -math.inf]]), [Sampling()], [0.0])
    assert first.tolist() == [1], "a token without probability is never drawn"
    tiny, _ = draw(torch.tensor([[3.0, 2.0]]), [Sampling(temperature=1e-30)], [0.999])
    assert tiny.tolist() == [0]


def test_padding_does_not_shift_absolute_positions(tmp_path: Path, tokenizer: Any) -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.4
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    sampling = Sampling(seed=1, max_tokens=8, logprobs=True)
    requests = [CompletionRequest(token_ids=list(range(n)), sampling=sampling) for n in (1, 9, 30)]
    for completion in run(tmp_path, requests)[0]:
        assert completion.token_ids
        logits = scores(model, completion.prompt_token_ids or [], completion.token_ids)
        chosen = torch.tensor(completion.token_ids)[:, None]
        expected = logits.log_softmax(-1).gather(-1, chosen)[:, 0].tolist()
        assert completion.logprobs == pytest.approx(expected, abs=1e-4)


def test_max_tokens_and_usage(folder: Path) -> None:
    [[completion]] = run(folder, [chat("hi", seed=1, max_tokens=3)])
    assert completion.finish_reason == "length"
    assert len(completion.token_ids or []) == 3
    assert completion.usage.completion_tokens == 3
    assert completion.usage.prompt_tokens == len(completion.prompt_token_ids or [])
    assert completion.logprobs is None


def test_the_end_token_ends_a_completion_and_is_kept(folder: Path, tokenizer: Any) -> None:
    completions = run(folder, [chat("q", seed=seed, max_tokens=200) for seed in range(40)])[0]
    ended = [completion for completion in completions if completion.finish_reason == "stop"]
    assert ended, "some of 40 long samples meet the end token"
    for completion in ended:
        ids = completion.token_ids or []
        assert ids.index(tokenizer.eos_token_id) == len(ids) - 1
        assert completion.text == tokenizer.decode(ids[:-1], skip_special_tokens=True)
    for completion in completions:
        if completion.finish_reason == "length":
            assert tokenizer.eos_token_id not in (completion.token_ids or [])


def test_stop_strings_cut_the_text_before_the_first(folder: Path) -> None:
    [[free]] = run(folder, [chat("hello", seed=11, max_tokens=40)])
    place = next(i for i in range(5, len(free.text) - 2) if free.text[i : i + 2].isascii())
    stop = free.text[place : place + 2]
    place = free.text.index(stop)
    [[cut, other]] = run(
        folder,
        [chat("hello", seed=11, max_tokens=40, stop=("not there", stop)), chat("hello", seed=11, max_tokens=40)],
    )
    assert cut.text == free.text[:place]
    assert cut.finish_reason == "stop"
    ids = free.token_ids or []
    assert ids[: len(cut.token_ids or [])] == cut.token_ids
    assert len(cut.token_ids or []) < len(ids)
    assert other.token_ids == ids


def test_token_ids_in_give_the_same_as_the_chat_they_came_from(folder: Path, tokenizer: Any) -> None:
    [[by_chat]] = run(folder, [chat("hi", seed=1)])
    prompt = by_chat.prompt_token_ids or []
    assert tokenizer.decode(prompt).endswith("<|im_start|>assistant\n<think></think>")
    request = CompletionRequest(token_ids=prompt, sampling=Sampling(seed=1, max_tokens=24))
    assert run(folder, [request])[0][0] == by_chat


def tool_prompt(folder: Path, tokenizer: Any) -> str:
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    messages: list[ChatMessage] = [{"role": "user", "content": "q"}, {"role": "tool", "content": "3"}]
    request = CompletionRequest(messages=messages, tools=[tool], sampling=Sampling(max_tokens=1))
    return tokenizer.decode(run(folder, [request])[0][0].prompt_token_ids)


def test_a_template_that_speaks_tools_gets_them(folder: Path, tokenizer: Any) -> None:
    text = tool_prompt(folder, tokenizer)
    assert '"name": "add"' in text
    assert "<|im_start|>tool\n3" in text


def test_a_template_that_drops_tools_gets_them_as_text(tmp_path: Path, tokenizer: Any) -> None:
    make_model(tmp_path, CHATML[CHATML.index("{% endif %}") + len("{% endif %}") :])
    text = tool_prompt(tmp_path, tokenizer)
    assert text.startswith("<|im_start|>system\n# Tools")
    assert '"name": "add"' in text
    assert "<|im_start|>user\n<tool_response>\n3\n</tool_response>" in text


def test_a_prompt_that_does_not_fit_fails_alone(folder: Path) -> None:
    async def go() -> list[Any]:
        engine = TransformersEngine(str(folder), "cpu")
        bad = [
            chat("x" * CONTEXT),
            CompletionRequest(token_ids=[5, 100_000]),
            CompletionRequest(token_ids=[]),
        ]
        results = await asyncio.gather(*map(engine.complete, [*bad, chat("hi", seed=1)]), return_exceptions=True)
        await engine.close()
        return results

    *bad, good = asyncio.run(go())
    too_long, *unusable = bad
    assert isinstance(too_long, LimitExceeded)
    assert (too_long.limit_kind, too_long.limit) == ("context_tokens", CONTEXT)
    assert too_long.used > CONTEXT
    assert all(isinstance(error, EngineFailed) for error in unusable)
    assert "100000" in str(unusable[0])
    assert "empty" in str(unusable[1])
    assert good == run(folder, [chat("hi", seed=1)])[0][0]


def test_a_completion_is_cut_where_the_context_ends(folder: Path) -> None:
    prompt = [i % 256 for i in range(CONTEXT - 2)]
    [[completion]] = run(folder, [CompletionRequest(token_ids=prompt, sampling=Sampling(seed=1))])
    assert len(completion.token_ids or []) <= 2
    assert completion.finish_reason == "length"


def test_a_smaller_context_than_the_models_can_be_set(folder: Path) -> None:
    async def go() -> list[Any]:
        engine = TransformersEngine(str(folder), "cpu", max_context=20)
        asked = [CompletionRequest(token_ids=[7] * size, sampling=Sampling(seed=1)) for size in (18, 20)]
        results = await asyncio.gather(*map(engine.complete, asked), return_exceptions=True)
        await engine.close()
        return results

    fits, too_long = asyncio.run(go())
    assert len(fits.token_ids) <= 2
    assert isinstance(too_long, LimitExceeded)
    assert (too_long.limit, too_long.used) == (20, 20)


class Gate:
    """Holds the first wave after its first token until opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from engine.local import generation

        self.reached, self.opened = threading.Event(), threading.Event()
        self.rows: list[int] = []
        real = generation.draw

        def draw(logits: Any, samplings: Any, points: Any) -> Any:
            self.rows.append(len(points))
            self.reached.set()
            assert self.opened.wait(30)
            return real(logits, samplings, points)

        monkeypatch.setattr(generation, "draw", draw)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.opened.set()


def test_cancelled_requests_free_their_slots_and_the_loop_stays_free(folder: Path, gate: Gate) -> None:
    async def go() -> Completion:
        engine = TransformersEngine(str(folder), "cpu", max_batch=1)
        running = asyncio.create_task(engine.complete(chat("long", seed=1, max_tokens=200)))
        while not gate.reached.is_set():
            await asyncio.sleep(0.005)  # the loop turns while the worker is held
        waiting = asyncio.create_task(engine.complete(chat("waiting", max_tokens=200)))
        last = asyncio.create_task(engine.complete(chat("hi", seed=1, max_tokens=4)))
        await asyncio.sleep(0.01)
        waiting.cancel()
        running.cancel()
        await asyncio.wait([waiting, running], timeout=5)
        gate.opened.set()
        reply = await asyncio.wait_for(last, 20)
        await engine.close()
        return reply

    reply = asyncio.run(go())
    assert len(reply.token_ids or []) == 4
    assert len(gate.rows) == 1 + 4, "one step of the abandoned row, none of the waiting one, four of the last"


def test_a_call_ends_at_its_timeout(folder: Path, gate: Gate) -> None:
    async def go() -> None:
        engine = TransformersEngine(str(folder), "cpu", timeout_s=0.5)
        try:
            await engine.complete(chat("hi"))
        finally:
            gate.opened.set()
            await engine.close()

    with pytest.raises(EngineFailed, match=r"timeout_s=0\.5"):
        asyncio.run(go())


def test_closing_ends_what_runs_and_what_waits(folder: Path, gate: Gate) -> None:
    async def go() -> list[Any]:
        engine = TransformersEngine(str(folder), "cpu", max_batch=1)
        calls = [asyncio.create_task(engine.complete(chat(str(i), max_tokens=200))) for i in range(2)]
        while not gate.reached.is_set():
            await asyncio.sleep(0.005)
        asyncio.get_running_loop().call_later(0.05, gate.opened.set)
        await engine.close()
        results = await asyncio.gather(*calls, return_exceptions=True)
        with pytest.raises(EngineFailed, match="closed"):
            await engine.complete(chat("late"))
        return results

    results = asyncio.run(go())
    assert [isinstance(result, EngineFailed) and "closed" in str(result) for result in results] == [True, True]
    assert len(gate.rows) == 1


def test_an_error_of_the_model_reaches_all_and_the_engine_lives_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.local import generation

    real = generation.generate
    calls: list[int] = []

    def broken(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("device on fire")
        real(*arguments)

    monkeypatch.setattr(generation, "generate", broken)

    async def go() -> list[Any]:
        engine = TransformersEngine(str(folder), "cpu")
        requests = [chat("a", max_tokens=2), chat("b", max_tokens=2)]
        results = await asyncio.gather(*map(engine.complete, requests), return_exceptions=True)
        results.append(await engine.complete(requests[0]))
        await engine.close()
        return results

    first, second, third = asyncio.run(go())
    assert "device on fire" in str(first)
    assert "device on fire" in str(second)
    assert isinstance(third, Completion)


def test_weights_that_give_nan_are_an_error(tmp_path: Path) -> None:
    make_model(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        model.model.norm.weight.fill_(math.nan)
    model.save_pretrained(tmp_path)
    with pytest.raises(EngineFailed, match="not finite"):
        run(tmp_path, [chat("hi")])


def test_a_folder_that_holds_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-model"}), encoding="utf-8")
    with pytest.raises(EngineFailed, match="cannot load") as caught:
        run(tmp_path, [chat("hi")])
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(EngineFailed, match="no folder"):
        TransformersEngine(str(tmp_path / "absent"))


def test_a_model_without_chat_template_says_so(tmp_path: Path) -> None:
    make_model(tmp_path, None)
    with pytest.raises(EngineFailed, match="no chat template"):
        run(tmp_path, [chat("hi")])


class Spied:
    """A model that notes the batch sizes it is asked for."""

    def __init__(self, model: Any) -> None:
        self.model, self.config, self.device = model, model.config, model.device
        self.sizes: list[tuple[int, int]] = []

    def __call__(self, **inputs: Any) -> Any:
        self.sizes.append(tuple(inputs["input_ids"].shape))
        return self.model(**inputs)


def test_equal_prompts_are_read_once_and_finished_rows_leave_the_batch(model: Any) -> None:
    from engine.local.generation import Row, generate

    def row(prompt: list[int], length: int, seed: int) -> Row:
        return Row(prompt, Sampling(seed=seed), length, lambda tokens: False, lambda: False)

    lengths = [8, 2, 2, 2]
    rows = [row([5, 6, 7], length, seed) for seed, length in enumerate(lengths)] + [row([9], 8, 9)]
    spied = Spied(model)
    generate(spied, rows, frozenset())
    assert spied.sizes[0] == (2, 3), "two different prompts"
    assert [size for size, _ in spied.sizes[1:]] == [5] + [2] * 6, "three of five have left after two tokens"
    alone = [row([5, 6, 7], length, seed) for seed, length in enumerate(lengths)] + [row([9], 8, 9)]
    for each in alone:
        generate(model, [each], frozenset())
    assert [each.tokens for each in rows] == [each.tokens for each in alone]


def test_rows_that_join_draw_what_they_would_draw_alone(model: Any) -> None:
    """With longer and shorter prompts, into a batch that others have left."""
    from engine.local.generation import JOIN_EVERY, Row, generate

    def row(prompt: list[int], length: int, seed: int) -> Row:
        return Row(prompt, Sampling(seed=seed), length, lambda tokens: False, lambda: False)

    def rows() -> list[Row]:
        return [
            row([5, 6, 7], 3, 0),
            row([9, 8, 7, 6, 5, 4], 30, 1),
            row([5, 6, 7], 30, 2),
            row(list(range(40)), 20, 3),
            row([3, 4], 9, 4),
            row([3, 4], 40, 5),
        ]

    alone, together, finished = rows(), rows(), list[Row]()
    for each in alone:
        generate(model, [each], frozenset())
    for each in together:
        each.on_finish = finished.append
    late = {2: together[3:4], 3: together[4:]}  # by how many are under way
    asked: list[int] = []

    def joining(under_way: int) -> list[Row]:
        asked.append(under_way)
        return late.pop(under_way, [])

    spied = Spied(model)
    generate(spied, together[:3], frozenset(), joining)
    assert [each.tokens for each in together] == [each.tokens for each in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert not late
    assert asked[0] == 2
    assert asked[-1] == 0
    assert [len(each.tokens) for each in finished] == [3, 9, 20, 30, 30, 40]
    joined = [at for at, (_, columns) in enumerate(spied.sizes) if columns > 1]
    assert joined == [0, JOIN_EVERY + 1, 2 * JOIN_EVERY + 2], "prompts were read thrice"


def test_a_prompt_that_a_row_under_way_has_is_not_read_again(model: Any) -> None:
    """Not even where that row came so itself, nor where a longer row has left since."""
    from engine.local.generation import JOIN_EVERY, Row, generate

    def row(prompt: list[int], length: int, seed: int) -> Row:
        return Row(prompt, Sampling(seed=seed), length, lambda tokens: False, lambda: False)

    def rows() -> list[Row]:
        first = [row(list(range(50)), 10, 0), row([5, 6, 7], 16, 1)]
        return [*first, row([5, 6, 7], 24, 2), row([8, 9], 30, 3), row([5, 6, 7], 30, 4), row([5, 6, 7], 40, 5)]

    alone, together = rows(), rows()
    for each in alone:
        generate(model, [each], frozenset())
    late = [together[2:4], together[4:5], together[5:]]
    spied = Spied(model)
    generate(spied, together[:2], frozenset(), lambda _: late.pop(0) if late else [])
    assert not late
    assert [each.tokens for each in together] == [each.tokens for each in alone]
    for one, other in zip(together, alone, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert [each.known for each in together] == [0, 0, 3, 0, 3, 3]
    read = [size for size in spied.sizes if size[1] > 1]
    assert read == [(2, 50), (1, 2)], "one new prompt came in, after the first steps"
    assert spied.sizes.index((1, 2)) == JOIN_EVERY + 1


@pytest.mark.thorough
def test_a_stream_of_equal_prompts_does_not_widen_the_cache_for_ever(model: Any) -> None:
    from engine.local.generation import Row, generate

    def row(number: int) -> Row:
        return Row(list(range(20)), Sampling(seed=number), 10 + number * 7 % 20, lambda tokens: False, lambda: False)

    rows = [row(number) for number in range(40)]
    late = rows[4:]
    widths: list[int] = []

    class Watched(Spied):
        def __call__(self, **inputs: Any) -> Any:
            widths.append(inputs["attention_mask"].shape[1])
            return super().__call__(**inputs)

    def joining(under_way: int) -> list[Row]:
        came, late[:] = late[: 4 - under_way], late[4 - under_way :]
        return came

    generate(Watched(model), rows[:4], frozenset(), joining)
    assert all(len(each.tokens) == each.max_tokens for each in rows)
    assert len(widths) > 150
    assert max(widths) < 120, "a prompt, the longest reply, and what stands between"
    alone = row(37)
    generate(model, [alone], frozenset())
    assert rows[37].tokens == alone.tokens


def new_weights(model: Any, seed: int = 1) -> dict[str, Any]:
    torch.manual_seed(seed)
    return {name: tensor + 0.3 * torch.randn_like(tensor) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("tied", [False, True])
def test_new_weights_serve_from_one_wave_to_the_next(tmp_path: Path, tied: bool) -> None:
    make_model(tmp_path, tied=tied)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    given = new_weights(model)
    if tied:
        del given["lm_head.weight"]
    request = chat("hi", temperature=0, max_tokens=20)

    async def go() -> list[Completion]:
        engine = TransformersEngine(str(tmp_path), "cpu")
        assert isinstance(engine, LiveEngine)
        before = await engine.complete(request)
        under_way = asyncio.create_task(engine.complete(chat("hi", temperature=0, max_tokens=200)))
        await asyncio.sleep(0)
        digest = await engine.update_weights(7, given)
        assert digest == await engine.update_weights(8, given)
        after = await engine.complete(request)
        await engine.close()
        return [before, await under_way, after]

    before, under_way, after = asyncio.run(go())
    assert (before.weights_version, under_way.weights_version, after.weights_version) == (0, 0, 8)
    model.load_state_dict(given, strict=not tied)
    assert after.prompt_token_ids is not None
    assert after.token_ids is not None
    expected = scores(model, after.prompt_token_ids, after.token_ids).argmax(-1).tolist()
    assert after.token_ids == expected, "the tokens are those of the new weights"
    assert before.token_ids != after.token_ids


def test_an_engine_that_does_not_hold_what_it_was_given_refuses_to_serve(
    folder: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine import weights

    real = weights.fingerprint
    lies = iter(["wrong"])
    monkeypatch.setattr(weights, "fingerprint", lambda tensors: next(lies, None) or real(tensors))

    async def go() -> Completion:
        engine = TransformersEngine(str(folder), "cpu")
        with pytest.raises(EngineFailed, match="does not hold"):
            await engine.update_weights(1, new_weights(model))
        with pytest.raises(EngineFailed, match="update the weights again"):
            await engine.complete(chat("hi"))
        await engine.update_weights(2, new_weights(model))
        completion = await engine.complete(chat("hi"))
        await engine.close()
        return completion

    assert asyncio.run(go()).weights_version == 2


def test_a_fingerprint_sees_every_bit_and_every_place() -> None:
    from engine.weights import fingerprint

    base = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    others = [
        base.flip(0),
        base.reshape(3, 2),
        base.to(torch.bfloat16),
        base + torch.tensor([[0, 0, 0], [0, 0, 1e-6]]),
        -base,
    ]
    digests = {fingerprint({"w": tensor}) for tensor in [base, *others]} | {fingerprint({"v": base})}
    assert len(digests) == len(others) + 2
    assert fingerprint({"w": base.clone()}) == fingerprint({"w": base})
    assert fingerprint({"w": base, "v": base}) == fingerprint({"v": base, "w": base})


def test_adapters_are_merged_into_what_an_engine_takes(folder: Path, model: Any) -> None:
    peft = pytest.importorskip("peft")
    from engine.protocol import Probe
    from engine.weights import merged, probed

    base = copy.deepcopy(model)
    names = set(base.state_dict())
    config = peft.LoraConfig(r=4, lora_alpha=16, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    trained = peft.get_peft_model(base, config)
    held = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    weights = merged(trained)
    assert set(weights) == names
    assert all(torch.equal(tensor, held[name]) for name, tensor in trained.state_dict().items())
    tokens = list(range(3, 60))
    assert max(abs(a - b) for a, b in zip(probed(trained, tokens), probed(model, tokens), strict=True)) > 0.1

    async def go() -> Completion:
        engine = TransformersEngine(str(folder), "cpu")
        await engine.update_weights(1, weights, Probe(tokens, probed(trained, tokens)))
        completion = await engine.complete(chat("hi"))
        await engine.close()
        return completion

    assert asyncio.run(go()).weights_version == 1
