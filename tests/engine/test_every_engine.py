"""What every engine must do alike, on one tiny model: transformers, vLLM, OpenAI-compatible servers, a cache, replay.

An engine that this environment lacks is skipped, with the reason. The reference is a plain forward pass.

METAAGENT_TEST_MODEL=FOLDER tests with a model that others have trained (`python -m speedrun.pretrained FOLDER` makes
one): slower, and its tokens are longer than a byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from device import DEVICE
from tiny_server import TinyServer
from vllm_server import VLLMServer

from engine.local.transformers import TransformersEngine
from engine.openai.cache import CachedEngine
from engine.openai.client import OpenAIEngine
from engine.protocol import Engine, LiveEngine, Probe, WatchedEngine
from engine.replay import ReplayEngine, ReplayEntry
from engine.session import Run
from engine.vllm.in_process import VLLMEngine
from engine.vllm.served import ServedEngine
from sandbox import ProcessSandbox
from workflow.completion import ChatMessage, Completion, CompletionRequest, PreviousTurn, Sampling
from workflow.failures import EngineFailed, LimitExceeded
from workflow.limits import Limits
from workflow.trace import Trace

pytestmark = pytest.mark.timeout(600)  # vLLM takes its time to start
MODEL = os.environ.get("METAAGENT_TEST_MODEL")
CONTEXT = 1024
CLOSE = 1e-4
"""Largest difference of log-probabilities in float32 (vLLM and transformers were seen to differ by 6e-6)."""
PARAGRAPH = "a prompt that fills some blocks " * 28
"""Of more than 128 tokens, which is a cache block of vLLM's on CPUs; in bytes less than the context."""
VLLM_OPTIONS = {
    "dtype": "float32",
    "max_model_len": CONTEXT,
    "kv_cache_memory_bytes": 2 << 30 if MODEL else 64 << 20,
    "enforce_eager": True,
    "max_num_seqs": 64,
    # On CPUs a seeded request that is read in pieces ends the engine.
    "max_num_batched_tokens": 64 * CONTEXT,
}
ENGINES = ["transformers", "vllm", "openai", "openai-vllm", "served", "served-vllm", "cached", "replay"]
"""`openai` is a small server of the tests' own and `openai-vllm` vLLM's, both asked with messages; `served` and
`served-vllm` are the same servers, asked with token ids; `cached` is the first with a cache."""
PROGRAMS = Path(__file__).parents[1] / "sandbox" / "programs"
PUBLISHED = Path(__file__).parents[3] / "shared" / "papers" / "designer-scripts"
"""Not on every machine."""
TEMPLATES = Path(__file__).parents[2] / "templates"
PROGRAM_CONTEXT = 16_384


@dataclass
class Setting:
    """One engine, the loop that it belongs to, and the model that it serves."""

    name: str
    engine: Engine
    runner: asyncio.Runner
    model: Any
    tokenizer: Any
    folder: Path

    @property
    def is_live(self) -> bool:
        return self.name in ("transformers", "vllm")

    @property
    def owns_tokens(self) -> bool:
        return self.is_live or "served" in self.name

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def within() -> Any:
            return await asyncio.wait_for(work, 240)

        return self.runner.run(within())

    def ask(self, *requests: CompletionRequest) -> list[Completion]:
        async def go() -> list[Completion]:
            return await asyncio.gather(*map(self.engine.complete, requests))

        return self.run(go())

    def logits(self, prompt: list[int], tokens: list[int]) -> Any:
        import torch

        with torch.no_grad():
            return self.model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].float()

    def encode(self, messages: list[ChatMessage]) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, enable_thinking=False
        )
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]


