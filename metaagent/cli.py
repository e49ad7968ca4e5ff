"""The command line: arguments in, other rooms' work, results out. See `metaagent --help`.

Every command imports what it needs when it runs; what it prints is decided in the modules beside this one.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from metaagent import distill_command, eval_command, sft_command, training
from metaagent.console import (
    EXIT_CODES,
    ExitCode,
    code,
    command,
    note,
    print_json,
    raw,
    stderr,
    stdout,
    usage_error,
)
from metaagent.inputs import read_problem, read_text, write_text
from metaagent.options import (
    AsJson,
    CacheFolder,
    EngineSpec,
    ProblemFile,
    ProblemText,
    ProgramFile,
    SandboxName,
    Seed,
    validated,
)
from workflow.completion import Sampling
from workflow.limits import Limits

LIMITS, SAMPLING = Limits(), Sampling()

app = typer.Typer(
    name="metaagent",
    help="Turn a problem into a multi-agent program, check it, run it safely.\n\n" + EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"metaagent {importlib.metadata.version('metaagent')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


@app.command(epilog=EXIT_CODES)
@command
def design(
    problem: ProblemText = None,
    file: ProblemFile = None,
    engine: EngineSpec = None,
    samples: Annotated[int, typer.Option("--samples", "-m", help="Designs to draw from the engine.", min=1)] = 1,
    style: Annotated[
        Literal["full", "short"], typer.Option(help="Prompt: with templates, or as in training.")
    ] = "full",
    save: Annotated[Path | None, typer.Option("--save", "-o", help="Write the program here.", dir_okay=False)] = None,
    run: Annotated[bool, typer.Option("--run", help="Run the program on the problem; needs an engine.")] = False,
    sandbox: SandboxName = None,
    cache: CacheFolder = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> ExitCode:
    """Write a multi-agent program for a problem.

    Shows why it is built this way, its code and its graph. Without an engine the embedded policy writes it where it
    knows the problem and torch is installed, else the template bank, with no model at all.
    """
    from metaagent import designing, embedded

    text = read_problem(problem, file)
    if not engine and cache is None and embedded.knows(text) and not embedded.missing():
        engine = embedded.SPEC
    if engine == embedded.SPEC:
        if not embedded.knows(text):
            usage_error("the embedded policy knows the small problems of tasks.miniature alone. Fix: another --engine")
        style = "short"  # as it was taught
    if run and not engine:
        usage_error("--run needs an engine. Fix: add --engine SPEC (see --help), or set METAAGENT_ENGINE")
    if cache is not None and not engine:
        usage_error("--cache keeps an engine's replies. Fix: add --engine openai:MODEL@URL, or leave --cache out")
    if samples > 1 and not engine:
        note("the template bank gives one design; --samples needs an engine")
    if save is not None and not save.parent.is_dir():
        usage_error(f"cannot write {save}: there is no folder {save.parent}")
    report = asyncio.run(
        designing.design(
            text,
            engine or None,
            samples=samples,
            style=style,
            run=run,
            seed=seed,
            sandbox_name=sandbox,
            cache=cache,
        )
    )
    if save is not None and report.design is not None:
        write_text(save, report.design.program or "")
        report.saved = str(save)
    if as_json:
        print_json(report)
    else:
        designing.print_report(stdout(), report)
    return report.exit_code


@app.command(epilog=EXIT_CODES)
@command
def run(
    program: ProgramFile,
    problem: ProblemText = None,
    file: ProblemFile = None,
    engine: EngineSpec = None,
    gold: Annotated[str | None, typer.Option(help="Known answer (mathematics) to grade with.")] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write the trace here, line by line while it runs.", dir_okay=False)
    ] = None,
    transcript: Annotated[bool, typer.Option("--transcript", "-t", help="Print the transcript, too.")] = False,
    sandbox: SandboxName = None,
    cache: CacheFolder = None,
    seed: Seed = 0,
    temperature: Annotated[float, typer.Option(help="Sampling temperature.")] = SAMPLING.temperature,
    max_tokens: Annotated[int, typer.Option(help="Longest reply, in tokens.")] = SAMPLING.max_tokens,
    wall_s: Annotated[float, typer.Option(help="Limit: seconds in all.")] = LIMITS.wall_s,
    cpu_s: Annotated[int, typer.Option(help="Limit: CPU seconds of the program.")] = LIMITS.cpu_s,
    memory_mb: Annotated[int, typer.Option(help="Limit: memory of the program, MiB.")] = LIMITS.memory_mb,
    output_bytes: Annotated[int, typer.Option(help="Limit: bytes that it prints.")] = LIMITS.output_bytes,
    agent_calls: Annotated[int, typer.Option(help="Limit: agent calls.")] = LIMITS.agent_calls,
    tokens: Annotated[int, typer.Option(help="Limit: tokens of all agent calls.")] = LIMITS.tokens,
    tool_calls: Annotated[int, typer.Option(help="Limit: tool calls and code runs.")] = LIMITS.tool_calls,
    as_json: AsJson = False,
) -> ExitCode:
    """Check a program, run it in the jail, show its answer.

    Says which agent the answer came from, what it cost, and what went wrong if something did.
    """
    from metaagent import running
    from metaagent.transcript import print_transcript

    text = read_problem(problem, file)
    if not engine:
        usage_error("running needs an engine. Fix: add --engine SPEC (see --help), or set METAAGENT_ENGINE")
    limits = validated(
        Limits,
        wall_s=wall_s,
        cpu_s=cpu_s,
        memory_mb=memory_mb,
        output_bytes=output_bytes,
        agent_calls=agent_calls,
        tokens=tokens,
        tool_calls=tool_calls,
    )
    sampling = validated(Sampling, temperature=temperature, max_tokens=max_tokens)
    settings = running.RunSettings(limits=limits, sampling=sampling, seed=seed, gold=gold, sandbox=sandbox, cache=cache)
    source = read_text(program)
    report, record = asyncio.run(running.run_file(source, text, str(program), engine, settings, trace))
    if as_json:
        print_json(report)
        return report.exit_code
    if transcript and record is not None:
        print_transcript(stdout(), record)
    running.print_run(stdout(), report, transcribed=transcript)
    return report.exit_code


@app.command(epilog=EXIT_CODES)
@command
def check(
    programs: Annotated[
        list[Path],
        typer.Argument(metavar="PROGRAM.py...", help="The programs.", exists=True, dir_okay=False, readable=True),
    ],
    as_json: AsJson = False,
) -> ExitCode:
    """Check programs without asking any agent.

    Prints one finding per line, with its fix.
    """
    from metaagent import running

    sources = {str(path): read_text(path) for path in programs}
    reports = asyncio.run(running.check_all(sources))
    if as_json:
        print_json({"ok": all(report.ok for report in reports.values()), "programs": reports})
    else:
        for name, report in reports.items():
            running.print_findings(stdout(), name, report.findings)
        bad = sum(not report.ok for report in reports.values())
        counted = "1 program" if len(reports) == 1 else f"{len(reports)} programs"
        stderr().print(f"{counted} checked: " + (f"{bad} may not run" if bad else "all may run"))
    return ExitCode.OK if all(report.ok for report in reports.values()) else ExitCode.BAD


@app.command(epilog=EXIT_CODES)
@command
def show(
    program: ProgramFile,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid text instead of a tree.")] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Show the graph of a program's workflow.

    The workflow is built in a jail; no agent is asked.
    """
    from metaagent import render, running

    described = asyncio.run(running.describe(read_text(program)))
    if as_json:
        print_json(described)
    elif described.graph is None:
        running.print_findings(stderr(), str(program), described.findings)
    elif mermaid:
        raw(stdout(), render.mermaid(described.graph))
    else:
        stdout().print(render.tree(described.graph, described.unreachable))
    return ExitCode.BAD if described.graph is None else ExitCode.OK


