"""A tree of texts to search, with nothing behind it: what is replied where is written down."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from search.methods import Action, End, Node, Tree
from workflow.completion import Completion, Usage

Ways = dict[str, Any]
"""Replies, each with a dict of what may be replied then, or the number that its end is worth."""


class ToySpace:
    """Draws the replies to equal ones before in their order, round and round. `psi` are log-probabilities by text."""

    def __init__(self, ways: Ways, psi: dict[str, float] | None = None, dice: random.Random | None = None) -> None:
        self.ways, self.psi, self.dice = ways, psi or {}, dice
        self.drawn: Counter[str] = Counter()
        self.ended: list[str] = []

    def at(self, node: Node) -> Any:
        place: Any = self.ways
        for each in node.path:
            place = place[text(each)]
        return place

    async def draw(self, node: Node, count: int) -> Sequence[Action]:
        await self._late()
        texts, place = list(self.at(node)), "/".join(map(text, node.path))
        first = self.drawn[place]
        self.drawn[place] += count
        found = [texts[(first + number) % len(texts)] for number in range(count)]
        return [Action(f"w/A#{node.depth}", f"A{node.depth}", self.reply(each)) for each in found]

    def reply(self, said: str) -> Completion:
        logprobs = [self.psi[said]] * 2 if said in self.psi else None
        return Completion(text=said, logprobs=logprobs, usage=Usage(prompt_tokens=10, completion_tokens=2))

    async def end(self, node: Node) -> End | None:
        await self._late()
        place = self.at(node)
        if isinstance(place, dict):
            return None
        self.ended.append("/".join(map(text, node.path)))
        return End(text(node), None, float(place))

    async def _late(self) -> None:
        if self.dice is not None:
            await asyncio.sleep(self.dice.random() / 500)


def text(node: Node) -> str:
    assert node.action is not None
    assert isinstance(node.action.reply, Completion)
    return node.action.reply.text


class ToyGuide:
    """Values by the last text, 0 where none is given."""

    name = "toy"

    def __init__(self, values: dict[str, float]) -> None:
        self.by_text, self.asked = values, Counter[str]()

    async def values(self, tree: Tree, nodes: Sequence[Node]) -> list[float]:
        tree.spent.scored += len(nodes)
        self.asked.update(map(text, nodes))
        return [self.by_text.get(text(node), 0.0) for node in nodes]


def random_ways(dice: random.Random, depth: int, width: int, equal: float = 0.0) -> Ways:
    """A tree of different depths; a share of its replies has the text of the one before."""
    ways: Ways = {}
    while len(ways) < width:
        said = str(dice.randrange(10**6))
        ends = depth == 1 or dice.random() < 0.2
        ways[said] = dice.choice([-1, 1]) if ends else random_ways(dice, depth - 1, width, equal)
    return ways
