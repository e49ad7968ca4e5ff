"""What the vLLM engine does around vLLM: starts, new weights, bad numbers. A small fake stands in for vLLM itself; the
real one is put to `test_every_engine.py`."""

from __future__ import annotations

import asyncio
import importlib
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from engine.protocol import Probe
from engine.vllm import live_weights, weight_file
from engine.vllm.in_process import VLLMEngine
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed

SOCKETS = "VLLM_RPC_BASE_PATH"
ASK = CompletionRequest(token_ids=[1, 2], sampling=Sampling(logprobs=True, max_tokens=4))
PROBE = Probe([1, 2, 3], [-0.5, -0.5])


class FakeLLM:
    """vLLM's engine: says token 7 with `logprob`, and loads weights by reading the file."""

    model_config = SimpleNamespace(max_model_len=64, hf_config=None, try_get_generation_config=dict)

    def __init__(self) -> None:
        self.ended = 0
        self.logprob = -0.5
        self.resets = True
        self.files: list[str] = []
        self.inside = 0
        self.let_go = asyncio.Event()
        self.let_go.set()
        self.calls: list[str] = []
        self.told: list[tuple[Any, ...]] = []
        self.answers: dict[str, list[tuple[str, str]]] = {}
        self.rpc_lets_go = asyncio.Event()
        self.rpc_lets_go.set()
        self.version = "default"

    def get_tokenizer(self) -> Any:
        return SimpleNamespace(chat_template=None, eos_token_id=0, decode=lambda tokens, **_: "seven" if tokens else "")

    def shutdown(self) -> None:
        self.ended += 1

    async def generate(self, prompt: Any, parameters: Any, name: str) -> AsyncIterator[Any]:
        def table(token: int) -> dict[int, Any]:
            return {token: SimpleNamespace(logprob=self.logprob)}

        said = SimpleNamespace(token_ids=[7], logprobs=[table(7)], finish_reason="stop")
        told = [None, *map(table, prompt["prompt_token_ids"][1:])]
        self.inside += 1
        try:
            await self.let_go.wait()
        finally:
            self.inside -= 1
        yield SimpleNamespace(outputs=[said], prompt_logprobs=told, num_cached_tokens=1)

    async def pause_generation(self, **_: Any) -> None:
        self.calls.append("pause")

    async def resume_generation(self) -> None:
        self.calls.append("resume")

    async def reset_prefix_cache(self) -> bool:
        return self.resets

    async def update_weight_version(self, version: str) -> None:
        self.version = version

    async def get_weight_version(self) -> str:
        return self.version

    async def sleep(self, level: int) -> None:
        self.calls.append(f"sleep {level}")

    async def wake_up(self, tags: list[str]) -> None:
        self.calls.append(f"wake {' '.join(tags)}")

    async def collective_rpc(self, name: str, args: tuple[Any, ...] = ()) -> list[tuple[str, str]]:
        from safetensors.torch import load_file

        from engine.weights import fingerprint

        self.calls.append(name)
        if name == "load_weights_from":
            self.files.append(args[0])
            return [(fingerprint(load_file(args[0])), "")]
        self.told.append((name, *args))
        await self.rpc_lets_go.wait()
        return self.answers.get(name, [("", ""), ("", "")])


