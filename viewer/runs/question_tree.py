"""One question of a training step on disk: M designs and N executions of each, as far as they are there.

    RUN/config.toml
    RUN/traces/step-000003/question-0001/design-00.json
    RUN/traces/step-000003/question-0001/design-00-execution-02.jsonl

What cannot be read is said where it would stand. Advantages are worked out in `viewer.runs.tree_credit`, pages are made
in `viewer.runs.tree_page`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from designer.sample import Design
from trainer.config import ConfigError, TrainConfig, read_config
from trainer.disk import plain_files
from trainer.run import CONFIG
from viewer.reading import TraceSummary, beginning, summarise, unreadable

MOST_DESIGN = 1 << 26
"""Bytes of the record of a design."""
MOST = 4096
"""Designs, and executions of one, that are shown."""
_DESIGN = re.compile(r"design-(\d{1,6})\.json")
_TRACE = re.compile(r"design-(\d{1,6})-execution-(\d{1,6})\.jsonl")
_NUMBERED = re.compile(r"(step|question)-(\d{1,12})")


@dataclass(frozen=True, slots=True)
class RunOfDesign:
    """One execution of a design."""

    execution: int
    file: str
    """Name of its trace."""
    summary: TraceSummary | None
    """None where there is no trace."""

    @property
    def reward(self) -> float | None:
        """Of a run that was rewarded."""
        return self.summary.reward if self.summary is not None and self.summary.state == "ended" else None


@dataclass(slots=True)
class DesignOnDisk:
    index: int
    design: Design | None
    """The record of what the Designer wrote; none where a program is given."""
    wrong: str = ""
    """Why the record cannot be read."""
    program: str | None = None
    runs: list[RunOfDesign] = field(default_factory=list)

    @property
    def is_rejected(self) -> bool:
        """Whether it could not run: its executions have reward 0 and no traces."""
        return self.design is not None and self.design.error is not None


@dataclass(slots=True)
class TreeOnDisk:
    folder: Path
    step: int | None
    number: int | None
    """Of the question, from 0."""
    config: TrainConfig | None
    wrong: str
    """Why there is no configuration, in words."""
    question: str
    designs: list[DesignOnDisk]
    neighbours: list[str]
    """Names of the folders of the step's questions, this one's included, in order."""
    is_over: bool
    """Whether a later step has begun, and so nothing more will come."""

    @property
    def runs(self) -> list[tuple[DesignOnDisk, RunOfDesign]]:
        return [(design, run) for design in self.designs for run in design.runs]


def read_tree(folder: Path) -> TreeOnDisk:
    """The tree in the folder of a question. Raises OSError where that cannot be read."""
    names = sorted(entry.name for entry in folder.iterdir())
    config, wrong = _config(folder.parent.parent.parent / CONFIG)
    records = {int(found[1]) for name in names if (found := _DESIGN.fullmatch(name))}
    traces = {(int(found[1]), int(found[2])): name for name in names if (found := _TRACE.fullmatch(name))}
    rollout = config.rollout if config is not None else None
    shape = {*range(rollout.designs if rollout else 0), *records, *(design for design, _ in traces)}
    executions = {*range(rollout.executions if rollout else 0), *(number for _, number in traces)}
    designs = [_design(folder, index, sorted(executions)[:MOST], traces) for index in sorted(shape)[:MOST]]
    started = (beginning(folder / name) for name in traces.values())
    first = next((event for event in started if event is not None), None)
    step, number = _number("step", folder.parent.name), _number("question", folder.name)
    if first is not None:
        for each in designs:
            if each.design is None and rollout is not None and rollout.program is not None:
                each.program = first.program
    return TreeOnDisk(
        folder=folder,
        step=step,
        number=number,
        config=config,
        wrong=wrong,
        question=first.question if first is not None else _asked(designs),
        designs=designs,
        neighbours=_siblings(folder),
        is_over=step is not None and any((_number("step", each) or 0) > step for each in _siblings(folder.parent)),
    )


def design_of(path: Path) -> tuple[Design | None, str]:
    """The record of a design, and why it cannot be read where it is there."""
    try:
        return Design.model_validate_json(plain_files.read(path, MOST_DESIGN)), ""
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"{path.name} cannot be read: {error.strerror}"
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        return None, f"{path.name} is no record of a design, or half of one: {first['msg']}{place and f' at {place}'}"


def _design(folder: Path, index: int, executions: list[int], traces: dict[tuple[int, int], str]) -> DesignOnDisk:
    design, wrong = design_of(folder / f"design-{index:02}.json")
    found = DesignOnDisk(index, design, wrong, program=design.source if design is not None else None)
    for number in executions:
        name = traces.get((index, number), f"design-{index:02}-execution-{number:02}.jsonl")
        found.runs.append(RunOfDesign(number, name, _summary(folder / name)))
    return found


def _summary(path: Path) -> TraceSummary | None:
    try:
        summary = summarise(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return unreadable(0, 0, error.strerror or str(error))
    if summary is None:
        return TraceSummary(state="broken", wrong="it is no trace")
    return summary


def _asked(designs: list[DesignOnDisk]) -> str:
    """What the Designer was asked, where no run was."""
    for each in designs:
        if each.design is not None and each.design.messages:
            return next((m["content"] for m in each.design.messages if m["role"] == "user"), "")
    return ""


def _config(path: Path) -> tuple[TrainConfig | None, str]:
    try:
        return read_config(path), ""
    except ConfigError as error:
        return None, error.problems[0]


def _number(kind: str, name: str) -> int | None:
    found = _NUMBERED.fullmatch(name)
    return int(found[2]) if found and found[1] == kind else None


def _siblings(folder: Path) -> list[str]:
    """Numbered folders beside one, and itself, by number."""
    kind = folder.name.partition("-")[0]
    try:
        names = [entry.name for entry in folder.parent.iterdir() if _number(kind, entry.name) is not None]
    except OSError:
        return [folder.name]
    return sorted(names, key=lambda name: (_number(kind, name), name))
