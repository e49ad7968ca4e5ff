"""Work spread over run workers. Of rollouts a question's designs are one unit of work, each design with its runs
another.

Results are ordered by where they are in the tree, not by arrival. A unit whose worker is lost is done anew on another
one, with the same seeds and over the same traces. A worker has at most `UNITS_AHEAD` units more than it can run
at once. Not here: what a unit does (`trainer.rollout`), and replacing workers (`trainer.cluster.runtime`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from designer.sample import Design
from tasks.problems import Problem
from trainer.cluster.ray_session import Actor, ActorLost, CallTimedOut, Limit
from trainer.rollout import first_failure, question_folder
from trainer.trees import DesignResult, Execution, QuestionTree

UNITS_AHEAD = 2
Watch = Callable[[DesignResult | Execution], None]


@dataclass
class _Worker:
    number: int
    actor: Actor
    units: int = 0


@dataclass
class RunPool:
    """`units` is how many designs a worker runs at once. `lost` is told of a worker that a unit failed on, and replaces
    it, or raises what ends the run."""

    units: int
    call: Limit
    lost: Callable[[int, Actor, Exception], Awaitable[None]]
    _workers: dict[int, _Worker] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def put(self, number: int, actor: Actor) -> None:
        """A worker that may be given units, in place of an earlier one of that number."""
        async with self._changed:
            self._workers[number] = _Worker(number, actor)
            self._changed.notify_all()

    def remove(self, number: int, actor: Actor) -> bool:
        """Whether that worker was there: a loss is noticed by several."""
        if number in self._workers and self._workers[number].actor == actor:
            del self._workers[number]
            return True
        return False

    @property
    def workers(self) -> dict[int, Actor]:
        return {number: worker.actor for number, worker in self._workers.items()}

    async def rollout(self, problems: Sequence[Problem], seed: int, folder: Path, watch: Watch) -> list[QuestionTree]:
        """One tree per problem, in their order. What an earlier rollout left under way is given up before."""
        for number, actor in self.workers.items():
            try:
                await actor.call("abandon", limit=self.call)
            except (ActorLost, CallTimedOut) as error:
                await self.lost(number, actor, error)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._question(problem, seed, question_folder(folder, number), watch))
                    for number, problem in enumerate(problems)
                ]
        except ExceptionGroup as failures:
            raise first_failure(failures) from None
        return [task.result() for task in tasks]

    async def _question(self, problem: Problem, seed: int, folder: Path | None, watch: Watch) -> QuestionTree:
        designs: list[Design] = await self.unit("designs", f"{problem.id}", problem, seed, folder)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._design(problem, seed, folder, design, watch)) for design in designs]
        return QuestionTree(problem=problem, designs=[task.result() for task in tasks])

    async def _design(
        self, problem: Problem, seed: int, folder: Path | None, design: Design, watch: Watch
    ) -> DesignResult:
        result = await self.unit("design", f"{problem.id}/{design.index}", problem, seed, folder, design)
        for execution in result.executions:
            watch(execution)
        watch(result)
        return result

    async def unit(self, method: str, *arguments: Any) -> Any:
        """What a worker's method returns: of the least busy worker, and of another one where that is lost."""
        while True:
            worker = await self._free()
            try:
                return await worker.actor.call(method, *arguments, limit=self.call)
            except (ActorLost, CallTimedOut) as error:
                await self.lost(worker.number, worker.actor, error)
            finally:
                async with self._changed:
                    worker.units -= 1
                    self._changed.notify_all()

    async def _free(self) -> _Worker:
        """The least busy worker, one unit busier. What it waits for has limits: each unit, and a lost worker's
        replacement."""
        async with self._changed:
            while True:
                free = [each for each in self._workers.values() if each.units < self.units + UNITS_AHEAD]
                if free:
                    worker = min(free, key=lambda each: (each.units, each.number))
                    worker.units += 1
                    return worker
                await self._changed.wait()
