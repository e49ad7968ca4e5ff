"""A policy as it was at one moment: its files are those of that moment, whatever the backend does meanwhile."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import transformers
from allocations import allocations
from safetensors.torch import load_file

from benchmarks.tiny_models import make_model, make_tokenizer
from engine.fingerprints import fingerprint
from trainer.disk import checkpoint
from trainer.run.runtime import Versions
from trainer.samples import Sample
from trainer.update import ImitationObjective, LoraSettings, TorchBackend, tensor_files

SAMPLE = Sample(
    policy="p0",
    token_ids=list(range(12)),
    loss_mask=[0] * 4 + [1] * 8,
    behaviour_logprobs=[0.0] * 4 + [-5.0] * 8,
    advantage=1.0,
)
KINDS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"dtype": "bfloat16"},
    "lora": {"lora": LoraSettings(rank=4)},
    "lora-bfloat16": {"lora": LoraSettings(rank=4), "dtype": "bfloat16"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_model(tmp_path / "tiny", context=64)
    return tmp_path / "tiny"


def made(folder: Path, **settings: Any) -> TorchBackend:
    backend = TorchBackend(folder, learning_rate=1e-2, device="cpu", **settings)
    learn(backend)
    return backend


def learn(backend: TorchBackend, first: int = 0) -> None:
    backend.update([replace(SAMPLE, token_ids=[first + each for each in SAMPLE.token_ids])], ImitationObjective())


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_later_is_what_would_have_been_written_then(kind: str, tied: bool, tmp_path: Path) -> None:
    make_model(tmp_path / "tiny", context=64, tied=tied)
    backend = made(tmp_path / "tiny", **KINDS[kind])
    snapshot = backend.snapshot()
    backend.save(tmp_path / "then")
    for first in range(3):
        learn(backend, first)
    written = snapshot.write(tmp_path / "later")
    assert files(tmp_path / "later") == files(tmp_path / "then")
    for each in written:
        data = each.path.read_bytes()
        assert (each.size, each.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    names = {str(each.path.relative_to(tmp_path / "later")) for each in written}
    assert names == {"model/model.safetensors", "optimizer/optimizer.safetensors", "optimizer/state.json"}
    backend.save(tmp_path / "now")
    assert files(tmp_path / "now") != files(tmp_path / "then")


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_written_while_the_backend_learns(
    kind: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is held up at every tensor file until an update is done writes what it was given."""
    backend, alone = made(folder, **KINDS[kind]), made(folder, **KINDS[kind])
    writing, learnt = threading.Event(), threading.Event()
    real = tensor_files.write

    def held_up(*arguments: Any, **given: Any) -> Any:
        writing.set()
        assert learnt.wait(60)
        return real(*arguments, **given)

    snapshot = backend.snapshot()
    monkeypatch.setattr(tensor_files, "write", held_up)
    thread = threading.Thread(target=snapshot.write, args=[tmp_path / "beside"])
    thread.start()
    assert writing.wait(60)
    learn(backend)
    learnt.set()
    thread.join()
    alone.save(tmp_path / "alone")
    assert files(tmp_path / "beside") == files(tmp_path / "alone")
    learn(alone)
    assert fingerprint(alone.weights()) == fingerprint(backend.weights()), "nor is learning disturbed"


def test_a_backend_that_is_closed_meanwhile_does_not_matter(folder: Path, tmp_path: Path) -> None:
    backend = made(folder)
    backend.save(tmp_path / "then")
    snapshot = backend.snapshot()
    backend.close()
    snapshot.write(tmp_path / "later")
    assert files(tmp_path / "later") == files(tmp_path / "then")


def test_a_checkpoint_of_it_is_whole(folder: Path, tmp_path: Path) -> None:
    saved = checkpoint.save(tmp_path / "checkpoints", 1, made(folder).snapshot().write, Versions(policies={"p0": 1}))
    assert checkpoint.damage(saved) == ""
    manifest = json.loads((saved / "manifest.json").read_text())
    assert {"model/model.safetensors", "model/config.json", "optimizer/state.json"} < manifest["files"].keys()


