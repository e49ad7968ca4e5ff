"""Samples designs from a Designer policy: ask, extract the program, check it, let the policy repair it once.

A design that is no good comes back as data with its findings. Nothing here runs a design on its problem, compares
designs or rewards them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from designer.check import CheckReport, check_reply
from designer.prompts import design_messages, repair_messages, short_design_messages
from engine.guarded import completed_within
from engine.protocol import Engine
from engine.session import call_seed
from sandbox.protocol import Sandbox
from templates import Template, load_templates
from workflow.completion import ChatMessage, Completion, CompletionRequest, Sampling, Usage
from workflow.failures import EngineFailed, Failure, Finding, LimitExceeded, ProgramRejected
from workflow.graph import GraphNode
from workflow.limits import Limits


class DesignTurn(BaseModel):
    """One request to the Designer policy, with the sampling actually used, and what it answered."""

    model_config = ConfigDict(frozen=True)

    request: CompletionRequest
    completion: Completion


class Design(BaseModel):
    """One sampled design. Everything about the program is that of the last turn."""

    model_config = ConfigDict(frozen=True)

    index: int
    """Which of the M samples this is, from 0."""
    turns: list[DesignTurn] = []
    """The first reply and, after a repair round, the second."""
    source: str | None = None
    findings: list[Finding] = []
    graph: GraphNode | None = None
    error: Failure | None = None
    """Why the program may not run: `program_rejected`, or `engine_failed` when the policy could not be asked."""

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def messages(self) -> list[ChatMessage]:
        """The whole conversation, ending with the last reply."""
        if not self.turns:
            return []
        last = self.turns[-1]
        return [*(last.request.messages or []), ChatMessage(role="assistant", content=last.completion.text)]

    @property
    def replies(self) -> list[str]:
        return [turn.completion.text for turn in self.turns]

    @property
    def repaired(self) -> bool:
        """Whether the check failed at first, and what it found was fed back."""
        return len(self.turns) > 1

    @property
    def usage(self) -> Usage:
        return Usage.total(turn.completion.usage for turn in self.turns)


async def sample_designs(
    problem: str,
    engine: Engine,
    sandbox: Sandbox,
    *,
    m: int = 1,
    sampling: Sampling | None = None,
    style: Literal["full", "short"] = "full",
    templates: Sequence[Template] | None = None,
    k: int = 3,
    repair: bool = True,
    seed: int = 0,
    reply_s: float = Limits().reply_s,
    finished: Callable[[Design], None] = lambda _: None,
) -> list[Design]:
    """M designs for one problem, sampled concurrently from one prompt, ordered by index.

    The `full` prompt shows `k` of the `templates` (by default of the whole bank); the `short` one shows none. Every
    call has a seed of its own, drawn from `seed`; `sampling.seed` is not used. `finished` is told of each design as
    soon as it is done. A rejected program whose repair is too long for the model stays rejected. Raises `EngineFailed`
    if the policy could not be asked for any of them, or did not reply within `reply_s` seconds, `LimitExceeded` if the
    prompt is too long for the model, and `SandboxUnavailable` if they cannot be checked.
    """
    if m < 1:
        raise ValueError(f"m={m}: ask for at least one design")
    if style == "short":
        prompt = short_design_messages(problem)
    else:
        prompt = design_messages(problem, load_templates() if templates is None else templates, k, seed=seed)
    sampler = _Sampler(problem, prompt, engine, sandbox, sampling or Sampling(), repair, seed, reply_s)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(sampler.design(index, finished)) for index in range(m)]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # the first one; the group has stopped the other samples
    outcomes = [task.result() for task in tasks]
    unasked = [failure for _, failure in outcomes if failure is not None]
    if len(unasked) == m:
        raise unasked[0]
    return [design for design, _ in outcomes]


async def sample_design(
    problem: str,
    engine: Engine,
    sandbox: Sandbox,
    *,
    reply_s: float,
    sampling: Sampling | None = None,
    style: Literal["full", "short"] = "full",
    templates: Sequence[Template] | None = None,
    k: int = 3,
    repair: bool = True,
    seed: int = 0,
) -> Design:
    """One design, as `sample_designs` makes it. Where the prompt is too long for the model, its `error` says so."""
    try:
        (design,) = await sample_designs(
            problem,
            engine,
            sandbox,
            sampling=sampling,
            style=style,
            templates=templates,
            k=k,
            repair=repair,
            seed=seed,
            reply_s=reply_s,
        )
    except LimitExceeded as outgrown:
        return Design(index=0, error=outgrown.record())
    return design


class _Sampler:
    """What all samples of one problem share."""

    def __init__(
        self,
        problem: str,
        prompt: list[ChatMessage],
        engine: Engine,
        sandbox: Sandbox,
        sampling: Sampling,
        repair: bool,
        seed: int,
        reply_s: float,
    ) -> None:
        self.problem = problem
        self.prompt = prompt
        self.engine = engine
        self.sandbox = sandbox
        self.sampling = sampling
        self.repair = repair
        self.seed = seed
        self.reply_s = reply_s

    async def design(self, index: int, finished: Callable[[Design], None]) -> tuple[Design, EngineFailed | None]:
        """One design, and the failure of the engine if that ended it."""
        turns: list[DesignTurn] = []
        source: str | None = None
        report = CheckReport()
        messages = self.prompt
        for number in range(2 if self.repair else 1):
            try:
                turn = await self._ask(messages, f"designer/{index}/{number}")
            except EngineFailed as failure:
                failed = Design(
                    index=index,
                    turns=turns,
                    source=source,
                    findings=report.findings,
                    graph=report.graph,
                    error=failure.record(),
                )
                finished(failed)
                return failed, failure
            except LimitExceeded:
                if not turns:
                    raise
                break  # the repair does not fit the model: the first try stands as it is
            turns.append(turn)
            reply = turn.completion
            source, report = await check_reply(reply.text, self.sandbox, self.problem, _cut_off(reply))
            if report.ok:
                break
            messages = repair_messages(messages, turn.completion.text, report.findings)
        rejected = (
            None if report.ok else ProgramRejected([f for f in report.findings if f.severity == "error"]).record()
        )
        design = Design(
            index=index, turns=turns, source=source, findings=report.findings, graph=report.graph, error=rejected
        )
        finished(design)
        return design, None

    async def _ask(self, messages: list[ChatMessage], key: str) -> DesignTurn:
        sampling = self.sampling.with_seed(call_seed(self.seed, key))
        request = CompletionRequest(messages=messages, sampling=sampling, agent="designer", key=key)
        completion = await completed_within(self.engine, request, self.reply_s)
        return DesignTurn(request=request, completion=completion)


def _cut_off(reply: Completion) -> str:
    """How a reply ended that is as long as it may be; empty for others."""
    if reply.finish_reason != "length":
        return ""
    thinking = " while thinking" if reply.reasoning and not reply.text.strip() else ""
    return f"the reply was cut off{thinking}: it is as long as max_tokens allows, and holds no program"
