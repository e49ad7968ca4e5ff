"""What becomes of runs that fail, calls that pass a limit, engines and models that fail, and searches that a budget
ends; clocks are in `test_clocks`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from one_jail import in_jail
from player import SAMPLING, Player, WordScorer, searched
from small_programs import is_four, labelled, searched_for, short_word, space_of, workflow_of

from engine import retries
from engine.protocol import Engine
from engine.session import Run
from sandbox import ProcessSandbox
from search import Branching, trusted
from search.methods import FAILED_PSI, End, MctsSettings, Node, SearchRefused
from search.problem import ProgramSpace, SearchReport, SearchSettings, guide_of, read_tree, search
from search.scoring import Score, ScoredState
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.failures import EngineFailed, LimitExceeded
from workflow.limits import Limits
from workflow.trace import Trace

RAISES_AT_FIVE = """
from workflow import AgentNode, Workflow
first, last = AgentNode("First", "Say.", max_turns=1), AgentNode("Last", "Say.", max_turns=1)
said = Workflow("f").add_node(first).run(question).content
answer = Workflow("l").add_node(last).run(said).content
if "5" in answer:
    raise ValueError("five")
"""
NOBODY = """
from workflow import Workflow, WorkflowNode
class Four(WorkflowNode):
    def process(self, context):
        return "\\\\boxed{4}"
