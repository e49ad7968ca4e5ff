"""The trainer's side of weights for vLLM, without vLLM: streams that take their tensors back, senders, and what these
say when the other side is late, dies or gets something else. The real vLLM is in `test_vllm_transfer.py`."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from multiprocessing import shared_memory
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from receiving import HOST, free_port, receiver

from engine.vllm import ControlClient, Sender, Tally, TransferFailed, ZeroSource, family, files_of, told_of

torch = pytest.importorskip("torch")


class Layers:
    """A model of three layers, whose tensors are whole until the next list is asked for, as ZeRO-3's are."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.layers: list[dict[str, Any]] = [
            {"embed": torch.randn(7, 4), "one.bias": torch.randn(4).to(torch.bfloat16)},
            {"one.weight": torch.randn(4, 4).T, "one.scale": torch.tensor(2.5), "one.none": torch.empty(0, 4)},
            {"head": torch.randn(5, 4, dtype=torch.float64), "flags": torch.tensor([True, False])},
        ]
        self.passes = 0
        self.given = 0
        """Layers of the last pass that were asked for."""

    def __call__(self) -> Iterator[list[tuple[str, Any]]]:
        self.passes += 1
        self.given = 0
        for layer in self.layers:
            gathered = [(name, torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)) for name, t in layer.items()]
            for (_, whole), kept in zip(gathered, layer.values(), strict=True):
                whole.copy_(kept)
            self.given += 1
            yield gathered
            for _, whole in gathered:
                whole.zero_()

    @property
    def all(self) -> dict[str, Any]:
        return {name: tensor for layer in self.layers for name, tensor in layer.items()}


def fingerprint_of(tensors: dict[str, Any]) -> str:
    tally = Tally()
    list(tally.passing(tensors.items()))
    return tally.fingerprint


# Streams


def test_what_is_taken_from_a_stream_stays_when_the_stream_goes_on() -> None:
    layers = Layers()
    source = ZeroSource(layers)
    for _ in range(2):
        kept = list(source)  # as a sender that packs does
        assert [name for name, _ in kept] == list(layers.all)
        for name, tensor in kept:
            assert torch.equal(tensor, layers.all[name]), name
            assert tensor.is_contiguous()
            assert tensor.dtype == layers.all[name].dtype
    assert layers.passes == 2


def test_a_stream_is_only_as_far_ahead_as_the_layer_in_hand() -> None:
    layers = Layers()
    passing = iter(ZeroSource(layers))
    for layer, names in enumerate([["embed", "one.bias"], ["one.weight"]], 1):
        assert [next(passing)[0] for _ in names] == names
        assert layers.given == layer


def test_metadata_is_what_the_stream_gives_and_is_asked_for_once() -> None:
    layers = Layers()
    source = ZeroSource(layers)
    told = told_of(source.metadata())
    assert told == told_of(source.metadata())
    assert layers.passes == 1
    assert told["names"] == list(layers.all)
    assert told["dtype_names"] == ["float32", "bfloat16", "float32", "float32", "float32", "float64", "bool"]
    assert told["shapes"] == [[7, 4], [4], [4, 4], [], [0, 4], [5, 4], [2]]
    assert source.metadata()[1].dtype is torch.bfloat16
    assert source.metadata()[1].dtype.itemsize == 2


def test_a_tally_does_not_depend_on_order_but_on_every_bit_name_type_and_shape() -> None:
    from engine.fingerprints import fingerprint

    tensors = Layers().all
    whole = fingerprint_of(tensors)
    assert whole == fingerprint_of(dict(reversed(tensors.items()))) == fingerprint(tensors)
    others = [
        tensors | {"head": tensors["head"].float()},
        tensors | {"embed": tensors["embed"].reshape(4, 7)},
        {("embed2" if name == "embed" else name): tensor for name, tensor in tensors.items()},
        {name: tensor for name, tensor in tensors.items() if name != "one.none"},
        tensors | {"embed": tensors["one.weight"], "one.weight": tensors["embed"]},
    ]
    for name in ("embed", "one.bias", "flags"):
        flipped = tensors[name].clone()
        flipped.view(torch.uint8).view(-1)[-1] ^= 1
        others.append(tensors | {name: flipped})
    assert len({whole, *map(fingerprint_of, others)}) == 1 + len(others)


