"""The report of one step: every field, against numbers worked by hand from three small trees."""

from array import array
from typing import Any

import pytest

from tasks import Problem
from trainer.evaluate.metrics import Diversity, Spread
from trainer.run.step_report import StepReport, SyncReport, Timings, generated_tokens, step_report
from trainer.samples import Coordinates, Trajectory
from trainer.trees import DesignResult, Execution, QuestionTree
from trainer.update.backend import UpdateReport
from workflow.completion import Usage
from workflow.failures import FailureKind
from workflow.graph import GraphNode
from workflow.trace import Rewarded, RewardTerm
from workflow.usage import PolicyRole

PROMPT = 3
"""Tokens of every trajectory that the policy did not choose."""


def trajectory(role: PolicyRole, place: Coordinates, chosen: int) -> Trajectory:
    return Trajectory(
        role=role,
        coordinates=place,
        token_ids=array("i", [1] * (PROMPT + chosen)),
        loss_mask=array("b", [0] * PROMPT + [1] * chosen),
        behaviour_logprobs=array("f", [0.0] * PROMPT + [-1.0] * chosen),
    )


def run(
    correct: float, formats: float | None, *chosen: int, failure: FailureKind | None = None, late: bool = False
) -> dict[str, Any]:
    """An execution with a trajectory for each number of chosen tokens; its reward is correct + 0.4 formats."""
    terms = [RewardTerm(name="correct", value=correct, weight=1.0, reason="")]
    if formats is not None:
        terms.append(RewardTerm(name="format", value=formats, weight=0.4, reason=""))
    return {
        "reward": Rewarded(total=sum(term.value * term.weight for term in terms), terms=terms, timed_out=late),
        "usage": Usage(prompt_tokens=50 * len(chosen), completion_tokens=sum(chosen)),
        "failure": failure,
        "chosen": chosen,
    }


def design(
    graph: GraphNode | None,
    written: list[int],
    *runs: dict[str, Any],
    rejected: bool = False,
    failure: FailureKind | None = None,
) -> Any:
    """A design in whose place in a tree is still open; the Designer chose `written` tokens in its replies."""

    def at(question: str, index: int) -> DesignResult:
        executions = [
            Execution(
                index=number,
                reward=each["reward"],
                failure=each["failure"],
                usage=each["usage"],
                trajectories=[
                    trajectory("executor", Coordinates(question=question, design=index, execution=number), count)
                    for count in each["chosen"]
                ],
            )
            for number, each in enumerate(runs)
        ]
        return DesignResult(
            index=index,
            program=None if rejected else "...",
            graph=graph,
            failure="program_rejected" if rejected else failure,
            trajectories=[trajectory("designer", Coordinates(question=question, design=index), n) for n in written],
            executions=executions,
            usage=Usage(prompt_tokens=100, completion_tokens=sum(written), cost_usd=0.5),
        )

    return at


def tree(question: str, *designs: Any) -> QuestionTree:
    problem = Problem(id=question, question="?", domain="math", gold="1")
    return QuestionTree(problem=problem, designs=[each(question, index) for index, each in enumerate(designs)])


def agent(name: str, prompt: str) -> GraphNode:
    return GraphNode(kind="AgentNode", base="AgentNode", name=name, prompt=prompt)


def single(name: str, prompt: str) -> GraphNode:
    return GraphNode(kind="Workflow", base="Workflow", name="w", children=[agent(name, prompt)])


