"""Values as rewards of turns: V while the run goes on, the grader at its end; what a configuration must say for it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from one_jail import in_jail

from sandbox import ProcessSandbox
from search import Branching, Decision, Ended, trusted
from search.methods import SearchRefused
from tasks import Problem
from trainer.config import ConfigError, RewardConfig, read_config
from trainer.values import ScriptedScorer, value_reward
from workflow import AgentNode, Workflow
from workflow.completion import Completion
from workflow.limits import Limits

PROBLEM = Problem(id="p", question="What is 3 + 4?", domain="math", gold="7")
FLOW = Workflow("w").add_node(AgentNode("Ann", "Add.", max_turns=1)).add_node(AgentNode("Bob", "Check.", max_turns=1))


def rewarded(
    replies: list[str], limits: Limits | None = None, *, seven: float = 0.5
) -> tuple[list[tuple[float, str]], ScriptedScorer]:
    """What each of some replies earned, with the reason, along one run."""
    scorer = ScriptedScorer({"seven": seven, "eight": -0.25})
    reward = value_reward(scorer)

    async def work(sandbox: ProcessSandbox) -> list[tuple[float, str]]:
        branching = Branching(trusted(FLOW, PROBLEM.question, limits=limits))
        position = await branching.start()
        found = []
        try:
            for said in replies:
                assert isinstance(position, Decision)
                decision, position = position, await branching.go_on(position, Completion(text=said))
                earned = await reward(PROBLEM, decision, position, sandbox)
                assert earned.total == sum(term.value * term.weight for term in earned.terms)
                found.append((earned.total, earned.terms[0].reason))
        finally:
            await branching.close()
        assert isinstance(position, (Decision, Ended))
        return found

    return in_jail(work), scorer


def test_a_reply_earns_the_value_of_the_state_after_it_and_the_last_one_what_the_grader_says() -> None:
    found, scorer = rewarded(["seven", r"\boxed{7}"])
    assert found == [(0.5, "V of scripted"), (1.0, "correct")]
    assert len(scorer.asked) == 1, "the grader knows how a run has ended"
    assert scorer.asked[0].question == PROBLEM.question
    assert [turn.agent for turn in scorer.asked[0].turns] == ["Ann"]
    assert rewarded(["eight", r"\boxed{8}"])[0] == [(-0.25, "V of scripted"), (-1.0, "wrong")]


def test_a_run_that_failed_earns_what_a_wrong_one_does() -> None:
    found, _ = rewarded(["seven"], Limits(agent_calls=1))
    assert found == [(-1.0, "limit_exceeded")]


WHOLE = """
steps = 1
schedule = "executor-only"
credit = "at-grpo"
rollout = { designs = 1, executions = 1, program = "p.py", branching = { candidates = 2, score = "turn" } }
reward = { kind = "values", prm = "model" }
[[data]]
path = "d.jsonl"
format = "problems"
[policies.p0]
model = "m"
"""


def configured(folder: Path, *overrides: str) -> RewardConfig:
    (folder / "run.toml").write_text(WHOLE)
    return read_config(folder / "run.toml", overrides).reward


def test_a_configuration_says_which_model(tmp_path: Path) -> None:
    assert configured(tmp_path).prm == tmp_path / "model"
    for overrides, told in (
        (["reward.prm=none"], r'reward.kind = "values" without reward.prm. Fix: reward.prm = a folder'),
        (["reward.kind=turns"], r'reward.kind = "turns" with reward.prm.*or neither'),
        (["reward.alpha=2"], "reward.alpha, shaping and roles are for turns"),
        (["rollout.branching.score=end"], r'reward.kind = "values" does not go with rollout.branching.score = "end"'),
    ):
        with pytest.raises(ConfigError, match=told):
            configured(tmp_path, *overrides)


def test_what_is_no_value_is_no_reward() -> None:
    with pytest.raises(SearchRefused, match=r"scripted gives nan to the reply 'seven' of 'Ann'"):
        rewarded(["seven"], seven=math.nan)
