"""The one place where tokenizers, configurations and weights are loaded from a folder or the Hugging Face hub.

Models are other people's: no code of theirs is run (`trust_remote_code=False`, said so that nobody is asked either), no
pickle is read (safetensors only), and no file leads to another model. Weights that a file lacks are an error, not
random numbers. Not here: chat templates (`engine.chat_templates`), and vLLM, which loads by itself (`engine.vllm` tells
it the same).
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

from engine.threads import mapped

PROBE_TEXT = """\
A train leaves the station at nine in the morning and travels at 60 miles per hour. How far has it gone by noon? From \
nine to noon it takes three hours, so the train has gone 3 * 60 = 180 miles.

def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)
"""
_LOADED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
"""What weights, tokenizers and templates are read from."""
_INDEX = "model.safetensors.index.json"
_MAX_INDEX = 64 << 20


def load_tokenizer(path_or_id: str | Path) -> Any:
    """Raises whatever transformers raises, as all here do, or ValueError."""
    return _transformers().AutoTokenizer.from_pretrained(path_or_id, trust_remote_code=False)


def probe_ids(tokenizer: Any, most: int = 64) -> list[int]:
    """Tokens for a `Probe`: ordinary text, as rounding is amplified by what a model has never seen in a row."""
    return list(tokenizer(PROBE_TEXT, add_special_tokens=False)["input_ids"])[:most]


def load_config(path_or_id: str | Path) -> Any:
    """Of a model; one that names code elsewhere is refused."""
    config = _transformers().AutoConfig.from_pretrained(path_or_id, trust_remote_code=False)
    for part in {id(each): each for each in (config, config.get_text_config())}.values():
        kernel = getattr(part, "_attn_implementation", None)
        if isinstance(kernel, str) and "/" in kernel:
            raise ValueError(f"config.json asks for the attention of {kernel!r}, which is code from elsewhere")
    return config


def load_generation_config(path_or_id: str | Path) -> Any:
    """Raises OSError where there is none."""
    return _transformers().GenerationConfig.from_pretrained(path_or_id, trust_remote_code=False)


def load_model(path_or_id: str | Path, dtype: Any) -> Any:
    """A causal language model, with all of its weights from safetensors files."""
    return _loaded(_transformers().AutoModelForCausalLM, path_or_id, dtype)


def load_body(path_or_id: str | Path, dtype: Any) -> Any:
    """A model without what stands on its last hidden states, whatever that is."""
    return _loaded(_transformers().AutoModel, path_or_id, dtype)


def _loaded(kind: Any, path_or_id: str | Path, dtype: Any) -> Any:
    _check_folder(Path(path_or_id))
    config = load_config(path_or_id)
    model, told = kind.from_pretrained(
        path_or_id,
        config=config,
        dtype=dtype,
        trust_remote_code=False,
        use_safetensors=True,
        weights_only=True,
        output_loading_info=True,
    )
    missing = sorted(told["missing_keys"])
    if missing:
        raise ValueError(f"{len(missing)} weights are missing, the first is {missing[0]!r}")
    if getattr(model, "_hf_peft_config_loaded", False):
        raise ValueError(
            "these are adapters, which lead to another model. Fix: merge them into it, and name the result"
        )
    return model


def _check_folder(folder: Path) -> None:
    """Refuse what would make transformers read other files than the folder's weights."""
    if not folder.is_dir():
        return
    if (folder / "adapter_config.json").exists():
        raise ValueError("adapter_config.json leads to another model. Fix: merge the adapters, and name the result")
    index = folder / _INDEX
    if not index.exists():
        return
    if index.stat().st_size > _MAX_INDEX:
        raise ValueError(f"{_INDEX} has {index.stat().st_size:,} bytes; the limit is {_MAX_INDEX:,}")
    try:
        listed = json.loads(index.read_bytes())["weight_map"].values()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{_INDEX} lists no files: {type(error).__name__}: {error}") from None
    for name in listed:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise ValueError(f"{_INDEX} names {name!r}, which is no safetensors file of the folder")


def folder_digest(path_or_id: str | Path) -> str:
    """Of every byte that a model is loaded from; "" where it is no folder here. Copies under other paths have the same.
    Raises OSError."""
    folder = Path(path_or_id).expanduser()
    if not folder.is_dir():
        return ""
    files = sorted({path for pattern in _LOADED for path in folder.glob(pattern)})
    said = repr(mapped(_file_digest, files))
    return hashlib.blake2b(said.encode(errors="replace"), digest_size=16).hexdigest()


def _file_digest(path: Path) -> tuple[str, str]:
    with path.open("rb") as file:
        return path.name, hashlib.file_digest(file, "sha256").hexdigest()


def _transformers() -> Any:
    return importlib.import_module("transformers")
