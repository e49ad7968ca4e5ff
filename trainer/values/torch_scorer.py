"""Values from a model, in batches: whatever many searches ask at about the same time goes through it at once.

A value depends on its state alone, up to rounding: what shares a batch, or a prompt, shares the shapes of matrix
products. In float32 that is seen in the seventh digit, in bfloat16 in the third. A model in float64 hides it, as values
are rounded to float32: two that differ in the sixteenth digit round apart once in tens of millions. Knows no search.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from engine.pretrained import folder_digest, load_body, load_config, load_model, load_tokenizer
from search.scoring import Score, ScoredState
from trainer.samples import Sample
from trainer.update import read_values
from trainer.values.scorer_file import ScorerRefused, read_scorer, scorer_folder, view_of
from trainer.values.state_views import StateView, Unreadable

Dtype = Literal["float64", "float32", "bfloat16"]
UNREADABLE = -1.0
"""The value of a state whose newest reply is a failure, or longer than the model reads: as of a run that passed a
limit."""


@dataclass(frozen=True, slots=True)
class _Asked:
    samples: list[Sample]
    values: asyncio.Future[list[float]]


class TorchScorer:
    """A `search.scoring.Scorer`. `load` makes one of a folder of `metaagent prm`, `two_class` one of a published model
    of steps. To be asked from one event loop at a time."""

    def __init__(
        self,
        name: str,
        view: StateView,
        compute: Callable[[Sequence[Sample]], list[float]],
        *,
        agents: dict[str, int] | None = None,
        digest: str = "",
        window_s: float = 0.002,
    ) -> None:
        self.name = name
        self.agents = agents or {}
        """Those seen in training, each with its rows; empty where nothing is known of them."""
        self.digest = digest
        """Of what the model is, wherever it lies."""
        self._view, self._compute, self._window_s = view, compute, window_s
        self._waiting: list[_Asked] = []
        self._working: asyncio.Task[None] | None = None
        self.batches = 0
        """Batches computed so far."""

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        dtype: Dtype = "float32",
        max_tokens_per_batch: int = 16_384,
        window_s: float = 0.002,
    ) -> TorchScorer:
        """`folder` is the `model/` of a run, or the run's own. `window_s` is how long the first of a batch waits for
        others. Raises `ScorerRefused` where its parts do not belong together."""
        folder = scorer_folder(Path(folder))
        scorer = read_scorer(folder)
        try:
            view = view_of(folder, scorer, load_tokenizer(folder))
            model = _placed(load_model(folder, getattr(torch, dtype)), device)
            compute = read_values(model, folder, max_tokens_per_batch)
        except ScorerRefused:
            raise
        except Exception as error:  # whatever is wrong with the files
            raise _unloadable(folder, error) from error
        rows = model.get_input_embeddings().num_embeddings
        if scorer.separator_id >= rows:
            raise ScorerRefused(
                f"{folder}: the model has {rows} tokens, and the separator is number {scorer.separator_id}. Fix: copy "
                "the whole folder anew"
            )
        return cls(str(folder), view, compute, agents=scorer.agents, digest=scorer.digest, window_s=window_s)

    @classmethod
    def two_class(
        cls,
        folder: str | Path,
        *,
        separator: str = "<extra_0>",
        device: str = "auto",
        dtype: Dtype = "float32",
        max_tokens_per_batch: int = 16_384,
        window_s: float = 0.002,
    ) -> TorchScorer:
        """A model that says at each step's separator how likely it is right: token classification with two classes, of
        which the second is right, such as Qwen2.5-Math-PRM. V = 2 p - 1. It reads the view `steps`. Raises
        `ScorerRefused` for another model."""
        folder = Path(folder)
        try:
            tokenizer, config = load_tokenizer(folder), load_config(folder)
            if config.num_labels != 2:
                raise ScorerRefused(f"{folder} has {config.num_labels} classes. Fix: a model of two, wrong and right")
            if separator not in tokenizer.get_vocab():
                raise ScorerRefused(f"{folder} has no token {separator!r}. Fix: name the one that ends its steps")
            body = _placed(load_body(folder, getattr(torch, dtype)), device)
            compute = read_values(body, folder, max_tokens_per_batch, two_class=True)
        except ScorerRefused:
            raise
        except Exception as error:
            raise _unloadable(folder, error) from error
        most = getattr(config.get_text_config(), "max_position_embeddings", None)
        view = StateView(tokenizer, separator, "steps", most)
        return cls(str(folder), view, compute, digest=f"{folder_digest(folder)}-{view.fingerprint}", window_s=window_s)

    async def score(self, states: Sequence[ScoredState]) -> list[Score]:
        """See `Scorer`. A state that cannot be read is worth `UNREADABLE`."""
        scores = [Score(UNREADABLE)] * len(states)
        read: dict[int, Sample] = {}
        for index, state in enumerate(states):
            try:
                read[index] = self._view.tokens(state).sample()
            except Unreadable:
                continue
        if read:
            asked = _Asked(list(read.values()), asyncio.get_running_loop().create_future())
            self._waiting.append(asked)
            if self._working is None:
                self._working = asyncio.create_task(self._work())
            for (index, sample), value in zip(read.items(), await asked.values, strict=True):
                scores[index] = Score(value, len(sample.token_ids))
        return scores

    async def _work(self) -> None:
        """Batch after batch, as long as something waits. What is asked meanwhile is the next one."""
        try:
            while self._waiting:
                await asyncio.sleep(self._window_s)
                batch, self._waiting = self._waiting, []
                samples = [sample for asked in batch for sample in asked.samples]
                self.batches += 1
                try:
                    values = await asyncio.to_thread(self._compute, samples)
                except Exception as error:
                    for asked in batch:
                        if not asked.values.done():  # whoever asked has been cancelled
                            asked.values.set_exception(error)
                    continue
                for asked in batch:
                    mine, values = values[: len(asked.samples)], values[len(asked.samples) :]
                    if not asked.values.done():
                        asked.values.set_result(mine)
        finally:
            self._working = None

    async def close(self) -> None:
        """Ends what is under way, and lets the model go."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        for asked in self._waiting:
            asked.values.cancel()
        self._waiting, self._compute = [], _closed


def _closed(samples: Sequence[Sample]) -> list[float]:
    raise RuntimeError("the scorer is closed. Fix: load it again")


def _placed(model: Any, device: str) -> Any:
    return model.to(device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu").eval()


def _unloadable(folder: Path, error: Exception) -> ScorerRefused:
    reason = str(error).strip().partition("\n")[0]
    return ScorerRefused(f"cannot load the model of values {folder}: {type(error).__name__}: {reason}")
