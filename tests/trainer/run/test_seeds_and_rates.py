"""What the loop does at each step on a runtime that only notes it: seeds, rates, the order of samples, old traces."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tasks.problems import Problem
from trainer.config import TrainConfig
from trainer.disk.written_files import Written
from trainer.run.loop import train
from trainer.run.runtime import Lesson, StepsLost, backend_settings
from trainer.run.step_report import SyncReport
from trainer.samples import Coordinates, Trajectory
from trainer.trees import DesignResult, Execution, QuestionTree
from trainer.update.backend import UpdateReport
from workflow.trace import Rewarded
from workflow.usage import PolicyRole

STEPS = 8
LEARNT = UpdateReport(loss=0.1, gradient_norm=1.0, steps=1, samples=8, computed_samples=8, tokens=8)


def trajectory(role: PolicyRole, version: int, **place: Any) -> Trajectory:
    return Trajectory(
        role=role,
        coordinates=Coordinates(**place),
        token_ids=array("i", [1, 10 * place["design"] + (place.get("execution") or 0)]),
        loss_mask=array("b", [0, 1]),
        behaviour_logprobs=array("f", [0.0, -1.0]),
        weights_version=version,
    )


class Noting:
    """Every tree is the same but for its question: M = 4, N = 4, rewards 0 to 15."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.seeds: list[int] = []
        self.lessons: list[Mapping[str, Lesson]] = []
        self.versions = dict.fromkeys(config.policies, 0)

    def check(self) -> None: ...

    @asynccontextmanager
    async def opened(self, watch: Any, out: Path) -> AsyncIterator[None]:
        yield

    async def load(self, folder: Path) -> None: ...

    async def recover(self, lost: StepsLost) -> None:
        raise AssertionError("nothing is lost here") from lost

    async def rollout(self, problems: Sequence[Problem], seed: int, folder: Path) -> list[QuestionTree]:
        self.seeds.append(seed)
        folder.mkdir(parents=True)
        return [self.tree(problem) for problem in problems]

    def tree(self, problem: Problem) -> QuestionTree:
        of = {role: self.versions[name] for role, name in self.config.role_policies.items()}
        return QuestionTree(
            problem=problem,
            designs=[
                DesignResult(
                    index=i,
                    program="...",
                    graph=None,
                    failure=None,
                    trajectories=[trajectory("designer", of["designer"], question=problem.id, design=i)],
                    executions=[
                        Execution(
                            index=j,
                            reward=Rewarded(total=4.0 * i + j, terms=[]),
                            trajectories=[
                                trajectory("executor", of["executor"], question=problem.id, design=i, execution=j)
                            ],
                        )
                        for j in range(4)
                    ],
                )
                for i in range(4)
            ],
        )

    async def update(self, lessons: Mapping[str, Lesson]) -> dict[str, UpdateReport]:
        self.lessons.append(lessons)
        return dict.fromkeys(lessons, LEARNT)

    async def sync(self, versions: Mapping[str, int]) -> dict[str, SyncReport]:
        self.versions |= versions
        return {}

    async def snapshot(self) -> Callable[[Path], list[Written]]:
        return lambda folder: []

    async def idle_s(self) -> dict[str, float]:
        return {}


@pytest.fixture
def ran(tmp_path: Path) -> Callable[..., Noting]:
    problems = tmp_path / "problems.jsonl"
    rows = [{"id": f"q{n}", "question": f"{n}?", "domain": "math", "gold": str(n)} for n in range(2)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    runs = iter(range(9))

    def run(**changes: Any) -> Noting:
        rates = {"model": "m", "learning_rate": 1e-5, "designer_learning_rate": 3e-4}
        values = {
            "policies": {"p0": rates},
            "data": [{"format": "problems", "path": problems}],
            "rollout": {"questions": 2},
            "stage_length": 2,
            "steps": STEPS,
            "checkpoint_every": STEPS,
            **changes,
        }
        noting = Noting(TrainConfig.model_validate(values))
        asyncio.run(asyncio.wait_for(train(noting, tmp_path / f"run-{next(runs)}"), 30))
        return noting

    return run


def dealt(lesson: Lesson) -> list[tuple[str, int]]:
    return [(sample.group, sample.token_ids[1]) for sample in lesson.samples]


def test_the_rate_is_that_of_the_stage(ran: Callable[..., Noting]) -> None:
    rates = [lessons["p0"].learning_rate for lessons in ran().lessons]
    assert rates == [1e-5, 1e-5, 3e-4, 3e-4] * 2
    assert {lessons["p0"].learning_rate for lessons in ran(schedule="coupled").lessons} == {1e-5}


def test_who_designs_alone_is_held_by_a_coefficient_of_its_own(ran: Callable[..., Noting]) -> None:
    def held(**changes: Any) -> list[float]:
        lessons = ran(**changes).lessons
        return [each["p0"].objective.kl_coefficient for each in lessons]

    own = {"objective": {"kl_coefficient": 0.25, "mini_batches": 3}, "designer_kl_coefficient": 2.0}
    assert held(**own) == [0.25, 0.25, 2.0, 2.0] * 2
    assert {each["p0"].objective.mini_batches for each in ran(**own).lessons} == {3}
    assert set(held(**own, schedule="coupled")) == {0.25}
    assert held(**own | {"designer_kl_coefficient": 0.0}) == [0.25, 0.25, 0.0, 0.0] * 2
    assert held(objective={"kl_coefficient": 0.25}) == [0.25] * 8


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({}, False),
        ({"objective": {"kl_coefficient": 0.25}}, True),
        ({"designer_kl_coefficient": 2.0}, True),
        ({"designer_kl_coefficient": 0.0}, False),
    ],
)
def test_a_reference_is_kept_for_either(ran: Callable[..., Noting], changes: Any, needed: bool) -> None:
    config = ran(**changes).config
    assert config.has_reference is needed
    assert backend_settings("p0", config.policies["p0"], config)["keeps_reference"] is needed


