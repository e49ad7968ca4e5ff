"""The tiny policy before it has learned anything: a random Qwen3 model with a tokenizer and a chat template of its own.

The tokenizer is a BPE over the cold start's conversations whose merges may cross spaces and lines, so that prompts and
programs, which repeat word for word, take a few tokens; digits stay single. Plain transformers and vLLM load it. Needs
torch and transformers. Nothing here trains the model.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from engine.prompt import plain_messages
from trainer.sft import ChatRow

CHAT_TEMPLATE = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""ChatML without more; tools are described in the system turn, see `engine.prompt.plain_messages`."""
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LONGEST_TOKEN = 64
"""Characters. Constant texts become a few such tokens."""


class Architecture(BaseModel):
    """Of the Qwen3 family; about a million weights by default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: int = Field(default=4, ge=1)
    width: int = Field(default=128, ge=32)
    inner: int = Field(default=384, ge=32)
    """Width of the feed-forward layers."""
    heads: int = Field(default=4, ge=1)
    key_value_heads: int = Field(default=2, ge=1)
    vocabulary: int = Field(default=2048, ge=300)
    alone: str = ""
    """Characters that are tokens of their own wherever they stand, as digits are: the cells of a board."""
    context: int = Field(default=1024, ge=64)


def make_tokenizer(rows: Iterable[ChatRow], vocabulary: int, alone: str = "") -> Any:
    """A fast tokenizer trained on chat rows as the chat template renders them; characters of `alone` join no other."""
    from jinja2 import Template
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            *([pre_tokenizers.Split(Regex(f"[{re.escape(alone)}]"), "isolated")] if alone else []),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    template = Template(CHAT_TEMPLATE)
    texts = (template.render(messages=plain_messages(row.messages, row.tools)) for row in rows)
    bpe.train_from_iterator(
        (part for text in texts for part in _between_special(text)),
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            max_token_length=LONGEST_TOKEN,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=SPECIAL,
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _between_special(text: str) -> list[str]:
    """The parts of a text that no special token covers: tokens never cross one."""
    for special in SPECIAL:
        text = text.replace(special, "\0")
    return [part for part in text.split("\0") if part]


def make_policy(folder: Path, rows: Iterable[ChatRow], architecture: Architecture | None = None, seed: int = 0) -> int:
    """Write an untrained policy into `folder`, in float32; returns how many weights it has. Same arguments, same
    files."""
    import torch
    from transformers import Qwen3ForCausalLM

    shape = architecture or Architecture()
    tokenizer = make_tokenizer(rows, shape.vocabulary, shape.alone)
    tokenizer.save_pretrained(folder)
    config = model_config(shape, len(tokenizer))
    for token in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(config, token, getattr(tokenizer, token))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    return sum(weights.numel() for weights in model.parameters())


def model_config(shape: Architecture, vocabulary: int) -> Any:
    """A `Qwen3Config` of this shape, without special tokens."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=32,  # the smallest that vLLM's attention on CPUs takes
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        initializer_range=0.04,
        dtype="float32",
    )
