"""How large a language model is: parameters, and bytes per token, from its folder and without loading it.

Only `config.json` and the headers of the safetensors files are read, of dense decoders with gated feed-forward layers
(Qwen, Llama, Mistral and their like). What training adds is `trainer.run.planning`'s business.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterable
from pathlib import Path

from pydantic import AliasChoices, BaseModel, Field, ValidationError, model_validator

NUMBER_BYTES = {"float64": 8, "double": 8, "float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
"""Per number, by a torch dtype's name."""
LONGEST_HEADER = 100 << 20
"""Bytes; what safetensors itself accepts."""


class UnknownSize(ValueError):
    """A model whose size cannot be read."""


class ModelSize(BaseModel):
    """The shape of a dense decoder, as `config.json` names it. All counts are of numbers, not bytes."""

    layers: int = Field(validation_alias="num_hidden_layers", ge=1)
    hidden: int = Field(validation_alias="hidden_size", ge=1)
    intermediate: int = Field(validation_alias="intermediate_size", ge=1)
    heads: int = Field(validation_alias="num_attention_heads", ge=1)
    key_value_heads: int = Field(validation_alias="num_key_value_heads", ge=1)
    head_dim: int = Field(ge=1)
    vocabulary: int = Field(validation_alias="vocab_size", ge=1)
    tied: bool = Field(default=False, validation_alias="tie_word_embeddings")
    dtype: str = Field(default="float32", validation_alias=AliasChoices("dtype", "torch_dtype"))
    stored: int | None = None
    """Parameters counted in the safetensors files; None where there are none."""

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, config: object) -> object:
        """What configurations leave out: every head has its own key and value, and heads share the hidden size."""
        if not isinstance(config, dict):
            return config
        given = {name: value for name, value in config.items() if value is not None}
        heads, hidden = given.get("num_attention_heads"), given.get("hidden_size")
        if isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
            given = {"num_key_value_heads": heads, "head_dim": hidden // heads, **given}
        return given

    @property
    def parameters(self) -> int:
        """As counted in the files, else by the shape: per layer h q + 2 h k + q h for attention, 3 h i for the
        feed-forward layer and 2 h + 2 d for norms (those of queries and keys as in Qwen3), with q = heads x d and
        k = key_value_heads x d; then one h for the last norm, and vocabulary x h once (tied) or twice."""
        if self.stored is not None:
            return self.stored
        attention = 2 * self.hidden * (self._queries + self._keys)
        layer = attention + 3 * self.hidden * self.intermediate + 2 * (self.hidden + self.head_dim)
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * layer + self.hidden + embeddings

    def adapters(self, rank: int, targets: Iterable[str]) -> int:
        """Parameters of low-rank adapters (Hu et al., 2022): rank x (inputs + outputs) for each target of each layer.
        Targets that the model does not have count nothing."""
        shapes = {
            "q_proj": self.hidden + self._queries,
            "k_proj": self.hidden + self._keys,
            "v_proj": self.hidden + self._keys,
            "o_proj": self._queries + self.hidden,
            "gate_proj": self.hidden + self.intermediate,
            "up_proj": self.hidden + self.intermediate,
            "down_proj": self.intermediate + self.hidden,
        }
        return self.layers * rank * sum(shapes.get(target, 0) for target in set(targets))

    def cache_bytes(self, number_bytes: int) -> int:
        """Of keys and values, per token: 2 (a key and a value) x layers x key_value_heads x d x bytes of a number."""
        return 2 * self.layers * self._keys * number_bytes

    def activation_bytes(self, tokens: int, number_bytes: int, checkpointing: bool) -> int:
        """What one forward pass keeps for the backward pass, without the logits; b = bytes of a number.

        Per token and layer (4 + 2 b) (2 h + q + k) for the four norms, which keep a float32 copy, their normed values
        and their result; b (q + k) for values and the attention's result; 4 b i for the feed-forward layer. Attention
        weights are not kept. With checkpointing only the layers' inputs, b h each, and one layer at a time. Within
        4% of what PyTorch was seen to keep for Qwen3 in float32 and bfloat16.
        """
        norms = (4 + 2 * number_bytes) * (2 * self.hidden + self._queries + self._keys)
        layer = norms + number_bytes * (self._queries + self._keys + 4 * self.intermediate)
        per_token = self.layers * number_bytes * self.hidden + layer if checkpointing else self.layers * layer
        return tokens * per_token

    @property
    def largest_piece(self) -> int:
        """Parameters of what is sent to an engine at once: a layer, or the embeddings."""
        attention = 2 * self.hidden * (self._queries + self._keys)
        return max(attention + 3 * self.hidden * self.intermediate, self.vocabulary * self.hidden)

    @property
    def _queries(self) -> int:
        return self.heads * self.head_dim

    @property
    def _keys(self) -> int:
        return self.key_value_heads * self.head_dim


def model_folder(model: str) -> Path | None:
    """Where a model's `config.json` is: its folder, or what was downloaded of it; None where it is not here."""
    if Path(model).is_dir():
        return Path(model)
    try:
        found = importlib.import_module("huggingface_hub").try_to_load_from_cache(model, "config.json")
    except (ImportError, ValueError):  # ValueError: a path, which is no name of a model
        return None
    return Path(found).parent if isinstance(found, str) else None


def model_size(folder: Path) -> ModelSize:
    """Read a model's folder. Raises `UnknownSize`, which says what is missing or strange."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("it is no JSON object")
    except FileNotFoundError:
        raise UnknownSize(f"there is no {path}") from None
    except (OSError, ValueError) as error:
        raise UnknownSize(f"{path} cannot be read: {error}") from None
    experts = sorted({"num_experts", "num_local_experts", "n_routed_experts"} & set(config))
    if experts:
        raise UnknownSize(f"{path} has {experts[0]}: the size of mixtures of experts is not worked out here")
    try:
        size = ModelSize.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        raise UnknownSize(f"{path}, {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    files = sorted(folder.glob("*.safetensors"))
    return size.model_copy(update={"stored": sum(map(_counted, files)) if files else None})


def _counted(path: Path) -> int:
    """The numbers in a safetensors file, by its header: 8 bytes of length, then JSON with each tensor's shape."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > LONGEST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnknownSize(f"{path} is no safetensors file: {error}") from None
