"""Training runs with tree sampling at agents' turns: what is learned from; a killed run ends as an unbroken one."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from toy import VOTE
from training import configured, final_weights, metrics, run, teach, write_problems

from engine.session import Run
from sandbox.protocol import Sandbox
from search.scoring import Score, ScoredState
from tasks import Problem
from trainer.config import TrainConfig
from trainer.values import ScriptedScorer
from workflow.completion import Completion
from workflow.trace import CandidateDrawn, Rewarded, RewardTerm, Trace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    folder = tmp_path_factory.mktemp("turns")
    (folder / "vote.py").write_text(VOTE.replace(', "Cay", "Dan", "Eve"', ""))
    rollout: dict[str, Any] = {"designs": 1, "executions": 1, "program": str(folder / "vote.py")}
    return configured(
        teach(folder, right=0.5, designer=False, steps=40),
        write_problems(folder / "problems.jsonl"),
        schedule="executor-only",
        credit="at-grpo",
        steps=3,
        rollout={**rollout, "branching": {"candidates": 4, "max_open": 3}},
    )


@pytest.fixture(scope="module")
def undisturbed(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    run(config, out)
    return out


def test_each_agents_candidates_are_what_is_learned_from(undisturbed: Path) -> None:
    for line in metrics(undisturbed):
        assert line["executions"] == 2
        assert set(line["agents"]) == {"Ann", "Bob"}
        assert all(each["silent"] in (0, 0.5, 1) for each in line["agents"].values())
        assert all(each["replies"] == 2 * 4 for each in line["agents"].values())
        assert line["lengths"]["executor"]["count"] == 2 * 2 * 4, "two questions, two agents, four replies to each"
    traces = [Trace.from_lines(path.read_text().splitlines(True)) for path in undisturbed.rglob("*execution*.jsonl")]
    assert len(traces) == 6
    for trace in traces:
        drawn = [event for event in trace.events if isinstance(event, CandidateDrawn)]
        assert [event.number for event in drawn] == [0, 1, 2, 3] * 2
        assert {event.agent for event in drawn[:4]} == {"Ann"}
        assert trace.reward is not None


def _train_in_child(config: TrainConfig, out: str) -> None:
    run(config, Path(out), resume=True)


def test_a_killed_run_ends_as_an_unbroken_one(config: TrainConfig, undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    child = multiprocessing.get_context("spawn").Process(target=_train_in_child, args=(config, str(out)))
    child.start()
    until = time.monotonic() + 240
    while not (out / "metrics.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.02)
    child.kill()
    child.join(60)
    assert len(metrics(out)) < 3
    run(config, out, resume=True)
    assert metrics(out) == metrics(undisturbed)
    assert final_weights(out) == final_weights(undisturbed)


async def by_ann(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
    """What Ann says: what Bob says changes nothing."""
    [said] = [
        sum(map(ord, turn.completion.text)) % 10
        for turn in run.trace.agent_turns
        if turn.completion and turn.agent == "Ann"
    ]
    return Rewarded(
        total=float(said), terms=[RewardTerm(name="letters", value=float(said), weight=1.0, reason="their sum")]
    )


def test_turns_are_rewarded_by_a_model_of_values(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Letters(ScriptedScorer):
        """Of the newest reply."""

        async def score(self, states: Sequence[ScoredState]) -> list[Score]:
            replies = [state.turns[-1].reply for state in states]
            return [Score(sum(map(ord, reply.text)) % 10 / 10) for reply in replies if isinstance(reply, Completion)]

    monkeypatch.setattr("trainer.run.one_process._scorer", lambda folder: Letters({}))
    monkeypatch.setattr("trainer.run.run_folder.scorer_folder", lambda folder: tmp_path)
    (tmp_path / "scorer.json").write_text("{}")
    given = config.model_dump()
    given["rollout"]["branching"]["score"] = "turn"
    given |= {"steps": 1, "reward": {"kind": "values", "prm": str(tmp_path)}}
    run(TrainConfig.model_validate(given), tmp_path / "run")
    traces = [Trace.from_lines(path.read_text().splitlines(True)) for path in tmp_path.rglob("*execution*.jsonl")]
    drawn = [event for trace in traces for event in trace.events if isinstance(event, CandidateDrawn)]
    assert {event.terms[0].name for event in drawn if event.agent == "Ann"} == {"value"}
    assert {event.terms[0].name for event in drawn if event.agent == "Bob"} == {"outcome"}, "the run ends with it"
    for event in drawn:
        letters = sum(map(ord, event.completion.text)) % 10 / 10
        assert event.reward == letters if event.agent == "Ann" else event.reward in (-1.0, 1.0)


def test_each_agents_policy_learns_from_its_own_groups_alone(config: TrainConfig, tmp_path: Path) -> None:
    policy = config.policies["p0"].model_dump()
    apart = TrainConfig.model_validate(
        {
            **config.model_dump(),
            "steps": 1,
            "policies": {"ann": policy, "bob": policy, "nobody": policy},
            "roles": {"agents": {"Ann": "ann", "Bob": "bob"}, "executor": "nobody"},
        }
    )
    run(apart, tmp_path / "run", reward=by_ann)
    agents = metrics(tmp_path / "run")[0]["agents"]
    assert agents["Ann"]["silent"] < agents["Bob"]["silent"] == 1
    start = (Path(policy["model"]) / "model.safetensors").read_bytes()
    learned = {name: final_weights(tmp_path / "run", name) for name in apart.policies}
    assert learned["bob"] == learned["nobody"], "no group of Bob's varies, and nobody else speaks"
    assert learned["ann"] != learned["bob"]
    assert len(learned["ann"]) == len(start)
    assert set(metrics(tmp_path / "run")[0]["updates"]) == {"ann"}, "Bob's groups teach nothing"


def test_a_name_that_no_agent_has_is_told_before_anything_is_loaded(config: TrainConfig, tmp_path: Path) -> None:
    policy = config.policies["p0"].model_dump()
    for agents, told in (
        ({"Ana": "p0", "Bob": "p0"}, r"roles\.agents\.Ana: no agent of the program has this name\. Fix: 'Ann'"),
        ({"Ann": "p0"}, r"agent 'Bob' of the program has no policy\. Fix: name it in roles\.agents"),
    ):
        wrong = TrainConfig.model_validate(
            {**config.model_dump(), "policies": {"p0": policy}, "roles": {"agents": agents}}
        )
        with pytest.raises(ValueError, match=told):
            run(wrong, tmp_path / "run")


@pytest.mark.thorough
@pytest.mark.parametrize("credit", ["at-grpo", "tree", "agent-turn"])
def test_turns_of_math_are_learned_from(config: TrainConfig, tmp_path: Path, credit: str) -> None:
    """Stronger-MAS, B.1, with a tree and without: what is rewarded becomes more frequent."""
    parts = credit == "at-grpo"
    values = config.model_dump()
    values["policies"]["p0"]["learning_rate"] = 1e-3
    values["rollout"] |= {
        "questions": 24,
        "executions": 1 if parts else 4,
        "branching": {"candidates": 4, "score": "turn"} if parts else None,
    }
    reward = {"kind": "turns", "roles": {"Ann": "reasoner", "Bob": "reasoner"}}
    turns = TrainConfig.model_validate({**values, "credit": credit, "steps": 10, "reward": reward})
    run(turns, tmp_path / "run")
    lines = metrics(tmp_path / "run")
    for line in lines:
        assert set(line["agents"]) == {"Ann", "Bob"}
        for agent in line["agents"].values():
            assert set(agent["terms"]) == {"team", "format", "number"}
            assert agent["terms"]["team"] == agent["terms"]["number"], "an answer is right where its number is"
            assert agent["replies"] == 24 * 4
    earned = [sum(agent["reward"] for agent in line["agents"].values()) / 2 for line in lines]
    assert sum(earned[-3:]) / 3 > sum(earned[:3]) / 3 + 0.05
    kinds = {event.type for path in (tmp_path / "run").rglob("*execution*.jsonl")
             for event in Trace.from_lines(path.read_text().splitlines(True)).events}  # fmt: skip
    assert ("candidate" in kinds, "turn_rewarded" in kinds) == (parts, not parts)