def needs(*modules: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("torch", "transformers")
    from benchmarks.tiny_models import make_model

    path = tmp_path_factory.mktemp("tiny")
    if MODEL is None:
        make_model(path, context=CONTEXT)
    else:
        trained(path, CONTEXT)
    return path


def trained(folder: Path, context: int) -> None:
    """The model of METAAGENT_TEST_MODEL, with a smaller context."""
    assert MODEL is not None
    for file in Path(MODEL).resolve().iterdir():
        if file.name == "config.json":
            config = json.loads(file.read_text())
            (folder / file.name).write_text(json.dumps({**config, "max_position_embeddings": context}))
        else:
            (folder / file.name).symlink_to(file)


@pytest.fixture(scope="module", params=ENGINES)
def setting(request: pytest.FixtureRequest, folder: Path) -> Iterator[Setting]:
    import transformers

    name = request.param
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with asyncio.Runner() as runner, serving(name, folder, VLLM_OPTIONS) as engine:
        setting = Setting(name, engine, runner, model, tokenizer, folder)
        yield setting
        setting.run(engine.close())
        setting.run(engine.close())
        with pytest.raises(EngineFailed, match="closed"):
            setting.ask(chat("late"))


@contextlib.contextmanager
def serving(name: str, folder: Path, options: dict[str, Any]) -> Iterator[Engine]:
    """The engine of a name, and the server behind it, if there is one. Whoever has it closes the engine."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        if "vllm" in name:
            needs("vllm")
            for variable, value in {"OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}.items():
                patch.setenv(variable, value)
        match name:
            case "vllm":
                yield VLLMEngine(str(folder), options=options)
            case "openai" | "openai-vllm" | "served" | "served-vllm" | "cached":
                theirs = "vllm" in name
                server = (
                    VLLMServer(str(folder), options) if theirs else TinyServer(TransformersEngine(str(folder), DEVICE))
                )
                stack.enter_context(contextlib.closing(server))
                if "served" in name:
                    yield ServedEngine(str(folder), server.url, served_name="tiny", processed_logprobs=True)
                    return
                extra = {"return_token_ids": True, "chat_template_kwargs": {"enable_thinking": False}}
                engine = OpenAIEngine("tiny", server.url, processed_logprobs=True, extra_body=extra)
                yield CachedEngine(engine, stack.enter_context(TemporaryDirectory())) if name == "cached" else engine
            case "replay":
                yield Replayed(TransformersEngine(str(folder), DEVICE))
            case _:
                yield TransformersEngine(str(folder), DEVICE)


class Replayed:
    """Records each reply of an engine, and gives what a replay of the recording makes of the same request."""

    name = "replay"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def complete(self, request: CompletionRequest) -> Completion:
        completion = await self._engine.complete(request)
        if request.messages is None:
            return completion  # recordings hold messages
        entry = ReplayEntry(
            agent=request.agent,
            key=request.key,
            messages=request.messages,
            tools=request.tools,
            sampling=request.sampling,
            completion=completion,
        )
        read = ReplayEntry.model_validate_json(entry.model_dump_json())
        return await ReplayEngine([read]).complete(request)

    async def close(self) -> None:
        await self._engine.close()


def chat(text: str, **sampling: Any) -> CompletionRequest:
    return CompletionRequest(
        messages=[{"role": "user", "content": text}], sampling=Sampling(**({"max_tokens": 24} | sampling)), key=text
    )


def test_it_satisfies_the_protocol(setting: Setting) -> None:
    assert isinstance(setting.engine, Engine)
    assert isinstance(setting.engine, LiveEngine) == setting.is_live


def test_greedy_tokens_are_those_of_the_model(setting: Setting) -> None:
    for text in ("hi", "a longer question " * 9):
        [completion] = setting.ask(chat(text, temperature=0))
        assert completion.prompt_token_ids == setting.encode([{"role": "user", "content": text}])
        assert completion.token_ids
        expected = setting.logits(completion.prompt_token_ids, completion.token_ids).argmax(-1)
        assert completion.token_ids == expected.tolist()
        assert completion.usage.prompt_tokens == len(completion.prompt_token_ids)
        assert completion.usage.completion_tokens == len(completion.token_ids)


@pytest.mark.parametrize(
    "drawn", [{}, {"temperature": 0.6}, {"top_k": 5}, {"top_p": 0.6}, {"temperature": 1.5, "top_k": 9}]
)
def test_logprobs_are_those_of_the_distribution_sampled_from(setting: Setting, drawn: dict[str, Any]) -> None:
    import torch

    [completion] = setting.ask(chat("numbers", seed=5, logprobs=True, **drawn))
    assert completion.token_ids is not None
    assert completion.prompt_token_ids is not None
    assert completion.logprobs is not None
    assert len(completion.logprobs) == len(completion.token_ids)
    logits = setting.logits(completion.prompt_token_ids, completion.token_ids)
    temperature = drawn.get("temperature", 1.0)
    allowed = logits / temperature
    if "top_k" in drawn:
        allowed = allowed.masked_fill(allowed < allowed.topk(drawn["top_k"]).values[:, -1:], -torch.inf)
    if "top_p" in drawn:
        falling, order = allowed.softmax(-1).sort(-1, descending=True)
        out = torch.zeros_like(allowed).scatter_(-1, order, (falling.cumsum(-1) - falling >= drawn["top_p"]).float())
        allowed = allowed.masked_fill(out > 0, -torch.inf)
    expected = allowed.log_softmax(-1)[range(len(logits)), completion.token_ids]
    assert torch.allclose(torch.tensor(completion.logprobs), expected, atol=CLOSE)


def test_a_seed_fixes_the_tokens_whatever_runs_beside_it(setting: Setting) -> None:
    one = chat("seeded", seed=11)
    others = [chat(f"other {number} " * (1 + number % 5), seed=number) for number in range(63)]
    [alone] = setting.ask(one)
    beside = setting.ask(*others[:40], one, *others[40:])
    assert beside[40].token_ids == alone.token_ids
    assert len({tuple(completion.token_ids or ()) for completion in beside}) > 50
    [other] = setting.ask(replace(one, sampling=Sampling(max_tokens=24, seed=12)))
    assert other.token_ids != alone.token_ids


def test_length_ends_a_completion_and_says_so(setting: Setting) -> None:
    [completion] = setting.ask(chat("length", seed=3, max_tokens=5))
    if completion.finish_reason == "length":
        assert len(completion.token_ids or []) == 5
    else:
        assert len(completion.token_ids or []) < 5
    endings = [each.finish_reason for each in setting.ask(*(chat(f"l{n}", seed=n, max_tokens=3) for n in range(8)))]
    assert "length" in endings


def test_text_stops_before_a_stop_string(setting: Setting) -> None:
    [free] = setting.ask(chat("stop", temperature=0))
    stop = free.text[4:6]
    [stopped] = setting.ask(chat("stop", temperature=0, stop=(stop,)))
    assert stopped.finish_reason == "stop"
    assert stopped.text == free.text[: free.text.index(stop)]
    assert (free.token_ids or [])[: len(stopped.token_ids or [])] == stopped.token_ids


def test_a_stop_string_may_begin_in_one_token_and_end_in_the_next(setting: Setting) -> None:
    [free] = setting.ask(chat("stop", temperature=0))
    ids = free.token_ids or []
    ends = [len(setting.tokenizer.decode(ids[:count])) for count in range(2, len(ids))]
    stops = [free.text[end - 1 : end + 1] for end in ends]
    stop = next(stop for stop, end in zip(stops, ends, strict=True) if free.text.find(stop) == end - 1)
    [stopped] = setting.ask(chat("stop", temperature=0, stop=(stop,)))
    assert (stopped.finish_reason, stopped.text) == ("stop", free.text[: free.text.index(stop)])


def test_who_watches_gets_the_text_in_pieces(setting: Setting) -> None:
    if not isinstance(setting.engine, WatchedEngine):
        pytest.skip(f"{setting.engine.name} cannot be watched")
    if isinstance(setting.engine, OpenAIEngine | CachedEngine):
        pytest.skip("the server of these tests does not stream; one that does is in test_streaming")
    pieces: list[tuple[str, str]] = []
    unwatched = setting.ask(chat("one", seed=1, logprobs=False), chat("and another", seed=2, logprobs=False))
    setting.engine.watch = lambda key, piece: pieces.append((key, piece))
    try:
        watched = setting.ask(chat("one", seed=11, logprobs=False), chat("and another", seed=12, logprobs=False))
        for completion, key in zip(watched, ("one", "and another"), strict=True):
            seen = [piece for which, piece in pieces if which == key]
            assert len(seen) > 3
            whole = "".join(seen)
            assert completion.text.rstrip("\N{REPLACEMENT CHARACTER}").startswith(whole)
            assert len(completion.text) - len(whole) < 4, "but for a character that was cut"
    finally:
        setting.engine.watch = None
    again = setting.ask(chat("one", seed=1, logprobs=False), chat("and another", seed=2, logprobs=False))
    assert [each.text for each in again] == [each.text for each in unwatched]


def test_token_ids_in_give_token_ids_out(setting: Setting) -> None:
    prompt = setting.encode([{"role": "user", "content": "hi"}])
    [by_ids] = setting.ask(CompletionRequest(token_ids=prompt, sampling=Sampling(temperature=0, max_tokens=24)))
    [by_text] = setting.ask(chat("hi", temperature=0))
    assert (by_ids.token_ids, by_ids.prompt_token_ids) == (by_text.token_ids, prompt)


def test_the_next_turn_extends_what_was_generated(setting: Setting) -> None:
    if not setting.owns_tokens:
        pytest.skip(f"{setting.name} does not own its tokens")
    [first] = setting.ask(chat("turns", seed=2, max_tokens=6))
    assert first.prompt_token_ids is not None
    assert first.token_ids is not None
    messages: list[ChatMessage] = [
        {"role": "user", "content": "turns"},
        {"role": "assistant", "content": first.text},
        {"role": "tool", "content": "42"},
    ]
    previous = PreviousTurn(messages=1, prompt_token_ids=first.prompt_token_ids, token_ids=first.token_ids)
    [second] = setting.ask(CompletionRequest(messages=messages, previous=previous, sampling=Sampling(max_tokens=4)))
    history = [*first.prompt_token_ids, *first.token_ids]
    assert (second.prompt_token_ids or [])[: len(history)] == history


def test_a_prompt_that_was_read_is_not_read_again(setting: Setting) -> None:
    """At least its whole cache blocks, which hold 128 tokens in vLLM on CPUs."""
    if setting.name in ("openai", "served", "cached", "replay"):
        pytest.skip(f"{setting.name} is told nothing about prefixes")
    [first] = setting.ask(chat(PARAGRAPH, seed=1))
    again = setting.ask(chat(PARAGRAPH, seed=1), chat(PARAGRAPH, seed=2))
    assert max(each.usage.prefix_tokens or 0 for each in again) >= 128
    assert again[0].token_ids == first.token_ids


def test_a_prompt_beyond_the_context_is_a_limit(setting: Setting) -> None:
    with pytest.raises(LimitExceeded) as caught:
        setting.ask(chat("x " * CONTEXT))
    assert (caught.value.limit_kind, caught.value.limit) == ("context_tokens", CONTEXT)
    assert caught.value.used > CONTEXT
    assert setting.ask(chat("hi", seed=1))[0].token_ids, "the engine goes on"


def under_way(engine: Any) -> int:
    """Requests that a local engine works on."""
    if isinstance(engine, VLLMEngine):
        start = engine._start._task
        assert start is not None
        return start.result()[0].output_processor.get_num_unfinished_requests() if start.done() else 0
    return len(engine._running) if isinstance(engine, TransformersEngine) else 0


def test_a_cancelled_call_leaves_the_engine_working(setting: Setting) -> None:
    async def go() -> Completion:
        gone = [asyncio.create_task(setting.engine.complete(chat(f"gone {n}", max_tokens=900))) for n in range(4)]
        await asyncio.sleep(0.05)
        while setting.is_live and under_way(setting.engine) < 4 and not any(task.done() for task in gone):
            await asyncio.sleep(0.005)
        before = under_way(setting.engine)
        for task in gone:
            task.cancel()
        results = await asyncio.gather(*gone, return_exceptions=True)
        assert all(isinstance(result, (asyncio.CancelledError, Completion)) for result in results)
        completion = await setting.engine.complete(chat("hi", seed=1))
        assert before == 4 or not setting.is_live
        assert under_way(setting.engine) == 0
        return completion

    assert setting.run(go()).token_ids == setting.ask(chat("hi", seed=1))[0].token_ids


def test_weights_that_do_not_fit_change_nothing(setting: Setting) -> None:
    engine = setting.engine
    if not isinstance(engine, LiveEngine):
        pytest.skip(f"{setting.name} takes no new weights")
    import torch

    name = "model.norm.weight"
    fits = {key: tensor + 1 for key, tensor in setting.model.state_dict().items()}
    unfit = {
        "did you mean 'model.norm.weight'": {**fits, "model.norm.weigth": fits[name]},
        r"shape \[3\]": {**fits, name: torch.zeros(3)},
        "1 weights are missing, the first is 'model.norm.weight'": {k: v for k, v in fits.items() if k != name},
    }
    [before] = setting.ask(chat("hi", temperature=0))
    for message, given in unfit.items():
        with pytest.raises(ValueError, match=message):
            setting.run(engine.update_weights(1, given))
    assert setting.ask(chat("hi", temperature=0))[0].token_ids == before.token_ids


@pytest.mark.parametrize("tied", [False, True])
def test_new_weights_serve_and_nothing_of_the_old_ones_is_left(setting: Setting, tmp_path: Path, tied: bool) -> None:
    """The prompts are longer than vLLM's cache blocks, so a stale prefix would show. Runs on a model of its own."""
    if not isinstance(setting.engine, LiveEngine):
        pytest.skip(f"{setting.name} takes no new weights")
    import torch
    import transformers

    from benchmarks.tiny_models import make_model
    from engine.weights import probed

    make_model(tmp_path, tied=tied, context=CONTEXT)
    model, old = (transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval() for _ in range(2))
    engine: Any = (
        VLLMEngine(str(tmp_path), options=VLLM_OPTIONS)
        if setting.name == "vllm"
        else TransformersEngine(str(tmp_path), DEVICE)
    )
    request = chat(PARAGRAPH, temperature=0, logprobs=True)
    torch.manual_seed(1)
    given = {name: tensor + 0.1 * torch.randn_like(tensor) for name, tensor in model.state_dict().items()}
    if tied:
        del given["lm_head.weight"]
    reference = replace(setting, model=model)

    def long(number: int) -> asyncio.Task[Completion]:
        return asyncio.create_task(engine.complete(chat(f"long {number}", seed=number, max_tokens=300, logprobs=True)))

    async def go() -> list[Completion]:
        before = await engine.complete(request)
        assert before.token_ids == reference.logits(before.prompt_token_ids, before.token_ids).argmax(-1).tolist()
        earlier = [long(number) for number in range(4)]
        await asyncio.sleep(0.05)
        model.load_state_dict(given, strict=not tied)
        tokens = list(range(3, 200))
        probe = Probe(tokens, probed(model, tokens))
        update = asyncio.create_task(engine.update_weights(7, given, probe))
        await asyncio.sleep(0.05)
        while not update.done() and isinstance(engine, VLLMEngine) and engine._live._gate._opened.is_set():
            await asyncio.sleep(0.005)
        later = [long(number) for number in range(4)]
        await update
        under_way = await asyncio.gather(*earlier, *later)
        after = await engine.complete(request)
        wrong = Probe(tokens, [0.0] * (len(tokens) - 1))
        with pytest.raises(EngineFailed, match="off by"):
            await engine.update_weights(8, given, wrong)
        with pytest.raises(EngineFailed, match="off by"):
            await engine.complete(request)
        await engine.update_weights(9, given)
        again = await engine.complete(request)
        await engine.close()
        return [before, after, again, *under_way]

    before, after, again, *under_way = setting.run(go())
    assert (before.weights_version, after.weights_version, again.weights_version) == (0, 7, 9)
    versions = [completion.weights_version for completion in under_way]
    assert versions[:4] == [0] * 4, "they ended on the weights that they began with"
    assert 7 in versions[4:]
    for completion in under_way:
        by = replace(setting, model=old if completion.weights_version == 0 else model)
        said = by.logits(completion.prompt_token_ids, completion.token_ids).log_softmax(-1)
        expected = said[range(len(said)), completion.token_ids]
        assert torch.allclose(torch.tensor(completion.logprobs), expected, atol=CLOSE)
    assert after.usage.prefix_tokens == again.usage.prefix_tokens == 0, "nothing was known of a prompt asked before"
    logits = reference.logits(after.prompt_token_ids, after.token_ids)
    assert after.token_ids == again.token_ids == logits.argmax(-1).tolist()
    assert after.token_ids != before.token_ids
    expected = logits.log_softmax(-1).max(-1).values
    assert torch.allclose(torch.tensor(after.logprobs), expected, atol=CLOSE)


def test_while_vllm_sleeps_requests_wait(folder: Path) -> None:
    """On CPUs vLLM does not take the option, and frees nothing when it is told to sleep."""
    request = chat("sleep", temperature=0)

    async def go(engine: Any) -> None:
        before = await engine.complete(request)
        engine._options["enable_sleep_mode"] = True
        await engine.sleep()
        await engine.sleep()
        waiting = asyncio.create_task(engine.complete(request))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 1)
        with pytest.raises(EngineFailed, match=r"it sleeps\. Fix: wake\(\)"):
            await engine.update_weights(1, {})
        await engine.wake()
        await engine.wake()
        assert (await waiting).token_ids == before.token_ids
        await engine.sleep(2)
        await engine.wake()
        with pytest.raises(EngineFailed, match=r"dropped when it slept\. Fix: update the weights"):
            await engine.complete(request)
        await engine.sleep()
        waiting = asyncio.create_task(engine.complete(request))
        await asyncio.sleep(0.1)
        await engine.close()
        with pytest.raises(EngineFailed, match="closed"):
            await waiting

    with asyncio.Runner() as runner, serving("vllm", folder, VLLM_OPTIONS) as engine:
        runner.run(asyncio.wait_for(go(engine), 240))


