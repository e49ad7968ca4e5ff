"""The tree of a search: a state is the replies given so far, an action is one more (MASPRM, section 3).

Which child a search goes to, and what is backed up, is in the methods; where replies come from, in the `Space`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from search.methods.budget import Budget, BudgetSpent, Spent
from workflow.completion import Completion
from workflow.failures import Failure

Reply = Completion | Failure
"""A failure is a call that went past a limit itself; no other kind is one."""
Result = TypeVar("Result")


class SearchRefused(ValueError):
    """What was asked for cannot be searched; the message says what to do."""


class AsksNobody(SearchRefused):
    """The program ended, somehow, before it asked any agent."""

    def __init__(self, failure: str | None, answer: str | None) -> None:
        self.why = f"it ended with {failure}" if failure else f"its answer is {answer!r:.100}"
        """How it ended, in a few words."""
        super().__init__(f"the program asks no agent ({self.why}), so there is nothing to search. Fix: run it")


@dataclass(frozen=True, slots=True)
class Action:
    """A reply to the call that a state waits for."""

    key: str
    agent: str
    reply: Reply


@dataclass(frozen=True, slots=True)
class End:
    """How the run of a terminal state ended."""

    answer: str | None
    failure: str | None = None
    """Its kind."""
    reward: float | None = None
    """R(s_T): +1 where the answer is right, else -1; None where nothing grades it."""
    verdict: str = ""
    """Why, in a few words."""


@dataclass(slots=True, eq=False)
class Node:
    """A state, and the edge that leads to it. N and W belong to that edge."""

    id: int
    parent: Node | None = None
    action: Action | None = None
    """None at the root alone."""
    number: int = 0
    """Which child of its parent it is, from 0, in the order drawn."""
    psi: float | None = None
    """Mean log-probability of the action's tokens (Eq. 1); None where the engine gave none."""
    value: float | None = None
    """V(s), once a guide has said it."""
    outcome: float | None = None
    """Y of a terminal state, once it was asked for."""
    copies: int = 1
    """Replies of one text that were merged into this one."""
    visits: int = 0
    """N(s, a)."""
    total: float = 0.0
    """W(s, a)."""
    virtual: bool = False
    """Whether N began with 1 and W with V (section 4.2)."""
    pending: int = 0
    """Simulations under way through this edge; each counts as a visit that lost, for the others."""
    children: list[Node] = field(default_factory=list)
    seen: bool = False
    """Whether the run has come here: `end` is then known."""
    end: End | None = None
    """None where a decision waits."""

    @property
    def q(self) -> float:
        """W / max(1, N)."""
        return self.total / max(1, self.visits)

    @property
    def depth(self) -> int:
        return len(self.path)

    @property
    def path(self) -> list[Node]:
        """From the root's child to this one; empty at the root."""
        path: list[Node] = []
        node: Node = self
        while node.parent is not None:
            path.append(node)
            node = node.parent
        return path[::-1]

    def back_up(self, value: float) -> None:
        """Along the edges from the root to here, once each (Alg. 1, lines 14 to 16)."""
        for node in self.path:
            node.visits += 1
            node.total += value


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
    def __init__(self, space: Space, *, budget: Budget | None = None, log: TreeLog | None = None) -> None:
        self.space, self.budget, self.log = space, budget or Budget(), log
        self.spent = Spent()
        self.root = Node(0)
        self.nodes = [self.root]
        self._logged = 1
        """How many of the nodes the log has been told of."""

    async def start(self) -> None:
        """Raises `AsksNobody`."""
        [end] = await self.ends([self.root])
        if end is not None:
            raise AsksNobody(end.failure, end.answer)

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
        `BudgetSpent` where they may not be drawn, or were not in time.
        """
        self.spent.may_draw(self.budget, len(nodes) * count)
        drawn = await self._in_time(together([self.space.draw(node, count) for node in nodes]))
        before = len(self.nodes)
        grown = [self._grow(node, actions, merge) for node, actions in zip(nodes, drawn, strict=True)]
        new = self.nodes[before:]
        if guide is not None:
            for node, value in zip(new, await guide.values(self, new), strict=True):
                node.value = value
                if virtual:
                    node.virtual, node.visits, node.total = True, 1, value
        if self.log is not None:
            for node in new:
                self.log.drawn(node)
            for node in new:  # where a guide has looked ahead
                if node.seen:
                    self.log.arrived(node)
        self._logged = len(self.nodes)
        return grown

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
        said = {_said(child.action.reply): child for child in parent.children if child.action} if merge else {}
        for action in actions:
            self.spent.drew(action.reply)
            same = said.get(_said(action.reply)) if merge else None
            if same is not None:
                same.copies += 1
                if same not in grown:
                    grown.append(same)
                continue
            psi = likelihood(action.reply)
            node = Node(len(self.nodes), parent, action, len(parent.children), psi)
            self.nodes.append(node)
            parent.children.append(node)
            grown.append(node)
            said[_said(action.reply)] = node
        return grown


def likelihood(reply: Reply) -> float | None:
    """psi of Eq. 1: the mean over the reply's tokens of log p; None where the engine gave none."""
    if isinstance(reply, Failure) or not reply.logprobs:
        return None
    return sum(reply.logprobs) / len(reply.logprobs)


def _said(reply: Reply) -> tuple[str | None, ...]:
    if isinstance(reply, Failure):
        return reply.kind, reply.message, "failure"
    return reply.text, reply.reasoning, reply.finish_reason


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
