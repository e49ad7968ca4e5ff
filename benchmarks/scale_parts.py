"""What `benchmarks.scale` measures: each part the old way, which is written out here as it was and is no part of the
project any more, and the new one, on weights made at random. Prints nothing.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import copy
import hashlib
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from benchmarks.rollout_memory import forget_peak, peak_mb, resident_mb
from trainer.rollout import TraceFile
from workflow.completion import ChatMessage, Completion
from workflow.trace import AgentTurn, Event, Printed, event_to_json

LAYERS, WIDTH, INNER, VOCABULARY = 20, 1024, 3072, 151_936
SMALL_LAYERS, SMALL_VOCABULARY = 8, 32_000
"""Of the model whose checkpoints are written."""
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EVENTS = 20_000


@dataclass(frozen=True)
class Took:
    seconds: float
    peak_mb: float


def took(work: Callable[[], object]) -> Took:
    before = resident_mb()
    forget_peak()
    began = time.perf_counter()
    work()
    return Took(time.perf_counter() - began, max(0.0, peak_mb() - before))


def config(layers: int, vocabulary: int) -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
        dtype="bfloat16",
    )


def random_model() -> Any:
    import torch
    from transformers import Qwen3ForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = Qwen3ForCausalLM(config(LAYERS, VOCABULARY)).eval()
    torch.set_default_dtype(torch.float32)
    return model


# Fingerprints


def old_fingerprint(tensors: Mapping[str, Any]) -> str:
    import torch

    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        bits = tensor.contiguous().flatten().view(integers[tensor.element_size()])
        plain = weighted = 0
        for start in range(0, len(bits), 1 << 22):
            chunk = bits[start : start + (1 << 22)].to(torch.int64)
            places = torch.arange(start + 1, start + 1 + len(chunk))
            plain += int(chunk.sum())
            weighted += int((chunk * (places % 65_521)).sum())
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)} {plain} {weighted}\n".encode())
    return digest.hexdigest()


def fingerprints() -> dict[str, float]:
    from engine.weights import fingerprint

    tensors = random_model().state_dict()
    tensors.pop("lm_head.weight")  # tied
    fingerprint({"warm": tensors["model.norm.weight"]})
    cpu = time.process_time()
    before = took(lambda: old_fingerprint(tensors))
    cpu_before, cpu = time.process_time() - cpu, time.process_time()
    after = took(lambda: fingerprint(tensors))
    cpu_after = time.process_time() - cpu
    return {
        "weights": sum(tensor.numel() for tensor in tensors.values()),
        "before_s": before.seconds,
        "before_cpu_s": cpu_before,
        "before_mb": before.peak_mb,
        "after_s": after.seconds,
        "after_cpu_s": cpu_after,
        "after_mb": after.peak_mb,
    }


# Adapters


def adapted_model() -> Any:
    import peft

    settings = peft.LoraConfig(r=16, lora_alpha=32, target_modules=TARGETS, init_lora_weights=False)
    return peft.get_peft_model(random_model(), settings)


def merging(way: str) -> dict[str, float]:
    """Each weight is looked at once and let go, as when an engine copies it."""
    from engine.weights import merged

    model = adapted_model()

    def before() -> None:
        tensors = copy.deepcopy(model).merge_and_unload(safe_merge=True).state_dict()
        for tensor in tensors.values():
            tensor.view(-1)[0].item()

    def after() -> None:
        for tensor in merged(model).values():
            tensor.view(-1)[0].item()

    result = took(before if way == "before" else after)
    return {
        "model_mb": sum(each.nbytes for each in model.parameters()) / 1e6,
        f"{way}_s": result.seconds,
        f"{way}_mb": result.peak_mb,
    }


# Checkpoints


def learnt_backend(folder: Path) -> Any:
    """A backend whose optimizer has all that it ever has."""
    import torch
    from transformers import Qwen3ForCausalLM

    from benchmarks.tiny_models import make_tokenizer
    from trainer.update import ImitationObjective, TorchBackend

    make_tokenizer().save_pretrained(folder)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    Qwen3ForCausalLM(config(SMALL_LAYERS, SMALL_VOCABULARY)).save_pretrained(folder)
    torch.set_default_dtype(torch.float32)
    backend = TorchBackend(folder, learning_rate=5e-6, device="cpu", dtype="bfloat16")
    backend.update(samples(), ImitationObjective())
    return backend


def samples() -> list[Any]:
    from trainer.samples import Sample

    mask = [0] * 16 + [1] * 112
    return [
        Sample(policy="p0", token_ids=list(range(128)), loss_mask=mask, behaviour_logprobs=[0.0] * 128, advantage=1.0)
    ]


def old_save(backend: Any, folder: Path) -> None:
    """What a backend's `save` and the checkpoint around it did: files written by the libraries, whole and one after
    another, synced twice, read back for their digests."""
    from safetensors.torch import save_file

    backend._model.save_pretrained(folder / "model")
    backend._tokenizer.save_pretrained(folder / "model")
    (folder / "optimizer").mkdir()
    tensors = backend._optimizer.tensors() | backend._dice.states
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, folder / "optimizer" / "optimizer.safetensors")
    old_synced(folder)
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir()):
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
    old_synced(folder)


def old_synced(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


class State(BaseModel):
    step: int


def checkpoints(place: Path) -> dict[str, float]:
    from trainer.disk import CheckpointWriter, checkpoint
    from trainer.update import ImitationObjective

    backend = learnt_backend(place / "start")

    def update() -> float:
        began = time.perf_counter()
        backend.update(samples(), ImitationObjective())
        return time.perf_counter() - began

    def emptied(name: str) -> Path:
        shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir()
        os.sync()
        return place / name

    alone = min(update() for _ in range(3))
    before, at_once = [], []
    for _ in range(2):
        folder = emptied("before")
        before.append(took(lambda folder=folder: old_save(backend, folder)))
        folder = emptied("at-once")
        at_once.append(took(lambda folder=folder: checkpoint.save(folder, 1, backend.save, State(step=1))))
    size = sum(path.stat().st_size for path in (place / "at-once").rglob("*") if path.is_file())
    checked = took(lambda: checkpoint.damage(place / "at-once" / "step-00000001"))
    emptied("before")
    emptied("at-once")
    found: dict[str, float] = {}

    async def beside() -> None:
        resident = resident_mb()
        forget_peak()
        began = time.perf_counter()
        async with CheckpointWriter(emptied("beside")) as writer:
            writer.begin(1, (await asyncio.to_thread(backend.snapshot)).write, State(step=1))
            found["waits_s"] = time.perf_counter() - began
            found["update_beside_s"] = await asyncio.to_thread(update)
            await writer.wait()
            found["beside_s"] = time.perf_counter() - began
        found["beside_mb"] = peak_mb() - resident

    asyncio.run(beside())
    return {
        "gigabytes": size / 1e9,
        "before_s": min(each.seconds for each in before),
        "before_mb": max(each.peak_mb for each in before),
        "at_once_s": min(each.seconds for each in at_once),
        "at_once_mb": max(each.peak_mb for each in at_once),
        "update_alone_s": alone,
        "checked_s": checked.seconds,
        **found,
    }


# Traces


class OldTraceFile:
    """Opened, written and closed for every event."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.unlink(missing_ok=True)

    def __call__(self, event: Event) -> None:
        with self._path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(event_to_json(event) + "\n")