ENSEMBLE = GraphNode(
    kind="EnsembleNode", base="EnsembleNode", name="e", children=[agent("Solver", "one"), agent("Checker", "two")]
)
NOT_RUN = run(0, None, failure="program_rejected")
REJECTED = (NOT_RUN, NOT_RUN)
DIFFERING = tree(
    "differing",
    # Rewards 1.4 and 1.0, the latter of a run in which no agent was asked: mean 1.2. Its Designer repaired it once.
    design(ENSEMBLE, [10, 4], run(1, 1, 3, 5), run(1, 0)),
    design(single("Solver", "one"), [6], run(0, 1, 2), run(0, 1, 2)),  # 0.4 and 0.4
)
EQUAL = tree(
    "equal",
    design(single("Solver", "three"), [8], run(0, 0, 1), run(0, None, 7, failure="limit_exceeded")),
    design(None, [2], *REJECTED, rejected=True),
)
NEVER_RUN = tree(
    "never run",
    design(None, [5], *REJECTED, rejected=True),
    design(single("Planner", "four"), [7], *REJECTED, rejected=True),  # a program that the check could still read
)
UPDATE = UpdateReport(loss=-0.3, gradient_norm=1.5, steps=1, samples=13, computed_samples=6, tokens=50)
TIMINGS = Timings(rollout_s=2.0, update_s=3.0, sync_s=1.0, tokens_per_s=7.0)


SYNC = SyncReport(version=8, bytes=640, seconds=0.5, gap=1e-4, engines=2, transport="gloo")


def report(*trees: QuestionTree, rule: Any = "tree", **more: Any) -> StepReport:
    return step_report(7, ["executor", "designer"], trees, rule, {"p0": UPDATE}, {"p0": 4}, TIMINGS, **more)


def test_every_field_of_a_step() -> None:
    expected = {
        "step": 7,
        "active": ["designer", "executor"],
        "questions": 3,
        "designs": 6,
        "executions": 12,
        # 1.4 + 1.0 + 0.4 + 0.4 = 3.2, and eight times 0.
        "reward": pytest.approx(3.2 / 12),
        # Designer: mean rewards 1.2 for both of the replies of one design, 0.4, and 0 for four more: 2.8 / 7.
        # Executor: 1.4 for both trajectories of one run, 0.4 twice, 0 twice: 3.6 / 6.
        "reward_by_role": pytest.approx({"designer": 0.4, "executor": 0.6}),
        # Before the weight of 0.4, and over all executions, also those that have no such term.
        "terms": pytest.approx({"correct": 2 / 12, "format": 3 / 12}),
        "correct": pytest.approx(2 / 12),
        "solved": pytest.approx(1 / 3),
        "ready": pytest.approx(3 / 6),
        # Of the four designs with a graph.
        "structures": {"single": 3 / 4, "ensemble": 1 / 4},
        # Prompts one, two, one, three, four: the first and the third are equal.
        "diversity": Diversity(
            designs=4,
            agents=5,
            role_names=3,
            unique_prompts=3 / 5,
            top_names={"Solver": 3, "Checker": 1, "Planner": 1},
        ),
        # Three rejected designs of two executions each.
        "failures": {"limit_exceeded": 1, "program_rejected": 6},
        # Designer: 1.2 against 0.4, 0 against 0, 0 against 0. Executor: 1.4, 1.4, 0.4, 0.4 and 0, 0; nothing was run
        # for the third question, which does not count.
        "silent": pytest.approx({"designer": 2 / 3, "executor": 1 / 2}),
        "agents": {},
        "turns_to_solve": None,
        "timed_out": 0,
        "candidates_timed_out": 0,
        "outgrown": 0,
        # 10 + 4 + 6 + 8 + 2 + 5 + 7 = 42 and 3 + 5 + 2 + 2 + 1 + 7 = 20; of less than 20 numbers p95 is the largest.
        "lengths": {
            "designer": Spread(count=7, mean=6.0, p95=10, max=10),
            "executor": Spread(count=6, mean=20 / 6, p95=7, max=7),
        },
        # 100 for each of six designs, 50 for each of six trajectories; what they chose is as above.
        "usage": {
            "designer": Usage(prompt_tokens=600, completion_tokens=42, cost_usd=3.0),
            "executor": Usage(prompt_tokens=300, completion_tokens=20),
        },
        "updates": {"p0": UPDATE},
        "weights": {"p0": 4},
        "age": 2,
        "syncs": {"p0": SYNC},
        "timings": TIMINGS,
    }
    found = report(DIFFERING, EQUAL, NEVER_RUN, syncs={"p0": SYNC}, age=2)
    assert set(expected) == set(StepReport.model_fields)
    for name, value in expected.items():
        assert getattr(found, name) == value, name
    assert StepReport.model_validate_json(found.model_dump_json()) == found


