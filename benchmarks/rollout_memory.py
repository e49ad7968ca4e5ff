"""Memory of a rollout: what runs take while they are under way, and what a step keeps of them until the update.

Real runs of a program with one agent, each in a jail of the process sandbox, all at once; a scripted engine answers, so
that no model is measured. The host's memory is this process's, at its peak over what it was before the first run; the
jails' is the sum over all processes of what is theirs alone (`Private` of smaps_rollup). What is kept is counted by
tracemalloc in a rollout of its own, after a collection. Linux only.

    python -m benchmarks.rollout_memory [--runs 1000] [--prompt 1000] [--completion 1000] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import tracemalloc
from pathlib import Path

from engine.session import Run
from sandbox import ProcessSandbox
from sandbox.protocol import Sandbox
from tasks import Problem
from trainer.config import RolloutConfig
from trainer.rollout import Rollout
from trainer.trees import QuestionTree
from workflow.completion import Completion, CompletionRequest, Usage
from workflow.trace import Rewarded, RewardTerm

PROGRAM = """from workflow import AgentNode, Workflow
workflow = Workflow("one").add_node(AgentNode("Solver", "Solve the problem."))
"""
EXECUTIONS = 8
RESULTS = Path(__file__).parent / "results" / "rollout_memory.json"


class Crowd:
    """An engine that answers nobody before all have asked (or ten minutes have passed), with ids as a model's."""

    name = "crowd"

    def __init__(self, runs: int, prompt: int, completion: int) -> None:
        self._runs, self._prompt, self._completion = runs, prompt, completion
        self._asked = 0
        self._all = asyncio.Event()
        self.host_mb = self.jails_mb = 0.0
        """While all were under way."""

    async def complete(self, request: CompletionRequest) -> Completion:
        self._asked += 1
        if self._asked == self._runs:
            self.host_mb, self.jails_mb = resident_mb(), jails_mb()
            self._all.set()
        await asyncio.wait_for(self._all.wait(), 600)
        first = 1000 * self._asked
        return Completion(
            text="It is 4.",
            prompt_token_ids=[first + place for place in range(self._prompt)],
            token_ids=[first + place for place in range(self._completion)],
            logprobs=[-place / 7 for place in range(self._completion)],
            usage=Usage(prompt_tokens=self._prompt, completion_tokens=self._completion),
            weights_version=0,
        )

    async def close(self) -> None: ...


async def reward(_: Problem, run: Run, __: Sandbox) -> Rewarded:
    reasons = {name: f"it says so in {run.answer_from}'s {name}" for name in ("correct", "solution", "delivery")}
    terms = [RewardTerm(name=name, value=1.0, weight=1.0, reason=reason) for name, reason in reasons.items()]
    return Rewarded(t=run.duration_s, total=3.0, terms=terms)


async def rollout(engine: Crowd, runs: int, sandbox: Sandbox) -> list[QuestionTree]:
    problems = [
        Problem(id=str(n), question=f"What is {n}?", domain="math", gold="4") for n in range(runs // EXECUTIONS)
    ]
    config = RolloutConfig(designs=1, executions=EXECUTIONS, max_concurrent=runs, program=Path("one.py"))
    step = Rollout(config=config, designer=engine, executor=engine, sandbox=sandbox, reward=reward, program=PROGRAM)
    trees = await step.step(problems, 0)
    failed = [run.failure for tree in trees for run in tree.executions if run.failure is not None]
    if failed:
        raise RuntimeError(f"{len(failed)} runs failed, the first by {failed[0]}")
    return trees


async def measure(runs: int, prompt: int, completion: int) -> dict[str, float]:
    async with ProcessSandbox(max_jails=runs) as sandbox:
        await rollout(Crowd(EXECUTIONS, 1, 1), EXECUTIONS, sandbox)  # what is loaded once
        jails_before = jails_mb()
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        trees = await rollout(Crowd(runs, prompt, completion), runs, sandbox)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        tokens = sum(len(t.token_ids) for tree in trees for run in tree.executions for t in run.trajectories)
        del trees
        gc.collect()
        host_before = resident_mb()
        forget_peak()
        engine = Crowd(runs, prompt, completion)
        await rollout(engine, runs, sandbox)
        scale = 1000 / runs
        return {
            "host while all are under way, MB": round((engine.host_mb - host_before) * scale, 1),
            "host at its peak, MB": round((peak_mb() - host_before) * scale, 1),
            "jails while all are under way, MB": round((engine.jails_mb - jails_before) * scale, 1),
            "kept of finished runs, MB": round(kept / 1e6 * scale, 1),
            "kept of finished runs, bytes per token": round(kept / tokens, 1),
        }


def resident_mb() -> float:
    return _status("VmRSS")


def peak_mb() -> float:
    return _status("VmHWM")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1000


def jails_mb(kind: str = "Private") -> float:
    """Private memory of all processes below this one, or another line of smaps_rollup (`Pss` shares out what several
    have)."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
        except OSError:  # ended meanwhile
            continue
    ours = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in ours and child not in ours}:
        ours |= more
    return sum(_memory_mb(process, kind) for process in ours - {os.getpid()})


def _memory_mb(process: int, kind: str) -> float:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith((f"{kind}:", f"{kind}_C", f"{kind}_D"))) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help=f"at once; a multiple of {EXECUTIONS}")
    parser.add_argument("--prompt", type=int, default=1000, help="tokens")
    parser.add_argument("--completion", type=int, default=1000, help="tokens")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    found = asyncio.run(measure(arguments.runs, arguments.prompt, arguments.completion))
    print(f"{arguments.runs} runs of {arguments.prompt} + {arguments.completion} tokens; per 1,000 runs:")
    for name, value in found.items():
        print(f"  {name:42} {value:10,}")
    if arguments.write:
        said = {name: getattr(arguments, name) for name in ("runs", "prompt", "completion")} | {"per 1,000 runs": found}
        RESULTS.write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
