"""Rewards of turns in math and code, worked out by hand from Stronger-MAS, Eq. 3 and Appendix B.1, B.2, B.6."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from one_jail import in_jail

from sandbox import Sandbox
from search import Branching, Decision, trusted
from tasks import CodeGrade, grade_code
from tasks.environments import problem_of
from tasks.problems import AssertTests, CallTest, CallTests, PlanPathLevel, Problem, StdinTest, StdinTests
from trainer.credit import check_turns, turn_reward
from workflow import AgentNode, Workflow
from workflow.completion import Completion
from workflow.failures import SandboxUnavailable
from workflow.limits import CodeLimits
from workflow.trace import Rewarded

HALF = Problem(id="half", question="What is 1/2?", domain="math", gold=r"\frac{1}{2}")
INTERVAL = Problem(id="interval", question="Where?", domain="math", gold="[1, 2)")
TESTS = [StdinTest(stdin=f"{n}\n", stdout=f"{n * n}\n") for n in (2, 3, 4, 0)]
SQUARE = Problem(
    id="square",
    question="Square n.",
    domain="code",
    tests=StdinTests(tests=TESTS),
    reference="print(int(input()) ** 2)",
)
CALLED = Problem(
    id="called", question="f", domain="code", tests=CallTests(fn_name="f", tests=[CallTest(args=[1], expected=1)]),
    reference="def f(x): return x",
)  # fmt: skip


def fenced(code: str) -> str:
    return f"So:\n```python\n{code}\n```"


def a_test(given: str, expected: str) -> str:
    return f"**Test Input:**\n{given}\n**Test Output:**\n{expected}"


def rewards(problem: Problem, *turns: tuple[str, str], **options: Any) -> list[Rewarded]:
    """Of each reply: `(agent, what it says)`, in their order."""

    async def go(sandbox: Sandbox) -> list[Rewarded]:
        flow = Workflow("w")
        for agent, _ in turns:
            flow.add_node(AgentNode(agent, "x", max_turns=1))
        branching = Branching(trusted(flow, problem.question))
        position, found = await branching.start(), []
        for agent, reply in turns:
            decision = position
            assert isinstance(decision, Decision)
            assert decision.request.agent == agent
            position = await branching.go_on(decision, Completion(text=reply))
            found.append(await turn_reward(problem, decision, position, sandbox, **options))
        await branching.close()
        return found

    return in_jail(go)


def explained(reward: Rewarded) -> dict[str, float]:
    assert reward.total == pytest.approx(sum(term.value * term.weight for term in reward.terms))
    assert all(term.reason for term in reward.terms)
    assert sum(term.weight for term in reward.terms if term.name != "team") <= 1 + 1e-9
    return {term.name: term.value for term in reward.terms}


@pytest.mark.parametrize(
    ("agent", "reply", "total", "terms"),
    [
        # B.1, reasoner: 0.2 format + 0.8 NumEq; team: right
        ("Reasoner", r"\boxed{1/2}", 2.0, {"team": 1, "format": 1, "number": 1}),
        ("Reasoner", r"\boxed{0.5}", 2.0, {"team": 1, "format": 1, "number": 1}),
        ("Reasoner", r"\boxed{0.51}", 0.2, {"team": 0, "format": 1, "number": 0}),
        ("Reasoner", r"\boxed{x}", 0.2, {"team": 0, "format": 1, "number": 0}),
        ("Reasoner", "It is 1/2.", 0.0, {"team": 0, "format": 0, "number": 0}),
        # math's tool: what its code prints
        ("Tool", fenced("print(1 / 2)"), 2.0, {"team": 1, "format": 1, "number": 1}),
        ("Tool", fenced("from fractions import Fraction as F\nprint(F(1, 2))"), 2.0,
         {"team": 1, "format": 1, "number": 1}),
        ("Tool", fenced("print(2)"), 0.2, {"team": 0, "format": 1, "number": 0}),
        ("Tool", fenced("print('a')\nprint(1 / 2)"), 0.0, {"team": 0, "format": 0, "number": 0}),  # only the answer
        ("Tool", fenced("print(1 / 2)\nraise ValueError"), 0.0, {"team": 0, "format": 0, "number": 0}),
        ("Tool", fenced("1 / 2"), 0.0, {"team": 0, "format": 0, "number": 0}),
        ("Tool", r"\boxed{1/2}", 0.0, {"team": 0, "format": 0, "number": 0}),
    ],
)  # fmt: skip
def test_math(agent: str, reply: str, total: float, terms: dict[str, float]) -> None:
    [found] = rewards(HALF, (agent, reply))
    assert explained(found) == pytest.approx(terms)
    assert found.total == pytest.approx(total)


def test_a_gold_that_is_no_number_masks_what_is_local() -> None:
    right, wrong = rewards(INTERVAL, ("Reasoner", r"\boxed{[1,2)}"), ("Reasoner", r"\boxed{3}"))
    assert explained(right) == {"team": 1, "local": 0}
    assert explained(wrong) == {"team": 0, "local": 0}
    assert "masked" in right.terms[1].reason


@pytest.mark.parametrize(
    ("reply", "total", "terms"),
    [
        # B.2, coder: 0.1 builds + 0.1 first golden test ends + 0.8 p; team: p
        (fenced("print(int(input()) ** 2)"), 2.0, {"team": 1, "builds": 1, "runs": 1, "passes": 1}),
        (fenced("print(int(input()) * 2)"), 0.5 + 0.2 + 0.4, {"team": 0.5, "builds": 1, "runs": 1, "passes": 0.5}),
        (fenced("n = int(input())\nprint(n * n if n != 2 else 1 / 0)"), 0.75 + 0.1 + 0.6,
         {"team": 0.75, "builds": 1, "runs": 0, "passes": 0.75}),
        (fenced("print(input()"), 0.0, {"team": 0, "builds": 0, "runs": 0, "passes": 0}),
        ("No idea.", 0.0, {"team": 0, "format": 0}),
    ],
)  # fmt: skip
def test_coder(reply: str, total: float, terms: dict[str, float]) -> None:
    [found] = rewards(SQUARE, ("Coder", reply))
    assert explained(found) == pytest.approx(terms)
    assert found.total == pytest.approx(total)


HALF_RIGHT = ("Coder", fenced("print(int(input()) * 2)"))
RIGHT, FAILS = ("Coder", fenced("print(int(input()) ** 2)")), "its code failed: "
BARE = SQUARE.model_copy(update={"reference": None})
BROKEN = SQUARE.model_copy(update={"id": "broken", "reference": "1 / 0"})


@pytest.mark.parametrize(
    ("reply", "local", "terms"),
    [
        # B.2, tester: 0.2 valid + 0.8 of its tests that the reference passes; team: p of the newest solution
        (a_test("5", "25"), 1.0, {"valid": 1, "right": 1}),
        (a_test("```\n5\n```", "```\n25\n```\nas said"), 1.0, {"valid": 1, "right": 1}),
        ("I think.\n" + a_test("5", "24"), 0.2, {"valid": 1, "right": 0}),
        (a_test("five", "25"), 0.0, {"valid": 0, "right": 0}),  # the reference does not take it
        (a_test("5", "25") + "\n" + a_test("6", "35"), 0.2 + 0.4, {"valid": 1, "right": 0.5}),
        ("**Test Input:**\n5", 0.0, {"valid": 0}),
        ("Try 5.", 0.0, {"valid": 0}),
    ],
)
def test_tester(reply: str, local: float, terms: dict[str, float]) -> None:
    _, found = rewards(SQUARE, HALF_RIGHT, ("Tester", reply))
    assert explained(found) == pytest.approx({"team": 0.5, **terms})
    assert found.total == pytest.approx(0.5 + local)


def test_a_testers_team_part_is_that_of_the_newest_solution() -> None:
    right = ("Coder", fenced("print(int(input()) ** 2)"))
    test = ("Tester", a_test("5", "25"))
    found = rewards(SQUARE, test, HALF_RIGHT, test, right, test, ("Coder", "I keep it."), test)
    assert [explained(found[place])["team"] for place in (0, 2, 4, 6)] == [0, 0.5, 1, 1]


def test_without_a_reference_a_testers_own_part_is_masked() -> None:
    for problem in (BARE, CALLED):
        [found] = rewards(problem, ("Tester", a_test("5", "25")))
        assert explained(found) == {"team": 0, "local": 0}


def test_at_most_ten_tests_of_a_reply_count() -> None:
    many = "\n".join([a_test("5", "25")] * 10 + [a_test("5", "1")] * 90)
    [found] = rewards(SQUARE, ("Tester", many))
    assert explained(found)["right"] == 1


@pytest.mark.parametrize(
    ("problem", "agent", "reply", "total"),
    [
        (HALF, "Reasoner", r"\boxed{0.5}", 2.0),
        (HALF, "Reasoner", r"\boxed{7}", 1.0),
        (HALF, "Tool", "none", 0.0),
        (HALF, "Tool", fenced("print(7)"), 1.0),
        (INTERVAL, "Reasoner", r"\boxed{[1,2)}", 2.0),
        (SQUARE, "Coder", fenced("print(int(input()) * 2)"), 1.0),
        (SQUARE, "Coder", fenced("print(int(input()) ** 2)"), 2.0),
        (SQUARE, "Tester", a_test("5", "1"), 1.0),
        (SQUARE, "Tester", "none", 0.0),
    ],
)
def test_outcomes_alone_are_solved_and_the_format(problem: Problem, agent: str, reply: str, total: float) -> None:
    """B.6."""
    assert rewards(problem, (agent, reply), shaping="outcome")[0].total == total


def test_eq_3_alpha_weighs_the_team() -> None:
    assert rewards(SQUARE, HALF_RIGHT, alpha=3.0)[0].total == pytest.approx(3 * 0.5 + 0.6)


def test_a_role_may_be_given_to_any_name() -> None:
    roles = {"Ann": "reasoner", "Reasoner": "tool"}
    first, second = rewards(HALF, ("Ann", r"\boxed{0.5}"), ("Reasoner", fenced("print(.5)")), roles=roles)
    assert (first.total, second.total) == (2.0, 2.0)


def test_an_agent_that_was_built_on_the_way_scores_nothing() -> None:
    right = r"\boxed{0.5}"
    assert [each.total for each in rewards(HALF, ("Expert 5", right), ("Reasoner", right))] == [0.0, 2.0]
    found = rewards(SQUARE, ("Expert 5", fenced("print(1)")), ("Tester", a_test("5", "25")))
    assert [each.total for each in found] == [0.0, 1.0]


def test_an_agent_without_a_role_is_named_before_anything_is_spent() -> None:
    check_turns([HALF], ["Reasoner", "TOOL"], {})
    check_turns([SQUARE], ["Coder", "Tester"], {})
    check_turns([CALLED], ["Coder"], {})
    check_turns([HALF], ["Ann"], {"Ann": "tool"})
    for problems, agents, roles, told in (
        ([HALF], ["Solver"], {}, r'"Solver" has no role in math .* and tool\. Fix: reward\.roles = \{ "Solver" = "rea'),
        ([HALF, SQUARE], ["Reasoner"], {}, r'"Reasoner" has no role in code problems'),
        ([SQUARE], ["Ann"], {"Ann": "tool"}, r'"Ann" has no role in code problems'),
        ([HALF], ["Tool", "Ann"], {"X": "tool"}, r"the name 'X'\. Fix: one of 'Tool', 'Ann'$"),
        ([HALF], [], {"X": "tool"}, r"the name 'X'\. Fix: one of none$"),
        ([HALF], ["Käthe"], {}, r'"Käthe" has no role in math'),
        ([problem_of(PlanPathLevel(level="@G")), SQUARE], ["Ann"], {}, r'"Ann" has no role in code problems'),
        ([HALF], ["Tool"], {"Toll": "tool"}, r"reward\.roles: no agent .* the name 'Toll'\. Fix: 'Tool'"),
        ([SQUARE, SQUARE.model_copy(update={"reference": None})], ["Tester"], {}, r"'square' has no ref.*'Tester'"),
        ([CALLED], ["Tester"], {}, r"'called' has tests that are no scripts'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            check_turns(problems, agents, roles)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("gold", "box", "team", "number"),
    [
        # A right answer is the gold's number, in whatever form.
        (r"10\%", r"10\%", 1, 1),
        (r"10\%", "0.1", 1, 1),
        (r"5 \text{ cm}", r"0.05 \text{ m}", 1, 1),
        # What the grader denies is no number either.
        ("6", "5=6", 0, 0),
        ("0.5", "1:2", 0, 0),
        ("5", "5" + " " * 1999 + r"\text{ or }7", 0, 0),
        # What sympy cannot tell is no crash.
        ("5", r"i \mod 5", 0, 0),
        (r"i \mod 5", "7", 0, None),
        ("5", r"\boxed", 0, 0),
        ("5", "2^{3^{4^5}}", 0, 0),
    ],
)
def test_numbers_in_odd_forms(gold: str, box: str, team: int, number: int | None) -> None:
    problem = Problem(id="odd", question="What?", domain="math", gold=gold)
    [found] = rewards(problem, ("Reasoner", rf"\boxed{{{box}}}"))
    terms = explained(found)
    assert terms["team"] == team
    assert terms.get("number") == number


def test_ten_percent_answers_a_question_for_percent() -> None:
    [found] = rewards(
        HALF.model_copy(update={"question": "What percent?", "gold": "10"}), ("Reasoner", r"\boxed{10\%}")
    )
    assert found.total == 2.0


def test_a_solution_is_graded_once_for_all_who_stand_behind_it() -> None:
    lots = ("Coder", fenced("import random\nprint(int(input()) ** 2 if random.random() < 0.5 else 0)"))
    test = ("Tester", a_test("5", "25"))
    teams = {explained(found)["team"] for found in rewards(SQUARE, lots, test, test, test, lots)}
    assert len(teams) == 1


def test_the_oldest_grades_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    graded: list[str] = []

    async def noted(sandbox: Sandbox, code: str, *given: Any, **options: Any) -> CodeGrade:
        graded.append(code)
        return await grade_code(sandbox, code, *given, **options)

    monkeypatch.setattr("trainer.credit.answer_turns.KEPT", 2)
    monkeypatch.setattr("trainer.credit.answer_turns.grade_code", noted)
    one, two, three = (("Coder", fenced(f"print({n})")) for n in (1, 2, 3))
    rewards(SQUARE, one, two, one, two, three, three, two, one)
    assert graded == [f"print({n})" for n in (1, 2, 3, 1)]


def test_what_takes_too_long_costs_two_tests() -> None:
    async def slow(sandbox: Sandbox) -> CodeGrade:
        code = "while True: pass"
        return await grade_code(sandbox, code, SQUARE.tests, limits=CodeLimits(cpu_s=1), most_timeouts=2)  # pyright: ignore

    assert [test.outcome for test in in_jail(slow).tests] == ["timeout", "timeout", "not_run", "not_run"]


SLEEPS = "import time\ntime.sleep(60)"


@pytest.mark.parametrize("shaping", ["dense", "outcome"])
@pytest.mark.parametrize(
    ("problem", "turns"),
    [
        (HALF, [("Tool", fenced(SLEEPS))]),
        (SQUARE, [("Coder", fenced(SLEEPS))]),
        (SQUARE, [("Coder", fenced(f"if int(input()) == 0:\n    {SLEEPS.replace(chr(10), ';')}"))]),
        (SQUARE, [("Coder", fenced(SLEEPS + "\n")), ("Tester", a_test("5", "25"))]),
        (SQUARE.model_copy(update={"id": "late", "reference": SLEEPS}), [("Tester", a_test("5", "25"))]),
    ],
    ids=["tool", "coder", "coder, in one test", "tester behind a coder", "reference"],
)
def test_a_turn_whose_code_a_clock_ended_says_so(
    problem: Problem, turns: list[tuple[str, str]], shaping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = CodeLimits(wall_s=0.6, cpu_s=10)
    monkeypatch.setattr("trainer.credit.answer_turns.GRADING_LIMITS", quick)
    monkeypatch.setattr("trainer.credit.answer_turns.grade_code", partial(grade_code, limits=quick))
    found = rewards(problem, *turns, shaping=shaping)
    of_reference = problem.reference == SLEEPS and shaping == "outcome"  # which asks for none
    assert [reward.timed_out for reward in found] == [not of_reference] * len(turns)


def test_what_a_clock_ended_once_is_graded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not leave out all that stands behind a solution, or a reference, for good."""
    graded: list[float] = []

    async def slow_at_first(*given: Any, **options: Any) -> CodeGrade:
        graded.append(1 if not graded else 60)
        return await grade_code(*given, **options, limits=CodeLimits(wall_s=graded[-1], cpu_s=10))

    monkeypatch.setattr("trainer.credit.answer_turns.grade_code", slow_at_first)
    coder = ("Coder", fenced("import time\nn = int(input())\ntime.sleep(1.5 * (n == 2))\nprint(n * n)"))
    found = rewards(SQUARE, coder, coder, coder)
    assert [(reward.timed_out, explained(reward)["team"]) for reward in found] == [(True, 0.75), (False, 1), (False, 1)]
    assert graded == [1, 60]


