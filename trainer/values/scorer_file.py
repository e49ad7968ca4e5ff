"""`scorer.json`: what a trained model of values reads, where it came from, and whether the files beside it are its own.

Pure: no torch, and no model is loaded (`trainer.values.torch_scorer`).

    model/                       plain transformers loads it, with the separator in its vocabulary
      value_head.safetensors     w and b of V = tanh(w h + b)
      scorer.json
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.disk import Written, hashing, plain_files, read_back
from trainer.values.state_views import StateView, View

SCORER = "scorer.json"
_DECIDING = (
    *("*.safetensors", "*.safetensors.index.json", "*.bin", "config.json", "adapter_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template*"),
    *("*.jinja", "*.model", "vocab.*", "merges.txt"),
)
"""Names of what V follows from: what is computed, and what is read."""


class ScorerRefused(ValueError):
    """A folder that is no model of values, or whose parts do not belong together; names the culprit and the fix."""


class ScorerFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[3] = 3
    view: View
    """`outcome` is an outcome model, any other a process model."""
    separator: str
    separator_id: int = Field(ge=0)
    template: str
    """`StateView.fingerprint`."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Of a state; older ones are cut."""
    base: str
    """The model that it was trained from."""
    base_weights: str
    """Fingerprint of that model's weights, as they were loaded."""
    agents: dict[str, int] = {}
    """Rows of each agent that were learned from; none are held out. `train_values` says it."""
    files: dict[str, str] = {}
    """SHA-256 of each file beside it that V follows from: weights, how many layers, heads and the like they are of,
    and whatever makes tokens of text."""
    own: str = ""
    """SHA-256 of all that stands here but this."""

    @property
    def own_digest(self) -> str:
        return hashlib.sha256(self.model_copy(update={"own": ""}).model_dump_json().encode()).hexdigest()

    @property
    def digest(self) -> str:
        """Of what the model is, wherever it lies."""
        return hashlib.blake2b(self.model_dump_json().encode(), digest_size=16).hexdigest()


def scorer_folder(folder: Path) -> Path:
    """`folder` is the `model/` of a run of `metaagent prm`, or the run's own."""
    return folder / "model" if (folder / "model").is_dir() else folder


def _deciding(model: Path) -> list[Path]:
    return sorted({path for pattern in _DECIDING for path in model.glob(pattern) if path.is_file()})


def write_scorer(model: Path, scorer: ScorerFile) -> list[Written]:
    """Into a folder that has its model; returns what was hashed. Raises OSError."""
    written = read_back(_deciding(model))
    scorer = scorer.model_copy(update={"files": {each.path.name: each.sha256 for each in written}})
    scorer = scorer.model_copy(update={"own": scorer.own_digest})
    with hashing(model / SCORER) as file:
        file.write(scorer.model_dump_json(indent=1).encode())
    return [*written, file.written()]


def read_scorer(model: Path) -> ScorerFile:
    """With every byte checked of the file and of those that V follows from. Raises `ScorerRefused`."""
    try:
        scorer = ScorerFile.model_validate_json(plain_files.read(model / SCORER))
    except OSError as error:
        raise ScorerRefused(
            f"{model} is no model of values: {SCORER}: {error.strerror}. Fix: the model/ of a metaagent prm run"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ScorerRefused(
            f"{model / SCORER} is not as this version writes it: {where}: {first['msg']}. Fix: use the version that "
            "trained it"
        ) from None
    if scorer.own != scorer.own_digest:
        raise ScorerRefused(
            f"{model / SCORER} was changed after it was written. Fix: copy the whole folder anew; what a model reads "
            "is settled when it is trained"
        )
    here = {path.name for path in _deciding(model)}
    for name in sorted(here ^ scorer.files.keys()):
        raise ScorerRefused(
            f"{model / name} {'was not there' if name in here else 'is missing, which was there'} when {SCORER} was "
            "written. Fix: copy the whole folder anew"
        )
    for each in read_back(model / name for name in sorted(scorer.files)):
        if each.sha256 != scorer.files[each.path.name]:
            raise ScorerRefused(
                f"{each.path} is not the file that {SCORER} was written with. Fix: copy the whole folder anew"
            )
    return scorer


def view_of(model: Path, scorer: ScorerFile, tokenizer: Any) -> StateView:
    """How states are written for it. Raises `ScorerRefused` where the tokenizer writes them in another way than in
    training."""
    found = tokenizer.convert_tokens_to_ids(scorer.separator)
    if found != scorer.separator_id:
        raise ScorerRefused(
            f"{model}: the tokenizer has {scorer.separator!r} as {found}, in training it was {scorer.separator_id}. "
            "Fix: copy the tokenizer's files anew"
        )
    view = StateView(tokenizer, scorer.separator, scorer.view, scorer.max_tokens)
    if view.fingerprint != scorer.template:
        raise ScorerRefused(
            f"{model}: states would be written in another way than in training ({view.fingerprint}, not "
            f"{scorer.template}): the tokenizer, its chat template or this version is another one. Fix: copy the "
            "tokenizer's files anew, or use the version that trained it"
        )
    return view
