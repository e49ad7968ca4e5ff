"""Engines by name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine import spec
from engine.openai.cache import CachedEngine
from engine.openai.client import OpenAIEngine
from engine.replay import ReplayEngine
from engine.spec import parse_engine


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


@pytest.mark.parametrize(
    ("text", "model", "url"),
    [
        ("openai:gpt-x", "gpt-x", None),
        ("openai:a/b:free", "a/b:free", None),
        ("openai:@cf/b@https://h/v1", "@cf/b", "https://h/v1"),
        ("openai:m@http://u@h:1/v1", "m", "http://u@h:1/v1"),
    ],
)
def test_openai(text: str, model: str, url: str | None) -> None:
    engine = parse_engine(text)
    assert isinstance(engine, OpenAIEngine)
    assert (engine.model, engine.base_url) == (model, url)


def test_a_cache_goes_around_an_endpoint_and_nothing_else(tmp_path: Path) -> None:
    engine = parse_engine("openai:m@http://h/v1", tmp_path / "cache")
    assert isinstance(engine, CachedEngine)
    assert engine.name == "openai:m@http://h/v1"
    asyncio.run(engine.close())
    for other in ("replay:f", "transformers:f", "vllm:f"):
        with pytest.raises(ValueError, match="nothing to cache") as caught:
            parse_engine(other, tmp_path / "cache")
        assert other in str(caught.value)
        assert "Fix: " in str(caught.value)


def test_replay(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text('[{"agent": "A", "reply": "r"}]', encoding="utf-8")
    engine = parse_engine(f"replay:{file}")
    assert isinstance(engine, ReplayEngine)
    assert engine.unused()[0].reply == "r"


def test_models_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(spec, "TransformersEngine", made.append)
    parse_engine("transformers:org/name")
    monkeypatch.setattr(spec, "VLLMEngine", made.append)
    parse_engine("vllm:org/other")
    parse_engine("vllm:s3://bucket/model")  # vLLM's own business
    assert made == ["org/name", "org/other", "s3://bucket/model"]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("opnai:m", "openai:MODEL"),
        ("openai", "openai:MODEL"),
        ("openai:", "openai:MODEL"),
        ("openai:http://h/v1", "openai:MODEL@BASE_URL"),
        ("openai:@http://h/v1", "openai:MODEL@BASE_URL"),
        ("openai:m@localhost:8000/v1", "openai:MODEL@BASE_URL"),
        ("Transformer:x", "transformers:FOLDER_OR_HUB_ID"),
        ("replay", "replay:FILE"),
        ("zzz:x", "replay:FILE"),
        ("", "openai:MODEL"),
    ],
)
def test_errors_name_the_form_that_was_meant(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match="Fix: write") as caught:
        parse_engine(text)
    assert hint in str(caught.value)
    assert repr(text) in str(caught.value)
