"""Label trees of many problems into a folder: `trees/PROBLEM.jsonl`, each gone on with where a kill broke it off.

One tree is `trainer.evaluate.searched`'s business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from engine.protocol import Engine, GivesOnce
from search.methods import AsksNobody, MctsSettings
from search.problem import NodeLine, TreeUnsteady, read_lines, read_tree
from tasks.problems import Problem
from trainer.disk import agree, check_ids, made_by_engine, only_writer
from trainer.evaluate.attempts import LABELS, SETTINGS, TREES, file_name, refuse_other
from trainer.evaluate.searched import Searcher
from trainer.rollout import derived_seed, first_failure
from workflow.completion import Sampling
from workflow.limits import Limits


class LabelSettings(BaseModel):
    """How trees are grown; defaults are those of MASPRM, Appendix B.4 and C.3."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    simulations: int = Field(default=40, ge=1)
    children: int = Field(default=3, ge=1)
    c_uct: float = Field(default=4.0, ge=0, allow_inf_nan=False)
    sampling: Sampling = Sampling(temperature=0.7, top_p=0.95, max_tokens=1024)
    tolerance: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """See `tasks.Problem`; None is the graders' own."""
    limits: Limits = Limits()
    seed: int = Field(default=0, ge=0)
    max_concurrent: int = Field(default=16, ge=1)
    retries: int = Field(default=3, ge=0)

    @property
    def mcts(self) -> MctsSettings:
        return MctsSettings(simulations=self.simulations, children=self.children, c_uct=self.c_uct)


class LabelledTree(BaseModel):
    """One problem's tree, in figures."""

    problem: str
    file: Path
    nodes: int
    edges: int
    """Visited: rows for a model of values."""
    simulations: int
    right: int
    """Simulations that ended right."""
    kept: bool
    """Whether it was there already."""
    anew: bool = False
    """Whether one that was broken off could not be gone on with (`TreeUnsteady`), and was begun anew."""
    left_out: str = ""
    """Where the program asks nobody for this problem, so that there is nothing to label: how it ended."""


async def label_problems(
    problems: Sequence[Problem],
    program: str,
    *,
    engine: Engine,
    searcher: Searcher,
    settings: LabelSettings,
    folder: Path,
    watch: Callable[[LabelledTree], None] = lambda _: None,
) -> list[LabelledTree]:
    """A tree per problem, in their order; at most `max_concurrent` grow at once, and none depends on the others. A
    problem for which the program asks nobody has a tree without a reply, and is known by it the next time.

    Raises `EngineFailed` and `SandboxUnavailable` when retries did not help, `TreeDamaged`, OSError, and ValueError for
    problems with equal ids and for a folder of other labels. What was written stays.
    """
    check_ids(problems)
    problems = [problem.within(settings.tolerance) for problem in problems]
    trees = folder / TREES
    done: dict[str, LabelledTree] = {}
    with only_writer(folder):
        refuse_other(folder, SETTINGS)
        trees.mkdir(exist_ok=True)
        made_by = {
            "program": program,
            **made_by_engine("engine", engine),
            **settings.model_dump(mode="json", exclude={"max_concurrent", "retries"}),
        }
        agree(folder / LABELS, made_by, begun=any(trees.iterdir()))
        if isinstance(engine, GivesOnce):
            _pass_over(engine, [*(trees / f"{file_name(problem.id)}.jsonl" for problem in problems), *trees.iterdir()])
        waiting = iter(problems)

        async def work() -> None:
            for problem in waiting:  # shared by all workers
                file = trees / f"{file_name(problem.id)}.jsonl"
                seed = derived_seed(settings.seed, problem.id, "labels")
                kept = searcher.is_labelled(problem, program, settings.mcts, engine=engine, seed=seed, tree=file)
                grow = partial(searcher.label, problem, program, settings.mcts, engine=engine, seed=seed, tree=file)
                anew = False
                if not kept:
                    with suppress(AsksNobody):
                        try:
                            await grow()
                        except TreeUnsteady:
                            anew = True
                            file.unlink()
                            await grow()
                done[problem.id] = _in_figures(problem, file, kept, anew)
                watch(done[problem.id])

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(settings.max_concurrent, len(problems))):
                    group.create_task(work())
        except ExceptionGroup as failures:
            raise first_failure(failures) from None
    return [done[problem.id] for problem in problems]


def _pass_over(engine: GivesOnce, trees: Sequence[Path]) -> None:
    """Replies that trees hold were given before, in their order."""
    for path in dict.fromkeys(path for path in trees if path.is_file()):
        for line in read_lines(path)[0]:
            if isinstance(line, NodeLine) and line.completion is not None:
                engine.was_given(line.key, line.agent, line.completion)


def _in_figures(problem: Problem, file: Path, kept: bool, anew: bool) -> LabelledTree:
    record = read_tree(file)
    end = record.root.end
    return LabelledTree(
        problem=problem.id,
        file=file,
        nodes=len(record.nodes) - 1,
        edges=sum(node.visits > 0 for node in record.nodes.values()),
        simulations=len(record.simulations),
        right=sum(line.value > 0 for line in record.simulations),
        kept=kept,
        anew=anew,
        left_out="" if end is None else AsksNobody(end.failure, end.answer).why,
    )