# Over gloo


def test_everything_sent_comes_bit_for_bit_and_both_ends_say_the_same() -> None:
    layers = Layers()
    sender = Sender("gloo", ZeroSource(layers))
    for round_ in range(2):  # a group made anew takes the place of the one before
        port = free_port()
        with receiver(port, sender.metadata()) as there:
            sender.join(HOST, port, 2, 20)
            assert there.said() == "joined"
            sent = sender.send(round_)
            assert sent is not None
            fingerprint, size, came = there.said()
        assert (sent.fingerprint, sent.bytes, sent.tensors) == (fingerprint, size, 7)
        assert fingerprint == fingerprint_of(layers.all)
        assert sent.bytes == 4 * 28 + 2 * 4 + 4 * 16 + 4 + 0 + 8 * 20 + 2
        assert 0 < sent.seconds < 20
        assert {name: torch.tensor(values).shape for name, values in came.items() if name != "one.none"} == {
            name: tensor.shape for name, tensor in layers.all.items() if name != "one.none"
        }
        assert came["head"] == layers.all["head"].tolist()
    sender.leave()
    sender.leave()


def test_a_bit_that_flips_on_the_way_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.vllm import gloo_group

    whole = gloo_group._broadcast

    def flipping(group: Any, name: str, tensor: Any) -> None:
        if name == "one.weight":
            tensor.view(torch.uint8)[1, 2] ^= 1
        whole(group, name, tensor)

    sender, port = Sender("gloo", ZeroSource(Layers())), free_port()
    with receiver(port, sender.metadata()) as there:
        sender.join(HOST, port, 2, 20)
        monkeypatch.setattr(gloo_group, "_broadcast", flipping)
        sent = sender.send(1)
        assert there.said() == "joined"
        assert sent is not None
        assert sent.fingerprint == fingerprint_of(Layers().all)
        assert there.said()[0] != sent.fingerprint


@pytest.mark.parametrize(
    ("ends", "limit", "told"), [("dies", 30.0, "ConnectionError"), ("sleeps", 3.0, "TimeoutError")]
)
def test_a_receiver_that_is_lost_is_named_with_the_limit_and_the_stream_runs_out(
    ends: str, limit: float, told: str
) -> None:
    """No other rank of the trainer may be left waiting in a gather."""
    layers = Layers()
    layers.layers[2]["large"] = torch.zeros(16 << 20)  # more than the kernel's buffers hold
    sender, port = Sender("gloo", ZeroSource(layers)), free_port()
    with receiver(port, sender.metadata(), ends=ends, after=2) as there:
        sender.join(HOST, port, 2, limit)
        assert there.said() == "joined"
        began = time.monotonic()
        with pytest.raises(
            TransferFailed, match=rf"^weights 5 were not sent: {told}: '.*' did not reach every receiver"
        ):
            sender.send(5)
        assert time.monotonic() - began < 12
        assert layers.given == 3
        with pytest.raises(TransferFailed, match="there is no group"):
            sender.send(6)
        assert layers.given == 3


def test_limits_are_named() -> None:
    sender, port = Sender("gloo", ZeroSource(Layers())), free_port()
    with pytest.raises(TransferFailed, match=rf"no group of 2 at {HOST}:{port}: .*within timeout_s=1:"):
        sender.join(HOST, port, 2, 1)
    with receiver(port, sender.metadata(), timeout_s=1.5) as alone:
        error = alone.said()
    assert isinstance(error, TimeoutError | ConnectionError)
    assert f"rank 1 did not meet the other 1 at {HOST}:{port} within timeout_s=1.5" in str(error)
    port = free_port()
    with receiver(port, sender.metadata(), timeout_s=1.5) as waiting:
        sender.join(HOST, port, 2, 20)
        assert waiting.said() == "joined"
        error = waiting.said()  # nothing is sent
    assert isinstance(error, TimeoutError)
    assert str(error).startswith("'embed' did not come within timeout_s=1.5: ")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda layers: layers[1].update({"one.scale": torch.zeros(2)}),
            "the stream gave .*'one.scale'.*(2,).*told of",
        ),
        (lambda layers: layers[2].pop("flags"), "the stream ended before .*'flags'"),
        (lambda layers: layers[2].update(more=torch.zeros(1)), "the stream gave .*'more'.*told of None"),
        (
            lambda layers: layers[0].update(embed=torch.zeros(7, 4).half()),
            "the stream gave .*float16.*told of .*float32",
        ),
    ],
)
def test_a_stream_that_changed_since_engines_were_told_is_an_error(change: Any, told: str) -> None:
    layers = Layers()
    sender, port = Sender("gloo", ZeroSource(layers)), free_port()
    with receiver(port, sender.metadata()) as there:
        sender.join(HOST, port, 2, 20)
        change(layers.layers)
        with pytest.raises(TransferFailed, match=told):
            sender.send(1)
        assert there.said() == "joined"
        if "'more'" not in told:  # else it has all that it was told of
            assert isinstance(there.said(), ConnectionError)  # it does not wait for its own time-out
    assert layers.given == 3


