"""One program's runs as a `Space`: replies from an engine, ends graded.

How runs part is in `search.branching`; which way a search goes, in `search.methods`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from engine.protocol import Engine
from engine.retries import retried
from engine.session import Run
from search.branching import Branching, Decision, Ended, Position
from search.methods import Action, End, Node, Reply, Spent, together
from search.paths import AgentStep, CodeStep, Path
from workflow.completion import CompletionRequest

LIMIT = "limit_exceeded"
"""The failure of a run that passed a limit."""
Grade = Callable[[Run], Awaitable[tuple[float, str, bool]]]
"""1 where a run is right, why, in a few words, and whether a clock ended code that it was graded by. It is not asked of
runs that failed."""


class ProgramSpace:
    """Where the runs of `branching` go with replies of `engine`.

    The seed of a reply follows from the run's seed, the replies before it and its number (`candidate_seed`); states
    that are reached by equal replies go on numbering, so that their replies differ. What engine or sandbox failed is
    done again `retries` times, then raised. `recorded` are replies that need not be drawn again, by the parent's id;
    `read_answer` finds the final answer in a run's message.
    """

    def __init__(
        self,
        branching: Branching,
        engine: Engine,
        grade: Grade | None = None,
        *,
        retries: int = 3,
        recorded: Mapping[int, Sequence[Reply]] | None = None,
        read_answer: Callable[[str], str | None] = lambda message: message,
    ) -> None:
        self._branching, self._engine, self._grade, self._retries = branching, engine, grade, retries
        self._recorded, self._read_answer = recorded or {}, read_answer
        self._decisions: dict[Node, Decision] = {}
        self._ends: dict[Node, Path | Run] = {}
        """Runs that failed are kept: one that its clock ended may go further when it is made once more."""
        self._unsteady: set[int] = set()
        self.spent = Spent()
        """On all replies that came, those too that came with some that a budget did not wait for."""
        self._numbered: Counter[str] = Counter()
        """By digest of the path: how many replies were drawn there."""

    async def draw(self, node: Node, count: int) -> list[Action]:
        decision = self._decisions[node]
        first = self._numbered[decision.path.digest]
        self._numbered[decision.path.digest] += count
        known = list(self._recorded.get(node.id, ()))[len(node.children) :][:count]
        new = [self._drawn(decision, first + number) for number in range(len(known), count)]
        request = decision.request
        return [Action(request.key, request.agent, reply) for reply in [*known, *await together(new)]]

    async def _drawn(self, decision: Decision, number: int) -> Reply:
        ask = partial(self._branching.candidate, decision, self._engine, number)
        reply = await retried(ask, self._retries)
        self.spent.drew(reply)
        return reply

    async def end(self, node: Node) -> End | None:
        position = await retried(partial(self._position, node), self._retries)
        late = isinstance(position, Ended) and position.run.failure is not None and position.run.failure.kind == LIMIT
        if late or any(isinstance(step, CodeStep) for step in position.path.steps):
            self._unsteady.add(node.id)
        if isinstance(position, Decision):
            self._decisions[node] = position
            return None
        run = position.run
        self._ends[node] = position.path if run.failure is None else run
        answer = None if run.answer is None else self._read_answer(run.answer)
        if run.failure is not None:
            graded = None if self._grade is None else -1.0
            return End(answer, run.failure.kind, graded, run.failure.kind, run.timed_out)
        if self._grade is None:
            return End(answer, timed_out=run.timed_out)
        right, why, late = await retried(partial(self._grade, run), self._retries)
        return End(answer, None, 1.0 if right == 1.0 else -1.0, why, late or run.timed_out)

    async def _position(self, node: Node) -> Position:
        if node.parent is None:
            return await self._branching.start()
        assert node.action is not None
        return await self._branching.go_on(self._decisions[node.parent], node.action.reply)

    def may_differ(self, node: Node) -> bool:
        """Whether a run that comes here with the same replies may find something else, as code has run on the way, or
        time ran out."""
        return node.id in self._unsteady

    def request(self, node: Node) -> CompletionRequest:
        """What is asked at a state that waits."""
        return self._decisions[node].request

    def turns(self, node: Node) -> tuple[AgentStep, ...]:
        """The replies that lead to a state, with what they answer."""
        return tuple(
            AgentStep.of(self.request(each.parent), each.action.reply)
            for each in node.path
            if each.parent is not None and each.action is not None
        )

    async def run(self, node: Node) -> Run:
        """That of a terminal state, made once more: searches keep none but those that failed."""
        end = self._ends[node]
        if isinstance(end, Run):
            return end
        position = await retried(partial(self._branching.at, end), self._retries)
        assert isinstance(position, Ended)
        return position.run

    async def close(self) -> None:
        await self._branching.close()
