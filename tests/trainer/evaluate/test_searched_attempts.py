"""Evaluations whose runs are searched for: what attempts, reports and folders say is what was drawn."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from one_jail import in_jail
from small_problems import FOUR, PLAYS, SIX, SOMETIMES
from token_engine import TokenEngine

from engine import retries
from sandbox import ProcessSandbox
from search.methods import SearchRefused
from search.problem import SearchSettings, read_tree
from tasks import Problem
from tasks.environments import problem_of
from tasks.problems import PlanPathLevel
from trainer.evaluate import Searcher, asked_nobody, evaluate, report_of
from trainer.evaluate.attempts import RESULTS, Attempt
from trainer.evaluate.evaluation import EvalSettings
from trainer.values import ScriptedScorer
from workflow.completion import CompletionRequest
from workflow.failures import EngineFailed
from workflow.trace import Trace, Valued

TWO = """
from workflow import AgentNode, Workflow
first, last = AgentNode("First", "Think.", max_turns=1), AgentNode("Last", "Put it in \\\\boxed{}.", max_turns=1)
workflow = Workflow("two").add_nodes([first, last])
"""
NOBODY = """
from workflow import Workflow, WorkflowNode
class Four(WorkflowNode):
    def process(self, context):
        return "\\\\boxed{4}"
