"""What is run again and again, always the same way: a program in the sandbox, or a workflow of the host's own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from engine import run_workflow
from engine.protocol import Engine
from engine.session import Run
from sandbox import Sandbox
from workflow.completion import Sampling
from workflow.game import Game
from workflow.graph import describe
from workflow.limits import Limits
from workflow.nodes import WorkflowNode


@dataclass(frozen=True, slots=True)
class Program:
    digest: str
    """Hexadecimal, of all that its state depends on beside the replies: text, question, seed, who sets the sampling,
    where its game begins."""
    seed: int
    reply_s: float
    """Seconds that a reply may take (`Limits.reply_s`)."""
    at_once: int | None
    """Runs that the sandbox has jails for."""
    run: Callable[[Engine], Coroutine[Any, Any, Run]]
    """From its start, with this engine."""


def jailed(
    sandbox: Sandbox,
    source: str,
    question: str,
    *,
    limits: Limits | None = None,
    sampling: Sampling | None = None,
    seed: int = 0,
    own_sampling: bool = False,
    game: Game | None = None,
) -> Program:
    """A program in the sandbox; arguments are those of `Sandbox.run_program`. Each run that is held takes a jail, so
    that all pools of `OpenRuns` together may have as many as the sandbox has (`max_jails`)."""
    limits = limits or Limits()

    async def run(engine: Engine) -> Run:
        return await sandbox.run_program(
            source,
            question,
            engine=engine,
            limits=limits,
            sampling=sampling,
            seed=seed,
            own_sampling=own_sampling,
            game=game,
        )

    return Program(_digest(source, question, seed, own_sampling, game), seed, limits.reply_s, sandbox.max_jails, run)


def trusted(
    workflow: WorkflowNode,
    question: str,
    *,
    limits: Limits | None = None,
    sampling: Sampling | None = None,
    seed: int = 0,
    game: Game | None = None,
) -> Program:
    """A workflow of this process, whose nodes keep nothing from one run to the next; two of one structure count as one
    program. Nothing is jailed."""
    limits = limits or Limits()

    async def run(engine: Engine) -> Run:
        return await run_workflow(workflow, question, engine, limits=limits, sampling=sampling, seed=seed, game=game)

    digest = _digest(describe(workflow).model_dump_json(), question, seed, True, game)
    return Program(digest, seed, limits.reply_s, None, run)


def _digest(text: str, question: str, seed: int, own_sampling: bool, game: Game | None) -> str:
    said = repr((text, question, seed, own_sampling, None if game is None else game.digest))
    return hashlib.blake2b(said.encode(errors="replace"), digest_size=16).hexdigest()
