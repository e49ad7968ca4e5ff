"""Evaluations: attempts in a real jail, their record, resuming after a kill, pace, bad ends, broken infrastructure."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_problems import FOUR, PLAYS, RAISES, SINGLE, SIX
from token_engine import TokenEngine

from engine import retries
from engine.protocol import Engine
from sandbox import ProcessSandbox
from tasks import Problem
from tasks.environments import problem_of
from tasks.problems import PlanPathLevel
from trainer.evaluate.attempts import RESULTS, Attempt
from trainer.evaluate.evaluation import EvalSettings, evaluate
from trainer.evaluate.evaluation_report import report_of
from workflow.completion import CompletionRequest, Usage
from workflow.failures import EngineFailed, LimitExceeded
from workflow.limits import Limits
from workflow.trace import Trace
from workflow.usage import Tally

REJECTED = SINGLE.replace('"Solver", ', '"Solver", sytem_prompt=')
RAISES_LATER = """from workflow import AgentNode, Workflow, WorkflowNode

class Divide(WorkflowNode):
    def process(self, context):
        return 1 / 0

workflow = Workflow("w").add_nodes([AgentNode("A", "Put it in \\\\boxed{}."), Divide("d")])
"""
PROBLEMS = {problem.id: problem for problem in (FOUR, SIX)}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)


class Evaluate(Protocol):
    def __call__(
        self,
        problems: list[Problem],
        executor: TokenEngine,
        folder: Path | None = None,
        *,
        designer: Engine | None = None,
        program: str | None = SINGLE,
        watched: list[Attempt] | None = None,
        tasks: dict[str, str] | None = None,
        **settings: Any,
    ) -> list[Attempt]: ...


@contextmanager
def evaluations() -> Iterator[Evaluate]:
    """Evaluates in one sandbox; with `SINGLE` for all problems, k=2 and one retry unless told otherwise."""

    async def start() -> ProcessSandbox:
        return ProcessSandbox(preload=("designer.check", "tasks.math.worker"))

    with asyncio.Runner() as runner:
        sandbox = runner.run(start())

        def attempts_of(
            problems: list[Problem],
            executor: TokenEngine,
            folder: Path | None = None,
            *,
            designer: Engine | None = None,
            program: str | None = SINGLE,
            watched: list[Attempt] | None = None,
            tasks: dict[str, str] | None = None,
            **settings: Any,
        ) -> list[Attempt]:
            evaluation = evaluate(
                problems,
                executor=executor,
                sandbox=sandbox,
                designer=designer,
                program=None if designer else program,
                settings=EvalSettings(**{"k": 2, "retries": 1, **settings}),
                tasks=tasks,
                folder=folder,
                watch=(watched if watched is not None else []).append,
            )
            return runner.run(asyncio.wait_for(evaluation, 100))

        yield attempts_of
        runner.run(sandbox.close())


@pytest.fixture(scope="module")
def attempts_of() -> Iterator[Evaluate]:
    with evaluations() as attempts_of:
        yield attempts_of


def even_seeds(request: CompletionRequest) -> str:
    """Right for about half of the attempts at `FOUR`, always wrong for `SIX`."""
    return "\\boxed{4}" if (request.sampling.seed or 0) % 2 == 0 else "no idea"


def ignoring_time(attempts: list[Attempt]) -> list[Attempt]:
    return [attempt.model_copy(update={"duration_s": 0.0}) for attempt in attempts]


def test_k_independent_attempts_at_each_problem_are_graded_and_kept(attempts_of: Evaluate, tmp_path: Path) -> None:
    engine = TokenEngine(even_seeds)
    attempts = attempts_of([FOUR, SIX], engine, tmp_path / "out", k=6, tasks={"p/4": "easy"})
    assert [(a.problem, a.attempt) for a in attempts] == [(p, n) for p in ("p/4", "p/6") for n in range(6)]
    assert len({attempt.seed for attempt in attempts}) == 12
    fours, sixes = attempts[:6], attempts[6:]
    assert {attempt.correct for attempt in fours} == {True, False}
    for attempt in fours:
        assert attempt.answered == attempt.correct
        assert attempt.verdict == ("correct" if attempt.correct else "no_answer")
        assert (attempt.task, attempt.designer, attempt.structure) == ("easy", "program", "single")
        assert attempt.program == SINGLE
        assert attempt.usage["executor"].calls == 1
        assert attempt.reply_tokens == {"executor": [len("\\boxed{4}") if attempt.correct else len("no idea")]}
    assert not any(attempt.correct for attempt in sixes)
    assert {attempt.verdict for attempt in sixes} <= {"wrong", "no_answer"}
    written = [Attempt.model_validate_json(line) for line in (tmp_path / "out" / RESULTS).read_text().splitlines()]
    assert sorted(written, key=lambda a: (a.problem, a.attempt)) == attempts
    assert len({attempt.trace for attempt in attempts}) == 12
    for attempt in attempts:
        assert attempt.trace is not None
        trace = Trace.from_lines((tmp_path / "out" / attempt.trace).read_text().splitlines(keepends=True))
        assert trace.started is not None
        assert (trace.started.seed, trace.ended is not None) == (attempt.seed, True)
    again = attempts_of([FOUR, SIX], TokenEngine(even_seeds), k=6, max_concurrent=1, tasks={"p/4": "easy"})
    assert ignoring_time(again) == [a.model_copy(update={"duration_s": 0.0, "trace": None}) for a in attempts]


def test_the_pace_is_kept_and_nothing_is_dropped(attempts_of: Evaluate) -> None:
    engine = TokenEngine("\\boxed{4}", pause_s=0.1)
    attempts = attempts_of([FOUR, SIX], engine, k=5, max_concurrent=3)
    assert engine.most == 3
    assert len(engine.requests) == len(attempts) == 10


def test_a_policy_designs_and_its_bad_programs_are_data(attempts_of: Evaluate) -> None:
    written = {"p/4": REJECTED, "p/6": RAISES}

    def design(request: CompletionRequest) -> str:
        text = str(request.messages)
        program = next((program for name, program in written.items() if PROBLEMS[name].question in text), "")
        return f"<code>\n{program}\n</code>"

    designer, executor = TokenEngine(design), TokenEngine("never asked")
    rejected, failed = attempts_of([FOUR, SIX], executor, designer=designer, k=1, style="short")
    assert executor.requests == []
    assert (rejected.failure, rejected.structure, rejected.program) == ("program_rejected", None, REJECTED)
    assert "sytem_prompt" in rejected.message
    assert rejected.usage["designer"].calls == 2, "it was asked to repair its program"
    assert len(rejected.reply_tokens["designer"]) == 2
    assert (failed.failure, failed.correct, failed.verdict) == ("program_rejected", False, "program_rejected")
    assert "1 / 0" in failed.message or "ZeroDivisionError" in failed.message


def test_designs_differ_by_attempt_and_run(attempts_of: Evaluate) -> None:
    designer, executor = TokenEngine(f"<code>\n{SINGLE}\n</code>"), TokenEngine("\\boxed{4}")
    attempts = attempts_of([FOUR], executor, designer=designer, k=3)
    assert [attempt.correct for attempt in attempts] == [True] * 3
    assert {attempt.designer for attempt in attempts} == {"policy"}
    assert len({request.sampling.seed for request in designer.requests}) == 3
    report = report_of(attempts)
    assert (report.diversity.designs, report.diversity.role_names, report.diversity.unique_prompts) == (3, 1, 0.0)
    assert {role: tally.calls for role, tally in report.usage_by_role.items()} == {"designer": 3, "executor": 3}


def test_bad_runs_are_data(attempts_of: Evaluate) -> None:
    (attempt,) = attempts_of([FOUR], TokenEngine("\\boxed{4}"), program=RAISES_LATER, k=1)
    assert (attempt.failure, attempt.structure, attempt.correct) == ("program_failed", "single", False)
    assert "ZeroDivisionError" in attempt.message
    attempts = attempts_of([FOUR], TokenEngine("\\boxed{4}"), limits=Limits(agent_calls=0))
    assert [attempt.failure for attempt in attempts] == ["limit_exceeded"] * 2
    assert report_of(attempts).failures == {"limit_exceeded": 2}
    assert report_of(attempts).answered == 0


def test_the_bank_designs_for_each_problem(attempts_of: Evaluate) -> None:
    (attempt,) = attempts_of([FOUR], TokenEngine("\\boxed{4}"), program=None, k=1)
    assert (attempt.designer, attempt.template, attempt.structure) == ("bank", "math_single", "single")
    assert attempt.correct


def test_an_answer_of_no_agent_is_not_correct(attempts_of: Evaluate) -> None:
    program = SINGLE + "workflow.run(question)\nanswer = '\\\\boxed{4}'\n"
    (attempt,) = attempts_of([FOUR], TokenEngine("?"), program=program, k=1)
    assert (attempt.correct, attempt.verdict) == (False, "the answer stands in no agent's reply")


def test_a_broken_engine_stops_loudly_and_what_is_done_is_kept(attempts_of: Evaluate, tmp_path: Path) -> None:
    asked: list[str] = []

    def broken(request: CompletionRequest) -> str:
        asked.append(request.key)
        if SIX.question in str(request.messages):
            raise EngineFailed("tokens", "gone")
        return "\\boxed{4}"

    watched: list[Attempt] = []
    with pytest.raises(EngineFailed, match=r"^engine tokens failed: gone$"):
        attempts_of([FOUR, SIX], TokenEngine(broken), tmp_path, max_concurrent=1, retries=2, watched=watched)
    assert len(asked) == 2 + 3, "one attempt, two retries"
    assert [attempt.problem for attempt in watched] == ["p/4", "p/4"]
    mended = TokenEngine("\\boxed{6}")
    seen: list[Attempt] = []
    attempts = attempts_of([FOUR, SIX], mended, tmp_path, watched=seen)
    assert len(mended.requests) == 2, "only what was missing"
    assert attempts[:2] == seen[:2] == watched
    assert all(attempt.correct for attempt in attempts)


def test_a_hiccup_is_retried(attempts_of: Evaluate) -> None:
    left = [EngineFailed("tokens", "hiccup")]

    def reply(request: CompletionRequest) -> str:
        if left:
            raise left.pop()
        return "\\boxed{4}"

    assert [attempt.correct for attempt in attempts_of([FOUR], TokenEngine(reply))] == [True, True]


def test_a_designer_that_hangs_is_infrastructure_and_one_without_room_is_data(attempts_of: Evaluate) -> None:
    with pytest.raises(EngineFailed, match=r"no reply within reply_s=0\.2"):
        attempts_of(
            [FOUR], TokenEngine("x"), designer=TokenEngine("x", pause_s=60), limits=Limits(reply_s=0.2), retries=0, k=1
        )

    def outgrown(request: CompletionRequest) -> str:
        raise LimitExceeded("context_tokens", 10, 11)

    (attempt,) = attempts_of([FOUR], TokenEngine("x"), designer=TokenEngine(outgrown), k=1)
    assert (attempt.failure, attempt.program, attempt.structure) == ("limit_exceeded", None, None)


TESTS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
KILLED = """
import asyncio, os, signal, sys
sys.path[:0] = {tests!r}
from pathlib import Path
from test_evaluation import FOUR, SIX, TokenEngine, evaluations, even_seeds

