"""The tree of a search as it grows: replies are drawn, runs come to their ends, states are scored, within a budget.

Which child a search goes to, and what is backed up, is in the methods; where replies come from, in the `Space`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from search.methods.budget import Budget, BudgetSpent, Spent
from search.methods.nodes import Action, AsksNobody, End, Node, psi_of, said_by

Result = TypeVar("Result")


class Space(Protocol):
    """Where a search goes. Raises what ends a search: `EngineFailed`, `SandboxUnavailable`."""

    async def draw(self, node: Node, count: int) -> Sequence[Action]:
        """That many replies to the call which the state waits for, asked for together."""
        ...

    async def end(self, node: Node) -> End | None:
        """Where the run comes with the replies so far: None where an agent is asked."""
        ...


class Values(Protocol):
    """What `Tree` asks of a guide (`search.methods.guides`)."""

    async def values(self, tree: Tree, nodes: Sequence[Node]) -> list[float]: ...


class TreeLog(Protocol):
    """Is told of everything that a tree is made of, in an order that does not depend on timing."""

    def drawn(self, node: Node) -> None:
        """A child is there, with its value where a guide gave one."""
        ...

    def arrived(self, node: Node) -> None:
        """The run has come there, at its end or at an agent's call."""
        ...

    def simulated(self, leaf: Node, value: float) -> None:
        """A value was backed up from a leaf."""
        ...


class Tree:
    """With a budget the first path comes first: each state's first reply, on to the end of that run. What is drawn for
    it is the first child that any search would have there, and becomes it as soon as one expands that state. So the
    tree is the one without a budget, as far as the budget goes, and where one run fits there is an answer."""

    def __init__(self, space: Space, *, budget: Budget | None = None, log: TreeLog | None = None) -> None:
        self.space, self.budget, self.log = space, budget or Budget(), log
        self.spent = Spent()
        self.root = Node(0)
        self.nodes = [self.root]
        self._logged = 1
        """How many of the nodes the log has been told of."""
        self._first: list[Node] = []
        """The first path, as far as it has come."""
        self._ahead: dict[Node, Node] = {}
        """Of those, the ones that are not in the tree yet, by their parent."""

    async def start(self) -> None:
        """Raises `AsksNobody`, and `BudgetSpent` where not even the first path comes to its end."""
        [end] = await self.ends([self.root])
        if end is not None:
            raise AsksNobody(end.failure, end.answer)
        if self.budget != Budget() and not self._first:
            await self._run_first()

    async def _run_first(self) -> None:
        node = self.root
        while node.end is None:
            self.spent.may_draw(self.budget, 1)
            [action] = await self._in_time(self.space.draw(node, 1))
            self.spent.drew(action.reply)
            child = self._ahead[node] = Node(-1, node, action, 0, psi_of(action))
            self._first.append(child)
            child.end = await self._in_time(self.space.end(child))
            child.seen = True
            node = child

    def first_end(self) -> Node:
        """The terminal state of the first path, the root where it came to none. What the search has not come to of it
        is taken into the tree: all that was drawn is there."""
        for node in self._first:
            if node.parent in self._ahead:
                self._take_in(self._ahead.pop(node.parent))
        self._tell()
        return self._first[-1] if self._first and self._first[-1].end is not None else self.root

    async def ends(self, nodes: Sequence[Node]) -> list[End | None]:
        """How the runs of these states end; None where they go on. Runs are made once. Raises `BudgetSpent` where they
        do not come there in time; those that did are known then."""
        new = list(dict.fromkeys(node for node in nodes if not node.seen))
        late: Sequence[Node] = ()
        if new:
            tasks = [asyncio.ensure_future(self.space.end(node)) for node in new]
            left = self.spent.left_s(self.budget)
            try:
                done, _ = await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
                late = [node for node, task in zip(new, tasks, strict=True) if task not in done]
                for node, task in zip(new, tasks, strict=True):
                    if task in done:
                        node.end, node.seen = task.result(), True
                        if node.id < self._logged and self.log is not None:
                            self.log.arrived(node)
            finally:
                await dropped(tasks)
        if late:
            raise BudgetSpent("wall_s")
        return [node.end for node in nodes]

    async def expand(
        self, nodes: Sequence[Node], count: int, *, merge: bool, guide: Values | None = None, virtual: bool = False
    ) -> list[list[Node]]:
        """`count` further children for each of these states, which wait; drawn together, scored together.

        With `merge` replies of equal text are one child; with `virtual` it begins with N = 1 and W = V. Raises
        `BudgetSpent` where they may not be drawn, or were not in time. Where they were not scored in time, they are
        there, and their value is unknown.
        """
        missing = [count - (node in self._ahead) for node in nodes]
        self.spent.may_draw(self.budget, sum(missing))
        works = [self._draw(node, each) for node, each in zip(nodes, missing, strict=True)]
        drawn = await self._in_time(together(works))
        before = len(self.nodes)
        grown = [self._grow(node, actions, merge) for node, actions in zip(nodes, drawn, strict=True)]
        new = self.nodes[before:]
        try:
            if guide is not None:
                for node, value in zip(new, await self.score(guide, new), strict=True):
                    node.value = value
                    if virtual:
                        node.virtual, node.visits, node.total = True, 1, value
        except BudgetSpent:
            self._tell()
            raise
        self._tell()
        return grown

    async def score(self, guide: Values, nodes: Sequence[Node]) -> list[float]:
        """What the guide says of them. Raises `BudgetSpent` where it does not in time."""
        return await self._in_time(guide.values(self, nodes))

    async def _draw(self, node: Node, count: int) -> Sequence[Action]:
        return await self.space.draw(node, count) if count else ()

    def _tell(self) -> None:
        """The log of nodes that it has not been told of; of their ends, too, where a guide has looked ahead."""
        new, self._logged = self.nodes[self._logged :], len(self.nodes)
        if self.log is not None:
            for node in new:
                self.log.drawn(node)
            for node in new:
                if node.seen:
                    self.log.arrived(node)

    async def _in_time(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Raises `BudgetSpent` where it does not come in time."""
        clock = asyncio.timeout(self.spent.left_s(self.budget))
        try:
            async with clock:
                return await work
        except TimeoutError:
            if clock.expired():
                raise BudgetSpent("wall_s") from None
            raise

    def _grow(self, parent: Node, actions: Sequence[Action], merge: bool) -> list[Node]:
        grown: list[Node] = []
        if parent in self._ahead:
            grown.append(self._take_in(self._ahead.pop(parent)))
        said = {said_by(child.action.reply): child for child in parent.children if child.action} if merge else {}
        for action in actions:
            self.spent.drew(action.reply)
            same = said.get(said_by(action.reply)) if merge else None
            if same is not None:
                same.copies += 1
                if same not in grown:
                    grown.append(same)
                continue
            node = self._take_in(Node(-1, parent, action, len(parent.children), psi_of(action)))
            grown.append(node)
            said[said_by(action.reply)] = node
        return grown

    def _take_in(self, node: Node) -> Node:
        assert node.parent is not None
        node.id = len(self.nodes)
        self.nodes.append(node)
        node.parent.children.append(node)
        return node


async def together(works: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """All results in their order. The first that fails ends the others, and is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await dropped(tasks)


async def dropped(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """End those that are under way."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
