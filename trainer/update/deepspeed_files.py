"""A policy that ranks share, on disk: `model/` whole, as plain transformers loads it, adapters in peft's format, the
optimizer in fragments (`trainer.update.deepspeed_shards`).

What is written is copied first, by all ranks together; then each writes by itself while the policy goes on. Files are
checked on all ranks before anything is changed on one: `read` changes nothing, `take` fails no more. Not here: whose
turn it is, and when a checkpoint is due.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import hashlib
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from trainer.disk import Written
from trainer.update import deepspeed_shards, policy_files
from trainer.update.deepspeed_group import DeepSpeedSettings
from trainer.update.deepspeed_model import Held
from trainer.update.deepspeed_shards import Fragment, State
from trainer.update.deepspeed_weights import whole
from trainer.update.dice import Dice
from trainer.update.exchange import Exchange
from trainer.update.snapshot import ModelSnapshot, copied


@dataclass(frozen=True, slots=True)
class Read:
    """Files that fit, and what of them this rank takes over."""

    state: State
    weights: dict[str, torch.Tensor]
    """By the names of parameters; the files' own memory."""
    fragments: list[Fragment]
    step: torch.Tensor
    dice: dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSnapshot:
    """One rank's part of a policy as it was at one moment; all in host memory, and nobody changes it."""

    rank: int
    shard: dict[str, torch.Tensor]
    """See `deepspeed_shards`."""
    state: State
    model: ModelSnapshot | None
    """What is whole: the first rank's."""

    def write(self, folder: Path) -> list[Written]:
        """This rank's files, into a folder that has an empty `optimizer/`; returns those that were hashed on the way.
        Waits for no other rank. Raises OSError."""
        written = deepspeed_shards.write(folder, self.rank, self.state.ranks, self.shard)
        if self.model is not None:
            written += [*self.model.write(folder), policy_files.write_state(folder, self.state)]
        return written


def snapshot(held: Held, settings: DeepSpeedSettings, exchange: Exchange, steps: int, dice: Dice) -> RankSnapshot:
    """Of all ranks together: the first one holds what is whole."""
    first, model = exchange.rank == 0, None
    found = {name: tensor.cpu() for layer in held.weights.stream(copies=first) for name, tensor in layer}
    adapters = whole(held.trained, copies=first) if settings.lora is not None else None
    if first:
        tied = {name: found[other] for name, other in held.weights.tied.items()}
        model = ModelSnapshot(model=held.model, tokenizer=held.tokenizer, weights=found | tied, adapter=adapters)
    mine = deepspeed_shards.fragments(held.trained, held.engine, held.adamw, exchange.rank)
    if settings.zero_stage == 0:  # every rank holds everything: each writes its share
        mine = [each for one in mine for each in [_share(one, exchange.rank, exchange.ranks)] if each.start < each.end]
    step = held.adamw.state[held.adamw.stepped()[0]]["step"]
    return RankSnapshot(
        rank=exchange.rank,
        shard=copied(deepspeed_shards.named(mine, step, dice.states)),
        state=State(steps=steps, ranks=exchange.ranks, **_like(held, settings)),
        model=model,
    )


def read(held: Held, settings: DeepSpeedSettings, exchange: Exchange, folder: Path, dice: Dice) -> Read:
    """Raises ValueError, naming the file, for one that is damaged or does not fit. Each rank looks at its share of the
    values, so that none is in use before all ranks have read."""
    state = policy_files.read_state(folder, State)
    mine = State(steps=0, ranks=exchange.ranks, **_like(held, settings))
    policy_files.check_state(folder, state, mine)
    part = folder / ("adapter" if settings.lora is not None else "model")
    names = _names(held, settings)
    given = policy_files.read_tensors(part)
    policy_files.check_alike(part, given, _outline(held, settings, names, given))
    policy_files.check_finite(part, {name: given[name] for name in sorted(given)[exchange.rank :: exchange.ranks]})
    weights = {name: given[file] for name, file in names.items()}
    shards = deepspeed_shards.read(folder, state.ranks, {name: each.numel() for name, each in weights.items()})
    fragments = []
    for one in deepspeed_shards.fragments(held.trained, held.engine, held.adamw, exchange.rank):
        found = shards.fragment(one.name, one.start, one.end)
        fragments.append(found)
        weight = weights[one.name].reshape(-1)[one.start : one.end]
        if not torch.equal(weight, found.tensors["master"].to(weight.dtype)):
            raise ValueError(
                f"{part} and {folder / 'optimizer'} have different values of {one.name!r}. Fix: load another checkpoint"
            )
    path, states = shards.dice[exchange.rank % state.ranks]
    states = dice.checked(path, states)
    if exchange.rank >= state.ranks:  # more ranks than wrote: each needs random numbers of its own
        digest = hashlib.sha256(b"".join(bytes(each.tolist()) for each in states.values()))
        digest.update(str(exchange.rank).encode())
        states = Dice(int.from_bytes(digest.digest()[:7]), exchange.device).states
    return Read(state, weights, fragments, shards.step, states)


@torch.no_grad()
def take(held: Held, exchange: Exchange, found: Read, dice: Dice) -> None:
    """What `read` found becomes what this rank goes on from."""
    for name, parameter in held.trained.items():
        given = found.weights[name]
        if parameter.numel():  # not partitioned, or kept whole by every rank
            parameter.data.copy_(given)
        if hasattr(parameter, "ds_tensor"):
            length = parameter.ds_tensor.numel()
            mine = given.reshape(-1)[exchange.rank * length : (exchange.rank + 1) * length]
            parameter.ds_tensor.data[: len(mine)].copy_(mine)
    for here, there in zip(
        deepspeed_shards.fragments(held.trained, held.engine, held.adamw, exchange.rank), found.fragments, strict=True
    ):
        for kind, tensor in here.tensors.items():
            tensor.copy_(there.tensors[kind])
    for flat in held.adamw.stepped():
        held.adamw.state[flat]["step"].copy_(found.step)
    dice.load(found.dice)


def _like(held: Held, settings: DeepSpeedSettings) -> dict[str, Any]:
    return {"dtype": settings.dtype, "lora": settings.lora, "start": held.start}


def _share(one: Fragment, rank: int, ranks: int) -> Fragment:
    length = one.end - one.start
    return one.cut(one.start + length * rank // ranks, one.start + length * (rank + 1) // ranks)


def _names(held: Held, settings: DeepSpeedSettings) -> dict[str, str]:
    """From a trained parameter's name to its name in `model/` or `adapter/`."""
    if settings.lora is None:
        return {name: name for name in held.trained}
    peft: Any = importlib.import_module("peft")
    named = peft.get_peft_model_state_dict(held.model, state_dict=held.trained, save_embedding_layers=False)
    files = {id(parameter): name for name, parameter in named.items()}
    return {name: files[id(parameter)] for name, parameter in held.trained.items()}


def _outline(
    held: Held, settings: DeepSpeedSettings, names: dict[str, str], given: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Types and shapes that `model/` or `adapter/` must have, on the meta device. A tied weight's first name is
    enough."""
    if settings.lora is not None:
        return {file: held.outline[name] for name, file in names.items()}
    return {name: each for name, each in held.weights.outline.items() if name in given or name not in held.weights.tied}
