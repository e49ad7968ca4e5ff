"""What is on record about a run as a whole: by whom it was run, with which seed and limits, and what it used.

Names and values for a page; the sums are `workflow.usage`'s.
"""

from __future__ import annotations

from viewer.html import count, figure, seconds
from viewer.run.turn_rows import same_sampling
from workflow.trace import RunStarted, Trace
from workflow.usage import Tally, usage_report


def facts_of(trace: Trace) -> list[tuple[str, str]]:
    """Names and values; what is not on record is left out."""
    started, ended = trace.started, trace.ended
    total = usage_report([trace]).total
    turns = trace.agent_turns
    facts = _of_start(started) if started is not None else []
    models = sorted({turn.completion.model for turn in turns if turn.completion is not None and turn.completion.model})
    versions = {turn.completion.weights_version for turn in turns if turn.completion is not None}
    told = ", ".join(count(version) for version in sorted(each for each in versions if each is not None)[:5])
    facts += [("model", ", ".join(models[:5]))] if models else []
    facts += [("weights", f"version {told}")] if told else []
    facts.append(("agent calls", calls_in_words(total)))
    facts += [("tokens", tokens_in_words(total))] if total.usage.total_tokens else []
    facts += [("cost", f"${total.usage.cost_usd:.4f}")] if total.usage.cost_usd is not None else []
    if total.cache_hits + total.cache_misses:
        asked = total.cache_hits + total.cache_misses
        facts.append(
            (
                "reply cache",
                f"{total.cache_hits:,} of {asked:,} replies, {count(total.hit_tokens)} tokens not paid again",
            )
        )
    facts += [("time", seconds(ended.t))] if ended is not None else []
    sampling = same_sampling(turns)
    facts += [("sampling", f"{sampling}; seeds by call")] if sampling else []
    return facts


def _of_start(started: RunStarted) -> list[tuple[str, str]]:
    limits = started.limits
    told = [
        ("engine", started.engine),
        ("sandbox", started.jail or "none: the run was in its host's own process"),
        ("seed", str(started.seed) if abs(started.seed) < 10**18 else count(started.seed)),
        ("run", started.run_id),
    ]
    limited = (
        f"{count(limits.agent_calls)} agent calls, {count(limits.tokens)} tokens, {count(limits.tool_calls)} tool calls"
        f" and code runs, {figure(limits.wall_s)} s, {count(limits.memory_mb)} MiB"
    )
    return [*told, ("limits", limited)]


def calls_in_words(tally: Tally) -> str:
    return f"{tally.calls:,}" + (f", {tally.failed:,} without a reply" if tally.failed else "")


def tokens_in_words(tally: Tally) -> str:
    usage = tally.usage
    prefix = f" ({count(usage.prefix_tokens)} of a known prefix)" if usage.prefix_tokens else ""
    return f"{count(usage.prompt_tokens)} in prompts{prefix}, {count(usage.completion_tokens)} in replies"
