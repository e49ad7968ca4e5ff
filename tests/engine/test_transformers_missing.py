"""What TransformersEngine says, and does not import, where the extra `local` is not installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import pytest

from engine.local.transformers import TransformersEngine
from workflow.failures import EngineFailed


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def without_torch(name: str, package: str | None = None) -> Any:
        return None if name == "torch" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_torch)
    with pytest.raises(EngineFailed, match=r'torch.* not installed\. Fix: pip install "metaagent\[local\]"'):
        TransformersEngine("org/model")


@pytest.mark.parametrize("module", ["local.transformers", "spec", "replay"])
def test_importing_engines_imports_nothing_heavy(module: str) -> None:
    heavy = ("torch", "transformers", "openai", "ray", "vllm", "deepspeed")
    code = f"import engine.{module}, sys; sys.exit(repr([m for m in {heavy!r} if m in sys.modules]) != '[]')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
