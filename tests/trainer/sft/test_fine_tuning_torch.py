"""Supervised fine-tuning of a real, tiny model: it learns a mapping and says it, and resumes bit for bit."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.chat import ChatFormat
from engine.local.transformers import TransformersEngine
from trainer.sft.chat_rows import ChatRow
from trainer.sft.chat_samples import samples_of, samples_of_rows
from trainer.sft.epochs import METRICS
from trainer.sft.fine_tuning import SFTSettings, StepMetrics, train
from trainer.update.backend import ImitationObjective, LoraSettings
from workflow.completion import ChatMessage, CompletionRequest, Sampling

pytest.importorskip("torch")

import torch

pytest.importorskip("transformers")

import transformers

from benchmarks.tiny_models import make_model, make_tokenizer
from trainer.update.torch_backend import TorchBackend

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Japan": "Tokyo",
    "Peru": "Lima",
    "Norway": "Oslo",
    "Cuba": "Havana",
    "Egypt": "Cairo",
    "Kenya": "Nairobi",
    "Greece": "Athens",
    "Austria": "Vienna",
    "Poland": "Warsaw",
}
SETTINGS = SFTSettings(epochs=40, batch=6, learning_rate=1e-2, held_out=0.0, seed=3)


@pytest.fixture(scope="module", autouse=True)
def _two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    make_model(folder, layers=2, width=32, context=256)
    return folder


def chat_format() -> ChatFormat:
    tokenizer = make_tokenizer()
    return ChatFormat(tokenizer, [tokenizer.eos_token_id])


def row(question: str, answer: str) -> ChatRow:
    return ChatRow(messages=[ChatMessage(role="user", content=question), ChatMessage(role="assistant", content=answer)])


ROWS = [row(f"{country}?", capital) for country, capital in CAPITALS.items()]


def says(folder: Path) -> float:
    """The share of questions that the model answers rightly, greedily, through the engine."""

    async def ask() -> list[str]:
        engine = TransformersEngine(str(folder), device="cpu")
        try:
            requests = [
                CompletionRequest(
                    messages=[ChatMessage(role="user", content=f"{country}?")],
                    sampling=Sampling(temperature=0, max_tokens=12),
                )
                for country in CAPITALS
            ]
            return [reply.text for reply in await asyncio.gather(*map(engine.complete, requests))]
        finally:
            await engine.close()

    replies = asyncio.run(ask())
    return sum(reply == capital for reply, capital in zip(replies, CAPITALS.values(), strict=True)) / len(CAPITALS)


def learn(start: Path, out: Path, settings: SFTSettings = SETTINGS, **options: Any) -> None:
    backend = TorchBackend(
        start, learning_rate=settings.learning_rate, device="cpu", lora=options.pop("lora", None), seed=settings.seed
    )
    train(backend, samples_of_rows(ROWS, chat_format()).rows, settings, out, **options)
    backend.close()


def test_the_loss_is_that_of_plain_transformers_on_the_replies(start: Path) -> None:
    """The same number with prompts labelled -100: whatever prompts' tokens are predicted to be does not matter."""
    chat = chat_format()
    turns = [("user", "a"), ("assistant", "bcd"), ("tool", "e"), ("assistant", "f")]
    messages: list[Any] = [{"role": role, "content": content} for role, content in turns]
    [sample] = samples_of(ChatRow(messages=messages), chat)
    labels = [token if chosen else -100 for token, chosen in zip(sample.token_ids, sample.loss_mask, strict=True)]
    assert sum(label != -100 for label in labels) == len("bcd") + len("f") + 2
    model = transformers.AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    expected = model(torch.tensor([list(sample.token_ids)]), labels=torch.tensor([labels])).loss.item()
    backend = TorchBackend(start, learning_rate=1e-3, device="cpu")
    assert backend.update([sample], ImitationObjective()).loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.thorough
