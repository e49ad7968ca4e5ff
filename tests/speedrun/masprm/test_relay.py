"""The relay of MASPRM's miniature and the teachers: what is right, where it went wrong, errors at their rates."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from one_jail import in_jail

from engine import run_workflow
from search.paths import AgentStep
from search.scoring import ScoredState
from speedrun.masprm.bank_teacher import BankTeacher
from speedrun.masprm.chains import (
    AGENTS,
    KINDS,
    RelayTeacher,
    chain_problems,
    read_chain,
    result_of,
    workflow_of,
    wrong_step,
)
from speedrun.masprm.guided_arms import BANK, LIMITS, PLAYS
from speedrun.masprm.relay_scorer import RelayScorer, worth
from tasks import Problem
from workflow.answers import final_answer
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed

NEVER = RelayTeacher(forgets=0, slips=0)


def played(kind: Any, problem: Problem, teacher: RelayTeacher, seed: int = 0) -> tuple[str | None, list[str]]:
    run = asyncio.run(run_workflow(workflow_of(PLAYS[kind].program), problem.question, teacher, seed=seed))
    assert run.failure is None
    turns = run.trace.agent_turns
    return final_answer(run.answer or "", "math"), [turn.completion.text for turn in turns if turn.completion]


@pytest.mark.parametrize("kind", KINDS)
def test_a_teacher_without_mistakes_is_right(kind: Any) -> None:
    for problem in chain_problems(kind, 20, 1, "train"):
        answer, replies = played(kind, problem, NEVER)
        chain = read_chain(problem.question)
        assert chain is not None
        assert answer == problem.gold
        assert len(replies) == AGENTS[kind]
        assert [result_of(reply) for reply in replies] == chain.partials
        assert wrong_step(problem.question, replies) is None


def test_the_program_runs_in_the_jail_as_it_does_here() -> None:
    [problem] = chain_problems("sum", 1, 2, "train")
    run = in_jail(lambda box: box.run_program(PLAYS["sum"].program, problem.question, engine=RelayTeacher(), seed=3))
    here, replies = played("sum", problem, RelayTeacher(), seed=3)
    assert final_answer(run.answer or "", "math") == here
    assert [turn.completion.text for turn in run.trace.agent_turns if turn.completion] == replies


def test_steps_by_hand() -> None:
    question = "Add up 47, 8, 6, 3, 9."
    assert wrong_step(question, ["47+8=55", "55+6=61", "61+3=64", "64+9=\\boxed{73}"]) is None
    assert wrong_step(question, ["47+8=45", "45+6=51"]) == 0
    assert wrong_step(question, ["47+8=55", "55+6=60"]) == 1
    assert wrong_step(question, ["47+8=55", "what?"]) == 1
    rest = read_chain("Take 6, 8, 9, 4 away from 60.")
    assert rest is not None
    assert rest.partials == [54, 46, 37, 33]
    assert read_chain("What is 2 + 2?") is None
    assert [result_of(text) for text in ("Well 47+8=55", "47+8=\\boxed{55}", "Well, 47+8=55")] == [55, 55, None]


def test_a_carry_is_forgotten_where_7_or_8_makes_one() -> None:
    always, chain = RelayTeacher(forgets=1, slips=0), read_chain("Add up 47, 8, 6, 3, 9.")
    assert chain is not None
    forgetful = random.Random(0)
    assert always.reply(chain, 0, 47, forgetful) == "47+8=45"
    assert always.reply(chain, 1, 55, forgetful) == "55+6=61"
    assert always.reply(chain, 3, 64, forgetful) == "64+9=\\boxed{73}"
    rest = read_chain("Take 6, 8, 9, 4 away from 60.")
    assert rest is not None
    assert always.reply(rest, 1, 54, forgetful) == "54-8=56"


def test_errors_are_made_at_their_rates() -> None:
    problems = chain_problems("sum", 300, 4, "train")
    wrong = [wrong_step(each.question, played("sum", each, RelayTeacher(), n)[1]) for n, each in enumerate(problems)]
    assert 0.3 < sum(step is None for step in wrong) / 300 < 0.5
    assert {step for step in wrong if step is not None} == {0, 1, 2, 3}


def test_splits_are_disjoint() -> None:
    found = [{each.id for each in chain_problems("sum", 200, 5, split)} for split in ("train", "validation", "test")]
    assert all(len(each) == 200 for each in found)
    assert not found[0] & found[1]
    assert not (found[0] | found[1]) & found[2]


def test_a_perfect_value_falls_where_a_step_went_wrong() -> None:
    question, replies = "Add up 47, 8, 6, 3, 9.", ["47+8=55", "55+6=61", "61+3=63", "63+9=\\boxed{72}"]
    assert [worth(question, replies[: n + 1]) for n in range(4)] == pytest.approx(
        [2 * 0.8**3 - 1, 2 * 0.8**2 - 1, -1, -1]
    )
    turns = tuple(
        AgentStep(key=f"{n}", agent="Ann", messages=[], reply=Completion(text=text))
        for n, text in enumerate(["47+8=55", "55+6=61", "61+3=64", "64+9=\\boxed{73}"])
    )
    [score] = asyncio.run(RelayScorer().score([ScoredState(question, turns)]))
    assert score.value == 1


@pytest.mark.parametrize("play", BANK)
def test_the_bank_is_played(play: str) -> None:
    teacher = BankTeacher(relay=NEVER, believes=1, misses=0, alarms=0, omits=0)
    for problem in chain_problems("sum", 3, 6, "train"):
        program, asked = PLAYS[play].program, problem.question
        run = in_jail(lambda box, program=program, asked=asked: box.run_program(program, asked, engine=teacher))
        assert run.failure is None
        assert final_answer(run.answer or "", "math") == problem.gold
    wrong = BankTeacher(relay=RelayTeacher(forgets=0, slips=1), misses=0, omits=1)
    [problem] = [each for each in chain_problems("sum", 40, 7, "train") if each.question.count("8") == 1][:1]
    run = in_jail(lambda box: box.run_program(PLAYS[play].program, problem.question, engine=wrong))
    assert run.failure is None


def test_without_a_jail_programs_of_the_bank_do_the_same() -> None:
    [problem] = chain_problems("sum", 1, 9, "train")
    for play in PLAYS.values():
        if play.taught != "bank" or play.jailed:
            continue
        here = asyncio.run(
            run_workflow(workflow_of(play.program), problem.question, BankTeacher(), limits=LIMITS, seed=3)
        )
        jailed = in_jail(
            lambda box, source=play.program: box.run_program(
                source, problem.question, engine=BankTeacher(), limits=LIMITS, seed=3
            )
        )
        assert (here.answer, here.answer_from) == (jailed.answer, jailed.answer_from)
        told = [
            [(turn.agent, turn.messages, turn.completion) for turn in run.trace.agent_turns] for run in (here, jailed)
        ]
        assert told[0] == told[1] != []


def test_judge_and_critic_read_what_is_shown_line_by_line() -> None:
    question = "Add up 24, 4, 7, 9."
    chain = read_chain(question)
    assert chain is not None
    wrong, right = (f"### From a solver\n24+4=28\n28+7={n}\n{n}+9=\\boxed{{{n + 9}}}" for n in (25, 35))
    torn = "24+4=28 it is\n35+9=\\boxed{44}"
    teacher, dice = BankTeacher(believes=1, misses=0, alarms=0), random.Random(3)

    def said(agent: str, *shown: str) -> str:
        return teacher.reply(agent, chain, "\n\n".join([question, *shown]), [], dice)

    assert {said("MathJudge", wrong, right, wrong) for _ in range(20)} == {"\\boxed{44}"}
    assert {said("MathJudge", wrong, wrong) for _ in range(20)} == {"\\boxed{34}"}
    assert said("MathJudge", "nothing") == "\\boxed{0}"
    assert said("MathCritic", wrong, right) == "Verdict: CORRECT"
    assert said("MathCritic", right, wrong) == "Verdict: INCORRECT"
    apart = "24+4=28\nso far\n28+7=35\n35+9=\\boxed{44}"
    assert said("MathCritic", apart) == "Verdict: INCORRECT"
    assert said("MathCritic", torn) == said("MathCritic") == "Verdict: INCORRECT"


@pytest.mark.parametrize("teacher", [RelayTeacher(), BankTeacher()])
def test_teachers_know_nothing_else(teacher: Any) -> None:
    asked = CompletionRequest(agent="X", key="k", messages=[{"role": "user", "content": "2 + 2?"}], sampling=Sampling())
    with pytest.raises(EngineFailed, match="agent X asks nothing of the"):
        asyncio.run(teacher.complete(asked))
