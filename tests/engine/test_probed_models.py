"""Probes of models as deep as those that are trained: the right weights pass however they are computed, and which wrong
ones do not."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

import metaagent
from benchmarks.tiny_models import make_tokenizer
from engine import weights
from engine.pretrained import probe_ids
from engine.protocol import Probe, least_rounding

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")
IDS = list(range(100, 132))
POLICIES = Path(metaagent.__file__).parent / "policy"
OF_ITS_OWN = """\
<|im_start|>user
What is 64 + 63?<|im_end|>
<|im_start|>assistant
64 + 63 = 127. The answer is \\boxed{127}.<|im_end|>"""


def deep(layers: int = 28, tied: bool = True, deviation: float = 0.06) -> Any:
    """Qwen3's depth and heads, narrow; logits spread as widely as a language model's."""
    torch.manual_seed(layers)
    config = transformers.Qwen3Config(
        vocab_size=16_000,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        tie_word_embeddings=tied,
        initializer_range=deviation,
    )
    model = transformers.Qwen3ForCausalLM(config).eval()
    frequencies = model.model.rotary_emb.inv_freq
    model.to(torch.bfloat16).model.rotary_emb.inv_freq = frequencies  # as a model that is loaded has them
    model.model.norm.weight.data.mul_(4)
    return model


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small operations gain nothing from more, and wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model() -> Any:
    return deep()


@pytest.fixture(scope="module")
def probe(model: Any) -> Probe:
    return weights.probe(model, IDS)


# The right weights


def other_attention(model: Any) -> list[float]:
    model.set_attn_implementation("eager")
    try:
        return weights.probed(model, IDS)
    finally:
        model.set_attn_implementation("sdpa")


def other_products(model: Any) -> list[float]:
    with torch.backends.mkldnn.flags(enabled=False):
        return weights.probed(model, IDS)


def token_by_token(model: Any) -> list[float]:
    found, cache = [], None
    with torch.inference_mode():
        for one, next_one in itertools.pairwise(IDS):
            said = model(torch.tensor([[one]]), past_key_values=cache, use_cache=True)
            cache = said.past_key_values
            found.append(float(said.logits[0, -1].float().log_softmax(-1)[next_one]))
    return found


def in_a_padded_batch(model: Any) -> list[float]:
    pad = 20
    rows = [list(range(pad + len(IDS))), [0] * pad + IDS]
    mask = torch.ones(2, pad + len(IDS), dtype=torch.long)
    mask[1, :pad] = 0
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.inference_mode():
        logits = model(torch.tensor(rows), attention_mask=mask, position_ids=places).logits[1, pad:-1]
    return weights._chosen(logits.float().log_softmax(-1), IDS).tolist()


def with_float32_inside(model: Any) -> list[float]:
    """Every product in float32, rounded at its end."""
    real = torch.nn.functional.linear

    def linear(given: Any, weight: Any, bias: Any = None) -> Any:
        return real(given.float(), weight.float(), bias).to(given.dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "linear", linear)
        return weights.probed(model, IDS)


def in_float32(model: Any) -> list[float]:
    """Other than the rest: nothing is rounded on the way."""
    return weights.probed(copy.deepcopy(model).float(), IDS)


WAYS = [other_attention, other_products, token_by_token, in_a_padded_batch, with_float32_inside]


@pytest.mark.parametrize("way", WAYS)
def test_the_right_weights_pass_however_they_are_computed(
    way: Callable[[Any], list[float]], model: Any, probe: Probe
) -> None:
    seen = way(model)
    assert probe.difference(seen) == ""
    assert way is in_a_padded_batch or seen != probe.logprobs


@pytest.mark.parametrize(
    "settings", [{"layers": 36, "tied": False, "deviation": 0.03}, {"layers": 2, "deviation": 0.1}]
)
def test_so_they_do_in_other_models(settings: dict[str, Any]) -> None:
    model = deep(**settings)
    probe = weights.probe(model, IDS)
    for way in WAYS:
        assert probe.difference(way(model)) == "", way.__name__


@pytest.mark.parametrize("text", [None, OF_ITS_OWN], ids=["ordinary", "own"])
@pytest.mark.parametrize("role", ["designer", "executor"])
def test_so_they_do_in_small_models_that_were_trained(
    role: str, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes with metaagent: attention is sharp, and rounding changes single tokens much more than others."""
    folder = POLICIES / role
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = probe_ids(tokenizer) if text is None else tokenizer(text)["input_ids"]
    monkeypatch.setitem(globals(), "IDS", ids)
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    probe = weights.probe(model, ids)
    for way in (*WAYS, in_float32):
        assert probe.difference(way(model)) == "", way.__name__
    tensor = model.model.layers[2].mlp.down_proj.weight
    with changed(tensor, torch.zeros_like(tensor)):
        assert probe.difference(weights.probed(model, ids))


