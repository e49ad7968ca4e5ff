"""The teacher of the cold start: right where it does not slip, wrong as said where it does."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from sandbox import ProcessSandbox
from speedrun.phases import like_rl, programs
from speedrun.settings import SpeedrunSettings
from speedrun.teacher import Teacher, additions
from tasks.data.miniature import KINDS, Kind, problems, read
from workflow.answers import final_answer
from workflow.completion import ChatMessage, CompletionRequest
from workflow.failures import EngineFailed


def say(teacher: Teacher, question: str, *more: ChatMessage, seed: int = 0, tools: bool = False) -> str:
    messages = [ChatMessage(role="system", content="Solve."), ChatMessage(role="user", content=question), *more]
    reading = read(question)
    assert reading is not None
    schema: list[dict[str, Any]] = [{"type": "function", "function": {"name": "multiply"}}] if tools else []
    return teacher.reply(reading, messages, schema, random.Random(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_without_slips_every_program_solves_every_kind(kind: Kind) -> None:
    async def run() -> dict[str, list[str | None]]:
        found: dict[str, list[str | None]] = {}
        async with ProcessSandbox() as sandbox:
            for name, template in programs().items():
                for problem in problems(kind, 3, seed=1):
                    ended = await sandbox.run_program(
                        template.program,
                        problem.question,
                        engine=Teacher(slips=0, misses=0, fumbles=0),
                        limits=like_rl(SpeedrunSettings()).rollout.limits,
                        seed=5,
                    )
                    assert ended.failure is None, ended.failure
                    right = final_answer(ended.answer or "", "math") == problem.gold
                    found.setdefault(name, []).append("right" if right else "wrong")
        return found

    assert asyncio.run(run()) == {name: ["right"] * 3 for name in programs()}


def test_steps_are_written_out() -> None:
    assert say(Teacher(slips=0), "Add up 47, 8, 63.") == "47 + 8 = 55\n55 + 63 = 118\n\\boxed{118}"
    product = "48 * 70 = 3360\n48 * 7 = 336\n3360 + 336 = 3696\n\\boxed{3696}"
    assert say(Teacher(fumbles=0), "What is 48 * 77?") == product
    asked = "Add up 47, 8, 63.\n\nYour result goes to Critic. Put what Critic needs, and nothing else, inside "
    asked += "<delivery>...</delivery>."
    assert say(Teacher(slips=0), asked).endswith("118\n<delivery>\\boxed{118}</delivery>")


def test_slips_and_misses_happen_as_often_as_said() -> None:
    chains = [say(Teacher(slips=0.3), "Add up 47, 8, 63.", seed=seed) for seed in range(500)]
    wrong = [chain for chain in chains if not chain.endswith("{118}")]
    assert len(wrong) / 500 == pytest.approx(0.3, abs=0.06)
    products = [say(Teacher(fumbles=0.2), "What is 482 * 705?", seed=seed) for seed in range(500)]
    assert sum(not each.endswith("{339810}") for each in products) / 500 == pytest.approx(0.2, abs=0.05)
    question = "Which two of 3, 8, 12, 17, 25, 31 add up to 42?"
    sets = [say(Teacher(misses=0.5), question, seed=seed) for seed in range(500)]
    right = sets.count("17 + 25 = 42\n\\boxed{17, 25}")
    assert right / 500 == pytest.approx(0.5 + 0.5 / 15, abs=0.07)


def test_a_slip_is_one_wrong_addition_that_the_later_ones_go_on_from() -> None:
    assert additions([1, 2, 3]) == ["1 + 2 = 3\n", "3 + 3 = 6\n"]
    first, second = additions([1, 2, 3], 0, random.Random(1))
    said = int(first.split()[-1])
    assert abs(said - 3) in (1, 10)
    assert second == f"{said} + 3 = {said + 3}\n"


@pytest.mark.parametrize(
    ("question", "shown", "ends"),
    [
        (
            "Which two of 3, 8, 12, 17 add up to 20?",
            "3, 17",
            "3 + 17 = 20\n<delivery>20 against 20</delivery>\n{}CORRECT",
        ),
        (
            "Which two of 3, 8, 12, 17 add up to 20?",
            "8, 17",
            "8 + 17 = 25\n<delivery>25 against 20</delivery>\n{}INCORRECT",
        ),
        ("Add up 47, 8, 63.", "118", "55 + 63 = 118\n<delivery>118 against 118</delivery>\n{}CORRECT"),
        ("Add up 47, 8, 63.", "117", "55 + 63 = 118\n<delivery>118 against 117</delivery>\n{}INCORRECT"),
    ],
)
def test_the_critic_adds_up_again(question: str, shown: str, ends: str) -> None:
    asked = f"{question}\n\n### From Solver\n\\boxed{{{shown}}}\n\nIs it right?"
    assert say(Teacher(slips=1, misses=1), asked).endswith(ends.format("Verdict: "))


def test_a_pair_that_is_not_of_the_numbers_is_incorrect() -> None:
    question = "Which two of 3, 8, 12, 17 add up to 28?\n\n### From Solver\n\\boxed{11, 17}\n\nIs it right?"
    assert say(Teacher(), question).endswith("Verdict: INCORRECT")


def test_a_tool_multiplies_at_once() -> None:
    question = "What is 48213 * 7717?"
    call = say(Teacher(), question, tools=True)
    assert '"arguments": {"a": 48213, "b": 7717}' in call
    after = (ChatMessage(role="assistant", content=call), ChatMessage(role="tool", content="372059721\n"))
    assert say(Teacher(), question, *after, tools=True) == "\\boxed{372059721}"


def test_what_is_not_of_the_family_is_a_failure_of_the_engine() -> None:
    request = CompletionRequest(
        messages=[ChatMessage(role="system", content="Solve."), ChatMessage(role="user", content="Why?")],
        agent="Solver",
    )
    with pytest.raises(EngineFailed, match="agent Solver asks nothing of the family"):
        asyncio.run(Teacher().complete(request))
