"""The folder of one training run: which run it holds, and what of it a resumed run will make again.

Checkpoints have a module of their own (`trainer.disk.checkpoint`). Nothing here trains or reads models.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trainer.config import ClusterConfig, ConfigError, TrainConfig, read_config, to_toml
from trainer.disk import CheckpointError, metrics_file, plain_files
from trainer.values import SCORER, scorer_folder

CONFIG, INPUTS, METRICS, TRACES, CHECKPOINTS = "config.toml", "inputs.json", "metrics.jsonl", "traces", "checkpoints"
FREE = {
    "steps",
    "generated_tokens",
    "checkpoint_every",
    "checkpoints_kept",
    "traces_kept",
    "rollout.limits.reply_s",
    "rollout.max_concurrent",
    "rollout.retries",
    "policies.*.engine.replicas",
    *(f"cluster.{name}" for name in ClusterConfig.model_fields if name != "staleness"),
}
"""What may differ when a run is resumed: it changes no step that both runs make."""
FREE_AFTER = {
    f"policies.*.{name}"
    for name in (
        "max_tokens_per_micro_batch",
        "gradient_checkpointing",
        "shared_prompts",
        "learning_rate",
        "designer_learning_rate",
        "update.ranks",
        "update.zero_stage",
        "update.offload_optimizer",
        "device",
        "engine.max_batch",
        "engine.tensor_parallel",
        "engine.options.gpu_memory_utilization",
        "engine.options.kv_cache_memory_bytes",
        "engine.options.max_num_batched_tokens",
        "engine.options.max_num_seqs",
    )
}
"""What may differ, too, since a failed update or another machine asks for it. It does change the steps that follow,
learning rates on purpose and the others by rounding: from there on it is another run than one never stopped."""

_INPUTS = TypeAdapter(dict[str, str])
"""A sha256 by the path of its file."""


class RunChanged(ValueError):
    """A folder holds another run than the one that is asked for."""


def claim(config: TrainConfig, out: Path, *, resume: bool) -> None:
    """Make `out` this run's folder, or find that it is. One that has not made a step is none yet: it failed to start.

    Raises `RunChanged`, naming the first key or file that differs, where it holds another run, or any run without
    `resume`, and `CheckpointError` where a run to be resumed has lost its checkpoints and would begin anew.
    """
    begun = (out / METRICS).exists() or any((out / CHECKPOINTS).glob("step-*"))
    inputs = _digests(config)
    if begun:
        if not resume:
            raise RunChanged(f"{out} holds a run already. Fix: continue it with --resume, or choose another folder")
        before = read_config(out / CONFIG)
        _check_config(before, config, out)
        _check_inputs(inputs, out)
        _check_checkpoints(before.checkpoint_every, out)
    else:
        out.mkdir(parents=True, exist_ok=True)
        _check_unclaimed(out)
        record(config, out)
    plain_files.replace(out / INPUTS, (json.dumps(inputs, indent=1) + "\n").encode())


def _check_unclaimed(out: Path) -> None:
    """A run that failed to start has left its configuration as `record` writes it; all else is somebody else's."""
    there = [name for name in (CONFIG, INPUTS, TRACES) if (out / name).exists() or (out / name).is_symlink()]
    if not there:
        return
    try:
        written = (out / CONFIG).read_bytes() if (out / CONFIG).is_file() else b""
        if written and written == to_toml(read_config(out / CONFIG)).encode():
            return
    except ConfigError:
        pass  # no run has written it
    raise RunChanged(f"{out / there[0]} is there already, and of no run. Fix: choose another folder")


def record(config: TrainConfig, out: Path) -> None:
    """Have the folder say that its run goes on with this configuration."""
    plain_files.replace(out / CONFIG, to_toml(config).encode())


def _check_config(before: TrainConfig, config: TrainConfig, out: Path) -> None:
    then, now = (dict(_flat(each.model_dump(mode="json"))) for each in (before, config))
    for key in sorted(then.keys() | now.keys()):
        free = re.sub(r"^policies\.[^.]+", "policies.*", key) in FREE | FREE_AFTER
        if then.get(key) != now.get(key) and not free:
            raise RunChanged(
                f"{out} holds a run with {key} = {then.get(key)!r}, not {now.get(key)!r}. Fix: resume it with what "
                "it was started with, or choose another folder"
            )


def _digests(config: TrainConfig) -> dict[str, str]:
    """The sha256 of each file that the order and the content of the steps depend on, by its path. Raises ValueError
    for one that is not here."""
    paths = {f"data.{number}.path": source.path for number, source in enumerate(config.data)}
    if config.rollout.program:
        paths["rollout.program"] = config.rollout.program
    if config.reward.prm is not None:  # which names the digests of its weights
        paths["reward.prm"] = scorer_folder(config.reward.prm) / SCORER
    return {str(path): _digest(key, path) for key, path in paths.items()}


def _digest(key: str, path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ValueError(f"{key}: cannot read {path}: {error.strerror}. Fix: name a file that is here") from error


def _check_inputs(inputs: Mapping[str, str], out: Path) -> None:
    """Folders of earlier versions have no record, and are believed."""
    path = out / INPUTS
    if not path.exists():
        return
    try:
        then = _INPUTS.validate_json(path.read_bytes())
    except ValidationError as error:
        wrong = error.errors()[0]["msg"]
        raise RunChanged(f"{path} cannot be read: {wrong}. Fix: remove it, if no input has changed") from None
    for name, digest in inputs.items():
        if then.get(name) != digest:
            raise RunChanged(
                f"{name} is not the file that the run in {out} began with: its sha256 is {digest}, and was "
                f"{then.get(name)}. Fix: put that file back, or choose another folder"
            )


def _check_checkpoints(every: int, out: Path) -> None:
    """The first checkpoint, of `every` steps, is written until the second one is due: a kill leaves that many lines."""
    steps = (out / METRICS).read_bytes().count(b"\n") if (out / METRICS).exists() else 0
    if steps >= 2 * every and not any((out / CHECKPOINTS).glob("step-*")):
        raise CheckpointError(
            f"{out / METRICS} has {steps} steps, and {out / CHECKPOINTS} holds no checkpoint of them: the run would "
            "begin anew and forget them. Fix: put the checkpoints back, or choose another folder"
        )


def forget_after(out: Path, steps: int, *, rolled_out: int | None = None) -> None:
    """Remove metrics of the steps after the first `steps`, and traces of those after the first `rolled_out`: they will
    be made again."""
    rolled_out = steps if rolled_out is None else rolled_out
    metrics_file.cut(out / METRICS, steps - 1)
    _remove_traces(out, lambda step: step >= rolled_out)


def prune_traces(out: Path, step: int, kept: int | None) -> None:
    """Remove the traces of all steps up to `step` but the last `kept`; of none where that is None."""
    if kept is not None:
        _remove_traces(out, lambda each: each <= step - kept)


def _remove_traces(out: Path, old: Callable[[int], bool]) -> None:
    for folder in (out / TRACES).glob("step-*"):
        number = folder.name.removeprefix("step-")
        if number.isdecimal() and old(int(number)) and folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)


def _flat(values: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their plain values."""
    items = values.items() if isinstance(values, Mapping) else enumerate(values) if isinstance(values, list) else None
    if items is None:
        yield key, values
        return
    for name, value in items:
        yield from _flat(value, f"{key}.{name}" if key else str(name))
