"""Folders of models that mean harm. Skipped without torch and transformers."""

from __future__ import annotations

import ast
import asyncio
import builtins
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.local import TransformersEngine
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed

ROOT = Path(__file__).parents[2]
LOADERS = ("engine/pretrained.py", "engine/weights.py", "speedrun/pretrained.py")
WITHIN_A_RUN = ("engine/vllm/weight_receiver.py",)
"""Unpickles handles of a GPU's memory, which the trainer's rank on that GPU has made in the same run."""
ROOMS = ("workflow", "engine", "sandbox", "tasks", "designer", "trainer", "metaagent", "benchmarks", "speedrun")


def test_nothing_loads_without_saying_that_no_code_is_trusted() -> None:
    loads = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                name = node.func.attr
                said = {each.arg: ast.unparse(each.value) for each in node.keywords}
                where = f"{path.relative_to(ROOT)}, line {node.lineno}"
                if name in ("from_pretrained", "from_config"):
                    loads.append(where)
                    assert said.get("trust_remote_code") == "False", where
                if path.relative_to(ROOT).as_posix() in WITHIN_A_RUN:
                    continue
                assert ast.unparse(node.func) not in ("torch.load", "pickle.load", "pickle.loads", "joblib.load"), where
    assert len(loads) > 5
    own = [where for where in loads if not where.startswith("benchmarks")]
    assert all(where.startswith(LOADERS) for where in own), own


class Harm:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from benchmarks.tiny_models import make_model

    folder = tmp_path_factory.mktemp("good")
    make_model(folder)
    return folder


@pytest.fixture
def model(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "model"))


def refused(model: Path) -> str:
    with pytest.raises(EngineFailed) as caught:
        answered(model)
    return str(caught.value)


def answered(model: Path) -> Completion:
    async def run() -> Completion:
        engine = TransformersEngine(str(model), "cpu", timeout_s=60)
        try:
            messages: Any = [{"role": "user", "content": "hi"}]
            return await engine.complete(CompletionRequest(messages=messages, sampling=Sampling(max_tokens=2)))
        finally:
            await engine.close()

    return asyncio.run(run())


def edit(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | fields))


def test_code_of_the_model_is_neither_run_nor_asked_about(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(builtins, "input", lambda text="": asked.append(text) or "y")
    mark = tmp_path / "mark"
    (model / "harm.py").write_text(f"import os\nos.mkdir({str(mark)!r})\nclass Harm: pass\n")
    (model / "custom_generate").mkdir()
    (model / "custom_generate" / "generate.py").write_text(f"import os\nos.mkdir({str(mark)!r})\n")
    edit(model / "tokenizer_config.json", auto_map={"AutoTokenizer": ["harm.Harm", "harm.Harm"]})
    answered(model)
    edit(
        model / "config.json",
        model_type="harm",
        auto_map={"AutoConfig": "harm.Harm", "AutoModelForCausalLM": "harm.Harm"},
    )
    assert "custom code" in refused(model)
    from engine.pretrained import load_model

    with pytest.raises(ValueError, match="custom code"):
        load_model(model, "float32")  # in the main thread, where transformers would ask
    assert asked == []
    assert not mark.exists()


def test_no_pickle_is_read(model: Path, tmp_path: Path) -> None:
    import torch

    mark = tmp_path / "mark"
    for name in ("pytorch_model.bin", "adapter_model.bin", "harm.bin"):
        torch.save({"model.norm.weight": Harm(mark)}, model / name)
    answered(model)
    weights = model / "model.safetensors"
    weights.rename(tmp_path / "outside.safetensors")
    assert "no file named model.safetensors" in refused(model)
    torch.save({"model.norm.weight": torch.zeros(32)}, model / "pytorch_model.bin")
    assert "no file named model.safetensors" in refused(model), "harmless ones are not read either"
    for name in ("harm.bin", "../outside.safetensors", str(tmp_path / "outside.safetensors"), 7, None):
        edit(model / "model.safetensors.index.json", metadata={}, weight_map={"model.norm.weight": name})
        assert f"names {name!r}, which is no safetensors file" in refused(model)
    for text in ("[" * 100_000, "{}", "[]", '{"weight_map": 3}'):
        (model / "model.safetensors.index.json").write_text(text)
        assert "lists no files" in refused(model)
    assert not mark.exists()


def test_a_model_leads_to_no_other_model(model: Path, good: Path) -> None:
    edit(model / "adapter_config.json", base_model_name_or_path=str(good), peft_type="LORA", task_type="CAUSAL_LM")
    assert "leads to another model" in refused(model)
    (model / "adapter_config.json").unlink()
    edit(model / "config.json", _attn_implementation="harm/kernel", attn_implementation="harm/kernel")
    assert "'harm/kernel', which is code from elsewhere" in refused(model)


def test_weights_that_are_not_there_are_not_made_up(model: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = model / "model.safetensors"
    weights = load_file(file)
    del weights["model.norm.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    assert "1 weights are missing, the first is 'model.norm.weight'" in refused(model)
    file.write_bytes(file.read_bytes()[:1000])
    assert "cannot load" in refused(model)
    file.write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    assert "cannot load" in refused(model)
