"""What tree sampling costs (reaching a decision again, holding runs, prompts of candidates, updates), and brings.

Side by side in one run; ratios count. Programs run in jails of the process sandbox, a game is played by agents that
move at random, and prompts are read by a random model of the Qwen3 architecture, so that nothing is said of any model.

- replay: to a decision behind 8 replies in a fresh jail, and to the first decision of the same program;
- step: a training step of tree sampling with the embedded policy, rollout and update, with 1 and with 64 runs that may
  wait, and the share of time that paths take which are run again;
- memory: of the jails of runs that wait (shared pages shared out), and of the host;
- candidates: prompt tokens that the engine computes for 4 replies to one prompt, asked for together, and apart;
- update: seconds with prompts computed once for all samples that begin with them, and anew for each; prompts are 8
  times as long as replies;
- credit: samples whose advantage is not 0, per thousand completion tokens and per second, with a tree whose replies are
  scored turn by turn, or at the end, and with 4 parallel runs rewarded at their end (`agent-turn`).

    python -m benchmarks.branching [--only replay] [--rounds 100] [--write]

The embedded policy, candidates and update need `pip install "metaagent[train]"`; without it they are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import platform
import statistics
import tempfile
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.rollout_memory import jails_mb, resident_mb
from engine import Engine, Run
from metaagent.embedded import FOLDER, open_embedded
from sandbox import ProcessSandbox, Sandbox
from search import Branching, Decision, OpenRuns, jailed
from tasks import MATH_WORKER, Problem
from tasks.data import mixed
from tasks.environments import PlanPathKnobs, generate
from trainer.config import RolloutConfig
from trainer.credit import RuleName, paper_reward, samples_by_policy, turn_reward
from trainer.rollout import Rollout
from trainer.trees import QuestionTree
from workflow.completion import ChatMessage, Completion, CompletionRequest, Sampling, Usage
from workflow.trace import Rewarded
from workflow.usage import PolicyRole

TURNS = 8
FIRST = "first decision, ms"
BEHIND = f"behind {TURNS} replies, ms"
CHAIN = f"""from workflow import AgentNode, Workflow
agent = AgentNode("Agent", "Go on.", max_turns=1)
text = question
for _ in range({TURNS + 1}):
    text = Workflow("w").add_node(agent).run(text).content
answer = text
"""
VOTE = """from workflow import AgentNode, EnsembleNode, Workflow
solvers = [AgentNode(f"Solver{i}", "Put the answer in \\\\boxed{}.", max_turns=1) for i in range(4)]
workflow = Workflow("w").add_node(EnsembleNode("Vote", solvers))
"""
PLAYS = """from workflow import AgentNode, Workflow
seen = environment.observe("Mover")
while not seen.done:
    reply = Workflow("w").add_node(AgentNode("Mover", "Write moves.", max_turns=1)).run(seen.text)
    seen = environment.act("Mover", reply)
answer = seen.text
"""
RESULTS = Path(__file__).parent / "results" / "branching.json"
POLICY: dict[PolicyRole, str] = {"designer": "p0", "executor": "p0"}
Figures = dict[str, float]
PARTS = ("replay", "memory", "credit", "step", "candidates", "update")
NEED_TORCH = ("step", "candidates", "update")


class Scripted:
    """Says one of a few things, by the request's seed. Tokens are bytes."""

    name = "scripted"

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self.tokens = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        await asyncio.sleep(0)
        ids = list(self._texts[(request.sampling.seed or 0) % len(self._texts)].encode())
        prompt = list("\n".join(str(message["content"]) for message in request.messages or []).encode())
        self.tokens += len(ids)
        return Completion(
            text=bytes(ids).decode(),
            token_ids=ids,
            prompt_token_ids=prompt,
            logprobs=[-0.5] * len(ids),
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids)),
            weights_version=0,
        )

    async def close(self) -> None: ...


class Counted(ProcessSandbox):
    """Notes how many replies there are already for each program that it runs."""

    def __init__(self) -> None:
        super().__init__(preload=(MATH_WORKER,))
        self.replies: list[int] = []

    async def run_program(self, *given: Any, **options: Any) -> Run:
        self.replies.append(len(options["engine"].path.decisions))
        return await super().run_program(*given, **options)


