"""`metaagent search`: a program and a question in, the best of many runs out, with what it cost.

How searches go is `search`'s business; problems of a file are searched as `metaagent eval` attempts them.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, cast

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from metaagent.commands.eval import evaluated, may_run
from metaagent.commands.eval_report import print_evaluation
from metaagent.commands.inputs import read_problem, read_tasks, read_text
from metaagent.commands.options import (
    AsJson,
    CacheFolder,
    EngineSpec,
    MaxTokens,
    ProblemFile,
    ProblemText,
    ProgramFile,
    SandboxName,
    Seed,
    Temperature,
    TopP,
    validated,
)
from metaagent.commands.outputs import TRACE, TREE, check_apart, check_output
from metaagent.commands.recipe_option import Recipe, from_recipe
from metaagent.commands.run import check_gold, final_answer
from metaagent.commands.run_notes import void_tokens
from metaagent.commands.search_options import (
    DEFAULTS,
    Beam,
    CallBudget,
    Children,
    CUct,
    First,
    Method,
    Mix,
    Orm,
    Parallel,
    Prm,
    Samples,
    Simulations,
    StopAt,
    TokenBudget,
    Tolerance,
    WallBudget,
    Weights,
    opened_models,
    search_settings,
)
from metaagent.opening import open_engine, open_sandbox
from metaagent.terminal import (
    FAILURE_CODES,
    ExitCode,
    LiveProgress,
    fields,
    heading,
    note,
    print_json,
    print_table,
    stdout,
    usage_error,
)
from search.methods import SearchRefused
from search.problem import SearchReport, SearchSettings
from tasks import Problem
from trainer.evaluate import EvalSettings, LabelSettings, Searcher
from workflow import answers
from workflow.completion import Sampling
from workflow.failures import FailureKind
from workflow.limits import Limits

SAMPLING = LabelSettings().sampling


class Search(BaseModel):
    """What `--json` prints for one question."""

    program: str
    engine: str
    settings: SearchSettings
    report: SearchReport
    message: str | None = None
    """What the chosen run ended with."""
    notes: list[str] = []
    trace: str | None = None
    tree: str | None = None


def main(
    ctx: typer.Context,
    program: ProgramFile,
    problem: ProblemText = None,
    file: ProblemFile = None,
    problems: Annotated[
        list[str] | None,
        typer.Option("--problems", metavar="FORMAT:FILE", help="Search for every problem of a file, in place of one."),
    ] = None,
    engine: EngineSpec = None,
    method: Method = None,
    prm: Prm = None,
    orm: Orm = None,
    beam: Beam = DEFAULTS.beam,
    samples: Samples = DEFAULTS.samples,
    first: First = False,
    simulations: Simulations = DEFAULTS.simulations,
    children: Children = DEFAULTS.children,
    c_uct: CUct = DEFAULTS.c_uct,
    mix: Mix = DEFAULTS.mix,
    stop: StopAt = DEFAULTS.stop,
    parallel: Parallel = DEFAULTS.parallel,
    weights: Weights = DEFAULTS.weights,
    agent_calls: CallBudget = None,
    tokens: TokenBudget = None,
    wall: WallBudget = None,
    tolerance: Tolerance = None,
    gold: Annotated[str | None, typer.Option(help="Known answer (mathematics) to grade with.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the chosen run's trace here.", dir_okay=False)] = None,
    tree: Annotated[Path | None, typer.Option(help="Write the tree here.", dir_okay=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="With --problems: keep all here; what is there is not done again.", file_okay=False
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="With --problems: only the first N of each.", min=1)] = None,
    max_concurrent: Annotated[int, typer.Option(help="With --problems: searches at once.", min=1)] = 16,
    sandbox: SandboxName = None,
    cache: CacheFolder = None,
    seed: Seed = 0,
    temperature: Temperature = SAMPLING.temperature,
    top_p: TopP = SAMPLING.top_p,
    max_tokens: MaxTokens = SAMPLING.max_tokens,
    recipe: Recipe = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Search over a program's runs for the best answer to a problem.

    The run parts at each agent's call: a beam or a tree of replies is followed, guided by a model of values (MASPRM) or
    by the policy's likelihood; or several runs vote. Defaults are the paper's.
    """
    if not engine:
        usage_error("a search needs an engine. Fix: add --engine SPEC (see --help), or set METAAGENT_ENGINE")
    settings = search_settings(
        method,
        beam=beam,
        samples=samples,
        first=first,
        simulations=simulations,
        children=children,
        c_uct=c_uct,
        mix=mix,
        stop=stop,
        parallel=parallel,
        weights=weights,
        agent_calls=agent_calls,
        tokens=tokens,
        wall_s=wall,
    )
    sampling = validated(Sampling, temperature=temperature, top_p=top_p, max_tokens=max_tokens)
    made = validated(
        EvalSettings,
        k=1,
        seed=seed,
        sampling=sampling,
        designer_sampling=sampling,
        max_concurrent=max_concurrent,
        tolerance=tolerance,
        search=settings,
    )
    if problems and not ((problem or file) and from_recipe(ctx, "problems")):
        wrong = [name for name, value in (("--gold", gold), ("--trace", trace), ("--tree", tree)) if value is not None]
        if problem is not None or file is not None or wrong:
            usage_error(f"{wrong[0] if wrong else 'a problem'} goes with one problem, and --problems has its own")
        document = evaluated(
            read_tasks(problems, limit),
            engine,
            str(program),
            made,
            sandbox_name=sandbox,
            cache=cache,
            folder=out,
            models=(prm, orm),
        )
        print_json(document) if as_json else print_evaluation(stdout(), document)
        return ExitCode.OK
    if out is not None or limit is not None:
        usage_error("--out and --limit go with --problems. Fix: --trace and --tree keep what one search found")
    check_apart(trace=trace, tree=tree)
    for path, kind in ((trace, TRACE), (tree, TREE)):
        if path is not None:
            check_output(path, kind)
    # Nothing reads the gold answer where there is none.
    asked = Problem(id="problem", question=read_problem(problem, file), domain="math", gold=gold or "none")
    asked = asked.within(made.tolerance)
    found = asyncio.run(
        _search(program, asked, engine, settings, sampling, gold, prm, orm, trace, tree, sandbox, cache, seed)
    )
    print_json(found) if as_json else _print(stdout(), found, gold)
    return _exit_code(found.report)


