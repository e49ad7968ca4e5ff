"""What an evaluation found, as a document and for people. Evaluates nothing: `metaagent.commands.eval` does."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel
from rich.console import Console

from metaagent.terminal import fields, heading, note, print_shares, print_table, totals
from trainer.evaluate import EvalReport, EvalSettings, PassRate, SearchMeans, Spread


class Evaluation(BaseModel):
    """What `eval --json` prints."""

    tasks: list[str]
    engine: str
    designer: str
    """The engine's name, `bank`, or the program's file."""
    settings: EvalSettings
    report: EvalReport
    unreadable_golds: list[str] = []
    """Problems whose gold answer cannot be read as mathematics: nothing was graded with it."""
    notes: list[str] = []
    wall_s: float = 0.0
    """Seconds that this command took; attempts that were kept from before took theirs then."""
    folder: str | None = None


def print_evaluation(console: Console, evaluation: Evaluation) -> None:
    """The report for people; notes go to stderr."""
    report = evaluation.report
    diversity = report.diversity
    heading(console, "Result")
    prompts = f"{diversity.unique_prompts:.1%} of {diversity.agents} agents have a prompt that no other has"
    names = f"{diversity.role_names} role names in {diversity.designs} designs; {prompts}"
    passed = ", ".join(f"pass@{k} {value:.1%}" for k, value in report.pass_at.items() if k > 1)
    fields(
        console,
        [
            ("Engine", evaluation.engine),
            ("Designer", evaluation.designer),
            ("Attempts", f"{report.attempts} at {report.problems} problems"),
            ("Accuracy", rate_line(report.accuracy)),
            ("Any of k", passed),
            ("Answered", f"{report.answered:.1%}"),
            ("Failures", ", ".join(f"{kind.replace('_', ' ')} {n}" for kind, n in report.failures.items())),
            ("Agents", names if diversity.designs else ""),
            *((f"{role.title()} replies", length_line(each)) for role, each in report.reply_tokens.items() if each.max),
            ("Searched", "" if report.search is None else search_line(report.search)),
            ("Usage", totals(report.usage.usage)),
            *(
                [("Turns to solve", f"{report.turns.mean:.1f} on average, most {report.turns.max:,.0f}")]
                if report.turns is not None
                else []
            ),
            ("Time", f"{evaluation.wall_s:.1f} s; {report.attempt_s.mean:.1f} s per attempt"),
            ("Kept in", evaluation.folder or ""),
        ],
    )
    groups: list[tuple[str, Mapping[str, PassRate]]] = [("By task", report.by_task)]
    groups += [("By domain", {str(domain): rate for domain, rate in report.by_domain.items()})]
    for title, rates in groups:
        if len(rates) > 1:
            heading(console, title)
            fields(console, [(f"  {name}", rate_line(rate)) for name, rate in rates.items()])
    heading(console, "Structures")
    rows = [
        (name, f"{row.share:.1%}", str(row.attempts), f"{row.correct:.1%}") for name, row in report.structures.items()
    ]
    print_table(console, ("structure", "share", "attempts", "correct"), rows)
    print_shares(console, "By role", report.usage_by_role)
    for each in evaluation.notes:
        note(each)
    if evaluation.unreadable_golds:
        shown = ", ".join(evaluation.unreadable_golds[:5])
        count = len(evaluation.unreadable_golds)
        note(f"{count} problem{' has' if count == 1 else 's have'} a gold answer that cannot be read: {shown}")


def rate_line(rate: PassRate | None) -> str:
    """The estimate with its interval; empty where there is none."""
    if rate is None:
        return ""
    return f"{rate.estimate:.1%} (95% interval {rate.low:.1%} to {rate.high:.1%}, {rate.problems} problems)"


def search_line(means: SearchMeans) -> str:
    """What searches spent, per attempt."""
    guided = f", guided by {means.guide}" if means.guide else ""
    scored = f", {means.scored:.1f} states scored" if means.scored else ""
    stopped = f"; {means.stopped} ended by a budget" if means.stopped else ""
    return (
        f"{means.method}{guided}: {means.agent_calls:.1f} agent calls, {means.generated_tokens:,.0f} generated tokens"
        f"{scored} per attempt{stopped}"
    )


def length_line(each: Spread) -> str:
    return f"{each.count}, with {each.mean:,.0f} tokens on average, 95% within {each.p95:,.0f}, longest {each.max:,.0f}"
