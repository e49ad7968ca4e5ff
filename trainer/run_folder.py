"""The folder of one training run: which run it holds, and what of it a resumed run will make again.

Checkpoints have a module of their own (`trainer.checkpoint`). Nothing here trains or reads models.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer import metrics_file
from trainer.config import TrainConfig
from trainer.config_file import read_config, to_toml

CONFIG, METRICS, TRACES, CHECKPOINTS = "config.toml", "metrics.jsonl", "traces", "checkpoints"
FREE = {"steps", "checkpoint_every", "checkpoints_kept", "rollout.max_concurrent", "rollout.retries"}
"""What may differ when a run is resumed: it changes no step that both runs make."""


class RunChanged(ValueError):
    """A folder holds another run than the one that is asked for."""


def claim(config: TrainConfig, out: Path, *, resume: bool) -> None:
    """Make `out` this run's folder, or find that it is. Raises `RunChanged`, naming the first key that differs, where
    it holds another run, or any run without `resume`. One that has not made a step is none yet: it failed to start."""
    path = out / CONFIG
    begun = (out / METRICS).exists() or any((out / CHECKPOINTS).glob("step-*"))
    if not begun:
        out.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".tmp")
        beside.write_text(to_toml(config), encoding="utf-8")
        beside.rename(path)
        return
    if not resume:
        raise RunChanged(f"{out} holds a run already. Fix: continue it with --resume, or choose another folder")
    before, now = (dict(_flat(each.model_dump(mode="json"))) for each in (read_config(path), config))
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key) and key not in FREE:
            raise RunChanged(
                f"{out} holds a run with {key} = {before.get(key)!r}, not {now.get(key)!r}. Fix: resume it with what "
                "it was started with, or choose another folder"
            )


def forget_after(out: Path, steps: int) -> None:
    """Remove metrics and traces of the steps after the first `steps`: they will be made again."""
    metrics_file.cut(out / METRICS, steps - 1)
    for folder in (out / TRACES).glob("step-*"):
        if int(folder.name.removeprefix("step-")) >= steps:
            shutil.rmtree(folder)


def _flat(values: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and their plain values."""
    items = values.items() if isinstance(values, Mapping) else enumerate(values) if isinstance(values, list) else None
    if items is None:
        yield key, values
        return
    for name, value in items:
        yield from _flat(value, f"{key}.{name}" if key else str(name))
