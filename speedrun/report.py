"""What a speedrun found, as `report.md`, `report.json` and two pictures. Measures nothing itself.

Accuracy has the 95 % interval of `trainer.evaluate.metrics.pass_rate`. Systems are compared on the same problems
(`trainer.evaluate.paired`); "above" is said only where McNemar's exact test says so at 95 %.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from speedrun.settings import SpeedrunSettings
from speedrun.teacher import AT_ONCE, STEPS
from tasks.data import KINDS
from trainer.evaluate import Attempt, PassRate, mcnemar, mean_interval, report_of, shares
from trainer.run import METRICS, StepReport
from viewer.charts import SERIES, Bar, Series, Spec, Steps, bars, lines, png, stages_of
from workflow.failures import FailureKind
from workflow.graph import GraphNode, structure

NO_PROGRAM = "no program"
GREY = "#808b97"
REPORT = "report.json"
PAGE = ("report.md", "accuracy.png", "training.png")
"""In a speedrun's folder, with REPORT."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One system's attempts at the held-out problems."""

    name: str
    attempts: Sequence[Attempt]


class SystemResult(BaseModel):
    name: str
    accuracy: PassRate
    by_kind: dict[str, PassRate]
    patterns: dict[str, dict[str, float]]
    """Kind of problem -> way of working together -> share of its attempts."""
    agent_calls: float
    """Mean per attempt, those of designs that could not run included."""
    failures: dict[FailureKind, int]

    @property
    def rates(self) -> list[PassRate]:
        """Accuracy over all problems, then by kind."""
        return [self.accuracy, *(self.by_kind[kind] for kind in KINDS)]


class Difference(BaseModel):
    """How much more often one system is right than another on the same problems, with the 95 % interval."""

    after: str
    before: str
    mean: float
    low: float
    high: float
    p_value: float
    """By McNemar's exact test: the interval alone says too much where few problems differ."""

    @property
    def told(self) -> str:
        if self.p_value >= 0.05:
            return "cannot tell"
        return "above" if self.mean > 0 else "below"


class SpeedrunReport(BaseModel):
    settings: SpeedrunSettings
    rl: dict[str, Any]
    """The RL recipe as it was."""
    machine: str
    weights: int
    """Of the policy."""
    systems: list[SystemResult]
    differences: list[Difference]
    """Of the last two systems, after SFT and after RL, from all that come before."""
    correct: list[float]
    """Share of correct executions at each RL step."""
    ready: list[float]
    """Share of designs that could run at each RL step."""
    active: list[list[str]]
    """Roles that learned at each step."""
    seconds: dict[str, float]


def pattern(graph: GraphNode | None, program: str | None) -> str:
    """How the agents of a design work together: its structure (Table 6), whether any has a tool, and how they are told
    to work."""
    if graph is None or program is None:
        return NO_PROGRAM
    tools = any(node.tools for node in graph.walk())
    told = [how for how in (STEPS, AT_ONCE) if how in program]
    return structure(graph) + (" with a tool" if tools else "") + f", {' and '.join(told)}" * bool(told)


def result_of(measured: Measured) -> SystemResult:
    report = report_of(measured.attempts)
    assert report.accuracy is not None, "a system without attempts"
    return SystemResult(
        name=measured.name,
        accuracy=report.accuracy,
        by_kind=dict(report.by_task),
        patterns={
            kind: shares(pattern(each.graph, each.program) for each in measured.attempts if each.task == kind)
            for kind in KINDS
        },
        agent_calls=sum(len(each.reply_tokens.get("executor", [])) for each in measured.attempts)
        / len(measured.attempts),
        failures=report.failures,
    )


def differences_of(measured: Sequence[Measured]) -> list[Difference]:
    """Raises ValueError where two systems attempted different problems, or one of them twice."""
    return [
        _difference(after, before) for place, after in list(enumerate(measured))[-2:] for before in measured[:place]
    ]


def _difference(after: Measured, before: Measured) -> Difference:
    pairs = [{each.problem: each.correct for each in system.attempts} for system in (after, before)]
    if not len(after.attempts) == len(before.attempts) == len(pairs[0].keys() & pairs[1].keys()):
        raise ValueError(f"{after.name} and {before.name} are to have one attempt each at the same problems")
    gains = Counter(right - pairs[1][problem] for problem, right in pairs[0].items())
    found, p_value = mean_interval(gains.elements()), mcnemar(gains[1], gains[-1])
    return Difference(
        after=after.name, before=before.name, mean=found.mean, low=found.low, high=found.high, p_value=p_value
    )


