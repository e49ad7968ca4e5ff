r"""`metaagent demo`: the main job on a real problem, without a model.

AIME 2024 I, problem 4: the bank designs for it; then a program written for it runs in the jail, with its agent's
recorded reply in place of a model, and the answer is graded. `lottery.py` is that program, `lottery.replay.jsonl` the
reply; another program whose agent has the same name can take its place.
"""

from __future__ import annotations

from importlib import resources

from rich.console import Console

from designer.check import check_program
from engine.replay import ReplayEngine, ReplayEntry
from metaagent.console import ExitCode, block, code, heading
from metaagent.designing import from_bank, print_design
from metaagent.render import tree
from metaagent.running import RunSettings, open_sandbox, print_findings, print_run, run_checked
from metaagent.transcript import print_transcript

PROBLEM = (
    "Jen enters a lottery by picking 4 distinct numbers from S = {1,2,3,...,9,10}. 4 numbers are randomly chosen from "
    "S. She wins a prize if at least two of her numbers were 2 of the randomly chosen numbers, and wins the grand "
    "prize if all four of her numbers were the randomly chosen numbers. The probability of her winning the grand prize "
    "given that she won a prize is m/n where m and n are relatively prime positive integers. Find m+n."
)
GOLD = "116"
PROGRAM, REPLAY = "lottery.py", "lottery.replay.jsonl"


async def show(console: Console, program: tuple[str, str] | None = None) -> ExitCode:
    """Design, run, trace, grade. `program` is another program's name and source."""
    name, source = program or (PROGRAM, _text(PROGRAM))
    async with open_sandbox(grading=True) as sandbox:
        heading(console, "Problem", "AIME 2024 I, problem 4")
        block(console, PROBLEM)
        heading(console, "1. A program designed for it by the template bank, without a model")
        print_design(console, await from_bank(PROBLEM, sandbox))

        heading(console, "2. A program for it, run in the jail", name)
        code(console, source)
        checked = await check_program(source, sandbox, PROBLEM)
        print_findings(console, name, checked.findings)
        if not checked.ok or checked.graph is None:
            return ExitCode.BAD
        heading(console, "Graph")
        console.print(tree(checked.graph))
        engine = ReplayEngine(_entries())
        settings = RunSettings(gold=GOLD)
        report, run = await run_checked(
            source, PROBLEM, program=name, engine=engine, sandbox=sandbox, settings=settings
        )
        heading(console, "3. What happened", "the agent's reply is a recorded one")
        print_transcript(console, run.trace)
        print_run(console, report, transcribed=True)
        return report.exit_code


def _text(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _entries() -> list[ReplayEntry]:
    return [ReplayEntry.model_validate_json(line) for line in _text(REPLAY).splitlines()]