def test_a_stream_that_fails_as_it_runs_out_does_not_hide_why() -> None:
    layers = Layers()

    def failing() -> Iterator[list[tuple[str, Any]]]:
        yield [(name + "?", tensor) for name, tensor in layers.layers[0].items()]
        raise RuntimeError("a gather failed")

    source = ZeroSource(layers)
    sender, port = Sender("gloo", source), free_port()
    with receiver(port, sender.metadata()):
        sender.join(HOST, port, 2, 20)
        source.stream = failing
        with pytest.raises(TransferFailed, match=r"the stream gave .*'embed\?'"):
            sender.send(1)


def test_other_ranks_only_iterate_and_their_errors_are_told() -> None:
    layers = Layers()
    sender = Sender("gloo", ZeroSource(layers), rank=1)
    sender.join(HOST, 1, 2, 0.01)  # meets nobody
    sender.metadata()
    assert sender.send(1) is None
    assert (layers.passes, layers.given) == (2, 3)

    def failing() -> Iterator[list[tuple[str, Any]]]:
        yield []
        raise RuntimeError("a gather failed")

    source = ZeroSource(layers)
    source.metadata()
    source.stream = failing
    with pytest.raises(RuntimeError, match="a gather failed"):
        Sender("gloo", source, rank=1).send(1)


# vLLM's own senders


