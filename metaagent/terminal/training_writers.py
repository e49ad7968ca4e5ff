"""A training run's figures for TensorBoard and Weights & Biases, where they were asked for.

Thin: the figures are `trainer.run.curves`; the run's own record is `metrics.jsonl`, and nothing reads back what is
written here. A run that is resumed goes on in the same curves.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import importlib
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from metaagent.terminal.console import ExitCode, Stop
from trainer.config import TrainConfig
from trainer.run import Phase, StepReport, scalars

TENSORBOARD, WANDB_ID = "tensorboard", "wandb-id.txt"
"""In the run's folder: the event files, and the name under which wandb knows the run."""
Write = Callable[[dict[str, float], int], None]


class Writers:
    """`with Writers(...) as writers`, then call it with each event of the run.

    Raises ModuleNotFoundError at once where a package is missing. What writes is opened when the first rollout begins:
    not before is `out` known to be this run's folder, nor the step from which it goes on.
    """

    def __init__(self, config: TrainConfig, out: Path, *, tensorboard: bool, wandb: str) -> None:
        self._open: list[Callable[[int], Write]] = []
        self._writes: list[Write] | None = None
        self._stack = ExitStack()
        if tensorboard:
            package = importlib.import_module("torch.utils.tensorboard")
            self._open.append(lambda step: _tensorboard(package, out, step, self._stack))
        if wandb:
            module = importlib.import_module("wandb")
            self._open.append(lambda _: _wandb(module, wandb, out, config, self._stack))

    def __enter__(self) -> Writers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def __call__(self, event: object) -> None:
        if isinstance(event, Phase) and event.name == "rollout" and self._writes is None:
            self._writes = [each(event.step) for each in self._open]
        if isinstance(event, StepReport):
            for write in self._writes or ():
                write(scalars(event), event.step)


def _tensorboard(package: Any, out: Path, step: int, stack: ExitStack) -> Write:
    """Points from `step` on, of a run that was stopped, are hidden: they will be made again."""
    writer = stack.enter_context(package.SummaryWriter(str(out / TENSORBOARD), purge_step=step))

    def write(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return write


def _wandb(module: Any, project: str, out: Path, config: TrainConfig, stack: ExitStack) -> Write:
    """Steps that a resumed run makes again are wandb's already, and it passes over them. Raises `Stop`."""
    kept = out / WANDB_ID
    if not kept.exists():
        kept.write_text(secrets.token_hex(4), encoding="utf-8")
    try:
        run = module.init(
            project=project,
            id=kept.read_text(encoding="utf-8"),
            name=out.resolve().name,
            resume="allow",
            dir=str(out),
            config=config.model_dump(mode="json"),
            settings=module.Settings(console="off"),
        )
    except module.Error as error:
        raise Stop(f"wandb: {error}. Fix: wandb login, or set WANDB_MODE=offline", ExitCode.INFRASTRUCTURE) from error
    stack.enter_context(run)  # tells wandb, when it ends, whether the run failed
    return lambda values, step: run.log(values, step=step)
