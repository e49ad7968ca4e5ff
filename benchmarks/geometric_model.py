"""Makes a small model whose replies have the lengths that a benchmark wants, by its weights alone.

After every token the reply ends with one probability and calls a tool with another, whatever was said before: lengths
are geometric, and who samples from the model, by whatever means, draws from the same distribution. What it says is
printable noise. Needs torch and transformers.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.tiny_models import make_model, make_tokenizer

TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Answer with <tool_call>
{"name": ..., "arguments": ...}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""As in `benchmarks.tiny_models`, without thoughts and with calls that stand apart, which TRL asks for."""
CALL = '<tool_call>\n{"name": "look", "arguments": {"place": 7}}\n</tool_call>'
"""One token of its own, after which the reply ends."""
NEVER = -40.0
"""A logit that is not drawn."""
_ALWAYS, _CALLED = 0, 1
"""Directions of the residual stream that no layer writes to: one is the same everywhere, one is set by `CALL`."""


def make(
    folder: Path, *, layers: int, width: int, context: int, ends: float, calls: float = 0.0, seed: int = 0
) -> None:
    """Save a float32 checkpoint whose replies end after a token with probability `ends`, after a call with `calls`."""
    import torch
    import transformers

    tokenizer = make_tokenizer(TEMPLATE)
    tokenizer.add_tokens([CALL])
    make_model(
        folder, TEMPLATE, layers=layers, width=width, context=context, seed=seed, tokenizer=tokenizer, spread=0.6
    )
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False).eval()
    end, call = tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(CALL)
    said = [token for token in range(len(tokenizer)) if token < call and tokenizer.decode([token]).isprintable()]
    said = [token for token in said if tokenizer.decode([token]).isascii() and token not in tokenizer.all_special_ids]
    with torch.no_grad():
        for layer in model.model.layers:
            for linear in (layer.self_attn.o_proj, layer.mlp.down_proj):
                linear.weight[: _CALLED + 1] = 0
        embedding, head = model.get_input_embeddings().weight, model.lm_head.weight
        embedding[:, _ALWAYS], embedding[:, _CALLED], embedding[call, _CALLED] = 1, 0, 1
        head[:, : _CALLED + 1] = 0
        unit, noise = _measured(model, said)
        head[[token for token in range(len(tokenizer)) if token not in said]] = 0
        head[:, _ALWAYS] = NEVER / unit
        head[said, _ALWAYS] = 0
        for token, chance in ((end, ends), (call, calls)):
            if chance:
                head[token, _ALWAYS] = (noise + math.log(chance / (1 - ends - calls))) / unit
        head[end, _CALLED] = -2 * NEVER / unit
    model.save_pretrained(folder)


def _measured(model: Any, said: list[int]) -> tuple[float, float]:
    """The last hidden state's mean along `_ALWAYS`, and the logarithm of what all that is said weighs together."""
    import torch

    dice = torch.Generator().manual_seed(0)
    ids = torch.tensor(said)[torch.randint(len(said), (8, 128), generator=dice)]
    hidden = model.model(ids).last_hidden_state
    logits = model.lm_head(hidden)[..., said]
    return float(hidden[..., _ALWAYS].mean()), float(logits.logsumexp(-1).mean())