class FakeVLLM:
    """The package: every start waits for `let_go`, notes the sockets' folder, then fails `failures` times."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.let_go.set()
        self.lock = threading.Lock()
        self.folders: list[str] = []
        self.failures = 0
        self.is_cpu = False
        self.arguments: Any = None
        self.llms: list[FakeLLM] = []

    def from_engine_args(self, arguments: Any) -> FakeLLM:
        with self.lock:
            self.folders.append(os.environ[SOCKETS])
        self.arguments = arguments
        assert self.let_go.wait(10)
        assert os.environ[SOCKETS] == self.folders[-1]  # nobody else starts meanwhile
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no such device")
        self.llms.append(FakeLLM())
        return self.llms[-1]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeVLLM]:
    package = FakeVLLM()
    members: dict[str, dict[str, Any]] = {
        "vllm": {"SamplingParams": SimpleNamespace},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(FINAL_ONLY=2)},
        "vllm.engine.arg_utils": {"AsyncEngineArgs": SimpleNamespace},
        "vllm.v1.engine.async_llm": {"AsyncLLM": package},
        "psutil": {"virtual_memory": lambda: SimpleNamespace(available=3 << 30)},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: package.is_cpu)},
    }
    for name, content in members.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    yield package
    package.let_go.set()


async def until(holds: Any) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


# Starts


def test_requests_share_one_start_and_who_gives_up_does_not_begin_another(fake: FakeVLLM) -> None:
    async def go() -> None:
        engine = VLLMEngine("m")
        fake.let_go.clear()
        first = asyncio.create_task(engine.complete(ASK))
        await until(lambda: fake.folders)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.complete(ASK), 0.05)
        rest = [asyncio.create_task(engine.complete(ASK)) for _ in range(3)]
        await asyncio.sleep(0.05)
        fake.let_go.set()
        assert [reply.text for reply in await asyncio.gather(*rest)] == ["seven"] * 3
        assert len(fake.folders) == len(fake.llms) == 1
        await engine.close()
        await engine.close()
        assert fake.llms[0].ended == 1

    asyncio.run(go())


@pytest.mark.parametrize(
    ("is_cpu", "given", "chunked", "cache"),
    [
        (False, {}, None, None),
        (True, {}, False, "some"),
        (True, {"kv_cache_memory_bytes": 5, "max_num_batched_tokens": 10**6}, None, 5),
        (True, {"enable_chunked_prefill": True}, True, "some"),
    ],
)
def test_on_cpus_the_cache_is_small_and_prompts_are_read_whole(
    fake: FakeVLLM, is_cpu: bool, given: dict[str, Any], chunked: bool | None, cache: Any
) -> None:
    async def go() -> None:
        engine = VLLMEngine("m", options=given)
        await engine.complete(ASK)
        await engine.close()

    fake.is_cpu = is_cpu
    asyncio.run(go())
    assert getattr(fake.arguments, "enable_chunked_prefill", None) is chunked
    seen = getattr(fake.arguments, "kv_cache_memory_bytes", None)
    assert seen == (1 << 30 if cache == "some" else cache)
    assert getattr(fake.arguments, "max_model_len", None) == (-1 if is_cpu else None)


def test_no_more_requests_are_inside_than_allowed_and_those_that_go_make_room(fake: FakeVLLM) -> None:
    async def go() -> None:
        engine = VLLMEngine("m", max_concurrency=3)
        assert (await engine.complete(ASK)).usage.prefix_tokens == 1
        [llm] = fake.llms
        llm.let_go.clear()
        asked = [asyncio.create_task(engine.complete(ASK)) for _ in range(10)]
        await until(lambda: llm.inside == 3)
        await asyncio.sleep(0.05)
        assert llm.inside == 3
        for task in asked[:2]:
            task.cancel()
        await asyncio.wait(asked[:2])
        await until(lambda: llm.inside == 3)
        asked[9].cancel()  # waits for its turn
        llm.let_go.set()
        assert [reply.text for reply in await asyncio.gather(*asked[2:9])] == ["seven"] * 7
        assert llm.inside == 0
        await engine.close()

    asyncio.run(go())


def test_a_start_that_takes_too_long_is_named_and_goes_on(fake: FakeVLLM) -> None:
    async def go() -> Completion:
        engine = VLLMEngine("m", start_timeout_s=0.1)
        fake.let_go.clear()
        for _ in range(2):
            with pytest.raises(EngineFailed, match=r"did not start within start_timeout_s=0\.1\. Fix: raise it"):
                await engine.complete(ASK)
        fake.let_go.set()
        await asyncio.sleep(0.05)
        reply = await engine.complete(ASK)
        await engine.close()
        return reply

    assert asyncio.run(go()).text == "seven"
    assert len(fake.folders) == 1


def test_a_failed_start_is_told_to_all_who_wait_and_tried_again_by_the_next(fake: FakeVLLM) -> None:
    async def go() -> None:
        engine = VLLMEngine("m")
        fake.failures = 1
        outcomes = await asyncio.gather(*(engine.complete(ASK) for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [EngineFailed] * 3
        assert "no such device" in str(outcomes[0])
        assert len(fake.folders) == 1
        assert (await engine.complete(ASK)).text == "seven"
        await engine.close()

    asyncio.run(go())
    assert len(fake.folders) == 2


def test_a_start_that_failed_for_nobody_is_not_told_to_the_next(fake: FakeVLLM) -> None:
    async def go() -> None:
        engine = VLLMEngine("m")
        fake.failures = 1
        fake.let_go.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.complete(ASK), 0.05)
        fake.let_go.set()
        await until(lambda: fake.failures == 0)
        await asyncio.sleep(0.05)
        assert (await engine.complete(ASK)).text == "seven"
        await engine.close()

    asyncio.run(go())


def test_what_comes_up_without_a_tokenizer_is_ended(fake: FakeVLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_such(_: Any) -> Any:
        raise OSError("no tokenizer.json")

    monkeypatch.setattr(FakeLLM, "get_tokenizer", none_such)
    with pytest.raises(EngineFailed, match=r"did not start: OSError: no tokenizer\.json"):
        asyncio.run(VLLMEngine("m").complete(ASK))
    assert [llm.ended for llm in fake.llms] == [1]


@pytest.mark.parametrize("patience", [10.0, 0.05])
def test_closing_while_it_starts_leaves_nothing_behind(fake: FakeVLLM, patience: float) -> None:
    """Whether the start ends within the time that `close` waits, or later."""

    async def go() -> None:
        engine = VLLMEngine("m", start_timeout_s=patience)
        fake.let_go.clear()
        asking = asyncio.create_task(engine.complete(ASK))
        await until(lambda: fake.folders)
        threading.Timer(0.3, fake.let_go.set).start()
        await engine.close()
        assert len(fake.llms) == (patience > 1)
        with pytest.raises(EngineFailed, match=r"closed|did not start within"):
            await asking
        await until(lambda: fake.llms and fake.llms[0].ended == 1)
        assert not Path(fake.folders[0]).exists()
        with pytest.raises(EngineFailed, match="closed"):
            await engine.complete(ASK)

    asyncio.run(go())
    assert len(fake.llms) == 1


def test_a_loop_that_ends_while_it_starts_leaves_nothing_behind(fake: FakeVLLM) -> None:
    async def go() -> VLLMEngine:
        engine = VLLMEngine("m")
        fake.let_go.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.complete(ASK), 0.05)
        threading.Timer(0.2, fake.let_go.set).start()
        return engine

    engine = asyncio.run(go())  # which waits for its threads
    assert [llm.ended for llm in fake.llms] == [1]
    asyncio.run(engine.close())
    assert [llm.ended for llm in fake.llms] == [1]


@pytest.mark.parametrize("before", [None, "/elsewhere"])
def test_two_engines_of_one_process_start_one_after_the_other(
    fake: FakeVLLM, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(SOCKETS, raising=False)
    if before:
        monkeypatch.setenv(SOCKETS, before)

    async def go() -> None:
        engines = [VLLMEngine(f"m{n}") for n in range(3)]
        fake.let_go.clear()
        asking = [asyncio.create_task(engine.complete(ASK)) for engine in engines]
        await until(lambda: fake.folders)
        await asyncio.sleep(0.05)
        assert len(fake.folders) == 1
        fake.let_go.set()
        assert [reply.text for reply in await asyncio.gather(*asking)] == ["seven"] * 3
        assert len(set(fake.folders)) == 3
        assert os.environ.get(SOCKETS) == before
        await asyncio.gather(*(engine.close() for engine in engines))

    asyncio.run(go())
    assert [llm.ended for llm in fake.llms] == [1, 1, 1]


# New weights


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    monkeypatch.setattr(importlib.import_module("engine.weights"), "skeleton", lambda _: torch.nn.Linear(4, 4))
    return dict(torch.nn.Linear(4, 4).state_dict())


@pytest.mark.parametrize(("free", "used"), [(64 << 20, "shm"), (60, "tmp"), (None, "tmp")])
def test_weights_go_through_shared_memory_only_where_they_fit(
    fake: FakeVLLM, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int | None, used: str
) -> None:
    """With so many bytes free in it; None where there is none."""
    folders = {name: tmp_path / name for name in ("shm", "tmp")}
    monkeypatch.setattr(weight_file, "_SHARED_MEMORY", str(folders["shm"]))
    monkeypatch.setattr(tempfile, "tempdir", str(folders["tmp"]))
    folders["tmp"].mkdir()
    if free is not None:
        folders["shm"].mkdir()
        monkeypatch.setattr(weight_file.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))

    async def go() -> None:
        engine = VLLMEngine("m")
        await engine.update_weights(3, given, PROBE)
        assert (await engine.complete(ASK)).weights_version == 3
        await engine.close()

    asyncio.run(go())
    assert Path(fake.llms[0].files[0]).is_relative_to(folders[used])
    assert list(tmp_path.glob("*/*")) == []


def test_weights_that_cannot_be_written_are_an_error_that_names_the_place(
    fake: FakeVLLM, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(tensors: Any, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(weight_file, "fitting", lambda *_: str(tmp_path / "here"))

    async def go() -> None:
        engine = VLLMEngine("m")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("safetensors.torch.save_file", full)
            with pytest.raises(EngineFailed, match=r"weights 3 did not go in.*No space left.*Fix: make room") as caught:
                await engine.update_weights(3, given)
        assert str(tmp_path) in str(caught.value)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(EngineFailed, match="weights 3 did not go in"):
            await engine.complete(ASK)
        await engine.update_weights(4, given)
        assert (await engine.complete(ASK)).weights_version == 4
        await engine.close()

    asyncio.run(go())


def test_an_update_cancelled_while_it_writes_leaves_no_file(
    fake: FakeVLLM, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = threading.Event()

    def slow(tensors: Any, path: str) -> None:
        begun.set()
        time.sleep(0.2)
        Path(path).write_bytes(b"late")

    monkeypatch.setattr("safetensors.torch.save_file", slow)
    monkeypatch.setattr(weight_file, "fitting", lambda *_: str(tmp_path / "here"))

    async def go() -> None:
        engine = VLLMEngine("m")
        updating = asyncio.create_task(engine.update_weights(3, given))
        await until(begun.is_set)
        assert list(tmp_path.iterdir()) != []
        updating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await updating
        assert list(tmp_path.iterdir()) == []
        assert (await engine.complete(ASK)).weights_version == 0  # vLLM was told nothing
        await engine.close()

    asyncio.run(go())
    assert list(tmp_path.iterdir()) == []


def test_a_prefix_cache_that_stays_fails_the_update(fake: FakeVLLM, given: dict[str, Any]) -> None:
    async def go() -> None:
        engine = VLLMEngine("m")
        await engine.complete(ASK)
        fake.llms[0].resets = False
        with pytest.raises(EngineFailed, match=r"weights 3 did not go in: .*did not drop its prefix cache"):
            await engine.update_weights(3, given)
        with pytest.raises(EngineFailed, match="prefix cache"):
            await engine.complete(ASK)
        fake.llms[0].resets = True
        await engine.update_weights(4, given)
        assert (await engine.complete(ASK)).weights_version == 4
        await engine.close()

    asyncio.run(go())


# Weights from a trainer


METADATA = {"names": ["weight", "bias"], "dtype_names": ["float32"] * 2, "shapes": [[4, 4], [4]]}
CAME = {"finish_receiving": [("abc", ""), ("abc", "")]}


def receiving(**given: Any) -> VLLMEngine:
    return VLLMEngine("m", **{"transfer": "gloo", "options": {"enable_sleep_mode": True}, **given})


async def waits(engine: VLLMEngine) -> asyncio.Task[Completion]:
    asked = asyncio.create_task(engine.complete(ASK))
    await asyncio.sleep(0.02)
    assert not asked.done()
    return asked


@pytest.mark.parametrize(
    ("transfer", "info"),
    [
        ("gloo", {"master_address": "h", "master_port": 7, "rank_offset": 3, "world_size": 5, "timeout_s": 9.0}),
        ("nccl", {"master_address": "h", "master_port": 7, "rank_offset": 3, "world_size": 5, "packed": True}),
        ("ipc", {"packed": True}),
    ],
)
def test_vllm_is_made_to_receive_and_told_which_group_to_join(fake: FakeVLLM, transfer: Any, info: Any) -> None:
    pytest.importorskip("safetensors")

    async def go() -> None:
        engine = VLLMEngine("m", transfer=transfer)
        await engine.join_transfer("h", 7, 3, 5, 9.0)
        assert fake.llms[0].told == [("join_transfer", info)]
        await engine.close()

    asyncio.run(go())
    assert fake.arguments.weight_transfer_config == {"backend": transfer}
    assert fake.arguments.worker_extension_cls == "engine.vllm.weight_receiver.WeightReceiver"


def test_an_engine_that_was_not_made_to_receive_says_so(fake: FakeVLLM, given: dict[str, Any]) -> None:
    async def go() -> None:
        engine = VLLMEngine("m")
        for call in (engine.join_transfer("h", 7, 3, 5), engine.receive_weights(1, METADATA)):
            with pytest.raises(EngineFailed, match=r'Fix: make it with transfer="gloo"'):
                await call
        assert (await engine.complete(ASK)).weights_version == 0
        await engine.close()

    asyncio.run(go())
    assert fake.arguments.worker_extension_cls == "engine.vllm.weight_loader.WeightLoader"
    assert not hasattr(fake.arguments, "weight_transfer_config")


def test_a_group_that_was_not_joined_changes_nothing_and_names_the_limit(fake: FakeVLLM) -> None:
    pytest.importorskip("safetensors")

    async def go() -> None:
        engine = receiving()
        await engine.complete(ASK)
        [llm] = fake.llms
        llm.answers["join_transfer"] = [("", ""), ("", "TimeoutError: nobody came within timeout_s=9")]
        with pytest.raises(EngineFailed, match=r"did not join the group of 5 at h:7: worker 1: .*timeout_s=9"):
            await engine.join_transfer("h", 7, 3, 5, 9.0)
        llm.rpc_lets_go.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(live_weights, "_PATIENCE_S", 0.1)
            joining = asyncio.create_task(engine.join_transfer("h", 7, 3, 5, 0.1))
            await until(lambda: llm.calls.count("join_transfer") == 2)
            llm.let_go.clear()
            await engine.alive(0.01)
            with pytest.raises(EngineFailed, match=r"did not join .* within timeout_s=0\.1\. Fix: raise it"):
                await joining
            with pytest.raises(EngineFailed, match="not one token"):
                await engine.alive(0.01)
            llm.let_go.set()
        assert (await engine.complete(ASK)).text == "seven"
        await engine.close()

    asyncio.run(go())


def test_nothing_is_served_between_the_first_byte_and_the_proof(fake: FakeVLLM, given: dict[str, Any]) -> None:
    async def go() -> None:
        engine = receiving()
        await engine.complete(ASK)
        [llm] = fake.llms
        llm.answers.update(CAME)
        llm.let_go.clear()
        under_way = asyncio.create_task(engine.complete(ASK))
        await until(lambda: llm.inside == 1)
        coming = asyncio.create_task(engine.receive_weights(5, METADATA))
        await until(lambda: not engine._live._gate._opened.is_set())
        later = await waits(engine)
        assert llm.calls == []  # what is under way ends first
        llm.let_go.set()
        assert await coming == "abc"
        assert llm.calls == ["pause", "begin_receiving", "receive", "finish_receiving", "resume"]
        assert llm.told[1] == ("receive", METADATA)
        assert ((await under_way).weights_version, engine.weights_version) == (0, 0)
        await waits(engine)
        assert not later.done()
        await engine.verify(5, "abc", PROBE)
        assert ((await later).weights_version, engine.weights_version) == (5, 5)
        assert engine.probe_gap == 0
        await engine.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda llm: llm.answers.update(begin_receiving=[("", ""), ("", "OSError: no")]), "worker 1: OSError: no"),
        (
            lambda llm: llm.answers.update(receive=[("", "TimeoutError: 'x' did not come"), ("", "")]),
            "'x' did not come",
        ),
        (lambda llm: llm.answers.update(finish_receiving=[("abc", ""), ("abd", "")]), "workers received different"),
        (lambda llm: llm.answers.update(finish_receiving=[("abd", ""), ("abd", "")]), "came as .'abd'., not as 'abc'"),
        (lambda llm: setattr(llm, "resets", False), "prefix cache"),
        (lambda llm: setattr(llm, "get_weight_version", lambda: asyncio.sleep(0, "4")), "vLLM has weights '4'"),
        (lambda llm: setattr(llm, "logprob", -0.7), "off by 0.2"),
    ],
)
def test_weights_that_did_not_come_as_they_should_are_not_served_and_the_next_may(
    fake: FakeVLLM, given: dict[str, Any], spoil: Any, told: str
) -> None:
    async def go() -> None:
        engine = receiving()
        await engine.complete(ASK)
        [llm] = fake.llms
        kept = dict(vars(llm))
        llm.answers = dict(CAME)
        spoil(llm)

        async def updated() -> None:
            await engine.receive_weights(5, METADATA)
            waiting.append(await waits(engine))
            await engine.verify(5, "abc", PROBE)

        waiting: list[asyncio.Task[Completion]] = []
        with pytest.raises(EngineFailed, match=f"weights 5 did not go in: .*{told}"):
            await updated()
        for asked in (*waiting, engine.complete(ASK)):
            with pytest.raises(EngineFailed, match=f"weights 5 did not go in: .*{told}"):
                await asyncio.wait_for(asked, 5)
        assert llm.calls[-1] == "resume"  # it may be asked whether it lives
        assert llm.calls[-2] in ("abandon", "finish_receiving")  # with a model that can be run
        with pytest.raises(EngineFailed, match="there are no weights 5 to verify"):
            await engine.verify(5, "abc")
        vars(llm).clear()
        vars(llm).update({**kept, "answers": dict(CAME)})
        await engine.receive_weights(6, METADATA)
        await engine.verify(6, "abc", PROBE)
        assert (await engine.complete(ASK)).weights_version == 6
        await engine.close()

    asyncio.run(go())


def test_steps_in_a_wrong_order_are_errors_that_change_nothing(fake: FakeVLLM, given: dict[str, Any]) -> None:
    async def go() -> None:
        engine = receiving()
        await engine.complete(ASK)
        [llm] = fake.llms
        llm.answers.update(CAME)

        async def refused(call: Any, told: str) -> None:
            before = list(llm.calls)
            with pytest.raises(EngineFailed, match=told):
                await call
            assert llm.calls == before

        await refused(engine.receive(METADATA), "begin_receiving")
        await refused(engine.finish_receiving(), "begin_receiving")
        await refused(engine.verify(1, "abc"), "no weights 1 to verify")
        assert (await engine.complete(ASK)).weights_version == 0
        await engine.begin_receiving(1, METADATA)
        await refused(engine.verify(1, "abc"), "no weights 1 to verify")
        await refused(engine.sleep(), "weights 1 are not verified. Fix: verify")
        await engine.receive({"names": ["weight"]})
        await engine.receive({"names": ["bias"]})  # in pieces
        await engine.finish_receiving()
        await refused(engine.receive(METADATA), "begin_receiving")
        await refused(engine.verify(2, "abc"), "no weights 2 to verify")
        waiting = await waits(engine)
        await engine.receive_weights(2, METADATA)  # instead
        await refused(engine.verify(1, "abc"), "no weights 1 to verify")
        await engine.verify(2, "abc")
        assert (await waiting).weights_version == 2
        await engine.begin_receiving(3, METADATA)
        await engine.update_weights(4, given)  # by the other way
        assert (await engine.complete(ASK)).weights_version == 4
        await engine.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"names": ["weight", "bios"]}, "no weight 'bios'; did you mean 'bias'"),
        ({"shapes": [[4, 4], [3]]}, r"'bias' has shape \[3\]"),
        ({"names": ["weight"], "dtype_names": ["float32"], "shapes": [[4, 4]]}, "1 weights are missing.*'bias'"),
    ],
)
def test_names_and_shapes_that_are_not_the_models_change_nothing(
    fake: FakeVLLM, given: dict[str, Any], wrong: dict[str, Any], told: str
) -> None:
    async def go() -> None:
        engine = receiving()
        with pytest.raises(ValueError, match=told):
            await engine.receive_weights(1, METADATA | wrong)
        assert fake.llms[0].calls == []
        assert (await engine.complete(ASK)).weights_version == 0
        await engine.close()

    asyncio.run(go())


def test_one_who_gives_up_or_takes_too_long_does_not_leave_requests_waiting(
    fake: FakeVLLM, given: dict[str, Any]
) -> None:
    async def go() -> None:
        engine = receiving(timeout_s=0.3)
        await engine.complete(ASK)
        [llm] = fake.llms
        llm.answers.update(CAME)
        llm.rpc_lets_go.clear()
        with pytest.raises(EngineFailed, match=r"weights 1 did not go in within timeout_s=0\.3\. Fix: raise it"):
            await engine.receive_weights(1, METADATA)
        with pytest.raises(EngineFailed, match="weights 1 did not go in"):
            await engine.complete(ASK)
        coming = asyncio.create_task(engine.receive_weights(2, METADATA))
        await until(lambda: llm.calls.count("begin_receiving") == 2)
        coming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await coming
        with pytest.raises(EngineFailed, match="weights 2 did not go in"):
            await engine.complete(ASK)
        llm.rpc_lets_go.set()
        await engine.receive_weights(3, METADATA)
        await engine.verify(3, "abc")
        assert (await engine.complete(ASK)).weights_version == 3
        await engine.close()

    asyncio.run(go())


@pytest.mark.parametrize("shut", ["asleep", "coming"])
def test_closing_tells_those_who_wait(fake: FakeVLLM, given: dict[str, Any], shut: str) -> None:
    async def go() -> None:
        engine = receiving()
        await engine.complete(ASK)
        await (engine.sleep() if shut == "asleep" else engine.begin_receiving(4, METADATA))
        waiting = await waits(engine)
        await engine.close()
        with pytest.raises(EngineFailed, match="closed"):
            await asyncio.wait_for(waiting, 5)

    asyncio.run(go())


# Sleep and life


def test_it_wakes_in_parts_and_serves_when_all_is_awake_and_proven(fake: FakeVLLM, given: dict[str, Any]) -> None:
    async def go() -> None:
        engine = receiving()
        await engine.complete(ASK)
        [llm] = fake.llms
        llm.answers.update(CAME)
        await engine.sleep(2)
        waiting = await waits(engine)
        for call in (engine.receive_weights(1, METADATA), engine.update_weights(1, given)):
            with pytest.raises(EngineFailed, match=r"it sleeps\. Fix: wake\(\) its weights first"):
                await call
        with pytest.raises(ValueError, match=r"nothing called \['cache'\] sleeps"):
            await engine.wake(["cache"])  # type: ignore[list-item]
        await engine.wake(["weights"])
        await engine.wake(["weights"])
        await engine.receive_weights(1, METADATA)
        assert llm.calls[-1] == "finish_receiving"  # vLLM goes on when its cache is awake
        with pytest.raises(EngineFailed, match=r"it sleeps\. Fix: wake\(\) its kv_cache first"):
            await engine.verify(1, "abc", PROBE)
        await waits(engine)
        await engine.wake(["kv_cache"])
        await waits(engine)
        assert not waiting.done()
        await engine.verify(1, "abc", PROBE)
        assert (await waiting).weights_version == 1
        assert [call for call in llm.calls if call.startswith("wake")] == ["wake weights", "wake kv_cache"]
        await engine.sleep(2)
        await engine.wake(["weights"])
        await engine.update_weights(2, given)
        waiting = await waits(engine)
        await engine.wake()
        assert (await waiting).weights_version == 2
        await engine.sleep(2)
        await engine.wake()
        with pytest.raises(EngineFailed, match="dropped when it slept"):
            await engine.complete(ASK)
        await engine.close()

    asyncio.run(go())


@pytest.mark.parametrize("call", ["sleep", "wake_up"])
def test_one_that_cannot_sleep_or_wake_lets_nobody_wait(fake: FakeVLLM, call: str) -> None:
    async def go() -> None:
        async def fails(*_: Any) -> None:
            raise RuntimeError("out of memory")

        engine = receiving()
        await engine.complete(ASK)
        setattr(fake.llms[0], call, fails)
        if call == "wake_up":
            await engine.sleep()
            await waits(engine)
        changed = engine.sleep() if call == "sleep" else engine.wake()
        with pytest.raises(EngineFailed, match=r"it did not (go to sleep|wake up): RuntimeError: out of memory\. Fix"):
            await changed
        with pytest.raises(EngineFailed, match="out of memory"):
            await asyncio.wait_for(engine.complete(ASK), 5)
        await engine.close()

    asyncio.run(go())


def test_it_lives_if_it_makes_a_token_and_while_it_cannot_be_asked(fake: FakeVLLM, given: dict[str, Any]) -> None:
    async def go() -> None:
        engine = receiving(max_concurrency=1)
        await engine.alive(1)
        [llm] = fake.llms
        llm.answers.update(CAME)
        llm.let_go.clear()
        stuck = asyncio.create_task(engine.complete(ASK))  # takes the only slot
        await until(lambda: llm.inside == 1)
        with pytest.raises(EngineFailed, match=r"not one token within timeout_s=0\.1\. Fix"):
            await engine.alive(0.1)
        asked = asyncio.create_task(engine.alive(0.2))
        await until(lambda: llm.inside == 2)
        stuck.cancel()
        await engine.begin_receiving(1, METADATA)
        await asked  # vLLM was paused meanwhile
        await engine.alive(0.05)
        await engine.receive(METADATA)
        await engine.finish_receiving()
        with pytest.raises(EngineFailed, match="not one token"):
            await engine.alive(0.05)  # not proven, but it should compute
        await engine.verify(1, "abc")
        await engine.sleep()
        await engine.alive(0.05)
        await engine.wake()
        with pytest.raises(EngineFailed, match="not one token"):
            await engine.alive(0.05)
        llm.let_go.set()
        await engine.alive(1)
        llm.errored = True
        with pytest.raises(EngineFailed, match="processes have died"):
            await engine.alive(1)
        await engine.close()

    asyncio.run(go())


# Bad numbers


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_log_probabilities_that_are_not_finite_are_an_error(
    fake: FakeVLLM, given: dict[str, Any], value: float
) -> None:
    async def go() -> None:
        engine = VLLMEngine("m")
        assert (await engine.complete(ASK)).logprobs == [-0.5]
        fake.llms[0].logprob = value
        with pytest.raises(EngineFailed, match=f"gave logits that are not finite: token 0 .* {value}"):
            await engine.complete(ASK)
        with pytest.raises(EngineFailed, match="not finite"):
            await engine.update_weights(3, given, PROBE)
        with pytest.raises(EngineFailed, match="weights 3 did not go in"):
            await engine.complete(ASK)
        await engine.close()

    asyncio.run(go())