def test_vllm_that_was_not_made_to_sleep_says_so(setting: Setting) -> None:
    if not isinstance(setting.engine, VLLMEngine):
        pytest.skip("about vLLM")
    with pytest.raises(EngineFailed, match="enable_sleep_mode"):
        setting.run(setting.engine.sleep())


@pytest.mark.thorough
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", ENGINES)
def test_128_programs_at_once_run_to_their_end(name: str, tmp_path: Path) -> None:
    """Programs of every shape, whose agents talk nonsense; traces are whole and hold every token. A model that others
    have trained plays 32 of them."""
    needs("torch", "transformers")
    from benchmarks.tiny_models import make_model

    count, context = (32, PROGRAM_CONTEXT // 2) if MODEL else (128, PROGRAM_CONTEXT)
    if MODEL is None:
        make_model(tmp_path, context=context)
    else:
        trained(tmp_path, context)
    files = [path for folder in (PROGRAMS, PUBLISHED, TEMPLATES) for path in sorted(folder.glob("[a-z]*.py"))]
    sources = [path.read_text() for path in files]
    assert len(sources) > 20

    async def go(engines: Sequence[Engine]) -> list[Run]:
        async with ProcessSandbox() as sandbox:
            runs = (
                sandbox.run_program(
                    sources[number % len(sources)],
                    "What is 6 * 7?",
                    engine=engine,
                    sampling=Sampling(max_tokens=16, logprobs=True),
                    limits=Limits(wall_s=1200, tokens=10**7),
                    seed=number,
                )
                for number, engine in enumerate(engines)
            )
            return await asyncio.gather(*runs)

    options = {**VLLM_OPTIONS, "max_model_len": context, "max_num_batched_tokens": 4 * context}
    with asyncio.Runner() as runner, serving(name, tmp_path, options) as engine:
        runs = runner.run(go([engine] * count))
        runner.run(engine.close())
        if name == "replay":
            traces = [tmp_path / f"{number}.jsonl" for number in range(len(runs))]
            for run, trace in zip(runs, traces, strict=True):
                trace.write_text("".join(run.trace.lines()))
            recorded = [ReplayEngine(trace) for trace in traces]
            again = runner.run(go(recorded))
            assert [(run.answer, run.failure, run.usage) for run in again] == [
                (run.answer, run.failure, run.usage) for run in runs
            ]
            assert not any(engine.unused() for engine in recorded)
            runs = again
    calls = 0
    for run in runs:
        assert run.failure is None or run.failure.kind == "program_failed", run.failure
        lines = list(run.trace.lines())
        assert Trace.from_lines(lines) == run.trace
        assert run.trace.ended is not None
        calls += len(run.trace.agent_turns)
        for turn in run.trace.agent_turns:
            completion = turn.completion
            assert completion is not None
            assert 0 < len(completion.token_ids or ()) == len(completion.logprobs or ()) <= 16
            assert completion.prompt_token_ids
    assert calls >= 2 * count
    assert sum(run.failure is None for run in runs) >= 0.78 * count