async def _search(
    program: Path,
    asked: Problem,
    spec: str,
    settings: SearchSettings,
    sampling: Sampling,
    gold: str | None,
    prm: str | None,
    orm: Path | None,
    trace: Path | None,
    tree: Path | None,
    sandbox_name: str | None,
    cache: Path | None,
    seed: int,
) -> Search:
    source = read_text(program)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(open_engine(spec, cache))
        sandbox = await stack.enter_async_context(open_sandbox(sandbox_name, grading=gold is not None))
        progress = stack.enter_context(LiveProgress("Searching"))
        if gold is not None:
            await check_gold(gold, sandbox)
        agents = await may_run(str(program), source, sandbox)
        models = await stack.enter_async_context(opened_models(prm, orm, agents))
        searcher = Searcher(
            sandbox=sandbox,
            limits=Limits(),
            sampling=sampling,
            prm=models[0],
            orm=models[1],
            graded=gold is not None,
            spares=True,
            # What is graded is read as it is graded, also for votes; without a gold answer all of a message may be one.
            read_answer=answers.final_answer if gold is not None else lambda message, _: final_answer(message),
        )
        stack.enter_context(progress.watching(engine))
        try:
            report, run = await searcher.search(
                asked, source, settings, engine=engine, seed=seed, trace=trace, tree=tree
            )
        except SearchRefused as error:
            usage_error(str(error))
        kept = [None if path is None else str(path) for path in (trace if report.path else None, tree)]
        return Search(
            program=str(program),
            engine=engine.name,
            settings=settings,
            report=report,
            message=None if run is None else run.answer,
            notes=void_tokens(settings.tokens, report.agent_calls, report.generated_tokens),
            trace=kept[0],
            tree=kept[1],
        )


def _exit_code(report: SearchReport) -> ExitCode:
    if report.failure is not None:
        return FAILURE_CODES[cast(FailureKind, report.failure)]
    return ExitCode.BAD if report.answer is None or report.correct is False else ExitCode.OK


def _print(console: Console, found: Search, gold: str | None) -> None:
    report = found.report
    heading(console, "The chosen path")
    rows = [
        (
            str(number),
            each.agent,
            _figure(each.value),
            _figure(each.q),
            str(each.visits) if each.visits else "",
            str(each.siblings),
        )
        for number, each in enumerate(report.path, 1)
    ]
    print_table(console, ("", "agent", report.guide or "value", "Q", "N", "drawn"), rows)
    heading(console, "Result")
    graded = "" if report.correct is None else f"{report.verdict} (gold {gold})"
    fields(
        console,
        [
            ("Failed", Text((report.failure or "").replace("_", " "), style="red")),
            ("Answer", Text(report.answer or final_answer(found.message) or "", style="bold green")),
            ("Graded", Text(graded, style="green" if report.correct else "red")),
            ("Method", f"{report.method}{f', guided by {report.guide}' if report.guide else ''}"),
            ("Agent calls", f"{report.agent_calls:,}, {report.nodes:,} of them different"),
            ("Scored", f"{report.scored:,} states, {report.scored_tokens:,} tokens" if report.scored else ""),
            ("Tokens", f"{report.prompt_tokens:,} + {report.generated_tokens:,}"),
            ("Time", f"{report.seconds:.2f} s"),
            ("Engine", found.engine),
            ("Trace", found.trace or ""),
            ("Tree", found.tree or ""),
        ],
    )
    if report.stopped_by:
        option = {"agent_calls": "--agent-calls", "tokens": "--tokens", "wall_s": "--wall"}[report.stopped_by]
        best = "this is the best that had ended" if report.path else "no run had ended"
        note(f"{option} ended the search: {best}")
    for each in found.notes:
        note(each)
    if report.parallel > 1:
        note(f"{report.parallel} simulations at a time do not make the tree that one at a time makes")


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