left = [1] * {replies}

def reply(request):
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left.pop()
    return even_seeds(request)

with evaluations() as attempts_of:
    attempts_of([FOUR, SIX], TokenEngine(reply), Path({folder!r}), k=3)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(("replies", "torn"), [(0, ""), (2, '{"problem": "p/4", "atte'), (5, "")])
def test_an_evaluation_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(
    attempts_of: Evaluate, tmp_path: Path, replies: int, torn: str
) -> None:
    tests = TESTS
    script = KILLED.format(tests=tests, replies=replies, folder=str(tmp_path / "killed"))
    killed = subprocess.run([sys.executable, "-c", script], timeout=60, cwd=Path(__file__).parents[3], check=False)
    assert killed.returncode == -signal.SIGKILL
    results = tmp_path / "killed" / RESULTS
    done = results.read_text().count("\n")
    assert done <= replies
    with results.open("a") as file:
        file.write(torn)
    engine = TokenEngine(even_seeds)
    resumed = attempts_of([FOUR, SIX], engine, tmp_path / "killed", k=3)
    assert len(engine.requests) == 6 - done
    assert ignoring_time(resumed) == ignoring_time(attempts_of([FOUR, SIX], TokenEngine(even_seeds), tmp_path, k=3))
    lines = results.read_text().splitlines()
    assert sorted(Attempt.model_validate_json(line).attempt for line in lines) == [0, 0, 1, 1, 2, 2]


