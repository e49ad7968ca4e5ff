"""Models of values as guides of one problem's search: V of states, Y of final answers. What they say is checked in
`search.scoring`."""

from __future__ import annotations

from collections.abc import Sequence

from search.methods import Node, Tree
from search.problem.program_space import ProgramSpace
from search.scoring import ScoredState, Scorer, scored
from workflow.completion import Completion


class ModelGuide:
    """V: the value of a state after its last reply. A call that failed by a limit is worth -1 and asked of nobody."""

    def __init__(self, scorer: Scorer, question: str, space: ProgramSpace) -> None:
        self.name = scorer.name
        self._scorer, self._question, self._space = scorer, question, space

    async def values(self, tree: Tree, nodes: Sequence[Node]) -> list[float]:
        said = [node for node in nodes if node.action is not None and isinstance(node.action.reply, Completion)]
        states = [ScoredState(self._question, self._space.turns(node)) for node in said]
        found = dict(zip(said, await _scored(tree, self._scorer, states), strict=True))
        return [found.get(node, -1.0) for node in nodes]


class OutcomeGuide:
    """Y: the value of a final answer to the question. Where there is none it is -1."""

    def __init__(self, scorer: Scorer, question: str) -> None:
        self.name = scorer.name
        self._scorer, self._question = scorer, question

    async def values(self, tree: Tree, nodes: Sequence[Node]) -> list[float]:
        answers = {node: node.end.answer for node in nodes if node.end is not None and not node.end.failure}
        said = [node for node, answer in answers.items() if answer is not None]
        states = [ScoredState(self._question, (), answers[node]) for node in said]
        found = dict(zip(said, await _scored(tree, self._scorer, states), strict=True))
        return [found.get(node, -1.0) for node in nodes]


async def _scored(tree: Tree, scorer: Scorer, states: Sequence[ScoredState]) -> list[float]:
    if not states:
        return []
    scores = await scored(scorer, states)
    tree.spent.scored += len(states)
    tree.spent.scored_tokens += sum(score.tokens for score in scores)
    return [score.value for score in scores]