workflow = Workflow("w").add_node(Four("four"))
"""
PLAN = MctsSettings(simulations=8, children=2)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)


def jailed_search(program: str, settings: SearchSettings, engine: Player, **more: Any) -> SearchReport:
    async def go(sandbox: ProcessSandbox) -> SearchReport:
        return await searched(sandbox, program, settings, engine, **more)

    return in_jail(go)


def test_a_run_that_fails_is_worth_minus_one_and_is_told_where_there_is_no_other(tmp_path: Path) -> None:
    tree, trace = tmp_path / "tree", tmp_path / "trace"
    plan = SearchSettings(simulations=12, children=2)
    report = jailed_search(RAISES_AT_FIVE, plan, Player(short_word), prm="oracle", tree=tree)
    assert (report.answer, report.correct, report.failure) == ("4", True, None)
    failed = [node for node in read_tree(tree).nodes.values() if node.end is not None and node.end.failure]
    assert {(node.end.failure, node.end.reward, node.value) for node in failed if node.end} == {
        ("program_failed", -1.0, -1.0)
    }
    engine = Player(lambda request: "5")
    for settings in (plan, SearchSettings(method="majority"), SearchSettings(method="beam")):
        report = jailed_search(RAISES_AT_FIVE, settings, engine, trace=trace)
        assert (report.failure, report.answer, report.correct) == ("program_failed", None, False)
        record = Trace.from_lines(trace.read_text().splitlines())
        assert len(record.agent_turns) == report.depth == 2


def test_a_run_that_passes_a_limit_is_worth_minus_one() -> None:
    plan = SearchSettings(simulations=2, children=2)
    report = jailed_search(RAISES_AT_FIVE, plan, Player(short_word), prm="oracle", limits=Limits(agent_calls=1))
    assert (report.failure, report.correct, report.depth) == ("limit_exceeded", False, 1)
    assert report.path[0].value == -1.0


def test_a_run_that_its_clock_ended_is_the_run_that_is_shown() -> None:
    """Made once more it might go further, and there would be another run than the one that was graded."""
    strict, lax = (trusted(workflow_of("aa"), "What?", limits=limits) for limits in (Limits(agent_calls=1), Limits()))
    runs: list[int] = []

    async def run(engine: Engine) -> Run:
        runs.append(1)
        return await (strict if len(runs) == 1 else lax).run(engine)

    async def go() -> None:
        space = ProgramSpace(Branching(replace(lax, run=run)), Player(), is_four)
        found = await search(space, SearchSettings(method="greedy"))
        assert found.run is not None
        assert found.run.failure is not None
        assert found.report.failure == found.run.failure.kind == "limit_exceeded"
        await space.close()

    asyncio.run(asyncio.wait_for(go(), 30))


@pytest.mark.parametrize("late", [False, True])
def test_an_end_that_a_clock_graded_says_so(late: bool) -> None:
    ends: list[End | None] = []

    class Noting(ProgramSpace):
        async def end(self, node: Node) -> End | None:
            ends.append(await super().end(node))
            return ends[-1]

    async def graded(run: Run) -> tuple[float, str, bool]:
        return 0.0, "wrong", late

    async def go() -> None:
        space = Noting(Branching(trusted(workflow_of("a"), "What?")), Player(), graded)
        await search(space, SearchSettings(method="greedy"))
        await space.close()

    asyncio.run(asyncio.wait_for(go(), 30))
    assert [(end.reward, end.timed_out) for end in ends if end is not None] == [(-1.0, late)]


def test_a_call_beyond_the_context_is_an_end_of_its_own(tmp_path: Path) -> None:
    """It is worth -1 to labels, to V and to the oracle, and the least to psi; nobody is asked about it."""

    def too_long(request: CompletionRequest) -> str:
        if request.agent == "A1" and (request.sampling.seed or 0) % 2:
            raise LimitExceeded("context_tokens", 10, 11)
        return short_word(request)

    live = labelled("aa", PLAN, tmp_path / "labels", Player(too_long))
    ends = {
        node.end.failure: node.end.reward for node in live.values() if node.end and node.visits and node.end.failure
    }
    assert ends == {"limit_exceeded": -1.0}
    for prm, least in ((None, FAILED_PSI), (WordScorer(), -1.0), ("oracle", -1.0)):
        plan = SearchSettings(simulations=8, children=2)
        found, live = searched_for("aa", plan, tmp_path / "tree", Player(too_long), prm=prm)
        failed = [node for node in live.values() if node.action and not isinstance(node.action.reply, Completion)]
        assert failed
        assert {node.value for node in failed} == {least}
        assert {node.psi for node in failed} == {None}
        assert found.report.failure is None
        record = read_tree(tmp_path / "tree")
        assert [record.nodes[node.id].action for node in failed] == [node.action for node in failed]


def test_an_engine_that_fails_is_asked_again_and_then_stops_the_search(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole", tmp_path / "tree"
    labelled("aa", PLAN, whole, Player(short_word))
    tries: dict[Any, int] = {}

    def fails(times: int, only: str) -> Callable[[CompletionRequest], str]:
        def reply(request: CompletionRequest) -> str:
            if request.agent == only:
                tries[request.key, request.sampling.seed] = tries.get((request.key, request.sampling.seed), 0) + 1
                if tries[request.key, request.sampling.seed] <= times:
                    raise EngineFailed("player", "gone")
            return short_word(request)

        return reply

    with pytest.raises(EngineFailed, match="gone"):
        labelled("aa", PLAN, path, Player(fails(10**6, "A1")))
    record = read_tree(path)
    assert all(node.end is None for node in record.nodes.values()), "no end was made up"
    assert whole.read_bytes().startswith(path.read_bytes())
    tries.clear()
    plan = SearchSettings(simulations=4, children=2)
    engine = Player(fails(2, "A1"))
    path, whole = tmp_path / "searched", tmp_path / "searched whole"
    found, _ = searched_for("aa", plan, path, engine, prm=WordScorer(), retries=2)
    again, _ = searched_for("aa", plan, whole, Player(short_word), prm=WordScorer())
    assert path.read_bytes() == whole.read_bytes()
    assert found.report.agent_calls == again.report.agent_calls == len(engine.given)
    assert len(engine.asked) == len(engine.given) + 2 * len(tries)
    with pytest.raises(EngineFailed, match="gone"):
        searched_for("aa", plan, path, Player(fails(3, "A0")), prm=WordScorer(), retries=2)


@pytest.mark.parametrize(("budget", "most"), [({"agent_calls": 8}, 8), ({"tokens": 6}, 10)])
@pytest.mark.parametrize("method", ["beam", "mcts"])
def test_budgets_are_kept_and_told(tmp_path: Path, budget: dict[str, int], most: int, method: Any) -> None:
    engine = Player(lambda request: f"\\boxed{{{request.sampling.seed}}}")
    plan = SearchSettings(method=method, children=2, beam=2, samples=2, simulations=40).model_copy(update=budget)
    found, _ = searched_for("aaa", plan, tmp_path / "tree", engine, prm=WordScorer())
    assert (found.report.stopped_by, found.report.agent_calls) == (next(iter(budget)), len(engine.asked))
    assert len(engine.asked) <= most
    assert read_tree(tmp_path / "tree").chosen is not None


@pytest.mark.parametrize(("beam", "samples", "calls"), [(3, 5, 50), (1, 5, 20), (2, 2, 14)])
def test_agent_calls_of_beams_are_those_of_the_formula(tmp_path: Path, beam: int, samples: int, calls: int) -> None:
    """B2 + (D - 1) B1 B2 for a program of four agents, one after the other."""
    engine = Player(lambda request: f"\\boxed{{{request.sampling.seed}}}")
    plan = SearchSettings(method="beam", beam=beam, samples=samples)
    found, _ = searched_for("aaaa", plan, tmp_path / "tree", engine)
    assert found.report.agent_calls == len(engine.asked) == samples + 3 * beam * samples == calls
    assert (found.report.depth, found.report.scored) == (4, 0)


def test_scores_are_counted_as_the_model_was_asked(tmp_path: Path) -> None:
    for method in ("beam", "mcts"):
        scorer = WordScorer()
        plan = SearchSettings(method=method, simulations=6)
        found, live = searched_for("ra", plan, tmp_path / "tree", Player(), prm=scorer)
        assert found.report.scored == sum(scorer.scored.values()) == len(live)
        assert found.report.scored_tokens == sum(len(text.split()) * n for text, n in scorer.scored.items())


def test_psi_is_refused_where_an_engine_has_none_and_an_empty_reply_is_the_least_likely(tmp_path: Path) -> None:
    for method in ("beam", "mcts"):
        plan = SearchSettings(method=method)
        with pytest.raises(SearchRefused, match=r"agent 'A0' replied without log-probabilities.*Fix: .*--prm"):
            searched_for("a", plan, tmp_path / "tree", Player(logprobs=False))
        searched_for("a", plan, tmp_path / "tree", Player(logprobs=False), prm=WordScorer())
        some = Player(lambda request: "" if (request.sampling.seed or 0) % 2 else "\\boxed{4}")
        found, live = searched_for("a", plan, tmp_path / "tree", some)
        replies = [(node.action.reply, node.value) for node in live.values() if node.action]
        assert {value for reply, value in replies if isinstance(reply, Completion) and not reply.text} == {FAILED_PSI}
        assert found.report.answer == "\\boxed{4}"


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 7.0])
@pytest.mark.parametrize(
    "plan", [{"method": "majority", "weights": "values"}, {"method": "majority", "weights": "outcome"},
             {"method": "beam"}, {"method": "mcts"}, {"method": "mcts", "mix": 0.5}]
)  # fmt: skip
def test_no_search_follows_what_is_no_value(tmp_path: Path, plan: dict[str, Any], wrong: float) -> None:
    """NaN would win: nothing is larger."""

    class Odd(WordScorer):
        def _score(self, state: ScoredState) -> Score:
            return Score(wrong) if len(self.scored) else super()._score(state)

    async def go() -> None:
        space = space_of("aa", Player())
        settings = SearchSettings(**plan)
        prm, orm = (None, Odd()) if settings.weights == "outcome" else (Odd(), Odd() if settings.mix else None)
        guide, outcomes = guide_of(settings, prm, orm, "What?", space)
        try:
            await search(space, settings, guide, outcomes)
        finally:
            await space.close()

    with pytest.raises(SearchRefused, match=rf"model of values words gives {wrong} to the (reply|answer)"):
        asyncio.run(asyncio.wait_for(go(), 30))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 0.5])
def test_no_search_follows_what_is_no_log_probability(tmp_path: Path, wrong: float) -> None:
    class Odd(Player):
        async def complete(self, request: CompletionRequest) -> Completion:
            said = await super().complete(request)
            return replace(said, logprobs=[wrong] * len(said.logprobs or ()))

    for method in ("beam", "mcts"):
        with pytest.raises(EngineFailed, match=rf"cannot be: logprobs holds {wrong}"):
            searched_for("aa", SearchSettings(method=method), tmp_path / "tree", Odd(short_word))


@pytest.mark.parametrize(
    ("program", "prm", "named"),
    [
        (NOBODY, "oracle", r"asks no agent \(its answer is '4'\).*Fix: run it"),
        (NOBODY.replace('return "', "return 1 / 0 #"), "oracle", r"it ended with program_failed"),
        (RAISES_AT_FIVE, "oracle", r"the oracle grades.*Fix: .*--gold"),
        (RAISES_AT_FIVE, None, r"psi needs those of the one sampled from.*Fix: --temperature 1 and --top-p 1.*--prm"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anybody_is_asked(
    program: str, prm: str | None, named: str, tmp_path: Path
) -> None:
    engine = Player(short_word)
    engine.processed_logprobs = False  # type: ignore[attr-defined]
    graded = program is not RAISES_AT_FIVE
    with pytest.raises(SearchRefused, match=named):
        jailed_search(program, SearchSettings(), engine, prm=prm, graded=graded, tree=tmp_path / "tree")
    assert engine.asked == []


@pytest.mark.parametrize(
    ("settings", "prm", "orm", "named"),
    [
        (SearchSettings(method="greedy"), "oracle", False, "a single run is not guided"),
        (SearchSettings(method="greedy"), None, True, "a single run is not guided"),
        (
            SearchSettings(method="majority"),
            WordScorer(),
            False,
            "votes with weights none.*--weights values with --prm",
        ),
        (SearchSettings(method="majority"), None, True, "votes with weights none.*outcome with --orm"),
        (SearchSettings(method="majority", weights="values"), None, False, "votes with weights values"),
        (SearchSettings(method="majority", weights="outcome"), WordScorer(), True, "votes with weights outcome"),
        (SearchSettings(method="majority", weights="values"), "oracle", False, "the oracle would decide the vote"),
        (SearchSettings(method="beam"), None, True, "no use for an outcome model"),
        (SearchSettings(), WordScorer(), True, "--mix 0 with an outcome model"),
        (SearchSettings(mix=0.5), WordScorer(), False, "--mix 0.5 with no outcome model"),
        (SearchSettings(), "astar", False, "--prm astar is no model of values"),
    ],
)
def test_models_that_a_method_has_no_use_for_or_lacks_are_refused(
    settings: SearchSettings, prm: Any, orm: bool, named: str
) -> None:
    space = ProgramSpace(Branching(trusted(workflow_of("a"), "What?")), Player())
    with pytest.raises(SearchRefused, match=named):
        guide_of(settings, prm, WordScorer() if orm else None, "What?", space)


def test_an_endpoint_is_asked_for_log_probabilities_where_psi_guides_and_otherwise_not() -> None:
    for settings, prm, sampling, asks in (
        (SearchSettings(method="beam"), None, Sampling(), True),
        (SearchSettings(method="beam"), WordScorer(), Sampling(), False),
        (SearchSettings(method="majority"), None, SAMPLING, False),
        (SearchSettings(method="greedy"), None, SAMPLING, False),
    ):
        for is_endpoint in (True, False):
            engine = Player(short_word)
            if is_endpoint:
                engine.processed_logprobs = False  # type: ignore[attr-defined]
            jailed_search(RAISES_AT_FIVE, settings, engine, prm=prm, sampling=sampling)
            wants = asks or (not is_endpoint and settings.method != "greedy")
            assert {request.sampling.logprobs for request in engine.asked} == {wants}