def test_a_tiny_model_learns_what_it_is_shown_and_says_it(start: Path, tmp_path: Path) -> None:
    assert says(start) == 0
    learn(start, tmp_path)
    assert says(tmp_path / "model") > 0.9
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Peru?"}], add_generation_prompt=True, enable_thinking=False, return_tensors="pt"
    )
    ids = prompt["input_ids"]
    told = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer.decode(told) == "Lima<|im_end|>"
    first, *_, last = (json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()[1:])
    assert first["loss"] > 1 > 10 * last["loss"]


@pytest.mark.thorough
def test_adapters_learn_it_too_and_the_result_is_a_plain_model(start: Path, tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"learning_rate": 3e-2, "epochs": 60})
    learn(start, tmp_path, settings, lora=LoraSettings(rank=16, alpha=32))
    assert says(tmp_path / "model") > 0.9
    assert not list((tmp_path / "model").glob("adapter*"))


class Stopped(Exception):
    pass


SHORT = SFTSettings(epochs=2, batch=5, learning_rate=1e-2, held_out=0.2, seed=3)


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4, alpha=8, dropout=0.3)])
def test_stopped_and_resumed_ends_with_the_same_bits(lora: LoraSettings | None, start: Path, tmp_path: Path) -> None:
    def stop(metrics: StepMetrics, steps: int) -> None:
        if metrics.step == 3:
            raise Stopped

    learn(start, tmp_path / "whole", SHORT, lora=lora)
    with pytest.raises(Stopped):
        learn(start, tmp_path / "stopped", SHORT, lora=lora, checkpoint_every=2, watch=stop)
    learn(start, tmp_path / "stopped", SHORT, lora=lora, checkpoint_every=2, resume=True)
    assert ended(tmp_path / "stopped") == ended(tmp_path / "whole")


def ended(out: Path) -> tuple[bytes, list[StepMetrics]]:
    """The weights, and the metrics without what depends on the clock."""
    lines = [StepMetrics.model_validate_json(line) for line in (out / METRICS).read_text().splitlines()]
    return (
        (out / "model" / "model.safetensors").read_bytes(),
        [line.model_copy(update={"duration_s": 0.0}) for line in lines],
    )


KILLS = """
import importlib, os, random, signal, sys, time
from pathlib import Path

tests = importlib.import_module(sys.argv[4])

def child():
    process = os.fork()
    if process:
        return process
    try:
        tests.learn(start, out, tests.SHORT.model_copy(update={"epochs": 20}), checkpoint_every=3, resume=True)
        os._exit(0)
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)

start, out, kills = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
tests.torch.set_num_threads(1)  # others would not outlive a fork
tests.TorchBackend(start, learning_rate=1.0, device="cpu").close()  # imports once what every child needs
metrics, dice = out / "metrics.jsonl", random.Random(5)


def steps():
    return metrics.read_bytes().count(b"\\n")


for killed in range(kills):
    process = child()
    before = metrics.stat().st_mtime_ns if metrics.exists() else 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_mtime_ns > before):
        time.sleep(0.005)  # it has begun to learn, so that something is there to be lost
    further = steps() + dice.randrange(12)  # by steps, not by the clock: machines differ
    while time.monotonic() < deadline and steps() < further:
        time.sleep(0.001)
    time.sleep(dice.random() * 0.02)
    os.kill(process, signal.SIGKILL)
    if os.waitpid(process, 0)[1] != signal.SIGKILL:
        break  # it was done before
    print(killed + 1, flush=True)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child(), 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_random_moments_and_resumed_it_ends_with_the_same_bits(start: Path, tmp_path: Path) -> None:
    for out, kills in (("whole", 0), ("killed", 6)):
        ran = subprocess.run(
            [sys.executable, "-c", KILLS, str(start), str(tmp_path / out), str(kills), __name__],
            cwd=Path(__file__).parents[3],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert len(ran.stdout.split()) >= kills / 2, "it was done before it could be killed"
    assert ended(tmp_path / "killed") == ended(tmp_path / "whole")
    assert len(list((tmp_path / "killed" / "checkpoints").glob("step-*"))) <= 3
