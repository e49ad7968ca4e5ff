"""Defects of the released implementation of Stronger-MAS (PettingLLMs, commit a054fb1) that no training here has.

Those of its games are in tests/tasks/environments/test_environment_defects.py. A path says where the defect is.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable

import pytest
from one_jail import in_jail
from small_problems import PLAYS
from token_engine import TokenEngine

from sandbox import ProcessSandbox
from tasks.environments import problem_of
from tasks.problems import PlanPathLevel, Problem
from trainer.config import ConfigError, RolloutConfig, read_config
from trainer.credit import paper_reward, samples_by_policy, turn_reward
from trainer.rollout import Rollout
from trainer.samples import Sample
from trainer.trees import QuestionTree
from workflow.completion import CompletionRequest
from workflow.failures import EngineFailed

LEVELS = [problem_of(PlanPathLevel(level=level, turns=3)) for level in ("@...\n.#..\n...G", "@..\n...\n#.G", "@.\n.G")]
POLICIES = {"designer": "p0", "executor": "p0"}


def seeded(request: CompletionRequest) -> str:
    """One or two moves, by the request's seed."""
    draw = random.Random(request.sampling.seed)
    return str(draw.choices("RDRDLU", k=draw.randint(1, 2))).replace("'", '"')


def grown(
    reply: str | Callable[[CompletionRequest], str], problems: list[Problem]
) -> tuple[TokenEngine, list[QuestionTree]]:
    engine = TokenEngine(reply)
    config = RolloutConfig.model_validate(
        {"designs": 1, "executions": 1, "retries": 0, "branching": {"candidates": 4, "score": "turn"}}
    )

    async def go(sandbox: ProcessSandbox) -> list[QuestionTree]:
        rollout = Rollout(
            config=config, designer=engine, executor=engine, sandbox=sandbox, reward=paper_reward,
            turn_reward=turn_reward, program=PLAYS,
        )  # fmt: skip
        return await rollout.step(problems, 1)

    return engine, in_jail(go)


@pytest.fixture(scope="module")
def trees() -> tuple[TokenEngine, list[QuestionTree]]:
    return grown(seeded, LEVELS)


def samples(trees: list[QuestionTree]) -> list[Sample]:
    return samples_by_policy(trees, "at-grpo", POLICIES, ["executor"])["p0"]


Grown = tuple[TokenEngine, list[QuestionTree]]


def test_an_agent_is_asked_when_the_one_before_has_acted(trees: Grown) -> None:
    """trainer/multi_agents_execution_engine.py:720-758: all agents are asked before the first has acted."""
    engine, grown = trees
    for tree in grown:
        [run] = tree.executions
        chosen = [each for each in run.candidates if each.chosen]
        assert [each.trajectory.coordinates.agent for each in chosen[:2]] == ["Tool", "Planner"]
    shown = [str(request.messages) for request in engine.requests if request.agent == "Planner"]
    assert all("Proposed: [" in each for each in shown)


def test_the_candidates_of_every_agent_have_rewards_of_their_own(trees: Grown) -> None:
    """The same, 761-826: after the first choice all copies are the winner's, and the next agent's K have one reward."""
    found: dict[str, set[float]] = defaultdict(set)
    for candidate in (each for tree in trees[1] for each in tree.executions[0].candidates):
        found[candidate.trajectory.coordinates.agent].add(candidate.reward.total)
    assert all(len(rewards) > 2 for rewards in found.values())


def test_what_was_drawn_in_a_solved_turn_is_learned_from(trees: Grown) -> None:
    """The same, 828: a solved turn drops the later agents' samples."""
    for tree in trees[1]:
        drawn = tree.executions[0].candidates
        assert len(drawn) % 8 == 0, "four of the tool and four of the planner, each turn"
    assert len(samples(trees[1])) == sum(len(tree.executions[0].candidates) for tree in trees[1])


def test_a_group_is_of_one_problem_agent_and_turn(trees: Grown) -> None:
    """trainer/multi_agents_ppo_trainer.py:1679: an index is divided by K once more, so that a group mixes K problems;
    1656-1721: agents are mixed, too. 1777-1783: the half of the groups with the lowest rewards is thrown away."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples(trees[1]):
        groups[sample.group].append(sample)
    assert {len(group) for group in groups.values()} == {4}
    for group in groups.values():
        prompts = {tuple(sample.token_ids[: sample.loss_mask.index(True)]) for sample in group}
        assert len(prompts) == 1, "one prompt"
        assert sum(sample.advantage for sample in group) == pytest.approx(0, abs=1e-6)
    turns = sum(len(tree.executions[0].candidates) // 4 for tree in trees[1])
    assert len(groups) == turns


def test_tree_sampling_is_what_is_asked_for() -> None:
    """The same, 874 and 963: the baseline differs from AT-GRPO only by not saying so."""
    with pytest.raises(ConfigError, match=r'rollout\.branching has no part in credit = "tree"'):
        read_config("recipes/at_grpo_tiny.toml", ['credit="tree"'])


def test_a_failed_request_is_no_empty_reply() -> None:
    """trainer/async_generate.py:600-617: it is trained on as one; 748-754: failures vanish."""

    def broken(request: CompletionRequest) -> str:
        if request.agent == "Planner":
            raise EngineFailed("tokens", "it is gone")
        return "[]"

    with pytest.raises(EngineFailed, match="it is gone"):
        grown(broken, LEVELS[:1])


def test_updates_know_the_temperature_that_was_sampled_at(trees: Grown) -> None:
    """config/stateful: sampled at temperature 1.5, top-p 0.9 and top-k 20, updated as if at 1."""
    engine, grown = trees
    assert {(each.sampling.temperature, each.sampling.top_p, each.sampling.top_k) for each in engine.requests} == {
        (1.0, 1.0, 0)
    }
    assert {sample.temperature for sample in samples(grown)} == {1.0}
