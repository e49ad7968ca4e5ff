"""Weights that go into the real vLLM on CPUs, from a sender over gloo and by file: proven, under load, spoiled, cut.

One vLLM for models with a head of their own, and one of two workers for tied heads. Last, one is killed.
"""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from receiving import HOST, free_port

from engine.protocol import Probe
from engine.vllm import ControlClient, Sender, Sent, TransferFailed, VLLMEngine, ZeroSource
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed

pytestmark = pytest.mark.timeout(600)  # vLLM takes its time to start
for module in ("vllm", "transformers"):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} not installed", allow_module_level=True)

CONTEXT = 1024
CLOSE = 1e-4
PROBED = list(range(201, 2, -1))


@dataclass
class Setting:
    engine: Any
    runner: asyncio.Runner
    tied: bool
    model: Any
    """With the weights that were made last."""
    workers: int
    models: dict[int, Any] = field(default_factory=dict)
    """By version, what an update sent."""

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        async def within() -> Any:
            return await asyncio.wait_for(work, 240)

        return self.runner.run(within())

    def changed(self, version: int) -> Probe:
        """The model with other weights, and what it then says."""
        import copy

        import torch

        from engine.weights import probed

        torch.manual_seed(version)
        self.model = copy.deepcopy(self.model)
        with torch.no_grad():
            for tensor in self.model.parameters():
                tensor.add_(0.1 * torch.randn_like(tensor))
        self.models[version] = self.model
        return Probe(PROBED, probed(self.model, PROBED))

    def stream(self) -> Iterator[list[tuple[str, Any]]]:
        """Layer by layer, in memory that is taken back, as ZeRO-3's gathers do."""
        tensors = {name: tensor for name, tensor in self.model.state_dict().items() if self.sends(name)}
        of = {name: ".".join(name.split(".")[:3]) for name in tensors}
        for layer in dict.fromkeys(of.values()):
            gathered = [(name, tensor.clone()) for name, tensor in tensors.items() if of[name] == layer]
            yield gathered
            for _, tensor in gathered:
                tensor.fill_(9)

    def sends(self, name: str) -> bool:
        return not (self.tied and name == "lm_head.weight")

    async def joined(self, sender: Sender, timeout_s: float = 30.0) -> None:
        port, size = free_port(), 1 + self.workers
        await asyncio.gather(
            asyncio.to_thread(sender.join, HOST, port, size, timeout_s),
            self.engine.join_transfer(HOST, port, 1, size, timeout_s),
        )

    async def update(self, sender: Sender, version: int, probe: Probe) -> Sent:
        sent, came = await asyncio.gather(
            asyncio.to_thread(sender.send, version), self.engine.receive_weights(version, sender.metadata())
        )
        assert sent is not None
        assert came == sent.fingerprint
        await self.engine.verify(version, sent.fingerprint, probe)
        return sent

    async def repaired(self, version: int) -> None:
        """By a new group, after something went wrong."""
        probe = self.changed(version)
        sender = Sender("gloo", ZeroSource(self.stream))
        await self.joined(sender)
        await self.update(sender, version, probe)
        self.is_right(await self.engine.complete(ask(40)), version)
        sender.leave()

    def is_right(self, completion: Completion, version: int | None = None) -> None:
        """All its tokens have the log-probabilities of one version's model, the one that it names."""
        import torch

        assert version in (None, completion.weights_version)
        assert completion.token_ids
        prompt = completion.prompt_token_ids
        model = self.models[completion.weights_version or 0]
        with torch.no_grad():
            logits = model(torch.tensor([[*(prompt or []), *completion.token_ids]])).logits[
                0, len(prompt or []) - 1 : -1
            ]
        expected = logits.log_softmax(-1)[range(len(logits)), completion.token_ids]
        assert torch.allclose(torch.tensor(completion.logprobs), expected, atol=CLOSE)


