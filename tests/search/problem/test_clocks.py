"""Searches under a clock: it ends draws, runs and scoring, what came is counted, and the best so far is told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from player import Player, WordScorer
from small_programs import header, searched_for, short_word, space_of

from search.problem import Found, SearchSettings, TreeWriter, guide_of, read_tree, search
from search.scoring import Score, ScoredState
from workflow.completion import Completion, CompletionRequest


class Slow(Player):
    """Takes a minute for each second reply of `agent`."""

    def __init__(self, agent: str) -> None:
        super().__init__(short_word, cost_usd=0.25)
        self.agent = agent

    async def complete(self, request: CompletionRequest) -> Completion:
        if request.agent == self.agent and len(self.asked) % 2:
            self.asked.append(request)
            await asyncio.sleep(60)
        return await super().complete(request)


@pytest.mark.parametrize("method", ["majority", "beam", "mcts"])
def test_a_clock_ends_a_search_with_the_first_run_where_no_other_came_and_counts_what_came(
    tmp_path: Path, method: Any
) -> None:
    for shape, agent, came in (("aa", "A0", True), ("aa", "A1", False), ("aaa", "A2", True)):
        engine = Slow(agent)
        plan = SearchSettings(method=method, wall_s=0.4)
        began = time.monotonic()
        found, _ = searched_for(
            shape, plan, tmp_path / "tree", engine, prm=WordScorer() if method != "majority" else None
        )
        assert time.monotonic() - began < 20
        report = found.report
        assert (report.stopped_by, found.run is not None) == ("wall_s", came)
        if not came:
            assert report.verdict == "the budget of wall_s was spent before any run ended"
        assert report.agent_calls == len(engine.given) > 0, "what came beside the one that did not come, too"
        assert report.cost_usd == 0.25 * len(engine.given)
        record = read_tree(tmp_path / "tree")
        assert record.chosen is not None
        assert (record.nodes[record.chosen.id].end is not None) is came


class SlowWords(WordScorer):
    """Takes a minute once it has said so much."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free = free

    async def score(self, states: Sequence[ScoredState]) -> list[Score]:
        if sum(self.scored.values()) + len(states) > self.free:
            await asyncio.sleep(60)
        return await super().score(states)


@pytest.mark.parametrize("free", [0, 2, 4])
@pytest.mark.parametrize(
    "plan", [{"method": "majority", "weights": "values"}, {"method": "majority", "weights": "outcome"},
             {"method": "beam"}, {"method": "mcts"}, {"method": "mcts", "mix": 0.5}]
)  # fmt: skip
def test_a_clock_ends_scoring_and_what_was_not_scored_is_unknown(
    tmp_path: Path, plan: dict[str, Any], free: int
) -> None:
    async def go() -> Found:
        space = space_of("aa", Player(short_word))
        settings = SearchSettings(wall_s=0.5, samples=12, children=4, **plan)
        slow = SlowWords(free)
        prm, orm = (None, slow) if settings.weights == "outcome" else (slow, slow if settings.mix else None)
        writer = TreeWriter(tmp_path / "tree", header(settings.model_dump(mode="json"), "aa"))
        try:
            guide, outcomes = guide_of(settings, prm, orm, "What?", space)
            return await search(space, settings, guide, outcomes, writer)
        finally:
            await space.close()
            writer.close()

    began = time.monotonic()
    found = asyncio.run(asyncio.wait_for(go(), 30))
    assert time.monotonic() - began < 20
    assert (found.report.stopped_by, found.report.depth) == ("wall_s", 2)
    record = read_tree(tmp_path / "tree")
    assert record.chosen is not None
    assert record.nodes[record.chosen.id].end is not None


def test_a_clock_that_strikes_while_the_oracle_looks_ahead_leaves_a_tree_that_can_be_read(tmp_path: Path) -> None:
    """What was drawn and not scored stands there, and so does the end that is chosen."""

    class Late(Player):
        async def complete(self, request: CompletionRequest) -> Completion:
            await asyncio.sleep(60 if request.agent == "A1" and len(self.given) > 4 else 0)
            return await super().complete(request)

    for method in ("beam", "mcts"):
        plan = SearchSettings(method=method, samples=3, wall_s=0.4)
        found, _ = searched_for("ra", plan, tmp_path / "tree", Late(), prm="oracle")
        assert (found.report.stopped_by, found.run is not None) == ("wall_s", True)
        record = read_tree(tmp_path / "tree")
        assert record.chosen is not None
        assert record.nodes[record.chosen.id].end is not None


def test_a_clock_that_strikes_between_runs_leaves_the_best_of_those_that_ended(tmp_path: Path) -> None:
    class Tired(Player):
        async def complete(self, request: CompletionRequest) -> Completion:
            await asyncio.sleep(60 if len(self.given) >= 6 else 0)
            return await super().complete(request)

    plan = SearchSettings(children=2, wall_s=1.0)
    found, live = searched_for("aa", plan, tmp_path / "tree", Tired(short_word), prm=WordScorer())
    assert found.report.stopped_by == ("wall_s" if len(live) > 2 else "")
    assert found.run is not None
    assert found.report.answer is not None
    assert found.report.depth == 2