def test_a_reference_that_fails_its_own_tests_masks() -> None:
    [found] = rewards(BROKEN, ("Tester", a_test("5", "25")))
    assert explained(found) == {"team": 0, "local": 0}


@pytest.mark.parametrize(
    ("problem", "turns", "reasons"),
    [
        (HALF, [("Reasoner", r"\boxed{1/2}")], ["the answer is correct", "an answer", "the gold's number"]),
        (HALF, [("Reasoner", r"\boxed{2}")], ["the answer is wrong", "an answer", "not the gold's number"]),
        (HALF, [("Reasoner", "2")], ["no answer", "no boxed answer", "no answer"]),
        (HALF, [("Tool", r"\boxed{1/2}")], ["no answer", "no code", "no answer"]),
        (HALF, [("Tool", fenced("print(.5)"))], ["the answer is correct", "an answer", "the gold's number"]),
        (HALF, [("Tool", fenced("print(1)\nprint(2)"))],
         ["no answer", "it printed 2 lines, and not one", "no answer"]),
        (HALF, [("Tool", fenced("raise SystemExit(3)"))], ["no answer", FAILS + "exit 3", "no answer"]),
        (HALF, [("Tool", fenced("print('x' * 2 ** 23)"))], ["no answer", FAILS + "limit output_bytes", "no answer"]),
        (HALF, [("Tool", fenced("import sys\nsys.exit('a' * 300)"))], ["no answer", FAILS + "a" * 200, "no answer"]),
        (INTERVAL, [("Reasoner", r"\boxed{3}")], ["the answer is wrong", "masked: the gold is no number"]),
        (INTERVAL, [("Reasoner", "3")], ["no answer", "masked: the gold is no number"]),
        (SQUARE, [RIGHT], ["4 of 4 golden tests", "it does", "first golden test: pass", "4 of 4 golden tests"]),
        (SQUARE, [("Coder", fenced("sys.exit(1)"))],
         ["0 of 4 golden tests", "it does", "first golden test: exception", "0 of 4 golden tests"]),
        (SQUARE, [("Coder", "none")], ["no solution yet", "no code"]),
        (SQUARE, [("Tester", "none")], ["no solution yet", "no test"]),
        (SQUARE, [RIGHT, ("Tester", a_test("5", "24"))],
         ["4 of 4 golden tests", "the reference takes them", "the reference passes 0 of 1"]),
        (SQUARE, [("Tester", a_test("five", "25"))],
         ["no solution yet", "the reference ends with exception", "the reference passes 0 of 1"]),
        (BARE, [("Tester", a_test("5", "25"))], ["no solution yet", "masked: no reference solution that reads stdin"]),
        (BROKEN, [("Tester", a_test("5", "25"))],
         ["no solution yet", "masked: the reference solution fails the golden tests"]),
        (HALF, [("Ann", "x")], ["an agent without a role", "masked: what the agent is for is not known"]),
    ],
)  # fmt: skip
def test_each_part_says_what_was_seen(problem: Problem, turns: list[tuple[str, str]], reasons: list[str]) -> None:
    found = rewards(problem, *turns)[-1]
    assert [term.reason for term in found.terms] == reasons
    assert not found.timed_out, "none of it is a clock's"