async def replay(rounds: int) -> Figures:
    """Milliseconds to the first decision, and to the one behind `TURNS` replies."""
    async with ProcessSandbox() as sandbox:
        asked = jailed(sandbox, CHAIN, "?", limits=RolloutConfig().limits)
        there = Branching(asked)
        path = await there.start()
        for turn in range(TURNS):
            assert isinstance(path, Decision)
            path = await there.go_on(path, Completion(text=f"reply {turn}"))
        assert isinstance(path, Decision)
        await there.close()
        seconds: dict[str, list[float]] = {"first": [], "replayed": []}
        for _ in range(rounds):
            for name in seconds:
                fresh = Branching(asked)
                began = time.perf_counter()
                await (fresh.start() if name == "first" else fresh.at(path.path))
                seconds[name].append(time.perf_counter() - began)
                await fresh.close()
    first, replayed = (statistics.median(each) * 1000 for each in seconds.values())
    return {FIRST: first, BEHIND: replayed, "ratio": replayed / first}


async def grown(
    sandbox: Sandbox, engine: Engine, program: str, given: list[Problem], **rollout: Any
) -> tuple[list[QuestionTree], float]:
    """The trees of a step, and its seconds."""
    config = RolloutConfig.model_validate({"designs": 1, "retries": 0, **rollout})

    async def reward(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
        return await paper_reward(problem, run, sandbox)

    step = Rollout(
        config=config, designer=engine, executor=engine, sandbox=sandbox, reward=reward, program=program,
        turn_reward=turn_reward if config.branching and config.branching.score == "turn" else None,
        single_turns="branching" not in rollout,
    )  # fmt: skip
    began = time.perf_counter()
    return await step.step(given, 0), time.perf_counter() - began


async def step(times: Figures) -> Figures:
    """Seconds of a step with 1 and with 64 runs that may wait, and the share of them until runs that are begun anew
    are where they were, by the times of `replay`: of the rollout, and of all of the step."""
    from trainer.update import PolicyObjective, TorchBackend

    backend = TorchBackend(FOLDER / "executor", learning_rate=1e-6, device="cpu")
    first, behind = times[FIRST], times[BEHIND]
    given = mixed(4, seed=3)
    figures: Figures = {}
    async with Counted() as sandbox:
        engine = open_embedded()
        await grown(sandbox, engine, VOTE, given[:1], executions=1, branching={"candidates": 2, "turns": 1})
        for most in (1, 64, 1, 64):
            branches = {"candidates": 4, "turns": 1, "max_open": most}
            sandbox.replies.clear()
            trees, seconds = await grown(sandbox, engine, VOTE, given, executions=1, branching=branches)
            began = time.perf_counter()
            backend.update(samples_by_policy(trees, "at-grpo", POLICY, ["executor"])["p0"], PolicyObjective())
            updated = time.perf_counter() - began
            anew = [replies for replies in sandbox.replies if replies]
            lost = sum(first + (behind - first) * replies / TURNS for replies in anew) / 1000
            figures[f"{most} may wait, rollout, seconds"] = seconds
            figures[f"{most} may wait, update, seconds"] = updated
            figures[f"{most} may wait, runs begun anew"] = len(anew)
            figures[f"{most} may wait, share of replay in the rollout"] = lost / seconds
            figures[f"{most} may wait, share of replay in the step"] = lost / (seconds + updated)
        await engine.close()
    return figures


async def memory() -> Figures:
    """Megabytes of a search that holds 64 runs, and of one that holds 1."""
    figures: Figures = {}
    for most in (1, 64):
        async with ProcessSandbox() as sandbox:
            warm = Branching(jailed(sandbox, CHAIN, "?", limits=RolloutConfig().limits))
            await warm.start()
            await warm.close()
            await asyncio.sleep(0.5)  # for what is being killed
            gc.collect()
            jails, host = jails_mb("Pss"), resident_mb()
            runs = OpenRuns(most)
            trees = [
                Branching(jailed(sandbox, CHAIN, f"{number}?", limits=RolloutConfig().limits), open_runs=runs)
                for number in range(64)
            ]
            for tree in trees:
                await tree.start()
            figures[f"{most} may wait, jails, MB"] = jails_mb("Pss") - jails
            figures[f"{most} may wait, host, MB"] = resident_mb() - host
            for tree in trees:
                await tree.close()
    return figures


async def candidates(folder: Path) -> Figures:
    """Prompt tokens that an engine computes for 4 candidates of one prompt, as its usage says, of those that it would
    compute for each by itself."""
    from engine.local import TransformersEngine
    from engine.vllm import VLLMEngine

    engines: dict[str, Engine] = {"transformers": TransformersEngine(str(folder), dtype="float32")}
    if importlib.util.find_spec("vllm") is not None:
        engines["vllm"] = VLLMEngine(str(folder), options={"dtype": "float32"})
    figures: Figures = {}
    for name, engine in engines.items():
        said: list[Completion] = []
        for prompt in range(4):
            asked = [
                CompletionRequest(
                    messages=[ChatMessage(role="user", content=f"{prompt} " * 900)],
                    sampling=Sampling(seed=number, max_tokens=8, logprobs=True),
                )
                for number in range(4)
            ]
            said += await asyncio.gather(*map(engine.complete, asked))
        await engine.close()
        tokens = sum(each.usage.prompt_tokens for each in said)
        computed = tokens - sum(each.usage.prefix_tokens or 0 for each in said)
        figures |= {f"{name}, apart": tokens, f"{name}, together": computed, f"{name}, ratio": computed / tokens}
    return figures


def update(folder: Path, rounds: int = 5) -> Figures:
    """Seconds of an update of 16 groups of 4 samples with prompts of 512 tokens and replies of 64."""
    from trainer.samples import Sample
    from trainer.update import PolicyObjective, TorchBackend

    prompt, reply = 512, 64
    samples = [
        Sample(
            policy="p0",
            token_ids=array("i", [(7 * group + place) % 200 for place in range(prompt)] + [number] * reply),
            loss_mask=array("b", [0] * prompt + [1] * reply),
            behaviour_logprobs=array("f", [0.0] * prompt + [-5.0] * reply),
            advantage=1.5 - number,
            group=str(group),
        )
        for group in range(16)
        for number in range(4)
    ]
    backends = {name: TorchBackend(folder, learning_rate=1e-6, device="cpu", shared_prompts=name == "shared")
                for name in ("shared", "anew")}  # fmt: skip
    seconds: dict[str, list[float]] = {name: [] for name in backends}
    for number in range(rounds + 1):
        for name, backend in backends.items():
            began = time.perf_counter()
            backend.update(samples, PolicyObjective())
            if number:  # the first one warms up
                seconds[name].append(time.perf_counter() - began)
    shared, anew = (statistics.median(each) for each in seconds.values())
    return {"shared, s": shared, "anew, s": anew, "ratio": anew / shared}


async def credit() -> Figures:
    """Credited samples of trees and of parallel runs on the same levels."""
    levels = generate(PlanPathKnobs(size=(4, 4), most_distance=4), 24, seed=5)
    figures: Figures = {}
    ways: dict[str, tuple[RuleName, dict[str, Any]]] = {
        "tree, by turns": ("at-grpo", {"executions": 1, "branching": {"candidates": 4, "turns": 4, "score": "turn"}}),
        "tree, at the end": ("at-grpo", {"executions": 1, "branching": {"candidates": 4, "turns": 4}}),
        "parallel": ("agent-turn", {"executions": 4}),
    }
    async with ProcessSandbox() as sandbox:
        for name, (rule, rollout) in ways.items():
            engine = Scripted('#### ["R"]', '#### ["D"]', '#### ["R", "D"]', '#### ["D", "D"]', '#### ["R", "R"]')
            trees, seconds = await grown(sandbox, engine, PLAYS, levels, **rollout)
            taught = sum(sample.advantage != 0 for sample in samples_by_policy(trees, rule, POLICY, ["executor"])["p0"])
            figures |= {
                f"{name}, completion tokens": engine.tokens,
                f"{name}, credited samples": taught,
                f"{name}, per thousand tokens": 1000 * taught / engine.tokens,
                f"{name}, per second": taught / seconds,
            }
    return figures


async def measure(names: Sequence[str], rounds: int) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    lacking = [name for name in NEED_TORCH if name in names and importlib.util.find_spec("torch") is None]
    if lacking:
        print(f"left out, as torch is not installed: {', '.join(lacking)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in [name for name in names if name not in lacking]:
            if name in NEED_TORCH:
                a_model(Path(folder))
            if name == "replay":
                found[name] = await replay(rounds)
            elif name == "memory":
                found[name] = await memory()
            elif name == "credit":
                found[name] = await credit()
            elif name == "step":
                found[name] = await step(found.get("replay") or await replay(rounds))
            elif name == "candidates":
                found[name] = await candidates(Path(folder))
            else:
                found[name] = update(Path(folder))
    return found


def a_model(folder: Path) -> None:
    """Once."""
    if any(folder.iterdir()):
        return
    import torch  # pyright: ignore[reportMissingImports]

    from benchmarks.tiny_models import make_model

    torch.set_num_threads(1)
    make_model(folder, layers=4, width=128, context=4096)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="of replay")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    given = parser.parse_args()
    found = asyncio.run(measure([given.only] if given.only else PARTS, given.rounds))
    for name, figures in found.items():
        print(name)
        for what, figure in figures.items():
            print(f"  {what}: {figure:.4g}")
    if given.write:
        machine = f"Python {platform.python_version()}, Linux {platform.release()}"
        before = json.loads(RESULTS.read_text()) if given.only else {}
        RESULTS.write_text(json.dumps({**before, "machine": machine, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
