"""What the page of a training run draws, from the reports of its steps.

Not here: how it is drawn (`viewer.training.training_panels`), and the page around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.run import StepReport
from trainer.update import UpdateReport
from viewer.charts import Level
from viewer.means import mean
from viewer.training.training_data import Measure, Stage, known
from viewer.training.training_panels import SHARE, Figures, Panel, Panels

Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Section:
    id: str
    title: str
    panels: Sequence[Panel]


def sections(panels: Panels, tools: Mapping[int, float]) -> list[Section]:
    """Those of which steps have figures. `tools`: tool calls per run, of the steps of which that is known."""
    found = [
        Section("rewards", "Rewards", _rewards(panels)),
        Section("designs", "Designs", _designs(panels)),
        Section("replies", "Lengths, tokens, tools", _replies(panels, tools)),
        Section("signal", "What there was to learn from", _signal(panels)),
        Section("updates", "Updates", _updates(panels)),
        Section("time", "Time", _time(panels)),
        Section("failing", "Failures", _failures(panels)),
    ]
    return [section for section in found if section.panels]


def mean_of(stage: Stage, measure: Measure) -> float | None:
    """Over the steps of a stage that have the value."""
    values = known(stage.reports, measure)
    return mean(values) if values else None


def _rewards(panels: Panels) -> list[Panel]:
    levels = [
        Level(first=stage.first, last=stage.last, value=value)
        for stage in (panels.run.stages if panels.stages else [])
        if (value := mean_of(stage, lambda report: report.reward)) is not None
    ]
    return [
        *panels.lines(
            "Reward",
            "Mean of what each role's trajectories were credited with."
            + (" Grey: mean of all runs over a stage." if levels else ""),
            lambda report: {str(role): value for role, value in report.reward_by_role.items()},
            levels=levels,
        ),
        *panels.lines(
            "Correct, solved, ready",
            "Share of runs that were correct, of questions that some run solved, of designs that could run.",
            lambda report: {"correct": report.correct, "solved": report.solved, "ready": report.ready},
            bounds=SHARE,
        ),
        *panels.lines(
            "Reward, term by term",
            "Mean of each term over runs, before its weight: correctness, and how well formats were kept.",
            lambda report: report.terms,
        ),
        *panels.lines("Reward by agent", "Mean of what each agent's replies were credited with.", _by_agent("reward")),
    ]


def _designs(panels: Panels) -> list[Panel]:
    def agents(report: StepReport) -> Values:
        found = report.diversity
        return {"agents per design": found.agents / found.designs if found.designs else None}

    def own_prompts(report: StepReport) -> Values:
        return {"share of agents": report.diversity.unique_prompts if report.diversity.agents else None}

    return [
        *panels.stack(
            "Structures", "Share of each among designs with a graph.", lambda report: report.structures, bounds=SHARE
        ),
        *panels.lines("Agents per design", "Mean over designs with a graph.", agents),
        *panels.lines(
            "Prompts of their own",
            "Share of agents whose system prompt no other agent of the step has.",
            own_prompts,
            bounds=SHARE,
        ),
    ]


def _replies(panels: Panels, tools: Mapping[int, float]) -> list[Panel]:
    def lengths(report: StepReport) -> Values:
        means = {str(role): of.mean for role, of in report.lengths.items()}
        return means | {f"{role}, longest but 5 %": of.p95 for role, of in report.lengths.items()}

    def cost(report: StepReport) -> Values:
        known = [usage.cost_usd for usage in report.usage.values() if usage.cost_usd is not None]
        return {"US dollars": sum(known) if known else None}

    return [
        *panels.lines("Lengths", "Tokens that the policy chose, per trajectory.", lengths),
        *panels.stack(
            "Tokens generated",
            "In a step, by role.",
            lambda report: {str(role): usage.completion_tokens for role, usage in report.usage.items()},
        ),
        *panels.stack(
            "Tokens of prompts",
            "In a step, by role.",
            lambda report: {str(role): usage.prompt_tokens for role, usage in report.usage.items()},
        ),
        *panels.lines("Cost", "Of a step.", cost),
        *(
            panels.lines(
                "Tool calls",
                "Per run; counted in some runs of some steps whose traces are kept.",
                lambda report: {"tool calls": tools.get(report.step)},
                joined=True,
            )
            if any(tools.values())
            else []
        ),
        *panels.lines(
            "Turns to solve",
            "How often the agent that spoke most was asked, in runs that solved their problem.",
            lambda report: {"turns": report.turns_to_solve},
        ),
    ]


def _signal(panels: Panels) -> list[Panel]:
    return [
        *panels.lines(
            "Without variance",
            "Share of questions whose rewards are all equal: they teach the role nothing.",
            lambda report: {str(role): share for role, share in report.silent.items()},
            bounds=SHARE,
        ),
        *panels.lines(
            "Without variance, by agent",
            "Share of groups of replies that teach nothing.",
            _by_agent("silent"),
            bounds=SHARE,
        ),
        *panels.lines("Entropy by agent", "Nats per token, of the tokens that were drawn.", _by_agent("entropy")),
        *panels.lines(
            "Left out",
            "Runs that limits.wall_s ended, and questions that were too long for the Designer.",
            lambda report: {"timed out": report.timed_out, "too long": report.outgrown} if _left_out(panels) else {},
        ),
    ]


def _updates(panels: Panels) -> list[Panel]:
    return [
        *panels.lines("Gradient norm", "Before clipping; of the last mini-batch.", _by_policy("gradient_norm")),
        *panels.lines("Ratio, mean", "Of the new probability to the old one, over tokens.", _by_policy("ratio_mean")),
        *panels.lines("Ratio, largest", "Of any token of an update.", _by_policy("ratio_max"), largest=True),
        *panels.lines(
            "KL", "Divergence from the reference, k3 estimator; 0 where it was not asked for.", _by_policy("kl")
        ),
        *panels.lines(
            "Log-probability gap",
            "Between trainer and engine, in nats. The axis is logarithmic: gaps of 0 are not drawn.",
            _by_policy("gap_mean", "gap_p99", "gap_max"),
            largest=True,
            log=True,
        ),
        *panels.lines(
            "Clipped, truncated",
            "Share of tokens where the clipped branch was the smaller one; whose importance weight was out of bounds.",
            _by_policy("clipped", "truncated"),
        ),
        *panels.lines(
            "Entropy",
            "Of the policy's distribution, in nats, at the temperature of the rollout.",
            _by_policy("entropy"),
        ),
        *panels.lines("Loss", "Mean over the optimizer steps of an update.", _by_policy("loss")),
    ]


def _time(panels: Panels) -> list[Panel]:
    def budget(report: StepReport) -> Values:
        spent = report.timings
        return {"rollout": spent.rollout_s, "update": spent.update_s, "save": spent.save_s, "sync": spent.sync_s}

    return [
        *panels.stack(
            "Seconds of a step",
            "By what they went into."
            + (
                " Rollouts and updates went on side by side: they add up to more than the step took."
                if panels.run.side_by_side
                else ""
            ),
            budget,
        ),
        *panels.lines(
            "Tokens per second",
            "Generated in the rollout, per second of the whole step.",
            lambda report: {"tokens per second": report.timings.tokens_per_s or None},
        ),
        *panels.lines(
            "Idle",
            "Seconds of a step without work, in the mean over a pool's processes.",
            lambda report: report.timings.idle_s,
        ),
    ]


def _failures(panels: Panels) -> list[Panel]:
    return panels.stack(
        "Failures",
        "Runs by how they failed; those of designs that could not run are among them.",
        lambda report: {kind.replace("_", " "): count for kind, count in report.failures.items()},
    )


def _left_out(panels: Panels) -> bool:
    return any(report.timed_out or report.outgrown for report in panels.run.steps)


def _by_agent(field: str) -> Figures:
    return lambda report: {agent: getattr(of, field) for agent, of in report.agents.items()}


def _by_policy(*fields: str) -> Figures:
    """Of every policy that was updated. A policy's name alone says it where there is one field."""

    def of(update: UpdateReport, policy: str) -> Values:
        if len(fields) == 1:
            return {policy: getattr(update, fields[0])}
        return {f"{policy}: {field.replace('_', ' ')}": getattr(update, field) for field in fields}

    return lambda report: {
        name: value for policy, update in report.updates.items() for name, value in of(update, policy).items()
    }