def test_vllms_senders_get_the_group_and_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the real ones ask for is looked at in `test_vllm_transfer.py`."""
    made: list[Any] = []
    over = threading.Event()

    class Trainer:
        def __init__(self, about: Any, client: Any, source: Any) -> None:
            self.about, self.client, self.source = about, client, source
            self.shut = False
            made.append(self)

        def send_weights(self) -> None:
            assert [weight.name for weight in self.source.metadata()] == list(Layers().all)
            list(self.source)
            if len(made) == 2:
                over.wait(20)

        def shutdown(self) -> None:
            self.shut = True

    factory = SimpleNamespace(trainer_init=lambda about, client, source: Trainer(about, client, source))
    fakes: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.distributed": {},
        "vllm.distributed.weight_transfer": {"WeightTransferTrainerFactory": factory},
        "vllm.distributed.weight_transfer.nccl_engine": {
            "NCCLTrainerInitInfo": lambda *given, **named: SimpleNamespace(given=given, **named)
        },
        "vllm.distributed.weight_transfer.ipc_engine": {"IPCTrainerInitInfo": SimpleNamespace},
    }
    for name, content in fakes.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    sender = Sender("nccl", ZeroSource(Layers()))
    sender.join("there", 7, 3, 5)
    sent = sender.send(4)
    assert sent is not None
    assert sent.fingerprint == fingerprint_of(Layers().all)
    assert (made[0].about.given, made[0].about.packed, made[0].about.rank) == (("there", 7, 3), True, 0)
    sender.join("there", 8, 3, 0.3)
    assert made[0].shut
    with pytest.raises(TransferFailed, match=r"weights 5 were not sent: TimeoutError: .*within timeout_s=0\.3\. Fix"):
        sender.send(5)
    over.set()
    client = ControlClient({}, 5)
    large = Layers()
    large.layers[0]["embed"] = torch.zeros(80 << 20)
    for layers, buffer in ((Layers(), 256 << 20), (large, 320 << 20)):
        Sender("ipc", ZeroSource(layers), rank=2, client=client).join("there", 7, 3, 5)
        assert (made[-1].about.rank, made[-1].about.packed, made[-1].client) == (2, True, client)
        assert made[-1].about.packed_buffer_size_bytes == buffer
    with pytest.raises(ValueError, match=r'"ipc" needs a client\. Fix'):
        Sender("ipc", ZeroSource(Layers()))


# The client


def test_a_client_takes_all_engines_through_the_steps_at_once() -> None:
    asked: list[tuple[str, str, dict[str, Any]]] = []
    answers: list[Future[Any]] = []

    def engine(name: str) -> Any:
        def call(method: str, arguments: dict[str, Any]) -> Future[Any]:
            asked.append((name, method, arguments))
            answers.append(Future())
            if len(answers) % 2 == 0:  # the first waits until the second was asked
                for answer in answers[-2:]:
                    answer.set_result(None)
            return answers[-1]

        return call

    client = ControlClient({"a": engine("a"), "b": engine("b")}, 5)
    client.init_weight_transfer_engine({"anything": 1})
    assert asked == []
    client.prepare(3, {"names": ["x"]})
    client.start_weight_update()
    client.update_weights({"names": ["x"], "ipc_handles": [{"uuid": (torch.Tensor, 1)}]})
    client.finish_weight_update()
    begin, receive = asked[0], asked[2]
    assert [(name, method) for name, method, _ in asked] == [
        (name, method) for method in ("begin_receiving", "receive", "finish_receiving") for name in "ab"
    ]
    assert begin[2] == {"version": 3, "metadata": {"names": ["x"]}}
    assert isinstance(receive[2]["info"]["ipc_handles"], bytes)


def test_engines_that_do_not_answer_are_named_and_what_one_raised_is_raised() -> None:
    done: Future[Any] = Future()
    done.set_result(None)
    silent: dict[str, Any] = {name: (lambda *_: Future()) for name in ("b", "c")}
    client = ControlClient({"a": lambda *_: done, **silent}, 0.2)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer to finish_receiving from b, c within timeout_s=0\.2\. Fix"):
        client.finish_weight_update()
    assert time.monotonic() - began < 2
    failed: Future[Any] = Future()
    failed.set_exception(TimeoutError("it has its own"))
    with pytest.raises(TimeoutError, match="it has its own"):
        ControlClient({"a": lambda *_: failed}, 5).start_weight_update()


# Leftovers

HOLDING = """
import subprocess, sys
from multiprocessing import get_context, shared_memory
held = shared_memory.SharedMemory(create=True, size=4096)
lock = get_context("spawn").Lock()
with open("/dev/shm/somebody-elses-" + held.name, "wb") as other:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    print(held.name, lock._semlock.name, child.pid, flush=True)
    input()
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm here")
def test_what_a_killed_process_leaves_in_shared_memory_is_found_while_it_lives() -> None:
    before = set(os.listdir("/dev/shm"))
    holding = subprocess.Popen(
        [sys.executable, "-c", HOLDING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    mine = shared_memory.SharedMemory(create=True, size=4096)
    try:
        assert holding.stdout is not None
        memory, semaphore, child = holding.stdout.readline().split()
        everybody = family([holding.pid, 2**30])
        assert {holding.pid, int(child)} <= set(everybody)
        assert os.getpid() not in everybody
        os.kill(holding.pid, signal.SIGSTOP)  # it need not answer
        found = files_of([*everybody, 2**30])
        assert found == sorted(["/dev/shm/" + memory, "/dev/shm/" + semaphore.replace("/", "sem.")])
        assert "/dev/shm/" + mine.name not in found
        for process in everybody:
            os.kill(process, signal.SIGKILL)
        holding.wait(20)
        assert family([holding.pid]) == files_of(everybody) == []
        assert all(map(os.path.exists, found))
    finally:
        mine.close()
        mine.unlink()
        holding.kill()
        for name in set(os.listdir("/dev/shm")) - before:
            Path("/dev/shm", name).unlink()
    assert multiprocessing.active_children() == []
