"""Trees of a training step for tests of the viewer, grown by the real rollout, and what training makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from one_jail import in_jail

from tasks import Problem
from trainer.config import TrainConfig, to_toml
from trainer.credit import SINGLE_TURNS, paper_reward
from trainer.rollout import Rollout
from trainer.trees import QuestionTree
from workflow.completion import Completion, CompletionRequest, Usage

SINGLE = """from workflow import AgentNode, Workflow
workflow = Workflow("one").add_node(AgentNode("Solver", "Put the answer in \\\\boxed{}.", max_turns=1))
"""
CHECKED = """from workflow import AgentNode, ReflectionNode, Workflow
solver = AgentNode("Solver", "Put the answer in \\\\boxed{}.")
critic = AgentNode("Critic", "Say Verdict: CORRECT or Verdict: INCORRECT.")
workflow = Workflow("two").add_node(ReflectionNode("Check", solver, num_iterations=2, critic_agent=critic))
"""
SPINS = """from workflow import AgentNode, Workflow, WorkflowNode
class Spins(WorkflowNode):
    def process(self, context):
        while "4" in str(context):
            pass
        return context
workflow = Workflow("w").add_node(AgentNode("Solver", "Put the answer in \\\\boxed{}.")).add_node(Spins("s"))
"""
FOUR = Problem(id="p/4", question="What is 2 + 2?", domain="math", gold="4")
Reply = Callable[[CompletionRequest], str]


class Says:
    """An engine that says what a function makes of the request. Its tokens are bytes."""

    name = "says"

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    async def complete(self, request: CompletionRequest) -> Completion:
        await asyncio.sleep(0)
        ids = list(self._reply(request).encode())
        prompt = list(repr(request.messages).encode())
        if request.previous is not None:
            new = repr((request.messages or [])[request.previous.messages + 1 :]).encode()
            prompt = [*request.previous.prompt_token_ids, *request.previous.token_ids, *new]
        return Completion(
            text=bytes(ids).decode(),
            token_ids=ids,
            prompt_token_ids=prompt,
            logprobs=[-0.5] * len(ids),
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids)),
            weights_version=0,
        )

    async def close(self) -> None: ...


def by_seed(*texts: str) -> Reply:
    """One of some texts, by the seed of the request; a critic says that it is right."""
    return lambda request: (
        "Verdict: CORRECT" if request.agent == "Critic" else texts[(request.sampling.seed or 0) % len(texts)]
    )


def designed(*programs: str) -> Reply:
    """A Designer that writes the programs in turn: design i gets program i, or what is no program."""
    return lambda request: (
        f"<code>\n{program}\n</code>"
        if (program := programs[int(request.key.split("/")[1]) % len(programs)]).startswith("from")
        else program
    )


def configured(run: Path, **changes: Any) -> TrainConfig:
    """A configuration, which is written into the folder of the run as well."""
    rollout = {"questions": 1, "designs": 2, "executions": 4, **changes.pop("rollout", {})}
    settings = {
        "policies": {"p0": {"model": str(run / "model")}},
        "data": [{"format": "problems", "path": str(run / "problems.jsonl")}],
        "schedule": "coupled",
        **changes,
        "rollout": rollout,
    }
    config = TrainConfig.model_validate(settings)
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.toml").write_text(to_toml(config), encoding="utf-8")
    return config


def grown(
    run: Path, config: TrainConfig, designer: Reply, executor: Reply, step: int = 3, seed: int = 1
) -> QuestionTree:
    """The tree of one question, as `trainer.run` has it grown; its traces lie in `place(run, step)`."""
    program = config.rollout.program

    async def work(sandbox: Any) -> QuestionTree:
        rollout = Rollout(
            config=config.rollout,
            designer=Says(designer),
            executor=Says(executor),
            sandbox=sandbox,
            reward=paper_reward,
            turn_reward=config.reward.of_turns,
            program=program.read_text(encoding="utf-8") if program else None,
            single_turns=config.credit in SINGLE_TURNS,
        )
        [tree] = await rollout.step([FOUR], seed, place(run, step).parent)
        return tree

    return in_jail(work)


def place(run: Path, step: int = 3) -> Path:
    return run / "traces" / f"step-{step:06}" / "question-0000"
