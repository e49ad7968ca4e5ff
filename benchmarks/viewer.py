"""How long a viewer of a folder of traces takes to open, and how much memory.

Traces are small but real: a few runs of a program with three agents, by a stub engine in the process sandbox, written
again and again with other questions, answers, rewards and, one in fifty, cut or failed. Each figure is of a process of
its own, from the import to the page:

- cold: no index. The first page is there while the index is being filled; then the whole list;
- again: with the index, and nothing changed: the first page, and until the folder has been looked through;
- search: two words in 100,000 rows, a filter with an order, and the last page;
- run and tree: the page of one run, where `viewer.run.run_page` is there, and of one question;
- memory: the largest resident size of the process that filled the index, in MB.

    python -m benchmarks.viewer [--traces 1000 100000] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sandbox import ProcessSandbox
from tasks import MATH_WORKER, Problem
from trainer.credit import paper_reward
from workflow.completion import Completion, CompletionRequest, Usage
from workflow.failures import ProgramFailed
from workflow.trace import Answered, Event, Rewarded, RunEnded, RunStarted, event_to_json

RESULTS = Path(__file__).parent / "results" / "viewer.json"
SIZES = (1_000, 100_000)
ROUNDS = 3
PER_QUESTION = 16
"""Runs of a question, as 4 designs and 4 executions; 16 questions are a step."""
PROGRAM = """from workflow import AgentNode, EnsembleNode, Workflow
solvers = [AgentNode(f"Solver{i}", "Put the answer in \\\\boxed{}.", max_turns=1) for i in range(3)]
workflow = Workflow("w").add_node(EnsembleNode("Vote", solvers))
"""
CONFIG = """data = [{ format = "problems", path = "problems.jsonl", share = 1.0 }]
[policies.p0]
model = "model"
"""
Figures = dict[str, float]


class Sums:
    """Says a sum, right or wrong by the seed. Tokens are bytes."""

    name = "sums"

    async def complete(self, request: CompletionRequest) -> Completion:
        answer = 40 + (request.sampling.seed or 0) % 3
        ids = list(f"First 19 + 23, then the tens. So it is \\boxed{{{answer}}}.".encode())
        prompt = list("\n".join(message["content"] for message in request.messages or []).encode())
        return Completion(
            text=bytes(ids).decode(),
            token_ids=ids,
            prompt_token_ids=prompt,
            logprobs=[-0.25] * len(ids),
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids)),
        )

    async def close(self) -> None: ...


async def runs(count: int) -> list[list[Event]]:
    """The events of some runs, with their rewards."""
    problem = Problem(id="sum", question="What is 19 + 23?", domain="math", gold="42")
    made: list[list[Event]] = []
    async with ProcessSandbox(preload=(MATH_WORKER,)) as sandbox:
        for seed in range(count):
            run = await sandbox.run_program(PROGRAM, problem.question, engine=Sums(), seed=seed)
            made.append([*run.trace.events, await paper_reward(problem, run, sandbox)])
    return made


def write(folder: Path, count: int) -> None:
    """`count` traces, in the folders of a training run."""
    dice = random.Random(0)
    made = asyncio.run(runs(12))
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    middles = [b"".join(event_to_json(each).encode() + b"\n" for each in events[1:] if _stays(each)) for events in made]
    for number in range(count):
        question, run = divmod(number, PER_QUESTION)
        place = folder / "traces" / f"step-{question // 16:06}" / f"question-{question % 16:04}"
        if run == 0:
            place.mkdir(parents=True)
        kind = number % len(made)
        started, ended, reward = (
            next(e for e in made[kind] if isinstance(e, k)) for k in (RunStarted, RunEnded, Rewarded)
        )
        begin = replace(started, run_id=f"{number:016x}", question=f"What is {question} + {dice.randrange(10_000)}?")
        last: list[Event] = [
            Answered(t=1, text=f"\\boxed{{{dice.randrange(10_000)}}}", from_agent="Solver0"),
            ended,
            reward,
        ]
        if number % 50 == 7:
            error = ProgramFailed("ValueError", f"no such thing: {dice.randrange(20)}").record()
            last = [replace(ended, failure=error), replace(reward, total=0.0)]
        data = event_to_json(begin).encode() + b"\n" + middles[kind]
        data += b"".join(event_to_json(each).encode() + b"\n" for each in last)
        file = place / f"design-{run // 4:02}-execution-{run % 4:02}.jsonl"
        file.write_bytes(data[:-200] if number % 1000 == 500 else data)


def _stays(event: Event) -> bool:
    return not isinstance(event, (Answered, RunEnded, Rewarded))


def look(folder: Path, what: str) -> Figures:
    """Figures of one process, this one: `cold`, `again` or `pages`."""
    began = time.perf_counter()
    from viewer.runs import RunsSite

    imported = time.perf_counter()
    site = RunsSite(folder)
    first = site.page("list")
    figures: Figures = {}
    shown = time.perf_counter()
    while what == "cold" and '<li class="item">' not in first.body:
        time.sleep(0.01)
        first = site.page("list")
    if what != "pages":
        figures["import, s"] = imported - began
        figures["first page, s"] = shown - imported
        figures["first page with traces, s"] = time.perf_counter() - imported
    site.index.wait()
    if what != "pages":
        figures["whole list, s"] = time.perf_counter() - imported
    if what == "pages":
        place = sorted((folder / "traces").iterdir())[0].name
        routes = {
            "list": "list",
            "search for two words": "list?q=what+99",
            "search with an order": "list?correct=no&order=longest",
            "last page": "list?order=path&page=1000000",
            "failures": "list?failure=program_failed",
            "tree": f"tree/traces/{place}/question-0000",
        }
        if importlib.util.find_spec("viewer.run.run_page") is not None:
            routes["run"] = f"run/traces/{place}/question-0000/design-00-execution-00.jsonl"
        for name, route in routes.items():
            took = []
            for _ in range(5):
                at = time.perf_counter()
                site.page(route)
                took.append(time.perf_counter() - at)
            figures[f"{name}, ms"] = 1000 * sorted(took)[2]
    site.close()
    figures["memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def measured(folder: Path, cache: Path, what: str) -> Figures:
    command = [sys.executable, "-m", "benchmarks.viewer", "--look", what, "--folder", str(folder)]
    done = subprocess.run(
        command, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(done.stdout)


def median(rounds: Sequence[Figures]) -> Figures:
    return {name: sorted(each[name] for each in rounds)[len(rounds) // 2] for name in rounds[0]}


def measure(count: int) -> dict[str, Figures]:
    with tempfile.TemporaryDirectory() as given:
        folder, cache = Path(given) / "run", Path(given) / "cache"
        folder.mkdir()
        began = time.perf_counter()
        write(folder, count)
        files = {"traces": float(count), "MB": sum(each.stat().st_size for each in folder.rglob("*.jsonl")) / 1e6}
        print(f"{count:,} traces, {files['MB']:.0f} MB, written in {time.perf_counter() - began:.0f} s", flush=True)
        cold = []
        for number in range(ROUNDS):
            cold.append(measured(folder, cache / str(number), "cold"))
        index = next((cache / "0").rglob("*.sqlite"))
        files["index, MB"] = index.stat().st_size / 1e6
        again = [measured(folder, cache / "0", "again") for _ in range(ROUNDS)]
        return {
            "files": files,
            "cold": median(cold),
            "again": median(again),
            "pages": measured(folder, cache / "0", "pages"),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--look", choices=("cold", "again", "pages"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.look:
        print(json.dumps(look(given.folder, given.look)))
        return
    found = {f"{count:,} traces": measure(count) for count in given.traces}
    for name, parts in found.items():
        print(name)
        for part, figures in parts.items():
            print(f"  {part}: " + ", ".join(f"{what} {figure:.4g}" for what, figure in figures.items()))
    if given.write:
        machine = f"Python {platform.python_version()}, Linux {platform.release()}, {os.cpu_count()} cores"
        before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**before, "machine": machine, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