def test_every_step_has_a_seed_of_its_own_which_follows_from_the_runs(ran: Callable[..., Noting]) -> None:
    one, again, other = ran(), ran(), ran(seed=1)
    assert len(set(one.seeds)) == STEPS
    assert one.seeds == again.seeds
    assert not set(one.seeds) & set(other.seeds)


def test_samples_are_dealt_anew_at_every_step_and_for_every_policy(ran: Callable[..., Noting]) -> None:
    one, again, other = (ran(schedule="executor-only", seed=seed) for seed in (0, 0, 1))
    orders = [dealt(lessons["p0"]) for lessons in one.lessons]
    assert len(orders[0]) == 2 * 16
    assert len(set(map(tuple, orders))) == STEPS  # there are 32! of them
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(orders[0]))}
    assert orders == [dealt(lessons["p0"]) for lessons in again.lessons]
    assert orders != [dealt(lessons["p0"]) for lessons in other.lessons]
    split = ran(
        schedule="coupled",
        policies={"a": {"model": "m"}, "b": {"model": "m"}},
        roles={"designer": "a", "executor": "b"},
    )
    for lessons in split.lessons:
        designs = [token // 10 for _, token in dealt(lessons["a"])]
        assert sorted(designs) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_two_policies_are_not_dealt_in_one_order(ran: Callable[..., Noting], monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def noted(samples: list[Any], seed: int) -> list[Any]:
        seeds.append(seed)
        return samples

    monkeypatch.setattr("trainer.run.loop._shuffled", noted)
    split = {"policies": {"a": {"model": "m"}, "b": {"model": "m"}}, "roles": {"designer": "a", "executor": "b"}}
    ran(schedule="coupled", **split)
    assert len(seeds) == len(set(seeds)) == 2 * STEPS


def test_the_kl_of_a_role_that_does_not_learn_is_asked_for(ran: Callable[..., Noting]) -> None:
    def held(**changes: Any) -> set[tuple[int, int]]:
        lessons = [each["p0"].samples for each in ran(**changes).lessons]
        return {(sum(sample.held for sample in each), len(each)) for each in lessons}

    assert held() == {(0, 2 * 16), (0, 2 * 4)}
    assert held(kl_roles="all", objective={"kl_coefficient": 0.1}) == {(2 * 4, 2 * 20), (2 * 16, 2 * 20)}


def test_what_other_weights_have_drawn_ends_the_run(
    ran: Callable[..., Noting], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ignored(self: Noting, versions: Mapping[str, int]) -> dict[str, SyncReport]:
        return {}

    monkeypatch.setattr(Noting, "sync", ignored)
    with pytest.raises(RuntimeError, match="was drawn with 0, not with weights 1"):
        ran()


def test_the_last_step_has_a_checkpoint_whatever_its_number(ran: Callable[..., Noting], tmp_path: Path) -> None:
    ran(steps=5, checkpoint_every=4)
    written = sorted(path.name for path in (tmp_path / "run-0" / "checkpoints").glob("step-*"))
    assert [int(name.removeprefix("step-")) for name in written] == [4, 5]


@pytest.mark.parametrize(("kept", "left"), [(None, range(STEPS)), (3, range(STEPS - 3, STEPS)), (99, range(STEPS))])
def test_traces_of_old_steps_go(ran: Callable[..., Noting], tmp_path: Path, kept: int | None, left: range) -> None:
    ran(traces_kept=kept)
    folders = sorted(path.name for path in (tmp_path / "run-0" / "traces").iterdir())
    assert folders == [f"step-{step:06}" for step in left]
