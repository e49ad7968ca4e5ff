"""safetensors files of our own: what safetensors and transformers read in them is what was written."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import safetensors
import torch
from safetensors.torch import load_file

from engine.fingerprints import fingerprint
from trainer.update import policy_files, tensor_files
from trainer.update.tensor_files import write

TYPES = list(tensor_files._NAMES)


@st.composite
def any_tensors(draw: Any) -> dict[str, Any]:
    """Tensors of random bits, of all types and shapes, empty ones and ones with odd strides included."""
    torch.manual_seed(draw(st.integers(0, 1 << 30)))
    tensors: dict[str, Any] = {}
    names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: name != "__metadata__")
    for name in draw(st.lists(names, min_size=1, max_size=6, unique=True)):
        dtype, shape = draw(st.sampled_from(TYPES)), draw(st.lists(st.integers(0, 5), max_size=3))
        count = torch.Size(shape).numel()
        if dtype == torch.bool:
            flat = torch.rand(count) < 0.5
        else:
            flat = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8).view(dtype)
        tensor = flat.view(shape)
        tensors[name] = tensor.T if tensor.dim() == 2 and draw(st.booleans()) else tensor
    return tensors


@settings(deadline=None)
@given(tensors=any_tensors(), shard=st.sampled_from([1, 16, 100, 1 << 20]))
def test_safetensors_reads_what_was_written(
    tensors: dict[str, Any], shard: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("files")
    written = write(folder, "some", tensors, shard=shard)
    assert sorted(each.path for each in written) == sorted(folder.iterdir())
    for each in written:
        data = each.path.read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (each.size, each.sha256)
    found: dict[str, Any] = {}
    for path in folder.glob("*.safetensors"):
        inside = load_file(path)
        assert len(inside) == 1 or sum(tensor.nbytes for tensor in inside.values()) <= shard
        assert not inside.keys() & found.keys()
        found |= inside
        with safetensors.safe_open(path, "pt") as file:
            assert file.metadata() == {"format": "pt"}
    assert {name: tensor.shape for name, tensor in found.items()} == {n: t.shape for n, t in tensors.items()}
    assert fingerprint(found) == fingerprint(tensors)
    assert fingerprint(policy_files.read_tensors(folder / "some.safetensors")) == fingerprint(tensors)


def test_tensors_lie_at_multiples_of_their_elements(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(3, dtype=torch.int8), "b": torch.zeros(5, dtype=torch.bfloat16), "c": torch.zeros(2)}
    write(tmp_path, "some", tensors)
    data = (tmp_path / "some.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for name, tensor in tensors.items():
        assert (8 + length + header[name]["data_offsets"][0]) % tensor.element_size() == 0


def test_shards_are_named_as_transformers_names_them(tmp_path: Path) -> None:
    write(tmp_path, "model", {name: torch.full((2,), 1.0) for name in "abc"}, shard=16)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index == {
        "metadata": {"total_size": 24},
        "weight_map": {
            "a": "model-00001-of-00002.safetensors",
            "b": "model-00001-of-00002.safetensors",
            "c": "model-00002-of-00002.safetensors",
        },
    }


class Made(Mapping[str, Any]):
    """Tensors that are made when they are asked for; two at the same time, or it fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.together = threading.Barrier(2)

    def outline(self) -> dict[str, Any]:
        return {name: torch.empty(4, device="meta") for name in self}

    def __getitem__(self, name: str) -> Any:
        self.asked.append(name)
        self.together.wait(10)
        return torch.full((4,), float(name))

    def __iter__(self) -> Iterator[str]:
        return map(str, range(6))

    def __len__(self) -> int:
        return 6


def test_shards_are_made_side_by_side_and_each_tensor_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    monkeypatch.setattr(tensor_files, "outline", lambda tensors: tensors.outline())
    monkeypatch.setattr("engine.threads._processors", lambda: 2)
    write(tmp_path, "some", made, shard=16)
    assert sorted(made.asked) == list(made)


def test_a_type_that_the_format_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'w' is torch\.complex64.*Fix: "):
        write(tmp_path, "some", {"w": torch.zeros(2, dtype=torch.complex64)})


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "some.safetensors").write_text("mine")
    with pytest.raises(FileExistsError):
        write(tmp_path, "some", {"w": torch.zeros(2)})
