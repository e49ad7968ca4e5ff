"""A training run while it goes on: a live view on stderr where that is a terminal, a line per step on stdout where not.

It is told of events by `trainer.run.loop` and keeps no more than it shows; the run's record is `metrics.jsonl`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import TracebackType

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from metaagent.terminal.console import note, raw, stderr, stdout
from trainer.config import TrainConfig
from trainer.credit import active_roles
from trainer.run import Phase, StepReport
from trainer.trees import DesignResult, Execution
from workflow.labels import visible

STEPS_SHOWN = 8
"""In the table; as many are averaged to estimate what is left."""


@dataclass(slots=True)
class Tally:
    """What the step under way has brought so far."""

    designs: int = 0
    executions: int = 0
    reward: float = 0.0
    """Sums over executions, this and the next."""
    correct: int = 0
    tokens: int = 0
    """Of completions."""

    def add(self, event: DesignResult | Execution) -> None:
        if isinstance(event, Execution):
            self.executions += 1
            self.reward += event.reward.total
            self.correct += event.correct
        else:
            self.designs += 1
            if event.failure is not None:  # its executions, of reward 0, are told of in no other way
                self.executions += len(event.executions)
        self.tokens += event.usage.completion_tokens


@dataclass(frozen=True, slots=True)
class _Done:
    """A step with the times at which it began and was reported, in seconds of the view's clock."""

    report: StepReport
    began: float
    ended: float

    @property
    def took(self) -> float:
        return self.ended - self.began


class TrainingView:
    """`with TrainingView(config, as_json) as view`, then call it with each event of the run."""

    def __init__(self, config: TrainConfig, as_json: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._as_json, self._clock = config, as_json, clock
        self._tally = Tally()
        self._steps: tuple[_Done, ...] = ()
        """The last ones."""
        self._step, self._phase = 0, "loading"
        self._step_began = self._phase_began = clock()
        self._told: set[str] = set()
        console = stderr()
        self._live = None
        if console.is_terminal and not as_json:
            # stdout stays as it is: it may be a file.
            self._live = Live(get_renderable=self.render, console=console, redirect_stdout=False)

    def __enter__(self) -> TrainingView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._begin("done")
        if self._live is not None:
            self._live.stop()
        if error is None and not self._steps:
            budget = self._config.generated_tokens
            steps = f"all {self._config.steps} steps" if budget is None else f"the steps of {budget:,} generated tokens"
            key = "steps=N" if budget is None else "generated_tokens=N or steps=N"
            note(f"{steps} were done already. To go on, give a higher {key}")

    def __call__(self, event: Phase | DesignResult | Execution | StepReport) -> None:
        if isinstance(event, Phase):
            for name, wrong in event.passed_over.items():
                if name not in self._told:
                    note(f"checkpoint {name} is damaged and was passed over: {wrong}")
                    self._told.add(name)
            for line in event.lines:
                note(line)
            self._step = event.step
            self._begin(event.name)
            if event.name == "rollout":
                self._tally = Tally()
                self._step_began = self._phase_began
        elif isinstance(event, StepReport):
            done = _Done(event, self._step_began, self._clock())
            self._steps = (*self._steps, done)[-STEPS_SHOWN:]
            self._line(event, done.took)
            for warning in event.warnings:
                note(f"step {event.step}: {warning}")
        else:
            self._tally.add(event)

    @property
    def place(self) -> str:
        """Where the run is, in words."""
        return f"step {self._step} ({self._done} of {self._config.steps} done), {self._phase}"

    @property
    def _done(self) -> int:
        last = self._steps[-1].report.step + 1 if self._steps else 0
        return max(last, self._step)

    def _begin(self, phase: str) -> None:
        self._phase, self._phase_began = phase, self._clock()

    def _line(self, report: StepReport, took: float) -> None:
        out = stdout()
        if self._as_json:
            raw(out, report.model_dump_json())
        elif self._live is None or not out.is_terminal:
            out.print(
                f"step {report.step}  reward {report.reward:.3f}  correct {report.correct:.0%}  "
                f"{_learn(report.active)}  {took:.1f} s"
            )
        out.file.flush()

    # The live view

    def render(self) -> RenderableType:
        """What the terminal shows now."""
        config, tally, now = self._config, self._tally, self._clock()
        if self._done == config.steps:
            learns, lasts = "", ""
        else:
            learns = f"{_learn(active_roles(self._step, config.schedule, config.stage_length))}  "
            lasts = f" for {_time(now - self._phase_began)}"
        title = Text.assemble(
            (f"Step {self._step}", "bold cyan"),
            f"  {self._done} of {config.steps} done  {learns}",
            (visible(self._phase), "bold"),
            (lasts, "dim"),
        )
        designs = config.rollout.questions * config.rollout.designs
        counts = [f"designs {tally.designs}/{designs}"]
        counts += [f"executions {tally.executions}/{designs * config.rollout.executions}"]
        if tally.executions:
            counts += [f"reward {tally.reward / tally.executions:.3f}"]
            counts += [f"correct {tally.correct / tally.executions:.0%}"]
        counts += [f"{tally.tokens:,} tokens"]
        rows: list[RenderableType] = [title, Text("  " + "  ".join(counts))]
        if self._steps:
            rows += [Text(f"  {self._pace(now)}", "dim"), self._table()]
        return Group(*rows)

    def _pace(self, now: float) -> str:
        each = (self._steps[-1].ended - self._steps[0].began) / len(self._steps)  # with the saving between them
        steps = self._config.steps - self._done
        if not steps:
            return f"{_time(each)} a step"
        bound = "about" if self._config.generated_tokens is None else "at most"
        under_way = now - self._step_began if self._step == self._done else 0.0
        return f"{_time(each)} a step, {bound} {_time(max(each * steps - under_way, 0.0))} left"

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("  step", "learned", "reward", "correct", "solved", "tokens/s", "took"):
            table.add_column(name, justify="left" if name == "learned" else "right", no_wrap=True)
        for done in self._steps:
            report = done.report
            table.add_row(
                str(report.step),
                " and ".join(report.active),
                f"{report.reward:.3f}",
                f"{report.correct:.0%}",
                f"{report.solved:.0%}",
                f"{report.timings.tokens_per_s:,.0f}",
                _time(done.took),
            )
        return table


def _learn(roles: Collection[str]) -> str:
    return f"{' and '.join(sorted(roles))} {'learns' if len(roles) == 1 else 'learn'}"


def _time(seconds: float) -> str:
    """To about two digits: 4.2 s, 45 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"
