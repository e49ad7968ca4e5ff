"""The search for one problem's answer, by a named method: its settings, what it found, and what that cost.

Many problems are `trainer.evaluate`'s business, models of values `trainer.values`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.session import Run
from search.methods import (
    BeamSettings,
    Budget,
    Guide,
    Likelihood,
    MajoritySettings,
    MctsSettings,
    Node,
    Oracle,
    SearchRefused,
    Spent,
    Tree,
    beam,
    label,
    majority,
    mcts,
    straight,
)
from search.problem.model_guides import ModelGuide, OutcomeGuide
from search.problem.program_space import ProgramSpace
from search.problem.tree_file import LABEL
from search.problem.tree_writer import TreeWriter
from search.scoring import Scorer
from workflow.completion import Usage
from workflow.trace import Valued
from workflow.usage import Tally

Method = Literal["greedy", "majority", "beam", "mcts"]
ORACLE = "oracle"
"""In place of a model of values: the grader."""


class SearchSettings(BaseModel):
    """How one problem is searched; defaults are those of MASPRM, Appendix B.6. A method ignores what others use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Method = "mcts"
    beam: int = Field(default=3, ge=1)
    """B1, replies that stay."""
    samples: int = Field(default=5, ge=1)
    """B2, replies drawn at each state of a beam; runs of a majority."""
    first: bool = False
    """Whether a beam search ends with the first run that does."""
    simulations: int = Field(default=20, ge=1)
    children: int = Field(default=3, ge=1)
    c_uct: float = Field(default=4.0, ge=0, allow_inf_nan=False)
    mix: float = Field(default=0.0, ge=0, le=1)
    """lambda of Eq. 3, with an outcome model."""
    stop: Literal["ended", "expanded"] = "ended"
    parallel: int = Field(default=1, ge=1)
    weights: Literal["none", "values", "outcome"] = "none"
    """Of a majority's votes."""
    agent_calls: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    wall_s: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _method_has_it(self) -> SearchSettings:
        if self.weights != "none" and self.method != "majority":
            raise ValueError(
                f"weights={self.weights} are those of votes, and {self.method} has none. Fix: leave them out"
            )
        if self.mix and self.method != "mcts":
            raise ValueError(f"mix={self.mix} is Eq. 3's, which {self.method} has not. Fix: leave it out")
        return self

    def is_guided_by_psi(self, prm: object) -> bool:
        return self.method in ("beam", "mcts") and prm is None

    @property
    def has_ties(self) -> bool:
        """Whether psi decides between what is otherwise equal."""
        return self.method in ("majority", "beam")

    @property
    def budget(self) -> Budget:
        return Budget(agent_calls=self.agent_calls, tokens=self.tokens, wall_s=self.wall_s)

    @property
    def mcts(self) -> MctsSettings:
        return MctsSettings(
            simulations=self.simulations,
            children=self.children,
            c_uct=self.c_uct,
            mix=self.mix,
            stop=self.stop,
            parallel=self.parallel,
        )


class SearchReport(BaseModel):
    """What a search found and spent, beside a Trace. The paper's EM, AC, MC and Tok are means over these."""

    method: Method
    guide: str
    """"" where nothing guided."""
    answer: str | None = None
    correct: bool | None = None
    """None where nothing grades it, or where nothing was found."""
    verdict: str = ""
    failure: str | None = None
    path: list[Valued]
    """The replies of the chosen path."""
    agent_calls: int
    scored: int
    generated_tokens: int
    prompt_tokens: int
    scored_tokens: int
    cost_usd: float | None = None
    nodes: int
    """Distinct states, without the root."""
    depth: int
    """Decisions on the chosen path."""
    stopped_by: str = ""
    """Which budget ended the search."""
    parallel: int = 1
    """Simulations at a time; more than one is not the search that one at a time is."""
    seconds: float

    @property
    def tally(self) -> Tally:
        """Of all replies drawn."""
        prompt, completion, cost = self.prompt_tokens, self.generated_tokens, self.cost_usd
        usage = Usage(prompt_tokens=prompt, completion_tokens=completion, cost_usd=cost)
        return Tally(calls=self.agent_calls, usage=usage)


@dataclass(frozen=True, slots=True)
class Found:
    report: SearchReport
    run: Run | None
    """The chosen path as an ordinary run; None where a budget ended the search before any run had ended."""


