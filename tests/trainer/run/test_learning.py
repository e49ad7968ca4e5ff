"""Training teaches: with rewards that mean something held-out accuracy of the Executor and the Designer's choice of
structure rise, with shuffled ones not. Whole runs, through jails, graders, engine and updates."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import toy
from training import configured, run, teach, write_problems

from engine.session import Run
from sandbox.protocol import Sandbox
from tasks import Problem
from trainer.credit.reward import RewardFunction, paper_reward
from trainer.evaluate.metrics import Z95
from trainer.update.torch_backend import TorchBackend
from workflow.completion import ChatMessage
from workflow.trace import Rewarded, RewardTerm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
RIGHT = 0.5
"""Share of right answers that the taught executor gives, about: the rest are digits at random."""
CHOICE_RATE = 2e-4
"""The Designer's learning rate. At 1e-3 its choice falls to one of the two programs within 15 steps whatever the
rewards are."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teach(tmp_path_factory.mktemp("taught"), right=RIGHT, steps=80)


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_problems(tmp_path_factory.mktemp("problems") / "problems.jsonl")


def chances(model: Path, talks: Sequence[Sequence[ChatMessage]]) -> list[float]:
    """The probability that a policy ends each conversation with just this reply: no sampling noise."""
    backend = TorchBackend(model, learning_rate=1e-3, device="cpu")
    chat = toy.chat_of(model)
    found = [math.exp(math.fsum(each)) for each in backend.logprobs([toy.lesson(chat, talk) for talk in talks])]
    backend.close()
    return found


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and the 95% confidence interval over held-out problems."""
    mean = math.fsum(values) / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    margin = Z95 * deviation / math.sqrt(len(values))
    return mean, mean - margin, mean + margin


def accuracy(model: Path) -> tuple[float, float, float]:
    """Of a single agent on problems that training never showed."""
    return interval(chances(model, [toy.executor_talk(problem, problem.gold or "") for problem in toy.problems()[1]]))


def votes(model: Path) -> tuple[float, float, float]:
    """How likely a policy is, at the token where the two programs part, to go on with the one that votes, as its share
    of both, on held-out problems. Later tokens are left out: the longer program has more of them to get wrong."""
    backend, chat = TorchBackend(model, learning_rate=1e-3, device="cpu"), toy.chat_of(model)
    held_out = toy.problems()[1][:60]
    both = [
        [toy.lesson(chat, toy.designer_talk(problem, program)) for problem in held_out]
        for program in (toy.VOTE, toy.SINGLE)
    ]
    shares = []
    for vote, single, v, s in zip(*both, *map(backend.logprobs, both), strict=True):
        places = enumerate(zip(vote.token_ids, single.token_ids, strict=False))
        parts = next(at for at, (one, other) in places if one != other)
        shares.append(1 / (1 + math.exp(s[parts] - v[parts])))
    backend.close()
    return interval(shares)


def shuffled(seed: int) -> RewardFunction:
    """Eq. 10's rewards, each given to another run than the one that earned it."""
    dice, earned = random.Random(seed), list[Rewarded]()

    async def reward(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
        earned.append(await paper_reward(problem, run, sandbox))
        return earned[dice.randrange(max(0, len(earned) - 64), len(earned))]

    return reward


async def by_lot(problem: Problem, run: Run, sandbox: Sandbox) -> Rewarded:
    """Plus or minus one, whatever the run did: on average as much as a design earns that cannot run.

    `shuffled` would tell structures apart, as their runs take longer or shorter; and where any run earns more than
    none, the Designer learns to write the shorter program, which has fewer tokens that can go wrong.
    """
    assert run.trace.started is not None
    luck = random.Random(run.trace.started.seed).choice((-1.0, 1.0))
    return Rewarded(total=luck, terms=[RewardTerm(name="luck", value=luck, weight=1.0, reason="by lot")])


def executor_run(
    policy: Path, problems: Path, folder: Path, seed: int, reward: RewardFunction | None = None
) -> tuple[float, float, float]:
    """Accuracy after 12 steps of GRPO on a single agent."""
    program = folder / "single.py"
    program.write_text(toy.SINGLE, encoding="utf-8")
    config = configured(
        policy,
        problems,
        schedule="executor-only",
        credit="single-agent",
        steps=12,
        checkpoint_every=12,
        seed=seed,
        rollout={"questions": 12, "designs": 1, "executions": 8, "program": program},
    )
    run(config, folder / "run", reward=reward)
    return accuracy(folder / "run" / "checkpoints" / "step-00000012" / "p0" / "model")


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reinforcement_raises_held_out_accuracy(policy: Path, problems: Path, tmp_path: Path, seed: int) -> None:
    _, _, before_high = accuracy(policy)
    after, after_low, _ = executor_run(policy, problems, tmp_path, seed)
    assert after_low > before_high
    assert after > 0.65


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shuffled_rewards_raise_nothing(policy: Path, problems: Path, tmp_path: Path, seed: int) -> None:
    before, _, before_high = accuracy(policy)
    after, _, _ = executor_run(policy, problems, tmp_path, seed, shuffled(seed))
    assert 0.2 < before < 0.8  # there was room to rise
    assert after < before_high


def designer_run(
    policy: Path, problems: Path, folder: Path, seed: int, reward: RewardFunction | None = None
) -> tuple[float, float, float]:
    """The share of the program that votes after 15 steps in which only the Designer learns."""
    config = configured(
        policy,
        problems,
        schedule="designer-only",
        steps=15,
        checkpoint_every=15,
        seed=seed,
        rollout={"questions": 8, "designs": 6, "executions": 2},
    )
    gently = config.policies["p0"].model_copy(update={"learning_rate": CHOICE_RATE})
    run(config.model_copy(update={"policies": {"p0": gently}}), folder / "run", reward=reward)
    return votes(folder / "run" / "checkpoints" / "step-00000015" / "p0" / "model")


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_designer_alone_learns_which_structure_is_worth_more(
    policy: Path, problems: Path, tmp_path: Path, seed: int
) -> None:
    _, _, before_high = votes(policy)
    after, after_low, _ = designer_run(policy, problems, tmp_path, seed)
    assert after_low > before_high
    assert after > 0.7


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rewards_by_lot_do_not_teach_the_designer_to_vote(
    policy: Path, problems: Path, tmp_path: Path, seed: int
) -> None:
    """Luck moves the choice too, as the optimizer's momentum carries on what the first steps did; but where the rewards
    say nothing no seed comes to vote more, and where they do every seed does."""
    before, _, _ = votes(policy)
    after, _, _ = designer_run(policy, problems, tmp_path, seed, by_lot)
    assert 0.3 < before < 0.6
    assert after < 0.6