def write_report(
    out: Path, settings: SpeedrunSettings, weights: int, measured: Sequence[Measured], seconds: dict[str, float]
) -> Path:
    """Write all files into `out`; returns the page."""
    steps = [StepReport.model_validate_json(line) for line in (out / "rl" / METRICS).read_text().splitlines()]
    if settings.pretrained is not None:  # a report is passed on, and says nothing of this machine's folders
        settings = settings.model_copy(update={"pretrained": Path(settings.pretrained.name)})
    report = SpeedrunReport(
        settings=settings,
        rl=settings.recipe(),
        machine=_machine(),
        weights=weights,
        systems=[result_of(each) for each in measured],
        differences=differences_of(measured),
        correct=[step.correct for step in steps],
        ready=[step.ready for step in steps],
        active=[list(step.active) for step in steps],
        seconds=seconds,
    )
    (out / REPORT).write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")
    page, *pictures = (out / name for name in PAGE)
    draw(report, *pictures)
    page.write_text(page_of(report), encoding="utf-8")
    return page


def draw(report: SpeedrunReport, accuracy: Path, training: Path) -> None:
    """The two pictures, as PNG files."""
    png(accuracy_chart(report), accuracy)
    png(training_chart(report), training)


def accuracy_chart(report: SpeedrunReport) -> Spec:
    """Of each system, over all problems and by kind."""
    found = [
        Bar(group=group, series=system.name, value=rate.estimate, low=rate.low, high=rate.high)
        for system in report.systems
        for group, rate in zip(("all problems", *KINDS), system.rates, strict=True)
    ]
    title = "Held-out problems answered correctly"
    # The first system is what the others are measured by.
    return bars(found, title=title, value_title="share of correct answers", colours=(GREY, *SERIES))


def training_chart(report: SpeedrunReport) -> Spec:
    """Shares of correct executions and of programs that can run at each RL step."""
    return lines(
        Steps.single(len(report.correct)),
        [
            Series(name="correct runs", values=report.correct, colour=SERIES[2]),
            Series(name="programs that can run", values=report.ready, colour=GREY),
        ],
        title="RL on training problems",
        value_title="share",
        bounds=(0.0, 1.0),
        stages=stages_of(report.active),
        name_stages=True,
        height=240,
    )


def page_of(report: SpeedrunReport) -> str:
    """The page for people."""
    lines = [
        "# Speedrun",
        "",
        f"`{_command(report.settings)}` on {report.machine}; one run.",
        "",
        f"A policy of {report.weights / 1e6:.2f} million weights, {_origin(report)}: taught both roles on the cold "
        f"start's conversations, then trained by RL for {len(report.correct)} steps "
        f"({report.settings.rl(Path('model'), Path('data')).schedule}). Problems held out: "
        f"{report.systems[0].accuracy.problems}, one sampled attempt each by every system; 95 % intervals in brackets.",
        "",
        "## Accuracy",
        "",
        f"| | all | {' | '.join(KINDS)} | agent calls |",
        f"|---|{'---|' * (len(KINDS) + 2)}",
        *(
            f"| {each.name} | {_rate(each.accuracy)} | "
            + " | ".join(_rate(each.by_kind[kind]) for kind in KINDS)
            + f" | {each.agent_calls:.1f} |"
            for each in report.systems
        ),
        "",
        "![Accuracy](accuracy.png)",
        "",
        "Differences on the same problems:",
        "",
        *(
            f"- {each.after} less {each.before}: {each.mean:+.3f} [{each.low:+.3f}, {each.high:+.3f}], {each.told}"
            for each in report.differences
        ),
        "",
        "## How agents work together",
        "",
        "Share of the designs for each kind of problem.",
        "",
        f"| | kind | {' | '.join(_patterns(report))} |",
        f"|---|---|{'---|' * len(_patterns(report))}",
        *(
            f"| {each.name} | {kind} | "
            + " | ".join(f"{each.patterns[kind].get(name, 0):.0%}" for name in _patterns(report))
            + " |"
            for each in report.systems[-2:]  # those with a Designer
            for kind in KINDS
        ),
        "",
        "## Training",
        "",
        "![Training](training.png)",
        "",
        "| step | seconds |",
        "|---|---|",
        *(f"| {name} | {took:.0f} |" for name, took in report.seconds.items()),
        f"| all | {sum(report.seconds.values()):.0f} |",
        "",
    ]
    return "\n".join(lines)


def _command(settings: SpeedrunSettings) -> str:
    """What makes such a run; the name of a model's folder stands for the folder."""
    model = [] if settings.pretrained is None else ["--pretrained", settings.pretrained.name]
    return " ".join(["python -m speedrun", *model, "--seed", str(settings.seed), *map(shlex.quote, settings.overrides)])


def _machine() -> str:
    """Its cores, and its GPU, if torch was told to use one."""
    torch = sys.modules.get("torch")
    gpu = torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else ""
    return f"{os.cpu_count()} cores" + f" and {gpu}" * bool(gpu)


def _origin(report: SpeedrunReport) -> str:
    model = report.settings.pretrained
    return "from random weights" if model is None else f"`{model.name}` as others have trained it"


def _patterns(report: SpeedrunReport) -> list[str]:
    return sorted({name for each in report.systems for kind in KINDS for name in each.patterns[kind]})


def _rate(rate: PassRate) -> str:
    return f"{rate.estimate:.2f} [{rate.low:.2f}, {rate.high:.2f}]"
