"""What a change costs: runs per second of this tree and of another one, in turns, in one run.

    git worktree add ../before REVISION
    python -m benchmarks.before_after ../before [--rounds 15] [--seconds 2]

Each tree has a process of its own, with its sandboxes warm; one rests while the other is measured. Prints the median
over all rounds of (this tree / the other) with the quartiles. Measures what both trees' `benchmarks.sandbox` and
`benchmarks.overhead` offer, and no containers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

CLIENTS = 2
ANSWER_S = 120.0
SERVE = """
import asyncio, gc, json, sys, time
from benchmarks.overhead import FixedEngine, QUESTION, ensemble_with_judge
from benchmarks.sandbox import code, program
from engine import run_workflow
from sandbox import ProcessSandbox

async def measured(run, clients, seconds):
    end, count, start = time.perf_counter() + seconds, 0, time.perf_counter()
    async def client():
        nonlocal count
        while time.perf_counter() < end:
            await run()
            count += 1
    await asyncio.gather(*(client() for _ in range(clients)))
    return count / (time.perf_counter() - start)

async def main():
    workflow, engine = ensemble_with_judge(), FixedEngine()
    rows = {"driver, four calls": lambda: run_workflow(workflow, QUESTION, engine)}
    missing = {}
    for mode in ("j", "j0"):
        sandbox = ProcessSandbox(mode=mode)
        try:
            await sandbox.strength()
        except Exception as error:
            missing[mode] = str(error)
            continue
        rows[f"process/{mode}, code"], rows[f"process/{mode}, programs"] = code(sandbox), program(sandbox)
    for run in rows.values():
        await measured(run, 2, 1)
    gc.freeze()
    print(json.dumps([list(rows), missing]), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, clients, seconds = json.loads(line)
        print(json.dumps(await measured(rows[name], clients, seconds)), flush=True)

asyncio.run(main())
"""
"""Runs in the folder of a tree, whose modules it finds first."""


async def started(tree: Path) -> Process:
    environment = os.environ | {"PYTHONPATH": str(tree.resolve())}  # for its zygotes, too
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, stdin=PIPE, stdout=PIPE, cwd=tree, env=environment
    )


async def said(process: Process, asked: object = None) -> Any:
    """What a tree's process says next, once it has been asked."""
    assert process.stdin is not None
    assert process.stdout is not None
    if asked is not None:
        process.stdin.write(f"{json.dumps(asked)}\n".encode())
    line = await asyncio.wait_for(process.stdout.readline(), ANSWER_S)
    if not line:
        raise SystemExit("a tree's process has ended (see above): does it have benchmarks/sandbox.py and overhead.py?")
    return json.loads(line)


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", type=Path, help="folder of the other tree, a git worktree for instance")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    options = parser.parse_args()
    console = Console()
    trees = [await started(tree) for tree in (options.before, Path(__file__).parents[1])]
    try:
        (names, missing), (others, _) = [await said(tree) for tree in trees]
        for mode, why in missing.items():
            console.print(f"process/{mode} is left out: {why}")
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in names if name in others}
        with Progress(console=console, transient=True) as progress:
            for _ in progress.track(range(options.rounds)):
                for name, pairs in rates.items():
                    rate = [0.0, 0.0]
                    for place in random.sample((0, 1), 2):
                        rate[place] = await said(trees[place], [name, CLIENTS, options.seconds])
                    pairs.append((rate[0], rate[1]))
    finally:
        for tree in trees:
            tree.kill()
            await tree.wait()
    table = Table("", "before, runs/s", "after, runs/s", "after / before", title=f"{CLIENTS} clients, medians")
    for name, pairs in rates.items():
        before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
        low, middle, high = statistics.quantiles([new / old for old, new in pairs], n=4)
        table.add_row(name, f"{before:.0f}", f"{after:.0f}", f"{middle:.2f} ({low:.2f} to {high:.2f})")
    console.print(table)


if __name__ == "__main__":
    asyncio.run(main())