@app.command(epilog=EXIT_CODES)
@command
def templates(
    name: Annotated[str | None, typer.Argument(help="Print this template's source.", show_default=False)] = None,
    as_json: AsJson = False,
) -> ExitCode:
    """List the template bank, or print one template."""
    from metaagent.bank import print_templates
    from templates import get_template, load_templates

    if name is None:
        bank = load_templates()
        if as_json:
            print_json({"templates": bank})
        else:
            print_templates(stdout(), bank)
        return ExitCode.OK
    try:
        template = get_template(name)
    except ValueError as error:
        usage_error(str(error))
    if as_json:
        print_json(template)
    else:
        code(stdout(), template.source)
    return ExitCode.OK


@app.command(epilog=EXIT_CODES)
@command
def doctor(
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what killed processes left: containers, temporary folders.")
    ] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """See what works on this machine, and how to mend the rest.

    Looks at Python, extras, engines, Docker and GPU, and tries forbidden actions in a real jail.
    """
    from metaagent import doctor as examination

    if clean:
        from metaagent import containers

        cleaned = containers.clean(examination.COMMAND_SECONDS)
        if as_json:
            print_json(cleaned)
        else:
            containers.print_cleaned(stdout(), cleaned)
        return containers.cleaned_exit_code(cleaned)
    diagnosis = asyncio.run(examination.diagnose())
    if as_json:
        print_json(diagnosis)
    else:
        examination.print_diagnosis(stdout(), diagnosis)
    return examination.exit_code(diagnosis)


@app.command(epilog=EXIT_CODES)
@command
def trace(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace.", exists=True, dir_okay=False, readable=True)],
    full: Annotated[bool, typer.Option("--full", help="Show prompts and replies in full.")] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Print the transcript of one run from its trace."""
    from metaagent import transcript

    read = transcript.read_trace(file)
    if as_json:
        print_json(transcript.trace_document(read))
        return ExitCode.OK
    transcript.print_transcript(stdout(), read.trace, full=full)
    if read.torn:
        note("the last line was cut short and is left out")
    if read.trace.ended is None:
        note("the trace has no end: the run was killed, or is still going on")
    return ExitCode.OK


@app.command(epilog=EXIT_CODES)
@command
def demo(
    program: Annotated[
        Path | None,
        typer.Option(
            help="Run this program instead; its one agent must be named MathSolver.",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
) -> ExitCode:
    """Show the main job on a real problem, without a model.

    Design, graph, run, trace, grade; the agent's reply is a recorded one.
    """
    from metaagent import demo as demonstration

    source = None if program is None else (str(program), read_text(program))
    return asyncio.run(demonstration.show(stdout(), source))


app.command(epilog=EXIT_CODES)(command(training.train))
app.command("eval", epilog=EXIT_CODES)(command(eval_command.evaluate))
app.command(epilog=EXIT_CODES)(command(distill_command.distill))
app.command(epilog=EXIT_CODES)(command(sft_command.sft))


if __name__ == "__main__":
    app()