def test_silence_is_told_by_the_rule_that_is_named() -> None:
    # Runs of one design have equal rewards where agents were asked: 1.4, 1.4 and 0.4, 0.4.
    found = report(DIFFERING, EQUAL, NEVER_RUN, rule="per-design")
    assert found.silent == pytest.approx({"designer": 2 / 3, "executor": 2 / 2})


def test_a_role_without_trajectories_is_left_out() -> None:
    found = report(NEVER_RUN)
    assert (set(found.reward_by_role), set(found.silent), set(found.lengths)) == ({"designer"},) * 3
    assert found.usage["executor"] == Usage()
    fixed = report(tree("fixed", design(None, [], run(1, 1, 3), run(0, 1, 2))))
    assert (set(fixed.reward_by_role), set(fixed.silent), set(fixed.lengths)) == ({"executor"},) * 3
    assert fixed.silent == {"executor": 0.0}
    assert (fixed.structures, fixed.diversity) == ({}, Diversity())


def test_an_update_that_computed_nothing_is_left_out() -> None:
    silent = UPDATE.model_copy(update={"steps": 0, "computed_samples": 0, "tokens": 0})
    found = step_report(7, ["designer"], [EQUAL], "tree", {"p0": UPDATE, "p1": silent}, {"p0": 4, "p1": 0}, TIMINGS)
    assert (found.updates, found.weights) == ({"p0": UPDATE}, {"p0": 4, "p1": 0})


# What taught nothing


def warnings(*trees: QuestionTree, active: list[PolicyRole] | None = None) -> list[str]:
    return step_report(7, active or ["executor"], trees, "tree", {"p0": UPDATE}, {"p0": 4}, TIMINGS).warnings


LATE = tree("late", design(ENSEMBLE, [9], run(0, None, 2, failure="limit_exceeded", late=True), run(1, 1, 3)))
OUTGROWN = tree("outgrown", *[design(None, [], *REJECTED, failure="limit_exceeded")] * 2)


def test_a_run_whose_wall_clock_struck_is_counted_and_credits_nobody() -> None:
    found = report(LATE)
    assert (found.timed_out, found.executions, found.failures) == (1, 2, {"limit_exceeded": 1})
    assert found.reward_by_role == pytest.approx({"executor": 1.4})
    assert found.reward == pytest.approx(0.7)
    assert [each[:52] for each in warnings(DIFFERING, LATE)] == ["1 of 6 runs were ended by rollout.limits.wall_s, or "]


def test_questions_too_long_for_the_designer_are_counted() -> None:
    assert report(OUTGROWN, DIFFERING).outgrown == 1
    (told,) = warnings(OUTGROWN, DIFFERING)
    assert told.startswith(
        "1 of 2 questions were too long for the Designer, and taught nothing. Fix: raise rollout.max"
    )


def test_a_role_that_a_step_taught_nothing_is_told_with_the_reason() -> None:
    """Whatever else there was to compute, such as the other role's update, or divergence from the reference."""
    equal = "the {} learned nothing from rewards: wherever they are compared they are equal"
    assert warnings(DIFFERING, active=["designer", "executor"]) == []
    assert warnings(EQUAL) == [equal.format("executor")]
    assert warnings(EQUAL, active=["designer", "executor"]) == [equal.format("designer"), equal.format("executor")]
    assert warnings(OUTGROWN)[-1] == "the executor had no trajectory to learn from"


def test_only_what_learners_say_is_generated() -> None:
    usage: Any = {"designer": Usage(completion_tokens=3), "executor": Usage(completion_tokens=40)}
    assert [generated_tokens(usage, roles) for roles in ([], ["designer"], ["executor"], ["executor", "designer"])] == [
        0,
        3,
        40,
        43,
    ]
