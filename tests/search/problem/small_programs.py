"""Workflows of the host's own, made of a word, and searches over them into files. No jail: many fit in a test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from player import Player, WordScorer

from engine.session import Run
from search import Branching, OpenRuns, trusted
from search.methods import MctsSettings, Node
from search.problem import (
    Found,
    ProgramSpace,
    SearchSettings,
    TreeHeader,
    TreeWriter,
    grow_labels,
    guide_of,
    label_header_settings,
    search,
)
from workflow import AgentNode, EnsembleNode, ReflectionNode, Workflow
from workflow.completion import CompletionRequest, Sampling
from workflow.limits import Limits


def workflow_of(shape: str) -> Workflow:
    """A stage for each letter: `a` an agent, `e` two beside each other, `r` a loop that a critic may leave."""
    made = Workflow("w")
    for number, letter in enumerate(shape):
        one = AgentNode(f"A{number}", "Say.", max_turns=1)
        if letter == "e":
            made.add_node(EnsembleNode(f"E{number}", [one, AgentNode(f"B{number}", "Say.", max_turns=1)]))
        elif letter == "r":
            made.add_node(ReflectionNode(f"R{number}", one, 1, "Check.", AgentNode("Critic", "Verdict?", max_turns=1)))
        else:
            made.add_node(one)
    return made


def short_word(request: CompletionRequest) -> str:
    """Few different ones, so that siblings are equal now and then."""
    dice = random.Random(repr((request.messages, request.sampling.seed)))
    if request.agent == "Critic":
        return f"Verdict: {dice.choice(['CORRECT', 'INCORRECT'])}"
    return f"\\boxed{{{dice.choice('45')}}}"


async def is_four(run: Run) -> tuple[float, str, bool]:
    return (1.0, "correct", False) if run.answer and "4" in run.answer else (0.0, "wrong", False)


def space_of(
    shape: str,
    engine: Player,
    *,
    seed: int = 0,
    most: int = 64,
    limits: Limits | None = None,
    writer: TreeWriter | None = None,
    sampling: Sampling | None = None,
    retries: int = 0,
) -> ProgramSpace:
    sampling = sampling or Sampling(logprobs=True)
    program = trusted(workflow_of(shape), "What is 2 + 2?", limits=limits, seed=seed, sampling=sampling)
    branching = Branching(program, open_runs=OpenRuns(most))
    recorded = None if writer is None else writer.recorded
    return ProgramSpace(branching, engine, is_four, retries=retries, recorded=recorded)


def header(settings: Any, shape: str, seed: int = 0) -> TreeHeader:
    return TreeHeader(
        settings={**settings, "seed": seed},
        problem="p/4",
        problem_digest="d",
        question="What is 2 + 2?",
        domain="math",
        program=shape,
        engine="player",
    )


class Watched(TreeWriter):
    """Keeps the nodes that it is told of."""

    def __init__(self, path: Path, about: TreeHeader, *, goes_on: bool = False) -> None:
        super().__init__(path, about, goes_on=goes_on)
        self.live: dict[int, Node] = {}

    def drawn(self, node: Node) -> None:
        self.live[node.id] = node
        super().drawn(node)


def labelled(
    shape: str, settings: MctsSettings, path: Path, engine: Player, *, seed: int = 0, most: int = 64
) -> dict[int, Node]:
    """Grow labels, or go on with those in the file."""

    async def go() -> dict[int, Node]:
        writer = Watched(path, header(label_header_settings(settings), shape, seed), goes_on=True)
        try:
            space = space_of(shape, engine, seed=seed, most=most, writer=writer)
            try:
                await grow_labels(space, settings, writer)
            finally:
                await space.close()
        finally:
            writer.close()
        return writer.live

    return asyncio.run(asyncio.wait_for(go(), 60))


def searched_for(
    shape: str, settings: SearchSettings, path: Path, engine: Player, *, prm: Any = None, orm: bool = False, **more: Any
) -> tuple[Found, dict[int, Node]]:
    async def go() -> tuple[Found, dict[int, Node]]:
        space = space_of(shape, engine, **more)
        writer = Watched(path, header(settings.model_dump(mode="json"), shape))
        try:
            guide, outcomes = guide_of(settings, prm, WordScorer() if orm else None, "What is 2 + 2?", space)
            return await search(space, settings, guide, outcomes, writer), writer.live
        finally:
            await space.close()
            writer.close()

    return asyncio.run(asyncio.wait_for(go(), 60))


def lines_of(path: Path) -> Sequence[bytes]:
    return path.read_bytes().splitlines(keepends=True)