SMALL: Event = Printed(text="a line that a program printed")
TURN: Event = AgentTurn(
    key="a#0",
    path="a",
    agent="a",
    messages=[ChatMessage(role="user", content="what is asked " * 100)],
    completion=Completion(
        text="what is said " * 100,
        prompt_token_ids=list(range(400)),
        token_ids=list(range(300)),
        logprobs=[-place / 7 for place in range(300)],
    ),
)


def traces(place: Path) -> dict[str, float]:
    """Events per second with so many runs under way, of which one at random has the next event. Their files are there
    already: what it takes to make one is the same before and after."""
    found: dict[str, float] = {}
    for runs in (64, 1024, 8192):
        for name, event in (("small", SMALL), ("turn", TURN)):
            for way, kind in (("before", OldTraceFile), ("after", TraceFile)):
                folder = place / f"{way}-{runs}-{name}"
                folder.mkdir()
                sinks = [kind(folder / f"{number}.jsonl") for number in range(runs)]
                for sink in sinks:
                    sink(SMALL)
                dice = random.Random(runs)
                began = time.perf_counter()
                for _ in range(EVENTS):
                    sinks[dice.randrange(runs)](event)
                found[f"{way}_{name}_{runs}"] = EVENTS / (time.perf_counter() - began)
                if name == "small" and way == "after":
                    found[f"open_{runs}"] = sum(1 for _ in open_below(folder))
    return found


def open_below(folder: Path) -> Iterator[str]:
    for place in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(place)
        except OSError:
            continue
        if target.startswith(str(folder)):
            yield target


PARTS: dict[str, Callable[[Path], dict[str, float]]] = {
    "fingerprint": lambda _: fingerprints(),
    "merging-before": lambda _: merging("before"),
    "merging-after": lambda _: merging("after"),
    "checkpoint": checkpoints,
    "traces": traces,
}
