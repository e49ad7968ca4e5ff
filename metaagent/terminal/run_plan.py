"""The dry run's figures: policies, what GPUs hold, what a step is predicted to take, data.

How they are shown; they are worked out in `trainer.run.planning` and predicted by `trainer.predict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from metaagent.terminal.console import block, fields, heading, print_table

if TYPE_CHECKING:
    from trainer.predict import Prediction
    from trainer.run import ClusterNeeds, GpuNeeds, Memory, Plan, PolicyNeeds, PolicyPlan, SamplePlan, SourcePlan

STAGES_SHOWN = 6


def print_plan(console: Console, planned: Plan, predicted: Mapping[str, Prediction] | None = None) -> None:
    """One block per policy, one for each kind of GPU of a cluster with what is `predicted` on it, one for the steps,
    one for the data. What the figures mean is said in `trainer.run.planning`."""
    for policy in planned.policies:
        heading(console, f"Policy {policy.name}", " and ".join([*policy.roles, *policy.agents]))
        fields(console, _policy(policy, alone=not planned.cluster))
    for needs in planned.cluster:
        _print_needs(console, needs, (predicted or {}).get(needs.gpu))
    heading(console, "Each step")
    tokens = planned.tokens
    at_most = tokens.designer_at_most + tokens.executor_at_most
    single = tokens.designer_at_most + tokens.executor_single_turn
    fields(
        console,
        [
            ("Designs", f"{planned.designs_per_step:,}"),
            ("Runs", f"{planned.runs_per_step:,}"),
            ("Samples", "" if planned.samples is None else _samples(planned.samples, planned.runs_per_step)),
            (
                "Tokens at most",
                f"{at_most:,}; to design {tokens.designer_at_most:,}, in runs {tokens.executor_at_most:,}",
            ),
            ("With one agent call per run", f"{single:,} at most, of these {tokens.generated_single_turn:,} generated"),
        ],
    )
    heading(console, "All steps")
    stages = [f"{' and '.join(stage.roles)} {stage.steps}" for stage in planned.stages]
    more = [f"... ({len(stages)} stages)"] if len(stages) > STAGES_SHOWN else []
    disk = "unknown" if planned.disk_bytes is None else shown_size(planned.disk_bytes)
    steps = f"{sum(stage.steps for stage in planned.stages):,}"
    if planned.generated_tokens is not None:
        steps += f" at most; fewer once {planned.generated_tokens:,} tokens are generated"
    memory = "unknown" if planned.device_bytes is None else f"about {shown_size(planned.device_bytes)} on one device"
    fields(
        console,
        [
            ("Steps", steps),
            ("Stages", ", ".join(stages[:STAGES_SHOWN] + more)),
            ("Memory", "" if planned.cluster else memory),
            ("Disk", f"{disk} for {planned.checkpoints} checkpoints at once"),
            (
                "Traces",
                f"about {shown_size(planned.trace_bytes)} for {planned.traces:,} steps with one agent call per run",
            ),
        ],
    )
    heading(console, "Data")
    fields(console, [(source.name, _source(source)) for source in planned.sources])


def _samples(samples: SamplePlan, runs: int) -> str:
    agents = f" x {samples.agents} agents" if samples.agents else ""
    per_agent = "" if samples.agents else " per agent"
    factors = f"{runs:,} runs{agents} x {samples.turns} turns x {samples.candidates} candidates"
    return f"{samples.at_most:,}{per_agent} at most: {factors}"


def _policy(policy: PolicyPlan, alone: bool) -> list[tuple[str, str]]:
    if policy.unknown is not None or policy.memory is None:
        return [("Model", policy.model), ("Size", policy.unknown or "")]
    request = shown_size(policy.cache_bytes_per_request)
    trained = "all learn" if policy.trained == policy.parameters else f"{policy.trained:,} in adapters learn"
    on_one = [("Memory", f"about {shown_size(policy.memory.total)} on one device, and the engine's cache")]
    return [
        ("Model", policy.model),
        ("Parameters", f"{policy.parameters:,}, {trained}"),
        *([*on_one, *_memory(policy.memory)] if alone else []),
        (
            "Engine's cache",
            f"{shown_size(policy.cache_bytes_per_token)} per token, {request} per request of full length",
        ),
        ("Checkpoint", shown_size(policy.checkpoint_bytes)),
    ]


PARTS = {
    "weights": "weights",
    "masters": "float32 copies of them",
    "gradients": "gradients",
    "moments": "AdamW's moments",
    "reference": "reference policy",
    "gathered": "other ranks' weights",
    "buckets": "gradients on their way",
    "activations": "activations",
    "logits": "logits",
    "engine_weights": "the engine's weights",
    "engine_cache": "its cache",
    "engine_workspace": "its workspace",
    "incoming": "new weights on their way",
}


def _memory(memory: Memory) -> list[tuple[str, str]]:
    figures = memory.model_dump()
    return [(f"  {shown}", shown_size(figures[name])) for name, shown in PARTS.items() if figures[name]]


def _print_needs(console: Console, needs: ClusterNeeds, predicted: Prediction | None) -> None:
    """What each GPU holds in each phase; without GPUs, each process."""
    if needs.gpu_bytes:
        heading(console, f"On {needs.gpu} GPUs", f"{needs.gpu_bytes / 10**9:.0f} GB each")
    else:
        heading(console, "On CPUs", "each process")
    for policy in needs.policies:
        for each in policy.gpus:
            print_table(console, [f"{policy.name}: {each.count} x {each.holds}", *each.phases], _phases(each))
    fields(console, [pair for policy in needs.policies for pair in _carried(policy)])
    if needs.gpu_bytes:
        fields(console, [("Fits", "yes" if not needs.lacking else "no")])
        for each in needs.lacking:
            block(console, each)
    if predicted is not None:
        fields(console, prediction_fields(predicted))


def _phases(each: GpuNeeds) -> list[list[str]]:
    phases = [memory.model_dump() for memory in each.phases.values()]
    rows = [
        [shown, *(shown_size(phase[name]) if phase[name] else "-" for phase in phases)]
        for name, shown in PARTS.items()
        if any(phase[name] for phase in phases)
    ]
    return [*rows, ["all", *(shown_size(memory.total) for memory in each.phases.values())]]


def _carried(policy: PolicyNeeds) -> list[tuple[str, str]]:
    cached = f"{policy.cached_tokens:,} tokens, {policy.cached_requests:.1f} requests of full length"
    received = "" if policy.received_bytes == policy.sync_bytes else f", {shown_size(policy.received_bytes)} received"
    return [
        (f"{policy.name}: an engine's cache", cached if policy.cached_tokens else ""),
        (f"{policy.name}: a sync", f"{shown_size(policy.sync_bytes)} sent{received}"),
        (f"{policy.name}: hosts' memory", shown_size(policy.host_bytes) if policy.host_bytes else ""),
    ]


def prediction_fields(predicted: Prediction) -> list[tuple[str, str]]:
    """Predicted seconds and idle shares of a step."""
    turns = f", GPUs changing hands {shown_seconds(predicted.turn_s)}" if predicted.turn_s else ""
    parts = (
        f"{shown_seconds(predicted.step_s)}: rollout {shown_seconds(predicted.rollout_s)}, update "
        f"{shown_seconds(predicted.update_s)}, sync {shown_seconds(predicted.sync_s)}{turns}"
    )
    idle = ", ".join(f"{pool.replace('_', ' ')} {share:.0%}" for pool, share in predicted.idle.items())
    return [
        ("Predicted step", parts),
        ("Predicted idle", idle),
        ("Predicted in all", f"{_shown_duration(predicted.total_s)}, {predicted.failures:.2g} failures of processes"),
    ]


def shown_seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:,.0f} s"


def _shown_duration(seconds: float) -> str:
    if seconds < 60:
        return shown_seconds(seconds)
    return f"{seconds / 60:.3g} min" if seconds < 3600 else f"{seconds / 3600:,.1f} h"


def _source(source: SourcePlan) -> str:
    if source.unknown is not None:
        return f"{source.per_step} per step; {source.unknown}"
    return f"{source.per_step} per step of {source.problems:,} problems: {source.epochs:.3g} epochs"


def shown_size(count: int | None) -> str:
    """A number of bytes in the unit that suits it."""
    size, unit = float(count or 0), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.1f} {unit}"
