"""What the steps of a run asked for, from their reports: lengths, agents per run, what was learned from.

Counts and means; seconds are `trainer.predict.fit`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from trainer.config import TrainConfig
from trainer.credit import ROLES
from trainer.predict.workload import Lengths, Requests, Workload, assumed_workload
from trainer.run import StepReport
from workflow.completion import Usage
from workflow.usage import PolicyRole


def observed(config: TrainConfig, reports: Sequence[StepReport]) -> Workload:
    """What these steps were like, in the mean over trajectories, runs and designs."""
    assumed = assumed_workload(config)
    given = config.rollout.program is not None
    designs = sum(report.designs for report in reports)
    ready = sum(report.ready * report.designs for report in reports)
    ran = ready * config.rollout.executions
    played = sum(report.lengths["executor"].count for report in reports if "executor" in report.lengths)
    agents = max(1.0, played / ran) if ran else assumed.per_run
    return Workload(
        designer=None if given else _requests("designer", reports, assumed.designer),
        executor=_requests("executor", reports, assumed.executor) or assumed.executor,
        per_run=agents,
        rounds=_rounds(reports, agents),
        ready=ready / designs if designs else assumed.ready,
    )


def devices(config: TrainConfig, reports: Sequence[StepReport]) -> set[str]:
    """What the policies of a run were on, `cpu` or `cuda`, as its steps or its configuration say; `auto` where neither
    does."""
    if config.cluster.layout != "one-process":
        return {"cuda" if config.cluster.gpus_per_node else "cpu"}
    found: set[str] = set()
    for name, policy in config.policies.items():
        there = {report.syncs[name].device for report in reports if name in report.syncs}
        found |= {device for device in there if device} or {policy.device}
    return found


def _requests(role: PolicyRole, reports: Sequence[StepReport], assumed: Requests | None) -> Requests | None:
    there = [report for report in reports if role in report.lengths]
    count = sum(report.lengths[role].count for report in there)
    if not count:
        return assumed
    spreads = [report.lengths[role] for report in there]
    mean = sum(each.mean * each.count for each in spreads) / count
    prompts = sum(usage_of(report, role).prompt_tokens for report in there)
    return Requests(
        reply=Lengths(
            mean=max(1.0, mean),
            p95=median(each.p95 for each in spreads),
            longest=max(1.0, *(each.max for each in spreads)),
        ),
        prompt=prompts / count,
        fresh=_fresh(there),
        learned=_learned(role, there, assumed),
    )


def usage_of(report: StepReport, role: PolicyRole) -> Usage:
    return report.usage.get(role, Usage())


def _fresh(reports: Sequence[StepReport]) -> float:
    """Prompts that had to be read, among all; engines do not say of which role."""
    read = sum(usage_of(report, role).prompt_tokens for report in reports for role in ROLES)
    known = sum(report.timings.prefix_tokens or 0 for report in reports)
    return min(1.0, max(0.0, 1 - known / read)) if read else 1.0


def _learned(role: PolicyRole, reports: Sequence[StepReport], assumed: Requests | None) -> float:
    updates = [update for report in reports if role in report.active for update in report.updates.values()]
    samples = sum(update.samples for update in updates)
    if not samples:
        return assumed.learned if assumed else 1.0
    return min(1.0, sum(update.computed_samples for update in updates) / samples)


def _rounds(reports: Sequence[StepReport], agents: float) -> float:
    """Ensembles and debates ask their agents side by side, all others one after another."""
    beside = fmean(
        sum(share for name, share in report.structures.items() if name in ("single", "ensemble", "debate"))
        for report in reports
    )
    return max(1.0, beside + (1 - beside) * agents)