def test_more_attempts_can_be_added_later(attempts_of: Evaluate, tmp_path: Path) -> None:
    first = attempts_of([FOUR], TokenEngine(even_seeds), tmp_path, k=2)
    engine = TokenEngine(even_seeds)
    more = attempts_of([FOUR, SIX], engine, tmp_path, k=3, max_concurrent=2, retries=0)
    assert [more[0], more[1]] == first
    assert len(engine.requests) == 4
    assert attempts_of([FOUR], TokenEngine("never asked"), tmp_path, k=1) == first[:1]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seed": 5}, "holds attempts with seed=0, not 5"),
        ({"program": RAISES}, "holds attempts with program="),
        ({"style": "short"}, "style=.full., not .short."),
        ({"problems": [FOUR.model_copy(update={"gold": "5"})]}, "problem 'p/4' has changed"),
        ({"line": '{"problem": "p/4"}\n'}, r"results.jsonl, line 2: Field required \(attempt\)"),
    ],
)
def test_a_folder_of_another_evaluation_is_refused(
    attempts_of: Evaluate, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    attempts_of([FOUR], TokenEngine("\\boxed{4}"), tmp_path, k=1)
    with (tmp_path / RESULTS).open("a") as file:
        file.write(changed.pop("line", ""))
    with pytest.raises(ValueError, match=told):
        attempts_of(changed.pop("problems", [FOUR]), TokenEngine("never asked"), tmp_path, k=1, **changed)


def test_what_makes_no_sense_is_refused() -> None:
    engine = TokenEngine("x")
    sandbox: Any = object()
    with pytest.raises(ValueError, match="two problems have the id 'p/4'"):
        asyncio.run(evaluate([FOUR, FOUR], executor=engine, sandbox=sandbox))
    with pytest.raises(ValueError, match="leave out designer or program"):
        asyncio.run(evaluate([FOUR], executor=engine, sandbox=sandbox, designer=engine, program=SINGLE))


# The report


def attempt(problem: str, number: int, correct: bool, **more: Any) -> Attempt:
    usage = {"executor": Tally(calls=2, usage=Usage(prompt_tokens=10, completion_tokens=5, cost_usd=0.25))}
    return Attempt(
        **{
            "problem": problem,
            "attempt": number,
            "problem_digest": "",
            "domain": "math",
            "seed": number,
            "correct": correct,
            "answered": True,
            "verdict": "",
            "designer": "policy",
            "usage": usage,
            "reply_tokens": {"executor": [2, 3]},
            "duration_s": 2.0,
            **more,
        }
    )


def test_a_report_by_hand() -> None:
    attempts = [
        attempt("a", 0, True, structure="single", task="t"),
        attempt("a", 1, False, structure="ensemble", task="t"),
        attempt("b", 0, True, structure="single", domain="code", task="u"),
        attempt("b", 1, True, structure=None, domain="code", task="u", answered=False, failure="program_failed"),
    ]
    report = report_of(attempts)
    assert report.accuracy is not None
    assert (report.problems, report.attempts, report.accuracy.estimate) == (2, 4, 0.75)
    assert report.pass_at == {1: 0.75, 2: 1.0}
    assert {task: rate.estimate for task, rate in report.by_task.items()} == {"t": 0.5, "u": 1.0}
    assert {domain: rate.estimate for domain, rate in report.by_domain.items()} == {"math": 0.5, "code": 1.0}
    assert report.answered == 0.75
    rows = {name: (row.share, row.attempts, row.correct) for name, row in report.structures.items()}
    assert rows == {"single": (0.5, 2, 1.0), "ensemble": (0.25, 1, 0.0), "none": (0.25, 1, 1.0)}
    assert report.failures == {"program_failed": 1}
    assert report.usage == report.usage_by_role["executor"]
    assert report.usage.usage == Usage(prompt_tokens=40, completion_tokens=20, cost_usd=1.0)
    assert (report.reply_tokens["executor"].count, report.reply_tokens["executor"].mean) == (8, 2.5)
    assert (report.attempt_s.mean, report.attempt_s.max) == (2.0, 2.0)
    assert report_of([]).accuracy is None


def test_turns_count_in_games_that_were_solved() -> None:
    attempts = [
        attempt("a", 0, True, domain="game", turns=1),
        attempt("a", 1, True, domain="game", turns=4),
        attempt("b", 0, False, domain="game", turns=9),
        attempt("c", 0, True),
    ]
    turns = report_of(attempts).turns
    assert turns is not None
    assert (turns.count, turns.mean, turns.max) == (2, 2.5, 4)
    assert report_of(attempts[2:]).turns is None


def test_a_game_tells_its_turns(attempts_of: Evaluate) -> None:
    game = problem_of(PlanPathLevel(level="@.\n.G", turns=3))
    engine = TokenEngine(lambda request: '["R"]' if "Turn 1" in repr(request.messages) else '["D"]')
    first, second = attempts_of([game], engine, program=PLAYS)
    assert first.correct
    assert (first.turns, second.turns) == (2, 2)
    (math, _) = attempts_of([FOUR], TokenEngine("\\boxed{4}"))
    assert math.turns is None


STRUCTURES = st.sampled_from([None, "single", "debate"])
ATTEMPTS = st.lists(
    st.builds(attempt, st.sampled_from("abc"), st.integers(0, 3), st.booleans(), structure=STRUCTURES), max_size=10
)


@pytest.mark.thorough
@given(ATTEMPTS, st.integers(0, 10**6))
def test_the_order_of_attempts_changes_nothing(attempts: list[Attempt], seed: int) -> None:
    mixed = random.Random(seed).sample(attempts, len(attempts))
    one, other = report_of(attempts).model_dump(), report_of(mixed).model_dump()
    for rates in (one, other):
        rates["accuracy"] = rates["accuracy"] and {k: round(v, 9) for k, v in rates["accuracy"].items()}
        rates["pass_at"] = {k: round(v, 9) for k, v in rates["pass_at"].items()}
        rates["by_domain"] = {n: {k: round(v, 9) for k, v in r.items()} for n, r in rates["by_domain"].items()}
    assert one == other
