"""How fine-tuning goes, shown on stderr while it happens."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from metaagent.console import stderr
from trainer.sft import StepMetrics


class SFTProgress:
    """Shows each step on stderr: a bar with figures on a terminal, a line per epoch everywhere."""

    def __init__(self) -> None:
        self._console = stderr()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("Learning", total=None)
        self._began = 0.0
        self._tokens = 0

    def __enter__(self) -> SFTProgress:
        self._progress.start()
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, metrics: StepMetrics, steps: int) -> None:
        self._tokens += metrics.tokens
        speed = self._tokens / max(time.monotonic() - self._began, 1e-9)
        said = [f"epoch {metrics.epoch:.2f}", f"step {metrics.step}/{steps}"]
        said += [f"loss {metrics.loss:.4f}", f"{speed:,.0f} tokens/s"] if metrics.loss is not None else []
        self._progress.update(self._task, total=steps, completed=metrics.step, description="  ".join(said))
        if metrics.held_out_loss is not None:
            said.append(f"held-out loss {metrics.held_out_loss:.4f}")
        if metrics.held_out_loss is not None or metrics.step == steps:
            self._console.print(Text("  ".join(said)))
