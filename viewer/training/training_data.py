"""A training run as its folder tells of it: configuration, steps, stages, and what of them is on disk.

Reads whatever is there, also while the run goes on or where an earlier version wrote it: a line that is no report of a
step is named and passed over. Changes nothing; traces are read by `viewer.training.step_traces`.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainer.config import ConfigError, TrainConfig, read_config
from trainer.disk import plain_files
from trainer.run import CHECKPOINTS, CONFIG, METRICS, TRACES, StepReport, generated_tokens
from viewer.means import MOST, mean, no_count
from viewer.reading import stamp

LONGEST_LINE = 32 << 20
"""Bytes of a step's report."""
LONGEST_CONFIG = 1 << 20
MOST_NAMED = 20
"""Lines that are no reports, told one by one."""
MOST_WINDOWS = 240
"""Values in a line of a chart."""
_STEP = re.compile(r"step-(\d{1,12})")

Measure = Callable[[StepReport], float | None]


@dataclass(frozen=True, slots=True)
class Passed:
    """A line that is no report of a step."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Metrics:
    """What `metrics.jsonl` holds."""

    steps: list[StepReport] = field(default_factory=list)
    """By their numbers. Where a run went back to a checkpoint, what it made again."""
    passed: list[Passed] = field(default_factory=list)
    """The first ones."""
    passed_in_all: int = 0
    made_again: int = 0
    """Reports that gave way to later ones, of steps made again."""
    torn: bool = False
    """The last line has no end: it is being written, or its writer was killed."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps in a row at which the same roles learned."""

    reports: Sequence[StepReport]

    @property
    def first(self) -> int:
        return self.reports[0].step

    @property
    def last(self) -> int:
        return self.reports[-1].step

    @property
    def roles(self) -> list[str]:
        return list(self.reports[0].active)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    folder: Path
    metrics: Metrics
    config: TrainConfig | None
    config_text: str
    """As it is written; empty where there is none."""
    config_problems: Sequence[str]
    """Why `config` is None, where there is a file."""
    steps_wanted: int | None
    """As the configuration says."""
    checkpoints: Sequence[int]
    """Steps that were done at each."""
    traced: Sequence[int]
    """Steps of which traces are on disk."""

    @property
    def steps(self) -> list[StepReport]:
        return self.metrics.steps

    @property
    def done(self) -> int:
        return self.steps[-1].step + 1 if self.steps else 0

    @property
    def budget(self) -> int | None:
        """Tokens after which the run ends, whatever steps are left."""
        return None if self.config is None else self.config.generated_tokens

    @property
    def generated(self) -> int:
        """Tokens that count for the budget."""
        return sum(generated_tokens(report.usage, report.active) for report in self.steps)

    @property
    def total(self) -> int | None:
        """Steps that the run is to have, or at most; those that are done where its budget has ended it."""
        over = self.budget is not None and self.generated >= self.budget
        return self.done if over else self.steps_wanted

    @property
    def side_by_side(self) -> bool:
        """Whether the rollouts of later steps went on beside the updates of earlier ones (`cluster.staleness`)."""
        set_so = self.config is not None and self.config.cluster.staleness > 0
        return set_so or any(report.age for report in self.steps)

    @property
    def name(self) -> str:
        return "/".join(self.folder.absolute().parts[-2:])

    @property
    def stages(self) -> list[Stage]:
        return [Stage(list(reports)) for _, reports in groupby(self.steps, key=lambda report: report.active)]


def read_run(folder: Path) -> TrainingRun:
    """Raises OSError where the folder or its metrics cannot be read; a run that has not made a step has none."""
    config, text, problems = _config(folder / CONFIG)
    return TrainingRun(
        folder=folder,
        metrics=read_metrics(folder / METRICS) if os.path.lexists(folder / METRICS) else Metrics(),
        config=config,
        config_text=text,
        config_problems=problems,
        steps_wanted=config.steps if config is not None and config.steps < MOST else _steps_in(text),
        checkpoints=_numbers(folder / CHECKPOINTS),
        traced=_numbers(folder / TRACES),
    )


def version(folder: Path) -> str:
    """Another text once `read_run` may find something else. Raises OSError where there is no folder."""
    os.stat(folder)
    told = []
    for name in (METRICS, CONFIG, TRACES, CHECKPOINTS):
        try:
            told.append(stamp(os.stat(folder / name)))
        except OSError:
            told.append("-")
    return "/".join(told)


# metrics.jsonl


