"""`metaagent label`: problems and a program in, trees of graded runs out, which a model of values learns from.

Trees are `trainer.evaluate.label_trees`' business; `metaagent prm` learns from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.progress import TaskID

from metaagent.commands.eval import may_run
from metaagent.commands.inputs import WithoutMath500, read_tasks, read_text, refuse_math500
from metaagent.commands.options import (
    AsJson,
    CacheFolder,
    EngineSpec,
    MaxTokens,
    SandboxName,
    Seed,
    Temperature,
    TopP,
    validated,
)
from metaagent.commands.recipe_option import Recipe
from metaagent.commands.search_options import Children, CUct, Simulations, Tolerance
from metaagent.opening import open_engine, open_sandbox
from metaagent.terminal import ExitCode, counting_bar, fields, heading, note, print_json, stderr, stdout, usage_error
from search.methods import SearchRefused
from search.problem import TreeDamaged
from tasks import Problem, in_math500
from trainer.evaluate import LabelledTree, LabelSettings, Searcher, label_problems
from workflow.completion import Sampling
from workflow.failures import MetaAgentError

DEFAULTS = LabelSettings()


class Labels(BaseModel):
    """What `--json` prints."""

    folder: Path
    engine: str
    settings: LabelSettings
    problems: int
    kept: int
    """Trees that were there already."""
    edges: int
    """Visited: rows to learn from."""
    nodes: int
    right: float
    """Share of simulations that ended right."""
    left_out: list[str] = []
    """Problems for which the program asks nobody; their trees are empty."""
    anew: list[str] = []
    """Problems whose trees were broken off, could not be gone on with, and were begun anew."""
    wall_s: float


def main(
    tasks: Annotated[
        list[str],
        typer.Argument(metavar="TASK...", help="FORMAT:FILE, such as gsm8k:train.jsonl.", show_default=False),
    ],
    program: Annotated[Path, typer.Option(metavar="PROGRAM.py", help="The program.", exists=True, dir_okay=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Trees go here, a file each; what is there stays.", file_okay=False)
    ],
    engine: EngineSpec = None,
    simulations: Simulations = DEFAULTS.simulations,
    children: Children = DEFAULTS.children,
    c_uct: CUct = DEFAULTS.c_uct,
    tolerance: Tolerance = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N problems of each task.", min=1)] = None,
    without_math500: WithoutMath500 = False,
    max_concurrent: Annotated[int, typer.Option(help="Trees at once.", min=1)] = DEFAULTS.max_concurrent,
    sandbox: SandboxName = None,
    cache: CacheFolder = None,
    seed: Seed = 0,
    temperature: Temperature = DEFAULTS.sampling.temperature,
    top_p: TopP = DEFAULTS.sampling.top_p,
    max_tokens: MaxTokens = DEFAULTS.sampling.max_tokens,
    recipe: Recipe = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Label the states between agents: trees of runs, searched against the gold answers (MASPRM, Alg. 1).

    The same command goes on where one was broken off.
    """
    if not engine:
        usage_error("labels need an engine. Fix: add --engine SPEC (see --help), or set METAAGENT_ENGINE")
    sampling = validated(Sampling, temperature=temperature, top_p=top_p, max_tokens=max_tokens)
    settings = validated(
        LabelSettings,
        simulations=simulations,
        children=children,
        c_uct=c_uct,
        sampling=sampling,
        tolerance=tolerance,
        seed=seed,
        max_concurrent=max_concurrent,
    )
    problems = _not_in_math500(read_tasks(tasks, limit), without_math500)
    if not any(problems.values()):
        usage_error("no problem is left to label. Fix: name tasks with others")
    document = asyncio.run(_label(problems, program, engine, settings, sandbox, cache, out))
    if as_json:
        print_json(document)
        return ExitCode.OK
    heading(stdout(), "Labels")
    fields(
        stdout(),
        [
            ("Trees", f"{document.problems:,}" + (f", {document.kept:,} of them from before" if document.kept else "")),
            ("Left out", f"{len(document.left_out):,}" if document.left_out else ""),
            ("Rows", f"{document.edges:,} visited edges of {document.nodes:,}"),
            ("Right", f"{document.right:.1%} of simulations"),
            ("Engine", document.engine),
            ("Time", f"{document.wall_s:.1f} s"),
            ("Kept in", str(document.folder)),
        ],
    )
    return ExitCode.OK


def _not_in_math500(tasks: Mapping[str, Sequence[Problem]], leave_out: bool) -> dict[str, list[Problem]]:
    found = {problem.id for problems in tasks.values() for problem in in_math500(problems)}
    refuse_math500(found, sum(map(len, tasks.values())), leave_out)
    return {task: [problem for problem in problems if problem.id not in found] for task, problems in tasks.items()}


async def _label(
    problems: Mapping[str, Sequence[Problem]],
    program: Path,
    spec: str,
    settings: LabelSettings,
    sandbox_name: str | None,
    cache: Path | None,
    folder: Path,
) -> Labels:
    source = read_text(program)
    every = [problem for each in problems.values() for problem in each]
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(open_engine(spec, cache))
        sandbox = await stack.enter_async_context(open_sandbox(sandbox_name, grading=True))
        await may_run(str(program), source, sandbox, "--program ")
        searcher = Searcher(
            sandbox=sandbox, limits=settings.limits, sampling=settings.sampling, retries=settings.retries
        )
        bar = stack.enter_context(counting_bar(stderr()))
        task: TaskID = bar.add_task("Labelling", total=len(every))
        done: list[LabelledTree] = []

        def watch(tree: LabelledTree) -> None:
            done.append(tree)
            bar.update(task, advance=1, description=f"Labelling: {_right(done):.1%} right")

        try:
            trees = await label_problems(
                every, source, engine=engine, searcher=searcher, settings=settings, folder=folder, watch=watch
            )
        except (SearchRefused, TreeDamaged, ValueError) as error:
            usage_error(str(error))
        except OSError as error:
            usage_error(f"cannot write to {error.filename or folder}: {error.strerror}")
        except (MetaAgentError, asyncio.CancelledError):
            note(
                f"{len(done)} of {len(every)} trees are done and kept in {folder}: the same command goes on from there"
            )
            raise
        left_out = [tree.problem for tree in trees if tree.left_out]
        anew = [tree.problem for tree in trees if tree.anew]
        if left_out:
            first = next(tree for tree in trees if tree.left_out)
            if len(left_out) == len(trees):
                usage_error(
                    f"the program asks no agent for any of the problems ({first.problem}: {first.left_out}), so there "
                    "is nothing to label. Fix: another program"
                )
            note(
                f"{len(left_out)} of {len(trees)} problems are left out, as the program asks no agent there; the first "
                f"is {first.problem}: {first.left_out}"
            )
        if anew:
            note(
                f"{len(anew)} of {len(trees)} trees were broken off and begun anew, the first is {anew[0]}: code of "
                "the program said something else than before"
            )
        return Labels(
            folder=folder,
            engine=engine.name,
            settings=settings,
            problems=len(trees),
            kept=sum(tree.kept for tree in trees),
            edges=sum(tree.edges for tree in trees),
            nodes=sum(tree.nodes for tree in trees),
            right=_right(trees),
            left_out=left_out,
            anew=anew,
            wall_s=round(bar.tasks[0].elapsed or 0.0, 3),
        )


def _right(trees: Sequence[LabelledTree]) -> float:
    simulations = sum(tree.simulations for tree in trees)
    return sum(tree.right for tree in trees) / simulations if simulations else 0.0
