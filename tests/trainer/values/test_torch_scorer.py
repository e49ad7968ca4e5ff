"""Values in batches from real, tiny models: the same whatever is beside them, and only from folders that are whole."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import test_value_training as training
import torch
import transformers
from safetensors.torch import load_file, save_file

from benchmarks.tiny_models import make_model
from engine.pretrained import load_tokenizer
from search.paths import AgentStep
from search.scoring import Score, ScoredState, Scorer
from trainer.values import SCORER, ScorerFile, ScorerRefused, ScriptedScorer, TorchScorer, read_scorer
from trainer.values.scorer_file import write_scorer
from workflow.completion import ChatMessage, Completion
from workflow.failures import Failure

FAILED = Failure(kind="limit_exceeded", message="m", fields={"limit_kind": "context_tokens", "limit": 1, "used": 2})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of values in the transcript view that has learned a little."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("scorer")
    make_model(out / "start", layers=2, width=32, context=128, spread=0.6)
    view = training.state_view(out / "start", "transcript", 100)
    data = training.trees.one_reply_trees(out / "data", 6, training.one_token)
    training.train(out / "start", training.rows_of_trees([data], view), view, out / "run", training.SETTINGS)
    return out / "run"


def state(*replies: str | Failure, question: str = "Why?") -> ScoredState:
    turns = [
        AgentStep(
            key=f"{depth}",
            agent="Ann",
            messages=[ChatMessage(role="user", content=question)],
            reply=said if isinstance(said, Failure) else Completion(text=said),
        )
        for depth, said in enumerate(replies)
    ]
    return ScoredState(question, tuple(turns))


def random_states(count: int, seed: int = 0) -> list[ScoredState]:
    """Of two problems, so that many share a prompt."""
    dice = random.Random(seed)
    return [
        state(*("abcdefghij"[: dice.randrange(1, 9)] for _ in range(dice.randrange(1, 3))), question=f"P{number % 2}")
        for number in range(count)
    ]


def scores(scorer: Scorer, *asked: list[ScoredState]) -> list[list[Score]]:
    """Of lists that are asked for at the same time."""

    async def ask() -> list[list[Score]]:
        return await asyncio.gather(*(scorer.score(each) for each in asked))

    return asyncio.run(ask())


def values(scorer: Scorer, states: list[ScoredState]) -> list[float]:
    return [score.value for score in scores(scorer, states)[0]]


def test_a_value_depends_on_its_state_alone(folder: Path) -> None:
    states = random_states(24)
    together = values(TorchScorer.load(folder, device="cpu"), states)
    assert len(set(together)) > 8
    alone = TorchScorer.load(folder, device="cpu")
    assert [values(alone, [each])[0] for each in states] == pytest.approx(together, abs=2e-6)
    small = TorchScorer.load(folder, device="cpu", max_tokens_per_batch=64)
    assert values(small, states[::-1])[::-1] == pytest.approx(together, abs=2e-6)
    assert all(-1 <= value <= 1 for value in together)


def test_in_float64_no_bit_depends_on_what_is_beside_it(folder: Path) -> None:
    states = random_states(24)
    scorer = TorchScorer.load(folder, device="cpu", dtype="float64")
    together = values(scorer, states)
    assert [values(scorer, [each])[0] for each in states] == together
    assert values(TorchScorer.load(folder, device="cpu"), states) == pytest.approx(together, abs=2e-6)


def test_what_many_ask_at_once_is_one_batch(folder: Path) -> None:
    scorer = TorchScorer.load(folder, device="cpu", window_s=0.05)
    states = random_states(12)
    found = scores(scorer, *([each] for each in states))
    assert scorer.batches == 1
    assert [score.value for [score] in found] == pytest.approx(values(scorer, states), abs=2e-6)
    expected = [
        len(training.state_view(folder.parent / "start", "transcript").tokens(each).token_ids) for each in states
    ]
    assert [score.tokens for [score] in found] == expected


def test_siblings_read_their_prompt_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    load = transformers.AutoModelForCausalLM.from_pretrained

    def watched(*args: Any, **kwargs: Any) -> Any:
        model, told = load(*args, **kwargs)
        model.model.layers[0].mlp.register_forward_pre_hook(lambda _, given: read.append(given[0].shape[:2].numel()))
        return model, told

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", watched)
    scorer = TorchScorer.load(folder, device="cpu")
    siblings = [state("once", said) for said in ("a", "b", "c")]
    [found] = scores(scorer, siblings)
    assert sum(score.tokens for score in found) == 3 * 35
    assert sum(read) == 32 + 3 * 3, "all but the last token of the prompt; then that one, the reply, the separator"


def test_states_that_cannot_be_read_count_as_lost(folder: Path) -> None:
    [found] = scores(TorchScorer.load(folder, device="cpu"), [state("a" * 200), state("a"), state(FAILED)])
    assert (found[0], found[2]) == (Score(-1.0), Score(-1.0))
    assert found[1].tokens > 0
    assert scores(TorchScorer.load(folder, device="cpu"), []) == [[]]


def test_a_long_state_has_the_value_of_its_newest_reply(folder: Path) -> None:
    """And not that of an older one (experiments/core.py:1189-1207)."""
    scorer = TorchScorer.load(folder, device="cpu")
    old = ["b" * 40, "c" * 40]
    said = values(scorer, [state(*old, last) for last in ("aaxaaa", "aayaaa")])
    assert said[0] != said[1]


def test_one_that_is_cancelled_does_not_disturb_the_others(folder: Path) -> None:
    scorer = TorchScorer.load(folder, device="cpu", window_s=0.05)

    async def ask() -> list[Score]:
        gone = asyncio.ensure_future(scorer.score([state("a")]))
        stays = asyncio.ensure_future(scorer.score([state("b")]))
        await asyncio.sleep(0.01)
        gone.cancel()
        return await stays

    assert asyncio.run(ask())[0].value == pytest.approx(values(scorer, [state("b")])[0], abs=2e-6)


def test_a_failure_reaches_all_who_asked_and_a_closed_scorer_says_so(folder: Path) -> None:
    scorer = TorchScorer.load(folder, device="cpu")
    asyncio.run(scorer.close())
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"the scorer is closed. Fix: load it again"):
            scores(scorer, [state("a")], [state("b")])


# Folders


def broken(folder: Path, to: Path) -> Path:
    shutil.copytree(folder / "model", to / "model")
    return to / "model"


def rewritten(model: Path, scorer: ScorerFile) -> None:
    (model / SCORER).unlink()
    write_scorer(model, scorer)


def test_folders_whose_parts_do_not_belong_together(folder: Path, tmp_path: Path) -> None:
    model = broken(folder, tmp_path / "head")
    head = load_file(model / "value_head.safetensors")
    save_file({"weight": head["weight"] + 1, "bias": head["bias"]}, model / "value_head.safetensors")
    with pytest.raises(ScorerRefused, match=r"value_head.safetensors is not the file that scorer.json.*Fix: copy"):
        TorchScorer.load(model)
    (model / "value_head.safetensors").unlink()
    with pytest.raises(ScorerRefused, match=r"value_head.safetensors is missing, which was there.*Fix: copy"):
        TorchScorer.load(model)

    model = broken(folder, tmp_path / "config")
    said = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(said | {"rms_norm_eps": 0.5}))
    with pytest.raises(ScorerRefused, match=r"config.json is not the file that scorer.json.*Fix: copy"):
        TorchScorer.load(model)

    model = broken(folder, tmp_path / "template")
    scorer = read_scorer(model)
    load_tokenizer(folder.parent / "start").save_pretrained(model)
    rewritten(model, scorer)
    with pytest.raises(ScorerRefused, match=r"the tokenizer has '<\|value\|>' as None, in training it was 259. Fix: "):
        TorchScorer.load(model)

    model = broken(folder, tmp_path / "view")
    rewritten(model, scorer.model_copy(update={"view": "local"}))
    with pytest.raises(ScorerRefused, match=r"states would be written in another way than in training"):
        TorchScorer.load(model)
    said = json.loads((model / SCORER).read_text())
    (model / SCORER).write_text(json.dumps(said | {"view": "global"}))
    with pytest.raises(ScorerRefused, match=r"scorer.json is not as this version writes it: view: "):
        TorchScorer.load(model)
    with pytest.raises(
        ScorerRefused, match=r"start is no model of values: scorer.json.*Fix: the model/ of a metaagent"
    ):
        TorchScorer.load(folder.parent / "start")


def test_it_is_known_by_what_it_is_and_not_by_its_path(folder: Path, tmp_path: Path) -> None:
    copied, other = (shutil.copytree(folder / "model", tmp_path / name) for name in ("copied", "other"))
    head = other / "value_head.safetensors"
    scorer = read_scorer(other)
    save_file({name: each * 2 for name, each in load_file(head).items()}, head)
    rewritten(other, scorer)
    first, second, third = (TorchScorer.load(each, device="cpu").digest for each in (folder, copied, other))
    assert first == second != third
    assert first


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("tokenizer.json", {"normalizer": {"type": "Replace", "pattern": {"String": "Seven"}, "content": "Eight"}}),
        ("tokenizer_config.json", {"add_bos_token": True}),
        ("config.json", {"vocab_size": 261}),
        ("chat_template.jinja", None),
    ],
)
def test_whatever_makes_tokens_of_text_must_be_what_it_was(
    folder: Path, tmp_path: Path, file: str, change: dict[str, Any] | None
) -> None:
    """A probe text does not meet every word that a normalizer may write otherwise."""
    model = broken(folder, tmp_path)
    if change is None:
        (model / file).write_text((model / file).read_text() + " ")
    else:
        (model / file).write_text(json.dumps(json.loads((model / file).read_text()) | change))
    with pytest.raises(ScorerRefused, match=rf"{file} is not the file that scorer.json was written with. Fix: copy"):
        TorchScorer.load(model)


@pytest.mark.parametrize("file", ["adapter_config.json", "added_tokens.json", "pytorch_model.bin", "other.jinja"])
def test_files_that_would_be_read_and_were_not_there_are_refused(folder: Path, tmp_path: Path, file: str) -> None:
    model = broken(folder, tmp_path)
    (model / "README.md").write_text("What this model is for.")
    (model / "generation_config.json").write_text("{}")
    TorchScorer.load(model, device="cpu")
    (model / file).write_text("{}")
    with pytest.raises(ScorerRefused, match=rf"{file} was not there when scorer.json was written. Fix: copy"):
        TorchScorer.load(model)


@pytest.mark.parametrize(
    "change", [{"max_tokens": 20}, {"max_tokens": None}, {"view": "local"}, {"base": "x"}, {"agents": {}}, {"own": ""},
               {"files": {}}]
)  # fmt: skip
def test_what_stands_in_the_file_itself_must_be_what_was_written(
    folder: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    model = broken(folder, tmp_path)
    said = json.loads((model / SCORER).read_text())
    (model / SCORER).write_text(json.dumps(said))  # spaces are nothing
    assert read_scorer(model).agents == {"Ann": 20}
    (model / SCORER).write_text(json.dumps(said | change))
    with pytest.raises(ScorerRefused, match=r"scorer.json was changed after it was written. Fix: copy"):
        TorchScorer.load(model)


def test_it_knows_whom_it_saw(folder: Path) -> None:
    scorer = TorchScorer.load(folder / "model", device="cpu")
    assert scorer.agents == {"Ann": 20}
    assert scorer.name == str(folder / "model")


# Published models of two classes


def two_class(folder: Path, *, deep: bool) -> Any:
    """A model for token classification, or the kind with two layers that Qwen2.5-Math-PRM has; returns what plain
    transformers computes."""
    make_model(folder, layers=1, width=16, context=128)
    tokenizer = load_tokenizer(folder)
    tokenizer.add_tokens(["<extra_0>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(folder, num_labels=2, vocab_size=260)
    torch.manual_seed(1)
    model = transformers.AutoModelForTokenClassification.from_config(config).eval()
    if deep:
        layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)]
        model.score = torch.nn.Sequential(*layers)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("deep", [False, True])
def test_a_model_of_two_classes_says_two_p_minus_one_at_the_last_step(tmp_path: Path, deep: bool) -> None:
    model = two_class(tmp_path, deep=deep)
    tokenizer = load_tokenizer(tmp_path)
    text = "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n<think></think>one<extra_0>two<extra_0>"
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
    hidden = model.model(ids).last_hidden_state
    p = torch.softmax(model.score(hidden)[0, -1], -1)[1].item()
    scorer = TorchScorer.two_class(tmp_path, device="cpu")
    assert values(scorer, [state("one", "two")]) == pytest.approx([2 * p - 1], abs=1e-6)


def test_other_models_are_no_model_of_two_classes(tmp_path: Path, folder: Path) -> None:
    two_class(tmp_path, deep=False)
    with pytest.raises(ScorerRefused, match=r"has no token '<\|step\|>'. Fix: name the one that ends its steps"):
        TorchScorer.two_class(tmp_path, separator="<|step|>")
    with pytest.raises(ScorerRefused, match=r"has no head of two classes.*Fix: a model for token classification"):
        TorchScorer.two_class(folder / "model", separator="<|value|>")


# Scripted


def test_scripted_values_go_by_text() -> None:
    scorer = ScriptedScorer({"a": 0.5, "42": -1.0, "limit_exceeded": -0.5}, default=0.25)
    asked = [state("b", "a"), state("a", "b"), ScoredState("Why?", (), "42"), state(FAILED)]
    assert values(scorer, asked) == [0.5, 0.25, -1.0, -0.5]
    assert scorer.asked == asked