def guide_of(
    settings: SearchSettings, prm: Scorer | str | None, orm: Scorer | None, question: str, space: ProgramSpace
) -> tuple[Guide | None, Guide | None]:
    """What guides this method, and its outcome model. Raises `SearchRefused` for a model that it has no use for, or
    lacks."""
    outcome = None if orm is None else OutcomeGuide(orm, question)
    if isinstance(prm, str) and prm != ORACLE:
        raise SearchRefused(f"--prm {prm} is no model of values. Fix: a folder of `metaagent prm`, or {ORACLE}")
    model = Oracle() if isinstance(prm, str) else None if prm is None else ModelGuide(prm, question, space)
    match settings.method:
        case "greedy":
            if model or outcome:
                raise SearchRefused(
                    "a single run is not guided, so a model of values has no part in it. Fix: leave it out"
                )
            return None, None
        case "majority":
            given = {(False, False): "none", (True, False): "values", (False, True): "outcome"}
            if given.get((model is not None, outcome is not None)) != settings.weights:
                raise SearchRefused(
                    f"votes with weights {settings.weights}. Fix: --weights values with --prm alone, outcome with "
                    "--orm alone, none with neither"
                )
            if isinstance(model, Oracle):
                raise SearchRefused("the oracle would decide the vote. Fix: a model of values, or --method mcts")
            return model or outcome, None
        case "beam":
            if outcome:
                raise SearchRefused(
                    "a beam search has no use for an outcome model. Fix: leave --orm out, or --method mcts"
                )
            return model or Likelihood(), None
        case "mcts":
            if (settings.mix > 0) != (outcome is not None):
                raise SearchRefused(
                    f"--mix {settings.mix:g} with {'no' if outcome is None else 'an'} outcome model. "
                    "Fix: --orm and --mix above 0, or neither"
                )
            return model or Likelihood(), outcome


async def search(
    space: ProgramSpace,
    settings: SearchSettings,
    guide: Guide | None = None,
    outcomes: Guide | None = None,
    writer: TreeWriter | None = None,
) -> Found:
    """Raises `SearchRefused`, and `EngineFailed` and `SandboxUnavailable` when retries did not help."""
    if writer is not None:
        writer.space = space
    tree = Tree(space, budget=settings.budget, log=writer)
    match settings.method:
        case "greedy":
            node, spent = await straight(tree)
        case "majority":
            node, spent = await majority(tree, MajoritySettings(runs=settings.samples, weights=settings.weights), guide)
        case "beam":
            assert guide is not None
            made = BeamSettings(beam=settings.beam, samples=settings.samples, first=settings.first)
            node, spent = await beam(tree, guide, made)
        case "mcts":
            assert guide is not None
            node, spent = await mcts(tree, guide, settings.mcts, outcomes)
    tree.first_end()
    if writer is not None:
        writer.chosen(node, spent)
    seconds = tree.spent.seconds
    run = await space.run(node) if node.end is not None else None
    return Found(_report(tree, space.spent, settings, guide, node, spent, seconds), run)


async def grow_labels(space: ProgramSpace, settings: MctsSettings, writer: TreeWriter) -> Tree:
    """Alg. 1 for one problem, written as it grows. Raises what `search` raises, and `TreeDamaged`."""
    writer.space = space
    tree = Tree(space, log=writer)
    await label(tree, settings)
    return tree


def _report(
    tree: Tree,
    replies: Spent,
    settings: SearchSettings,
    guide: Guide | None,
    node: Node,
    stopped_by: str,
    seconds: float,
) -> SearchReport:
    end = node.end
    return SearchReport(
        method=settings.method,
        guide="" if guide is None else guide.name,
        answer=None if end is None else end.answer,
        correct=None if end is None or end.reward is None else end.reward > 0,
        verdict=f"the budget of {stopped_by} was spent before any run ended" if end is None else end.verdict,
        failure=None if end is None else end.failure,
        path=_valued(node, "psi" if isinstance(guide, Likelihood) else "V"),
        agent_calls=replies.agent_calls,
        scored=tree.spent.scored,
        generated_tokens=replies.generated,
        prompt_tokens=replies.prompt_tokens,
        scored_tokens=tree.spent.scored_tokens,
        cost_usd=replies.cost_usd,
        nodes=len(tree.nodes) - 1,
        depth=node.depth,
        stopped_by=stopped_by,
        parallel=settings.parallel if settings.method == "mcts" else 1,
        seconds=round(seconds, 4),
    )


def _siblings(node: Node) -> int:
    assert node.parent is not None
    return sum(child.copies for child in node.parent.children)


def _valued(node: Node, guide: Literal["V", "psi"]) -> list[Valued]:
    return [
        Valued(
            key=each.action.key,
            agent=each.action.agent,
            value=each.value,
            guide=guide,
            q=each.q if each.visits else None,
            visits=each.visits,
            siblings=_siblings(each),
        )
        for each in node.path
        if each.action is not None
    ]


def label_header_settings(settings: MctsSettings) -> Mapping[str, object]:
    """What a label tree's header says of how it was searched."""
    return {
        "method": LABEL,
        "simulations": settings.simulations,
        "children": settings.children,
        "c_uct": settings.c_uct,
    }
