"""One run that is held at what it asks: it is given the replies of a path, then those that somebody decides.

It stands before the engine and the code runner of that run alone. Nodes, scheduler, broker and jail know nothing of it.
Which replies are taken, and how many runs there are, is decided in `search.branching`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from engine.protocol import CodeRunner, Perform
from engine.run_clock import RunClock
from engine.session import Run
from search.paths import AgentStep, AnyStep, Asked, CodeStep, GameStep, Path
from search.programs import Program
from workflow.completion import Completion, CompletionRequest
from workflow.environment import Observation
from workflow.failures import EngineFailed, Failure, LimitExceeded
from workflow.requests import Act, CodeReply, CodeRun, Observe

DROP_TIMEOUT_S = 10.0
"""Seconds in which a run that is dropped has to end."""


@dataclass(slots=True)
class _Asked:
    request: Asked
    reply: asyncio.Future[Any]
    perform: Perform | None = None
    """Of what is asked of a game."""


class HeldRun:
    """Satisfies `engine.protocol.SteppingEngine`. Requests that are open at once are answered one at a time, in the
    order of their keys, each when the program has taken the reply before: the state that a path leads to, and what is
    asked there, do not depend on the order of arrival."""

    def __init__(self, program: Program, path: Path, name: str) -> None:
        self.name = name
        self.path = path
        self.differences: list[str] = []
        """Of code that was run again, where it did something else than is recorded."""
        self._given = deque(path.steps)
        self._not_run = [step for step in path.steps if isinstance(step, CodeStep)]
        """Code whose files are not in this run's workspace."""
        self._asked: dict[str, _Asked] = {}
        self._some = asyncio.Event()
        self._side_by_side: set[str] = set()
        """Code runs that were asked for at once, of which each counts for what it takes longer than those before."""
        self._longest_s = 0.0
        self._run = asyncio.create_task(program.run(self))

    # What the run sees

    @property
    def held(self) -> int:
        return len(self._asked)

    def attach(self, settled: Callable[[], Awaitable[None]], code_runner: CodeRunner | None, clock: RunClock) -> None:
        self._settled, self._code_runner, self._clock = settled, code_runner, clock

    async def complete(self, request: CompletionRequest) -> Completion:
        return await self._ask(request.key, request)

    async def run_code(self, key: str, request: CodeRun) -> CodeReply:
        return await self._ask(key, request)

    async def play(self, key: str, request: Observe | Act, perform: Perform) -> Observation:
        return await self._ask(key, request, perform)

    async def _ask(self, key: str, request: Asked, perform: Perform | None = None) -> Any:
        asked = self._asked[key] = _Asked(request, asyncio.get_running_loop().create_future(), perform)
        self._some.set()
        return await asked.reply

    async def close(self) -> None:
        """The run does not own it."""

    # What the search sees

    async def forward(self) -> CompletionRequest | None:
        """Go on to the first agent's call that there is no reply for, and return it; None where the run ends before.

        Raises `EngineFailed` with the first difference where the path does not fit the program.
        """
        while await self._settle():
            key = min(self._asked)
            request = self._asked[key].request
            if isinstance(request, CodeRun) and key not in self._side_by_side:
                self._side_by_side = {key for key, asked in self._asked.items() if isinstance(asked.request, CodeRun)}
                self._longest_s = 0.0
            if self._given:
                step = self._given.popleft()
                self._compare(step, key, request)
                if isinstance(step, CodeStep):
                    self._longest_s += step.charged_s
                    self._clock.charge(step.charged_s)
                elif isinstance(step, GameStep) and self._play(key, request) != step:
                    raise self._unfit(f"{key!r} shows another position of the game than the recorded one")
                self._answer(step)
            elif isinstance(request, CodeRun):
                await self._run_code(key, request)
            elif isinstance(request, CompletionRequest):
                return request
            else:
                step = self._play(key, request)
                self.path = self.path.then(step)
                self._answer(step)
        if self._given and not self._is_over():
            raise self._unfit(f"the run ended before {self._given[0].key!r} was asked")
        return None

    def _is_over(self) -> bool:
        """Whether the run has ended by a limit, or for infrastructure: with the same replies it may have gone on."""
        failure = self.result().failure
        return failure is not None and (failure.kind == "limit_exceeded" or failure.is_infrastructure)

    @property
    def is_alive(self) -> bool:
        return not self._run.done()

    def decide(self, request: CompletionRequest, reply: Completion | Failure) -> None:
        """Answer the call that `forward` has returned."""
        step = AgentStep.of(request, reply)
        self.path = self.path.then(step)
        self._answer(step)

    def ends_before(self, request: CompletionRequest, reply: Completion | Failure) -> None:
        """Take note that the run ended by a limit, or for infrastructure, before it came to the call that this reply
        was for. Raises `EngineFailed` where it ended otherwise."""
        if not self._is_over():
            raise self._unfit(f"{request.key!r} is not asked any more")
        self.path = self.path.then(AgentStep.of(request, reply))

    def result(self) -> Run:
        """Of a run that has ended."""
        return self._run.result()

    async def drop(self) -> None:
        """End the run, wherever it is. Harmless where it has ended."""
        self._run.cancel()
        await asyncio.wait({self._run}, timeout=DROP_TIMEOUT_S)
        if self._run.done() and not self._run.cancelled():
            self._run.exception()  # seen: nobody asks any more

    async def _settle(self) -> bool:
        """Until the program only waits for replies, at which its clock stands still; False once the run has ended."""
        waiting = asyncio.create_task(self._quiet())
        try:
            await asyncio.wait({waiting, self._run}, return_when=asyncio.FIRST_COMPLETED)
            if self._run.done():
                return False
            waiting.result()
            self._clock.pause()
            return True
        finally:
            waiting.cancel()

    async def _quiet(self) -> None:
        await self._some.wait()
        await self._settled()

    def _play(self, key: str, request: Asked) -> GameStep:
        """The game of this run goes on. It is no jail's: it does the same in every run."""
        perform = self._asked[key].perform
        assert perform is not None
        assert isinstance(request, (Observe, Act))
        seen, author = perform()
        return GameStep.of(key, request, seen, author)

    def _answer(self, step: AnyStep) -> None:
        reply = self._taken(step.key)
        if reply.done():
            return  # the run is ending
        if isinstance(step.reply, Failure):
            fields = step.reply.fields
            reply.set_exception(LimitExceeded(fields["limit_kind"], fields["limit"], fields["used"]))
        else:
            reply.set_result(step.reply)

    def _taken(self, key: str) -> asyncio.Future[Any]:
        reply = self._asked.pop(key).reply
        if not self._asked:
            self._some.clear()
        self._clock.resume()
        return reply

    async def _run_code(self, key: str, request: CodeRun) -> None:
        """Code that this run comes to by itself. Files that earlier code has written are made anew first: what that
        code does now may differ from the record, which stands. It ends with the run's own time."""
        assert self._code_runner is not None
        before_s, began = self._longest_s, time.monotonic()
        left = asyncio.timeout(None)
        try:
            for step in self._not_run:
                self._report(step, await self._code_runner(step.request))
            self._not_run, began = [], time.monotonic()
            async with left:
                left.reschedule(asyncio.get_running_loop().time() + max(self._clock.left_s + before_s, 0.0))
                reply = await self._code_runner(request)
        except Exception as error:  # ends the run, as it would without a search
            self._charge(before_s, began)
            if left.expired():
                self._clock.resume()  # it strikes
                await asyncio.wait({self._run}, timeout=DROP_TIMEOUT_S)
            elif self.is_alive:
                self._taken(key).set_exception(error)
            return
        charged_s = self._charge(before_s, began)
        step = CodeStep(
            key=key,
            code=request.code,
            stdin=request.stdin,
            timeout_s=request.timeout_s,
            reply=reply,
            charged_s=charged_s,
        )
        self.path = self.path.then(step)
        if self.is_alive:
            self._answer(step)

    def _charge(self, before_s: float, began: float) -> float:
        took_s = time.monotonic() - began
        charged_s = max(took_s - before_s, 0.0)
        self._longest_s = max(before_s, took_s)
        self._clock.charge(charged_s)
        return charged_s

    def _report(self, step: CodeStep, now: CodeReply) -> None:
        for name in ("exit_status", "stdout", "stderr", "limit"):
            then, again = getattr(step.reply, name), getattr(now, name)
            if then != again:
                said = f"code {step.key!r}, run again, has {name} {again!r:.200}, recorded is {then!r:.200}"
                self.differences.append(said)
                return

    def _compare(self, step: AnyStep, key: str, request: Asked) -> None:
        if step.key != key:
            raise self._unfit(f"{key!r} was asked, recorded was {step.key!r}")
        if difference := step.mismatch(request):
            raise self._unfit(f"{key!r} is not the recorded one: {difference}")

    def _unfit(self, reason: str) -> EngineFailed:
        number = len(self.path.steps) - len(self._given)
        fix = "Fix: undo the change, or begin the search anew"
        return EngineFailed(self.name, f"the path does not fit the program at its step {number}: {reason}\n{fix}")
