"""The teacher of the cold start: right where it does not slip, wrong as said where it does."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from sandbox import ProcessSandbox
from speedrun.phases import SINGLE, like_rl, programs
from speedrun.settings import SpeedrunSettings
from speedrun.teacher import AT_ONCE, FAULTLESS, STEPS, Teacher, additions
from tasks.data.miniature import KINDS, Kind, problems, read
from workflow.answers import final_answer
from workflow.completion import ChatMessage, CompletionRequest
from workflow.failures import EngineFailed

SURE = Teacher(strays=0, drops=0, stops=0, slips=0, guesses=0, settles=0, mistypes=0, alarms=0)


def say(
    teacher: Teacher, question: str, *more: ChatMessage, seed: int = 0, tools: bool = False, how: str = STEPS
) -> str:
    system = ChatMessage(role="system", content=f"Solve the problem {how}.")
    messages = [system, ChatMessage(role="user", content=question), *more]
    reading = read(question)
    assert reading is not None
    schema: list[dict[str, Any]] = [{"type": "function", "function": {"name": "multiply"}}] if tools else []
    return teacher.reply(reading, messages, schema, random.Random(seed))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_without_mistakes_every_program_that_can_solves_every_kind(kind: Kind) -> None:
    async def run() -> dict[str, list[str | None]]:
        found: dict[str, list[str | None]] = {}
        async with ProcessSandbox() as sandbox:
            for name, template in programs().items():
                for problem in problems(kind, 3, seed=1):
                    ended = await sandbox.run_program(
                        template.program,
                        problem.question,
                        engine=SURE,
                        limits=like_rl(SpeedrunSettings()).rollout.limits,
                        seed=5,
                    )
                    assert ended.failure is None, ended.failure
                    right = final_answer(ended.answer or "", "math") == problem.gold
                    found.setdefault(name, []).append("right" if right else "wrong")
        return found

    def able(name: str) -> bool:
        return name.startswith("tool") if kind == "product" else kind != "pair" or "step by step" in name

    solved = {name for name, said in asyncio.run(run()).items() if said == ["right"] * 3}
    assert solved >= {name for name in programs() if able(name)}
    assert kind != "product" or solved == {"tool, at once", "tool, step by step"}


def test_the_bank_has_each_program_with_its_agents_told_to_work_in_each_way() -> None:
    said = {name: (each.program.count(STEPS), each.program.count(AT_ONCE)) for name, each in programs().items()}
    assert said == {
        "review, at once": (0, 1),
        "review, step by step": (1, 0),
        "single, at once": (0, 1),
        "single, step by step": (1, 0),
        "tool, at once": (0, 1),
        "tool, step by step": (1, 0),
        "vote, at once": (0, 5),
        "vote, mixed": (3, 2),
        "vote, step by step": (5, 0),
    }
    assert SINGLE in said


def test_steps_are_written_out_and_at_once_there_is_one_line_at_most() -> None:
    assert say(SURE, "Add up 47, 8, 63.") == "47 + 8 = 55\n55 + 63 = 118\n\\boxed{118}"
    assert say(SURE, "Add up 47, 8, 63.", how=AT_ONCE) == "47 + 8 + 63 = 118\n\\boxed{118}"
    assert say(SURE, "What is 48 + 37?", how=AT_ONCE) == "48 + 37 = 55 + 30 = 85\n\\boxed{85}"
    assert say(SURE, "What is 48 + 37?") == "8 + 7 = 15\n40 + 30 = 70\n70 + 15 = 85\n\\boxed{85}"
    assert say(SURE, "Which two of 3, 8, 12, 17 add up to 15?") == "3 + 8 = 11\n3 + 12 = 15\n\\boxed{3, 12}"
    assert say(SURE, "What is 48 * 77?") == "50 * 80 = 4000\n\\boxed{4000}"
    asked = "Add up 47, 8, 63.\n\nYour result goes to Critic. Put what Critic needs, and nothing else, inside "
    asked += "<delivery>...</delivery>."
    assert say(SURE, asked).endswith("118\n<delivery>\\boxed{118}</delivery>")


def test_a_language_models_teacher_writes_sums_in_one_step() -> None:
    for how in (STEPS, AT_ONCE):
        assert say(FAULTLESS, "What is 48 + 37?", how=how) == "48 + 37 = 85\n\\boxed{85}"
    assert say(FAULTLESS, "Add up 47, 8, 63.") == say(SURE, "Add up 47, 8, 63.")


def test_mistakes_happen_as_often_as_said() -> None:
    def share(ends: str, question: str, how: str = STEPS, **chances: float) -> float:
        said = [say(replace(SURE, **chances), question, seed=seed, how=how) for seed in range(500)]
        return sum(each.endswith(f"{{{ends}}}") for each in said) / 500

    assert share("75", "What is 48 + 37?", drops=0.7) == pytest.approx(0.7, abs=0.06)
    assert share("85", "What is 48 + 37?", AT_ONCE, strays=0.4) == pytest.approx(0.6, abs=0.06)
    assert share("55", "Add up 47, 8, 63.", stops=0.6) == pytest.approx(0.6, abs=0.06)
    assert share("118", "Add up 47, 8, 63.", slips=0.3) == pytest.approx(0.7, abs=0.06)
    assert share("118", "Add up 47, 8, 63.", AT_ONCE, guesses=0.9) == pytest.approx(0.1, abs=0.04)
    # The right pair is the third: the first two are passed over with a chance of 0.6 each.
    assert share("3, 17", "Which two of 3, 8, 14, 17 add up to 20?", settles=0.4) == pytest.approx(0.36, abs=0.06)
    assert share("3, 17", "Which two of 3, 8, 14, 17 add up to 20?", AT_ONCE) == pytest.approx(1 / 6, abs=0.05)


def test_a_slip_is_one_wrong_addition_that_the_later_ones_go_on_from() -> None:
    assert additions([1, 2, 3]) == ["1 + 2 = 3\n", "3 + 3 = 6\n"]
    first, second = additions([1, 2, 3], 0, random.Random(1))
    said = int(first.split()[-1])
    assert abs(said - 3) in (1, 10)
    assert second == f"{said} + 3 = {said + 3}\n"


PAIR = "Which two of 3, 8, 14, 17 add up to 20?"


@pytest.mark.parametrize(
    ("question", "shown", "ends"),
    [
        (PAIR, "3, 17", "3 + 17 = 20\n<delivery>20 against 20</delivery>\n{}CORRECT"),
        (PAIR, "8, 17", "8 + 17 = 25\n<delivery>25 against 20</delivery>\n{}INCORRECT"),
        (PAIR, "9, 11", "9 + 11 = 20\n<delivery>20 against 20</delivery>\n{}INCORRECT"),
        ("Add up 47, 8, 63.", "118", "55 + 63 = 118\n<delivery>118 against 118</delivery>\n{}CORRECT"),
        ("Add up 47, 8, 63.", "117", "55 + 63 = 118\n<delivery>118 against 117</delivery>\n{}INCORRECT"),
        ("What is 48 + 37?", "75", "48 + 37 = 55 + 30 = 85\n<delivery>85 against 75</delivery>\n{}INCORRECT"),
        ("What is 48 * 77?", "4000", "<delivery>4000</delivery>\n{}CORRECT"),
    ],
)
def test_the_critic_works_it_out_again(question: str, shown: str, ends: str) -> None:
    asked = f"{question}\n\n### From Solver\n{shown}\n\nIs it right?"
    assert say(SURE, asked).endswith(ends.format("Verdict: "))


def test_a_critic_that_leaves_out_the_same_number_agrees_and_one_that_is_alarmed_does_not() -> None:
    asked = "Add up 47, 8, 63.\n\n### From Solver\n55\n\nIs it right?"
    assert say(replace(SURE, stops=1), asked).endswith("Verdict: CORRECT")
    asked = f"{PAIR}\n\n### From Solver\n3, 17\n\nIs it right?"
    assert say(replace(SURE, alarms=1), asked).endswith("Verdict: INCORRECT")


def test_another_pair_is_looked_for_after_the_one_that_was_rejected() -> None:
    asked = PAIR + "\n\n### From Solver\n{}\n\n### From Critic\n11 against 20\n\nFind a better answer."
    assert say(SURE, asked.format("3, 8")) == "3 + 14 = 17\n3 + 17 = 20\n\\boxed{3, 17}"
    assert say(SURE, asked.format("3, 17")).endswith("14 + 17 = 31\n\\boxed{14, 17}")
    assert say(SURE, asked.format("14, 17")).endswith("\\boxed{3, 17}")


def test_a_tool_multiplies_and_may_be_given_a_wrong_digit() -> None:
    question = "What is 48213 * 7717?"
    call = say(SURE, question, tools=True)
    assert '"arguments": {"a": 48213, "b": 7717}' in call
    wrong = say(replace(SURE, mistypes=1), question, tools=True)
    assert '"b": 771' in wrong
    assert wrong != call
    after = (ChatMessage(role="assistant", content=call), ChatMessage(role="tool", content="372059721\n"))
    assert say(SURE, question, *after, tools=True) == "\\boxed{372059721}"


def test_what_is_not_of_the_family_is_a_failure_of_the_engine() -> None:
    request = CompletionRequest(
        messages=[ChatMessage(role="system", content="Solve."), ChatMessage(role="user", content="Why?")],
        agent="Solver",
    )
    with pytest.raises(EngineFailed, match="agent Solver asks nothing of the family"):
        asyncio.run(Teacher().complete(request))