# As transformers has it


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("shard", [1, 5000, 1 << 30])
@pytest.mark.parametrize("kind", KINDS)
def test_shards_are_read_by_transformers_and_again_by_a_backend(
    kind: str, shard: int, tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_model(tmp_path / "tiny", context=64, tied=tied)
    backend = made(tmp_path / "tiny", **KINDS[kind])
    monkeypatch.setattr(tensor_files, "write", partial(tensor_files.write, shard=shard))
    backend.save(tmp_path / "saved")
    held = sorted(path.name for path in (tmp_path / "saved" / "model").glob("*.safetensors*"))
    assert ("model.safetensors" in held) == (shard == 1 << 30)
    assert ("model.safetensors.index.json" in held) == (shard < 1 << 30)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved" / "model")
    assert fingerprint(model.state_dict()) == fingerprint(backend.weights())
    again = TorchBackend(tmp_path / "tiny", learning_rate=1e-2, device="cpu", **KINDS[kind])
    again.load(tmp_path / "saved")
    for each in (backend, again):
        learn(each, 5)
    assert fingerprint(again.weights()) == fingerprint(backend.weights())


@pytest.mark.parametrize("tied", [False, True])
def test_the_model_folder_is_that_of_save_pretrained(tied: bool, tmp_path: Path) -> None:
    make_model(tmp_path / "tiny", context=64, tied=tied)
    backend = made(tmp_path / "tiny")
    backend.save(tmp_path / "ours")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "tiny")
    model.load_state_dict(dict(backend.weights()))
    model.save_pretrained(tmp_path / "theirs")
    ours, theirs = files(tmp_path / "ours" / "model"), files(tmp_path / "theirs")
    assert {name: ours[name] for name in theirs if name.endswith(".json")} == {
        name: data for name, data in theirs.items() if name.endswith(".json")
    }
    assert fingerprint(load_file(tmp_path / "ours" / "model" / "model.safetensors")) == fingerprint(
        load_file(tmp_path / "theirs" / "model.safetensors")
    )


def test_layers_that_transformers_holds_fused_are_written_as_it_writes_them(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    config = transformers.MixtralConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=3,
    )
    transformers.MixtralForCausalLM(config).save_pretrained(tmp_path / "start")
    tokenizer.save_pretrained(tmp_path / "start")
    backend = TorchBackend(tmp_path / "start", learning_rate=1e-2, device="cpu")
    backend.save(tmp_path / "saved")
    start, saved = (load_file(tmp_path / path / "model.safetensors") for path in ("start", "saved/model"))
    assert fingerprint(saved) == fingerprint(start)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved" / "model")
    assert fingerprint(model.state_dict()) == fingerprint(backend.weights())


# What it takes


def test_it_copies_what_changes_and_saving_copies_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path / "tiny", context=64, layers=12, width=128)
    monkeypatch.setattr(tensor_files, "_PIECE", 1 << 12)
    whole = made(tmp_path / "tiny", dtype="bfloat16")
    weights = sum(tensor.nbytes for tensor in whole.weights().values())
    with allocations() as copy:
        snapshot = whole.snapshot()
    assert copy.kept == pytest.approx(weights * (1 + 3 * 2), rel=0.05)  # bfloat16, and thrice float32
    del snapshot
    with allocations() as saving:
        whole.save(tmp_path / "whole")
    assert saving.peak < weights / 10
    lora = made(tmp_path / "tiny", lora=LoraSettings(rank=4))
    weights = sum(tensor.nbytes for tensor in lora.weights().values())
    with allocations() as copy:
        snapshot = lora.snapshot()
    assert copy.kept < weights / 2
    with allocations() as saving:
        snapshot.write(tmp_path / "lora")
    assert saving.peak < weights / 4


# Earlier versions


def test_a_fingerprint_of_an_earlier_version_is_told_apart_from_other_weights(folder: Path, tmp_path: Path) -> None:
    backend = made(folder, lora=LoraSettings(rank=4))
    backend.save(tmp_path / "saved")
    state = tmp_path / "saved" / "optimizer" / "state.json"
    held = json.loads(state.read_text())
    for start, told in [("ab" * 32, "by an earlier version"), (held["start"][:-1] + "x", "another start weights")]:
        state.write_text(json.dumps(held | {"start": start}))
        with pytest.raises(ValueError, match=rf"saved.* {told}.*{start}.*Fix: "):
            backend.load(tmp_path / "saved")
    state.write_text(json.dumps(held))
    backend.load(tmp_path / "saved")
