"""What an engine is: the bytes it was loaded from, wherever they lie; a name only where nobody can tell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.by_agent import ByAgent
from engine.known_engines import Identity, identity
from engine.pretrained import folder_digest
from engine.protocol import Engine
from engine.replay import ReplayEngine
from workflow.completion import Completion, CompletionRequest


class Known:
    def __init__(self, name: str, digest: str) -> None:
        self.name, self.digest = name, digest

    async def complete(self, request: CompletionRequest) -> Completion:
        return Completion(text="x")

    async def close(self) -> None: ...


def model(folder: Path) -> Path:
    folder.mkdir()
    for name in (
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "merges.txt",
        "README.md",
    ):
        (folder / name).write_bytes(name.encode() * 9)
    return folder


def test_a_model_is_every_byte_that_it_is_loaded_from_wherever_it_lies(tmp_path: Path) -> None:
    first = model(tmp_path / "first")
    copied = shutil.copytree(first, tmp_path / "copied")
    assert folder_digest(first) == folder_digest(str(copied)) != ""
    (copied / "README.md").write_text("Another text.")
    assert folder_digest(first) == folder_digest(copied)
    for name in ("model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja", "merges.txt"):
        changed = shutil.copytree(first, tmp_path / f"changed {name}")
        said = bytearray((changed / name).read_bytes())
        said[-1] ^= 1
        (changed / name).write_bytes(said)
        assert folder_digest(changed) != folder_digest(first), name
    (copied / "model-2.safetensors").write_bytes(b"")
    assert folder_digest(copied) != folder_digest(first), "one more file"
    assert folder_digest("Qwen/Qwen2.5-1.5B") == ""


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Identity("transformers:a", "1"), Identity("transformers:/x/a", "1"), True),
        (Identity("transformers:a", "1"), Identity("transformers:a", "2"), False),
        (Identity("transformers:a", "1"), Identity("vllm:a", "1"), False),
        (Identity("transformers:a", ""), Identity("transformers:a", "1"), True),
        (Identity("openai:a"), Identity("openai:b"), False),
        (Identity("openai:a"), Identity("openai:a"), True),
    ],
)
def test_two_are_the_same_by_digest_else_by_name(one: Identity, other: Identity, same: bool) -> None:
    assert one.is_same(other) == other.is_same(one) == same


def test_engines_that_are_made_of_others_say_of_what() -> None:
    a, b, unknown = Known("t:a", "1"), Known("t:b", "2"), Known("openai:c", "")

    def by_agent(ann: Engine, others: Engine) -> Identity:
        return identity(ByAgent({"Ann": ann}, others))

    assert by_agent(a, b) == by_agent(Known("t:a", "1"), b)
    assert len({by_agent(a, b).digest, by_agent(b, a).digest, by_agent(a, a).digest}) == 3
    assert by_agent(a, unknown).digest == ""


def test_a_file_of_recorded_replies_may_grow(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text('{"agent": "Ann", "reply": "1"}\n')
    before = identity(ReplayEngine(path))
    with path.open("a") as file:
        file.write('{"agent": "Ann", "reply": "2"}\n')
    assert identity(ReplayEngine(path)).is_same(before)