def test_what_rounding_does_is_measured_on_the_model_itself(model: Any, probe: Probe) -> None:
    with torch.inference_mode():
        logits = model(torch.tensor([IDS])).logits[0, :-1].double()
    spread = float(logits.std(-1).mean())
    asked = [abs(float(row[token])) for row, token in zip(logits, IDS[1:], strict=True)]
    largest = [max(one, abs(float(row.max()))) for one, row in zip(asked, logits, strict=True)]
    size = (sum(one**2 for one in largest) / len(largest)) ** 0.5
    assert spread > 2
    least = least_rounding("bfloat16", 28, spread, size)
    assert probe.rounding is not None
    assert all(1 <= each / least * 1.001 < 10 for each in probe.rounding)
    assert max(probe.rounding) > 1.5 * min(probe.rounding), "tokens differ"
    assert weights.probe(model, IDS) == probe, "the same each time"
    assert weights.probe(deep(2).float(), IDS).rounding == pytest.approx([2e-4] * (len(IDS) - 1))


def test_rounding_alone_is_more_than_a_twentieth(model: Any, probe: Probe) -> None:
    """So a fixed tolerance of 0.05 would stop a run for nothing."""
    assert probe.gap(other_attention(model)) > 0.05


# Wrong weights


@contextmanager
def changed(tensor: Any, to: Any) -> Iterator[None]:
    before = tensor.data.clone()
    tensor.data.copy_(to)
    yield
    tensor.data.copy_(before)


MISSING = ["mlp.down_proj", "self_attn.v_proj", "self_attn.o_proj", "input_layernorm", "post_attention_layernorm"]


@pytest.mark.parametrize("layer", [0, 14, 27])
@pytest.mark.parametrize("name", MISSING)
def test_a_tensor_that_is_zero_is_found(name: str, layer: int, model: Any, probe: Probe) -> None:
    tensor = model.model.layers[layer].get_submodule(name).weight
    with changed(tensor, torch.zeros_like(tensor)):
        assert probe.difference(other_attention(model))
    assert probe.difference(other_attention(model)) == ""


def test_layers_in_each_others_place_are_found(model: Any, probe: Probe) -> None:
    one, other = model.model.layers[10], model.model.layers[11]
    model.model.layers[10], model.model.layers[11] = other, one
    seen = weights.probed(model, IDS)
    model.model.layers[10], model.model.layers[11] = one, other
    assert probe.difference(seen)


def test_a_vocabulary_in_another_order_is_found(model: Any, probe: Probe) -> None:
    embedding = model.get_input_embeddings().weight
    with changed(embedding, embedding.data.roll(1, 0)):
        assert probe.difference(other_attention(model))
    swapped = embedding.data.clone()
    swapped[[IDS[3], IDS[5]]] = embedding.data[[IDS[5], IDS[3]]]
    with changed(embedding, swapped):
        assert probe.difference(other_attention(model))


def test_weights_of_one_step_ago_are_not_found_but_by_their_fingerprint(model: Any, probe: Probe) -> None:
    """What a step of 5e-6 changes, rounding hides. The documentation says so, and this that it is so."""
    before = weights.fingerprint(model.state_dict())
    held = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(1)
    for tensor in model.parameters():
        step = 5e-6 * (2 * torch.randint(0, 2, tensor.shape) - 1)
        tensor.data.copy_(tensor.data.float() + step)
    seen, after = other_attention(model), weights.fingerprint(model.state_dict())
    model.load_state_dict(held)
    assert probe.difference(seen) == ""
    assert after != before


# Its tokens


def test_the_tokens_are_ordinary_text() -> None:
    tokenizer = make_tokenizer()
    ids = probe_ids(tokenizer)
    assert len(ids) == 64
    assert tokenizer.decode(ids).startswith("A train leaves the station at nine")
    assert probe_ids(tokenizer, 10) == ids[:10]