@pytest.mark.parametrize(
    ("problem", "agent", "reply", "reasons"),
    [
        (HALF, "Reasoner", r"\boxed{.5}", ["the answer is correct", "an answer"]),
        (HALF, "Reasoner", "x", ["no answer", "no boxed answer"]),
        (SQUARE, "Coder", "none", ["no solution yet", "no code"]),
        (SQUARE, *RIGHT, ["4 of 4 golden tests", "code"]),
        (SQUARE, "Tester", a_test("5", "25"), ["no solution yet", "a test"]),
        (SQUARE, "Tester", "none", ["no solution yet", "no test"]),
    ],
)
def test_an_outcome_says_what_was_seen(problem: Problem, agent: str, reply: str, reasons: list[str]) -> None:
    found = rewards(problem, (agent, reply), shaping="outcome")[-1]
    assert [term.reason for term in found.terms] == reasons


def test_code_that_passes_a_test_builds() -> None:
    """The body of a function, behind its prompt."""
    tests = AssertTests(names={"f": "f"}, tests=["assert f(1) == 1"], prompt="def f(x):\n")
    body = Problem(id="body", question="f", domain="code", tests=tests)
    [found] = rewards(body, ("Coder", fenced("    return x")))
    assert explained(found) == {"team": 1, "builds": 1, "runs": 1, "passes": 1}


def test_a_sandbox_that_fails_is_no_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise SandboxUnavailable("gone", "start it")

    async def reward(sandbox: Sandbox) -> None:
        monkeypatch.setattr(sandbox, "run_code", broken)
        flow = Workflow("w").add_node(AgentNode("Coder", "x", max_turns=1))
        branching = Branching(trusted(flow, "q"))
        decision = await branching.start()
        assert isinstance(decision, Decision)
        ended = await branching.go_on(decision, Completion(text=fenced("print('nobody has graded this')")))
        await turn_reward(SQUARE, decision, ended, sandbox)

    with pytest.raises(SandboxUnavailable):
        in_jail(reward)
