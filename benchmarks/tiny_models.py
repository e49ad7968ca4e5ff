"""Makes small random-weight models of the Qwen3 architecture, with a byte tokenizer and a chat template.

For tests and benchmarks: nothing is downloaded and nothing they say makes sense. Needs torch and transformers.

    python -m benchmarks.tiny_models FOLDER [--layers 2] [--width 32] [--tied]
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

CHATML = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with <tool_call>
{"name": ..., "arguments": ...}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"""
"""Shows tools and tool turns itself; without thinking the prompt ends in an empty thought, past turns have none."""

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def make_tokenizer(template: str | None = CHATML) -> Any:
    """One token per byte and three special ones; `<|im_end|>` ends a turn."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_level = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    bytes_level.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_level.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytes_level, eos_token="<|im_end|>", pad_token="<|endoftext|>", bos_token="<|im_start|>"
    )
    assert len(tokenizer) == len(letters) + len(SPECIAL)
    tokenizer.chat_template = template
    return tokenizer


def make_model(
    folder: Path,
    template: str | None = CHATML,
    *,
    layers: int = 2,
    width: int = 32,
    context: int = 1024,
    tied: bool = False,
    seed: int = 0,
    tokenizer: Any = None,
    spread: float = 2.4,
) -> None:
    """Save a float32 checkpoint that plain transformers and vLLM load. `tokenizer` is the byte tokenizer unless given.

    Weights are normal with deviation spread / sqrt(width). The default is large enough that distributions are far from
    uniform and greedy tokens stand apart; models that are to be trained want about a quarter of it.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = make_tokenizer(template) if tokenizer is None else tokenizer
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,  # the smallest that vLLM's attention on CPUs takes
        max_position_embeddings=context,
        tie_word_embeddings=tied,
        initializer_range=spread / width**0.5,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--tied", action="store_true")
    arguments = parser.parse_args()
    make_model(
        arguments.folder,
        layers=arguments.layers,
        width=arguments.width,
        context=arguments.context,
        tied=arguments.tied,
    )


if __name__ == "__main__":
    main()