def ask(tokens: int, number: int = 0, **sampling: Any) -> CompletionRequest:
    """A prompt longer than vLLM's cache blocks, so that what was kept of other weights would show."""
    return CompletionRequest(
        token_ids=[3 + (number + place) % 200 for place in range(300)],
        key=str(number),
        sampling=Sampling(**{"max_tokens": tokens, "seed": number, "logprobs": True, **sampling}),
    )


@pytest.fixture(scope="module", params=["vllm-tied", "vllm-own-head"])
def setting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    import transformers

    from benchmarks.tiny_models import make_model

    folder, tied = tmp_path_factory.mktemp("tiny"), request.param == "vllm-tied"
    make_model(folder, context=CONTEXT, tied=tied, layers=3)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    cores = sorted(os.sched_getaffinity(0))
    workers = 2 if tied and len(cores) > 1 else 1
    options: dict[str, Any] = {
        "dtype": "float32",
        "max_model_len": CONTEXT,
        "kv_cache_memory_bytes": 64 << 20,
        "enforce_eager": True,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 32 * CONTEXT,
        "tensor_parallel_size": workers,
    }
    said = {"OMP_NUM_THREADS": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    if workers == 2:
        said["VLLM_CPU_OMP_THREADS_BIND"] = f"{cores[0]}|{cores[1]}"
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        for variable, value in said.items():
            patch.setenv(variable, value)
        engine = VLLMEngine(str(folder), transfer="gloo", options=options)
        setting = Setting(engine, runner, tied, model, workers, {0: model})
        try:
            setting.run(engine.alive(60))
            yield setting
        finally:
            left = engine.leftovers()
            setting.run(engine.close())
        assert [path for path in left if os.path.exists(path)] == []


def test_what_a_sender_streams_is_served_once_it_is_proven(setting: Setting) -> None:
    engine = setting.engine

    async def go() -> None:
        setting.is_right(await engine.complete(ask(40)), 0)
        sender = Sender("gloo", ZeroSource(setting.stream))
        await setting.joined(sender)
        for version in (1, 2):
            probe = setting.changed(version)
            sent, came = await asyncio.gather(
                asyncio.to_thread(sender.send, version), engine.receive_weights(version, sender.metadata())
            )
            waiting = asyncio.create_task(engine.complete(ask(40)))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            assert engine.weights_version == version - 1
            await engine.verify(version, sent.fingerprint, probe)
            assert came == sent.fingerprint
            assert sent.bytes == sum(t.nbytes for n, t in setting.model.state_dict().items() if setting.sends(n))
            assert engine.probe_gap < CLOSE
            completion = await waiting
            setting.is_right(completion, version)
            assert completion.usage.prefix_tokens == 0, "nothing was known of a prompt asked before"
        sender.leave()

    setting.run(go())


def test_weights_by_file_and_over_gloo_take_turns(setting: Setting) -> None:
    engine = setting.engine

    async def go() -> None:
        sender = Sender("gloo", ZeroSource(setting.stream))
        await setting.joined(sender)
        for version in (11, 12, 13, 14):
            probe = setting.changed(version)
            if version % 2:
                given = {name: tensor for name, tensor in setting.model.state_dict().items() if setting.sends(name)}
                await engine.update_weights(version, given, probe)
            else:
                await setting.update(sender, version, probe)
            setting.is_right(await engine.complete(ask(40)), version)
        sender.leave()

    setting.run(go())


@pytest.mark.parametrize("way", ["gloo", "file"])
def test_under_load_nothing_is_lost_and_nothing_has_two_versions(setting: Setting, way: str) -> None:
    engine = setting.engine
    version = 20 if way == "gloo" else 21

    def some(first: int) -> list[asyncio.Task[Completion]]:
        return [asyncio.create_task(engine.complete(ask(200, number))) for number in range(first, first + 8)]

    async def go() -> tuple[list[Completion], list[Completion]]:
        sender = Sender("gloo", ZeroSource(setting.stream))
        await setting.joined(sender)
        earlier = some(0)
        await asyncio.sleep(0.1)
        probe = setting.changed(version)
        if way == "gloo":
            updating: Any = asyncio.create_task(setting.update(sender, version, probe))
        else:
            given = {name: tensor for name, tensor in setting.model.state_dict().items() if setting.sends(name)}
            updating = asyncio.create_task(engine.update_weights(version, given, probe))
        while engine._live._gate._opened.is_set() and not updating.done():
            await asyncio.sleep(0.005)
        later = some(8)
        await updating
        sender.leave()
        return await asyncio.gather(*earlier), await asyncio.gather(*later)

    before = engine.weights_version
    earlier, later = setting.run(go())
    for completion in earlier:
        setting.is_right(completion, before)
    for completion in later:
        setting.is_right(completion, version)
    assert max(len(completion.token_ids or []) for completion in earlier) > 100


def test_a_client_takes_the_engine_through_its_steps(setting: Setting) -> None:
    engine = setting.engine

    async def go() -> None:
        loop = asyncio.get_running_loop()

        def call(method: str, arguments: dict[str, Any]) -> Future[Any]:
            return asyncio.run_coroutine_threadsafe(getattr(engine, method)(**arguments), loop)

        sender = Sender("gloo", ZeroSource(setting.stream), client=ControlClient({"one": call}, 30))
        await setting.joined(sender)
        probe = setting.changed(30)
        sent = await asyncio.to_thread(sender.send, 30)
        assert sent is not None
        await engine.verify(30, sent.fingerprint, probe)
        setting.is_right(await engine.complete(ask(40)), 30)
        sender.leave()

    setting.run(go())


def test_a_bit_that_flips_on_the_way_is_refused_until_good_weights_come(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from engine.vllm import gloo_group

    engine = setting.engine
    whole = gloo_group._broadcast

    def flipping(group: Any, name: str, tensor: Any) -> None:
        """Of the sender alone, which is in this process: the lowest bit of one value."""
        if name == "model.layers.1.mlp.down_proj.weight":
            tensor.view(torch.uint8)[0, 0] ^= 1
        whole(group, name, tensor)

    async def go() -> None:
        probe = setting.changed(40)
        sender = Sender("gloo", ZeroSource(setting.stream))
        await setting.joined(sender)
        with monkeypatch.context() as patch:
            patch.setattr(gloo_group, "_broadcast", flipping)
            sent, came = await asyncio.gather(
                asyncio.to_thread(sender.send, 40), engine.receive_weights(40, sender.metadata())
            )
        assert came != sent.fingerprint
        waiting = asyncio.create_task(engine.complete(ask(40)))
        for refused in (engine.verify(40, sent.fingerprint, probe), waiting, engine.complete(ask(40))):
            with pytest.raises(EngineFailed, match=r"weights 40 did not go in: they came as .*, not as"):
                await refused
        await engine.alive(30)
        await setting.update(sender, 41, setting.changed(41))  # the group is whole
        setting.is_right(await engine.complete(ask(40)), 41)
        sender.leave()

    setting.run(go())


def die_in_mid_stream(port: int, size: int, tensors: list[tuple[str, Any]], after: int) -> None:
    def stream() -> Iterator[list[tuple[str, Any]]]:
        for number, pair in enumerate(tensors):
            if number == after and stream.passes == 2:  # the first is for the metadata
                os._exit(9)
            yield [pair]

    source = ZeroSource(lambda: (setattr(stream, "passes", getattr(stream, "passes", 0) + 1), stream())[1])
    sender = Sender("gloo", source)
    sender.metadata()
    sender.join(HOST, port, size, 60)
    sender.send(50)


@pytest.mark.parametrize("after", [1, 7])
def test_a_sender_that_dies_is_noticed_and_a_new_one_repeats(setting: Setting, after: int) -> None:
    """After 7 tensors some layers of the model are half new."""
    engine = setting.engine
    tensors = [pair for layer in setting.stream() for pair in [(name, tensor.clone()) for name, tensor in layer]]
    metadata = Sender("gloo", ZeroSource(lambda: iter([tensors]))).metadata()
    port, size = free_port(), 1 + setting.workers
    process = multiprocessing.get_context("spawn").Process(
        target=die_in_mid_stream, args=(port, size, tensors, after), daemon=True
    )

    async def go() -> None:
        await engine.join_transfer(HOST, port, 1, size, 60)
        began = time.monotonic()
        with pytest.raises(EngineFailed, match=r"worker 0: ConnectionError: '.*' did not come within timeout_s=60"):
            await engine.receive_weights(50, metadata)
        assert time.monotonic() - began < 20
        for refused in (engine.complete(ask(40)), engine.verify(50, "")):
            with pytest.raises(EngineFailed, match="weights 50"):
                await refused
        await engine.alive(30)
        with pytest.raises(EngineFailed, match="there is no group"):
            await engine.receive_weights(51, metadata)
        await setting.repaired(52)

    process.start()
    try:
        setting.run(go())
    finally:
        process.kill()
        process.join()
    assert process.exitcode == 9


def test_a_sender_that_stops_is_noticed_by_the_limit_which_is_named(setting: Setting) -> None:
    engine = setting.engine
    go_on = multiprocessing.Event()

    def stalling() -> Iterator[list[tuple[str, Any]]]:
        for number, layer in enumerate(setting.stream()):
            if number == 2:
                go_on.wait(60)
            yield layer

    async def go() -> None:
        source = ZeroSource(setting.stream)
        source.metadata()
        source.stream = stalling
        sender = Sender("gloo", source)
        await setting.joined(sender, 2.0)
        sending = asyncio.create_task(asyncio.to_thread(sender.send, 60))
        began = time.monotonic()
        with pytest.raises(EngineFailed, match=r"TimeoutError: '.*' did not come within timeout_s=2: "):
            await engine.receive_weights(60, sender.metadata())
        assert 1.5 < time.monotonic() - began < 20
        go_on.set()
        with pytest.raises(TransferFailed, match="weights 60 were not sent"):
            await sending
        with pytest.raises(EngineFailed, match=r"did not join .*worker 0: .*within timeout_s=1:"):
            await engine.join_transfer(HOST, free_port(), 1, 1 + setting.workers, 1.0)
        await setting.repaired(61)

    setting.run(go())


def test_asleep_in_parts_it_takes_weights_before_its_cache_wakes(setting: Setting) -> None:
    """CPUs have no memory to give back; vLLM keeps the order of the parts all the same."""
    engine = setting.engine

    async def go() -> None:
        sender = Sender("gloo", ZeroSource(setting.stream))
        await setting.joined(sender)
        with pytest.raises(EngineFailed, match="enable_sleep_mode"):
            await engine.sleep(2)
        engine._options["enable_sleep_mode"] = True
        await engine.sleep(2)
        waiting = asyncio.create_task(engine.complete(ask(40)))
        probe = setting.changed(70)
        await engine.wake(["weights"])
        sent, _ = await asyncio.gather(
            asyncio.to_thread(sender.send, 70), engine.receive_weights(70, sender.metadata())
        )
        await engine.alive(0.2)
        await engine.wake(["kv_cache"])
        assert not waiting.done()
        await engine.verify(70, sent.fingerprint, probe)
        setting.is_right(await waiting, 70)
        del engine._options["enable_sleep_mode"]
        sender.leave()

    setting.run(go())


def test_on_cpus_it_has_no_gpus(setting: Setting) -> None:
    assert setting.run(setting.engine.device_uuids()) == []


def test_what_vllms_own_senders_are_made_from_is_what_they_take() -> None:
    from vllm.distributed.weight_transfer.nccl_common import NCCLWeightTransferInitInfo

    from engine.vllm.transfer import _about
    from engine.vllm.weight_stream import Weight

    torch = pytest.importorskip("torch")
    weights = [Weight("x", torch.float32, (10, 10)), Weight("y", torch.bfloat16, (300 << 20,))]
    nccl = _about("nccl", 0, HOST, 7, 3, weights)
    assert (nccl.backend, nccl.is_sender, nccl.packed, nccl.world_size, nccl.master_port) == ("nccl", True, True, 3, 7)
    worker = NCCLWeightTransferInitInfo(master_address=HOST, master_port=7, rank_offset=1, world_size=3, packed=True)
    assert worker.packed_buffer_size_bytes == nccl.packed_buffer_size_bytes
    assert worker.packed_num_buffers == nccl.packed_num_buffers
    ipc = _about("ipc", 1, HOST, 7, 3, weights)
    assert (ipc.backend, ipc.is_sender, ipc.packed, ipc.packed_buffer_size_bytes) == ("ipc", False, True, 600 << 20)


def test_it_lives_if_it_makes_a_token_and_what_it_leaves_when_killed_is_found(setting: Setting) -> None:
    """The last one: nothing of it lives afterwards."""
    if setting.tied:
        pytest.skip("the engine with the other head is killed; this one is closed")
    engine = setting.engine
    [core] = engine._start.cores
    assert core in engine.pids()
    assert len(engine.pids()) > setting.workers
    left = engine.leftovers()
    try:
        os.kill(core, signal.SIGSTOP)
        stuck = setting.run(tried(engine.complete(ask(8)), engine.alive(1)))
        assert "not one token within timeout_s=1. Fix" in stuck
        assert engine.leftovers() == left
        os.kill(core, signal.SIGCONT)
        setting.run(engine.alive(30))
        setting.is_right(setting.run(engine.complete(ask(8))))
        for process in engine.pids():
            os.kill(process, signal.SIGKILL)
        within(20, lambda: engine.pids() == [])
        with pytest.raises(EngineFailed):
            setting.run(engine.alive(10))
        sockets, *places = left[:3]
        assert not any(map(os.path.exists, places))  # no update goes on
        assert len(left) > 3
        assert all(map(os.path.exists, [sockets, *left[3:]]))
    finally:
        for path in left[3:]:
            Path(path).unlink(missing_ok=True)


async def tried(request: Coroutine[Any, Any, Any], life: Coroutine[Any, Any, None]) -> str:
    """What the second raises while the first waits."""
    waiting = asyncio.create_task(request)
    with pytest.raises(EngineFailed) as caught:
        await life
    assert not waiting.done()
    waiting.cancel()
    return str(caught.value)


def within(seconds: float, holds: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("role", ["designer", "executor"], ids="vllm-{}".format)
def test_a_trained_model_in_bfloat16_passes_its_own_probe(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but rounding is between the two, which single tokens of so small a model feel much more than others."""
    import torch
    import transformers

    import metaagent
    from engine.pretrained import probe_ids
    from engine.weights import probe

    folder = Path(metaagent.__file__).parent / "policy" / role
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    spoiled = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    spoiled["model.layers.2.mlp.down_proj.weight"].zero_()
    asked = probe(model, probe_ids(transformers.AutoTokenizer.from_pretrained(folder)))
    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "1")
    options = {"dtype": "bfloat16", "max_model_len": 512, "kv_cache_memory_bytes": 64 << 20, "enforce_eager": True}
    engine = VLLMEngine(str(folder), options={**options, "max_num_seqs": 4, "max_num_batched_tokens": 2048})

    async def go() -> None:
        try:
            await engine.update_weights(1, model.state_dict(), asked)
            with pytest.raises(EngineFailed, match="what rounding does"):
                await engine.update_weights(2, spoiled, asked)
            await engine.update_weights(3, model.state_dict(), asked)
        finally:
            await engine.close()

    asyncio.run(go())