workflow = Workflow("w").add_node(Four("four"))
"""
FAILS = """
import subprocess
from workflow import AgentNode, Workflow
said = subprocess.run(["python", "-c", "print('x')"], capture_output=True, text=True).stdout
workflow = Workflow("w").add_node(AgentNode(f"A{int(said)}", "Put it in \\\\boxed{}."))
"""
"""As soon as its code has run, which the check leaves out."""
MCTS = SearchSettings(simulations=4, children=2)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)


def numbers(request: CompletionRequest) -> str:
    dice = random.Random(repr((request.messages, request.sampling.seed)))
    return f"\\boxed{{{dice.choice('46')}}}"


def attempts_of(
    problems: list[Problem],
    engine: TokenEngine,
    folder: Path | None = None,
    *,
    search: SearchSettings | None = MCTS,
    prm: str | ScriptedScorer | None = "oracle",
    designer: TokenEngine | None = None,
    program: str = TWO,
    k: int = 2,
    most: int = 4,
) -> list[Attempt]:
    async def go(sandbox: ProcessSandbox) -> list[Attempt]:
        settings = EvalSettings(k=k, search=search, retries=2, max_concurrent=most)
        searcher = Searcher(sandbox=sandbox, limits=settings.limits, sampling=settings.sampling, retries=2, prm=prm)
        return await evaluate(
            problems,
            executor=engine,
            sandbox=sandbox,
            designer=designer,
            program=None if designer else program,
            settings=settings,
            folder=folder,
            searcher=searcher,
        )

    return in_jail(go)


def timeless(attempts: list[Attempt]) -> list[object]:
    """Without seconds, of which two evaluations have different ones."""
    found = []
    for attempt in attempts:
        assert attempt.search is not None
        search = attempt.search.model_copy(update={"seconds": 0.0})
        found.append(attempt.model_copy(update={"duration_s": 0.0, "search": search}).model_dump())
    return found


def test_attempts_say_what_all_replies_cost_and_the_report_has_their_means(tmp_path: Path) -> None:
    engine = TokenEngine(numbers)
    attempts = attempts_of([FOUR, SIX], engine, tmp_path)
    assert [(attempt.problem, attempt.attempt) for attempt in attempts] == [
        ("p/4", 0),
        ("p/4", 1),
        ("p/6", 0),
        ("p/6", 1),
    ]
    found = [attempt.search for attempt in attempts if attempt.search is not None]
    assert sum(each.agent_calls for each in found) == len(engine.requests)
    for attempt, each in zip(attempts, found, strict=True):
        tally = attempt.usage["executor"]
        assert (tally.calls, tally.usage.completion_tokens) == (each.agent_calls, each.generated_tokens)
        assert tally.usage.prompt_tokens == each.prompt_tokens
        assert each.agent_calls > each.depth == 2
        assert len(attempt.reply_tokens["executor"]) == 2, "of the chosen run"
        assert (attempt.correct, attempt.verdict) == (each.correct, each.verdict)
        assert attempt.trace is not None
        trace = Trace.from_lines((tmp_path / attempt.trace).read_text().splitlines())
        assert [event for event in trace.events if isinstance(event, Valued)] == each.path
        tree = read_tree(tmp_path / "trees" / Path(attempt.trace).name)
        assert (tree.header.problem, tree.header.settings["guide"]) == (attempt.problem, "oracle")
        assert len(tree.nodes) - 1 == each.nodes
    report = report_of(attempts)
    assert report.search is not None
    assert report.accuracy is not None
    assert report.accuracy.estimate == sum(attempt.correct for attempt in attempts) / 4
    assert report.search.agent_calls == len(engine.requests) / 4
    assert report.search.generated_tokens == sum(each.generated_tokens for each in found) / 4
    assert report.search.scored == sum(each.scored for each in found) / 4
    assert (report.search.method, report.search.guide, report.search.stopped) == ("mcts", "oracle", 0)
    assert report.usage.calls == len(engine.requests)


def test_attempts_of_a_folder_are_not_made_again_and_do_not_depend_on_pace(tmp_path: Path) -> None:
    first = attempts_of([FOUR, SIX], TokenEngine(numbers), tmp_path)
    engine = TokenEngine(numbers)
    assert attempts_of([FOUR, SIX], engine, tmp_path) == first
    assert engine.requests == []
    lines = (tmp_path / RESULTS).read_bytes().splitlines(keepends=True)
    (tmp_path / RESULTS).write_bytes(b"".join(lines[:2]) + lines[2][:50])
    resumed = attempts_of([FOUR, SIX], engine, tmp_path)
    assert timeless(resumed) == timeless(first)
    assert 0 < len(engine.requests) < sum(attempt.search.agent_calls for attempt in first if attempt.search)
    assert timeless(attempts_of([SIX, FOUR], TokenEngine(numbers), tmp_path / "slow", most=1)) == timeless(
        [*first[2:], *first[:2]]
    )
    for other, named in (
        (MCTS.model_copy(update={"c_uct": 1.0}), r"search\.c_uct=4.0, not 1.0"),
        (SearchSettings(method="beam"), r"search\.method="),
    ):
        with pytest.raises(ValueError, match=named):
            attempts_of([FOUR, SIX], engine, tmp_path, search=other)
    with pytest.raises(ValueError, match="prm="):
        attempts_of([FOUR, SIX], engine, tmp_path, prm=None)


def test_a_budget_that_ends_a_search_early_is_an_attempt_without_a_run(tmp_path: Path) -> None:
    plan = MCTS.model_copy(update={"agent_calls": 1})
    [attempt] = attempts_of([FOUR], TokenEngine(numbers), tmp_path, search=plan, k=1)
    assert attempt.search is not None
    assert (attempt.search.stopped_by, attempt.correct, attempt.answered, attempt.failure) == (
        "agent_calls", False, False, None,
    )  # fmt: skip
    assert (attempt.trace, attempt.usage["executor"].calls) == (None, 1)
    assert (attempt.search.answer, attempt.search.correct) == (None, None)
    nobody = TokenEngine(lambda request: "x")
    assert attempts_of([FOUR], nobody, tmp_path, search=plan, k=1) == [attempt], "it is read back"
    assert nobody.requests == []
    report = report_of([attempt])
    assert report.search is not None
    assert report.search.stopped == 1


class Even(ScriptedScorer):
    """A model that lies somewhere."""

    def __init__(self, name: str, digest: str) -> None:
        super().__init__({}, 0.5)
        self.name, self.digest = name, digest


def test_models_of_values_and_policies_are_known_by_what_they_are(tmp_path: Path) -> None:
    def made(prm: Even, engine: TokenEngine | None = None) -> list[Attempt]:
        return attempts_of([FOUR], engine or policy("1"), tmp_path, prm=prm, k=1)

    def policy(digest: str) -> TokenEngine:
        return TokenEngine(numbers, digest=digest)

    first = made(Even("prm/model", "1"))
    assert made(Even("/elsewhere/prm/model", "1")) == first
    for prm, engine, named in (
        (Even("prm/model", "2"), policy("1"), "prm="),
        (Even("prm/model", ""), policy("1"), "prm="),
        (Even("prm/model", "1"), policy("2"), "executor_digest="),
    ):
        with pytest.raises(ValueError, match=rf"holds attempts with {named}.*Fix: use another folder"):
            made(prm, engine)


@pytest.mark.parametrize(("program", "failure"), [(NOBODY, None), (FAILS, "program_failed")])
def test_a_designed_program_with_nothing_to_search_is_an_attempt_like_any_other(
    program: str, failure: str | None, tmp_path: Path
) -> None:
    executor = TokenEngine(numbers)
    executor.name = "executor"
    plain, attempt = (
        attempts_of([FOUR], executor, tmp_path / repr(search)[:20], designer=designing(program), search=search, k=1)[0]
        for search in (None, MCTS)
    )
    assert attempt.model_copy(update={"duration_s": 0.0}) == plain.model_copy(update={"duration_s": 0.0})
    assert (attempt.failure, attempt.search) == (failure, None)
    assert attempt.trace is not None
    assert (tmp_path / repr(MCTS)[:20] / attempt.trace).exists()
    assert report_of([attempt]).search is None
    assert executor.requests == []


def designing(program: str) -> TokenEngine:
    return TokenEngine(lambda request: f"<code>\n{program}</code>")


def test_a_given_program_that_asks_nobody_is_refused_and_one_that_fails_is_data() -> None:
    with pytest.raises(SearchRefused, match=r"asks no agent for any of the problems.*Fix: another program"):
        attempts_of([FOUR, SIX], TokenEngine(numbers), program=NOBODY)
    [attempt] = attempts_of([FOUR], TokenEngine(numbers), program=FAILS, k=1)
    assert (attempt.correct, attempt.failure, attempt.verdict) == (False, "program_failed", "program_failed")


def test_a_program_that_asks_nobody_for_some_problems_is_searched_for_the_others(tmp_path: Path) -> None:
    eight = Problem(id="p/8", question="What is 4 + 4?", domain="math", gold="8")
    engine = TokenEngine("\\boxed{8}")
    attempts = attempts_of([FOUR, SIX, eight], engine, tmp_path, program=SOMETIMES, k=1)
    assert [(each.correct, each.failure, each.search is None) for each in attempts] == [
        (False, None, True), (False, "program_rejected", True), (True, None, False),
    ]  # fmt: skip
    assert [asked_nobody(each) for each in attempts] == [True, False, False]
    asked = len(engine.requests)
    assert attempts_of([FOUR, SIX, eight], engine, tmp_path, program=SOMETIMES, k=1) == attempts
    assert len(engine.requests) == asked


@pytest.mark.parametrize(("prm", "named"), [(None, "psi -0.5"), ("oracle", "V "), (ScriptedScorer({}, 0.3), "V 0.3")])
def test_a_trace_names_what_guided(prm: str | ScriptedScorer | None, named: str, tmp_path: Path) -> None:
    [attempt] = attempts_of([FOUR], TokenEngine(numbers), tmp_path, prm=prm, k=1)
    assert attempt.search is not None
    assert all(each.said.startswith(named) for each in attempt.search.path)
    assert attempt.trace is not None
    events = Trace.from_lines((tmp_path / attempt.trace).read_text().splitlines()).events
    assert [event for event in events if isinstance(event, Valued)] == attempt.search.path


def test_a_folder_of_labels_takes_no_attempts(tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("{}")
    with pytest.raises(ValueError, match=r"holds label trees \(labels.json\). Fix: use another folder"):
        attempts_of([FOUR], TokenEngine(numbers), tmp_path)
    assert not (tmp_path / "trees").exists()


def test_every_problem_has_the_program_that_was_designed_for_it(tmp_path: Path) -> None:
    def design(request: CompletionRequest) -> str:
        asked = "".join(message["content"] for message in request.messages or [])
        return f"<code>\n{TWO if '2 + 2' in asked else TWO.replace('[first, last]', '[last]')}</code>"

    executor = TokenEngine(numbers)
    executor.name = "executor"
    attempts = attempts_of([FOUR, SIX], executor, tmp_path, designer=TokenEngine(design), k=1)
    assert [attempt.search.depth for attempt in attempts if attempt.search] == [2, 1]
    assert all(attempt.usage["designer"].calls == 1 for attempt in attempts)
    assert sum(attempt.usage["executor"].calls for attempt in attempts) == len(executor.requests)


def test_an_engine_that_fails_for_good_is_asked_as_often_as_retries_say(tmp_path: Path) -> None:
    """A reply is tried again, and the search is not begun anew on top of that."""

    def gone(request: CompletionRequest) -> str:
        if request.agent == "Last":
            raise EngineFailed("tokens", "gone")
        return numbers(request)

    engine = TokenEngine(gone)
    with pytest.raises(EngineFailed, match="gone"):
        attempts_of([FOUR], engine, tmp_path, k=1, search=SearchSettings(method="greedy"), prm=None)
    assert [request.agent for request in engine.requests] == ["First", "Last", "Last", "Last"]
    again = attempts_of([FOUR], TokenEngine(numbers), tmp_path, k=1, search=SearchSettings(method="greedy"), prm=None)
    assert len(again) == 1


def test_games_are_searched(tmp_path: Path) -> None:
    game = problem_of(PlanPathLevel(level="@..\n.#.\n..G"))

    def move(request: CompletionRequest) -> str:
        return f'["{"RD"[(request.sampling.seed or 0) % 2]}"]'

    plan = SearchSettings(simulations=6, children=2)
    [attempt] = attempts_of([game], TokenEngine(move), tmp_path, search=plan, k=1, program=PLAYS)
    assert attempt.search is not None
    assert attempt.turns is not None
    assert attempt.turns > 0
    assert attempt.correct == (attempt.search.correct is True)
    assert attempt.search.depth == 2 * attempt.turns