def read_metrics(path: Path) -> Metrics:
    """Raises OSError."""
    steps: list[StepReport] = []
    passed: list[Passed] = []
    count = again = 0
    torn = False
    for number, line in enumerate(_lines(path), 1):
        if line is not None and not line.endswith(b"\n"):
            torn = True
            break
        try:
            report = _report(line)
        except ValueError as error:
            count += 1
            if len(passed) < MOST_NAMED:
                passed.append(Passed(number, str(error)))
            continue
        while steps and steps[-1].step >= report.step:
            steps.pop()
            again += 1
        steps.append(report)
    return Metrics(steps, passed, count, again, torn)


def _lines(path: Path) -> Iterator[bytes | None]:
    """Each line; None for one that is too long. Blank ones are no lines of ours, and come as they are."""
    with open(plain_files.opened(path), "rb") as file:
        while line := file.readline(LONGEST_LINE):
            if len(line) < LONGEST_LINE or line.endswith(b"\n"):
                yield line
                continue
            while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            yield None


def _report(line: bytes | None) -> StepReport:
    """Raises ValueError, which says what is wrong with the line."""
    if line is None:
        raise ValueError(f"it has more than {LONGEST_LINE:,} bytes")
    report = _valid(line)
    if wrong := no_count(report):
        raise ValueError(wrong)
    return report


def _valid(line: bytes) -> StepReport:
    """Raises ValueError."""
    try:
        return StepReport.model_validate_json(line)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        if any(each["type"] != "float_type" or each["input"] is not None for each in wrong):
            place = ".".join(map(str, wrong[0]["loc"]))
            raise ValueError(f"{wrong[0]['msg']}{f' at {place}' if place else ''}") from None
    values = json.loads(line)
    for each in wrong:  # what was not finite is written as null
        at: Any = values
        for part in each["loc"][:-1]:
            at = at[part]
        at[each["loc"][-1]] = math.nan
    return StepReport.model_validate(values)


# The configuration, and what is in the folder


def _config(path: Path) -> tuple[TrainConfig | None, str, list[str]]:
    """What it says, its text, and what is wrong with it."""
    try:
        text = plain_files.read(path, LONGEST_CONFIG).decode(errors="replace")
    except FileNotFoundError:
        return None, "", [f"there is no {CONFIG}"]
    except OSError as error:
        return None, "", [f"cannot read {CONFIG}: {error.strerror}"]
    try:
        return read_config(path), text, []
    except ConfigError as error:
        return None, text, list(error.problems)


def _steps_in(text: str) -> int | None:
    """Of a configuration that today's schema does not know."""
    try:
        steps = tomllib.loads(text).get("steps")
    except (ValueError, RecursionError):
        return None
    return steps if type(steps) is int and 0 < steps < MOST else None


def _numbers(folder: Path) -> list[int]:
    """Of the folders `step-N` in it."""
    try:
        with os.scandir(folder) as entries:
            found = [(_STEP.fullmatch(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return []
    return sorted(int(match[1]) for match, is_folder in found if match and is_folder)


# Values over the steps


@dataclass(frozen=True, slots=True)
class Windows:
    """Steps one by one or, where there are too many for a chart, a few in a row together."""

    parts: Sequence[Sequence[StepReport]]
    """Empty where the file has no report of the steps."""
    spans: Sequence[tuple[int, int]]
    """The first and the last step of each."""
    size: int
    """Steps of each but perhaps the last."""

    def mean(self, measure: Measure) -> list[float | None]:
        """Over those steps of each part that have the value."""
        return [mean(values) if (values := known(part, measure)) else None for part in self.parts]

    def largest(self, measure: Measure) -> list[float | None]:
        return [max(values) if (values := known(part, measure)) else None for part in self.parts]


def windows(steps: Sequence[StepReport], most: int = MOST_WINDOWS) -> Windows:
    size = max(1, -(-len(steps) // most))
    parts: list[list[StepReport]] = []
    spans: list[tuple[int, int]] = []
    for start in range(0, len(steps), size):
        part = list(steps[start : start + size])
        if spans and part[0].step > spans[-1][1] + 1:  # a gap
            parts.append([])
            spans.append((spans[-1][1] + 1, part[0].step - 1))
        parts.append(part)
        spans.append((part[0].step, part[-1].step))
    return Windows(parts, spans, size)


def known(part: Iterable[StepReport], measure: Measure) -> list[float]:
    """The values of those that have one: a number, which what was not finite when it was written is not."""
    return [value for report in part if (value := measure(report)) is not None and math.isfinite(value)]
