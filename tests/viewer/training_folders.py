"""Folders of training runs, made up for tests of their pages: reports, configuration and traces as runs write them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from designer.sample import Design
from trainer.config import TrainConfig, to_toml
from trainer.credit import active_roles
from trainer.evaluate import Diversity, Spread
from trainer.run import CONFIG, METRICS, StepReport, SyncReport
from trainer.run.agent_report import AgentReport
from trainer.run.step_report import Timings
from trainer.update import UpdateReport
from workflow.completion import Completion, Sampling, Usage
from workflow.failures import Failure
from workflow.trace import (
    AgentTurn,
    Event,
    Rewarded,
    RewardTerm,
    RunEnded,
    RunStarted,
    ToolCalled,
    event_to_json,
)

STAGE = 5


def config(**values: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "policies": {"designer": {"model": "small/model"}, "executor": {"model": "small/model"}},
        "roles": {"designer": "designer", "executor": "executor"},
        "data": [{"format": "problems", "path": "/tmp/problems.jsonl"}],
        "rollout": {"questions": 2, "designs": 2, "executions": 2},
        "stage_length": STAGE,
        "steps": 20,
    }
    return TrainConfig.model_validate(settings | values)


def report(step: int, *, agents: Sequence[str] = (), **values: Any) -> StepReport:
    """One that has every part."""
    active = sorted(active_roles(step, "stagewise", STAGE))
    wave = 0.5 + 0.3 * math.sin(step / 7)
    update = UpdateReport(
        loss=-0.01 * wave,
        gradient_norm=wave,
        steps=1,
        samples=8,
        computed_samples=6,
        tokens=900,
        ratio_mean=1 + wave / 1000,
        ratio_max=1 + wave,
        clipped=wave / 100,
        kl=wave / 50,
        entropy=wave,
        gap_mean=1e-6 * wave,
        gap_p99=1e-5 * wave,
        gap_max=1e-4 * wave,
        truncated=0.0,
    )
    made: dict[str, Any] = {
        "step": step,
        "active": active,
        "questions": 2,
        "designs": 4,
        "executions": 8,
        "reward": wave,
        "reward_by_role": {"designer": wave, "executor": wave + 0.05},
        "terms": {"correct": wave, "solution format": 0.9, "delivery format": 0.95},
        "correct": wave,
        "solved": min(1.0, wave + 0.2),
        "ready": 0.75,
        "structures": {"single": 0.25, "ensemble": 0.5, "reflection": 0.25},
        "diversity": Diversity(designs=4, agents=9, role_names=3, unique_prompts=0.5, top_names={"Solver": 4}),
        "failures": {"program_failed": 1} if step % 3 == 0 else {},
        "silent": {"designer": 0.25, "executor": 0.5},
        "lengths": {
            "designer": Spread(count=4, mean=80, p95=120, max=130),
            "executor": Spread(count=20, mean=40, p95=90, max=95),
        },
        "usage": {
            "designer": Usage(prompt_tokens=400, completion_tokens=320),
            "executor": Usage(prompt_tokens=900, completion_tokens=800),
        },
        "updates": {active[0]: update},
        "weights": {"designer": step, "executor": step + 1},
        "syncs": {active[0]: SyncReport(version=step + 1, gap=1e-6)},
        "agents": {
            name: AgentReport(replies=10, reward=wave / (place + 1), terms={"team": 0.5}, entropy=1.0, silent=0.25)
            for place, name in enumerate(agents)
        },
        "turns_to_solve": 3.0 if agents else None,
        "timings": Timings(rollout_s=8.0, update_s=4.0 * wave, save_s=0.1, sync_s=0.5, tokens_per_s=90.0),
    }
    return StepReport(**(made | values))


def lines_of(reports: Iterable[StepReport]) -> bytes:
    return b"".join(each.model_dump_json().encode() + b"\n" for each in reports)


def training_folder(folder: Path, reports: Iterable[StepReport], **values: Any) -> Path:
    """Without traces."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(to_toml(config(**values)), encoding="utf-8")
    (folder / METRICS).write_bytes(lines_of(reports))
    return folder


def events(
    question: str = "What is 2 + 3?",
    reward: float | None = 1.4,
    *,
    failure: Failure | None = None,
    tools: int = 0,
    ended: bool = True,
) -> list[Event]:
    """Of one run."""
    made: list[Event] = [RunStarted(run_id="r", question=question, program="pass", engine="stub")]
    completion = Completion(text="5", token_ids=[5], logprobs=[-0.1], usage=Usage(completion_tokens=1))
    made.append(AgentTurn(key="a#0", path="a", agent="Solver", messages=[], sampling=Sampling(), completion=completion))
    made += [ToolCalled(path="a", agent="Solver", name="add", arguments={"type": "tool_call"}) for _ in range(tools)]
    if ended:
        made.append(RunEnded(failure=failure))
    if ended and reward is not None:
        terms = [RewardTerm(name="correct", value=float(reward > 1), weight=1.0, reason="because")]
        made.append(Rewarded(total=reward, terms=terms))
    return made


def write_run(
    folder: Path, step: int, question: int, design: int, execution: int, made: Iterable[Event], torn: str = ""
) -> Path:
    place = folder / "traces" / f"step-{step:06}" / f"question-{question:04}"
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"design-{design:02}-execution-{execution:02}.jsonl"
    path.write_text("".join(event_to_json(each) + "\n" for each in made) + torn, encoding="utf-8")
    return path


def write_design(
    folder: Path,
    step: int,
    question: int,
    design: int,
    message: str | None = None,
    kind: Literal["program_rejected"] = "program_rejected",
) -> Path:
    """One that could not run, if there is a message."""
    place = folder / "traces" / f"step-{step:06}" / f"question-{question:04}"
    place.mkdir(parents=True, exist_ok=True)
    error = None if message is None else Failure(kind=kind, message=message)
    path = place / f"design-{design:02}.json"
    path.write_text(Design(index=design, source="pass", error=error).model_dump_json(indent=1), encoding="utf-8")
    return path
