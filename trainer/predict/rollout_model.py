"""A rollout as discrete events: questions are designed, designs run in workers, agents ask engines.

An engine decodes all its requests side by side: with n of them one token of each takes `token_s + n x request_token_s`,
so that throughput n / (token_s + n x request_token_s) grows with n and saturates at 1 / request_token_s. While a prompt
is read, decoding waits. Requests go to the engine with the fewest. A heap of events is all the machinery; nothing is
random but failures, as lengths are drawn before (`trainer.predict.workload`).
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainer.config import TrainConfig
from trainer.predict.costs import Costs, PolicyCosts
from trainer.predict.workload import Drawn, DrawnDesign, DrawnRun, Requests, Workload
from workflow.usage import PolicyRole

LONGEST_S = 1e9
"""A rollout that takes longer than thirty years fails more often than it gets on."""
Then = Callable[[], None]


class NeverDone(ValueError):
    """Failures come faster than the work between them can be done."""


@dataclass(slots=True)
class Rolled:
    seconds: float = 0.0
    engine_busy_s: dict[str, float] = field(default_factory=dict)
    """By policy, in which an engine had a request; the sum over its engines."""
    worker_busy_s: float = 0.0
    """The sum over run workers."""
    generated: float = 0.0
    """Tokens of all replies."""


@dataclass(slots=True)
class _Request:
    prompt: float
    reply: float
    then: Then


class _Engine:
    """Its requests share it. `generated` counts the tokens that each running request has got since the beginning."""

    def __init__(self, costs: PolicyCosts, batch: int) -> None:
        self.costs, self.batch = costs, batch
        self.now = self.reads_until = self.generated = self.busy_s = 0.0
        self.running: list[tuple[float, int, _Request]] = []
        """A heap by what `generated` will be when it ends."""
        self.waiting: deque[_Request] = deque()
        self.load = 0
        """Requests, those that wait included."""
        self.up = True
        self.version = 0
        """Changes with every event, so that an end that was planned before does not count."""
        self._count = 0

    @property
    def _token_s(self) -> float:
        return self.costs.token_s + len(self.running) * self.costs.request_token_s

    def advance(self, now: float) -> None:
        if self.running:
            self.busy_s += now - self.now
            decodes_from = max(self.now, min(self.reads_until, now))
            self.generated += (now - decodes_from) / self._token_s
        self.now = now

    def take(self, request: _Request) -> None:
        """A request from now on; `advance` comes before."""
        self.version += 1
        self.load += 1
        self.waiting.append(request)
        self._fill()

    def _fill(self) -> None:
        while self.waiting and len(self.running) < self.batch:
            request = self.waiting.popleft()
            self.reads_until = max(self.reads_until, self.now) + request.prompt * self.costs.prompt_token_s
            self._count += 1
            heapq.heappush(self.running, (self.generated + request.reply, self._count, request))

    def next_end(self) -> float:
        return max(self.now, self.reads_until) + max(0.0, self.running[0][0] - self.generated) * self._token_s

    def end(self) -> _Request:
        self.version += 1
        self.load -= 1
        _, _, request = heapq.heappop(self.running)
        self._fill()
        return request

    def fail(self) -> list[_Request]:
        """Down; its requests have to be asked anew."""
        self.version += 1
        lost = [request for _, _, request in sorted(self.running)] + list(self.waiting)
        self.running, self.load, self.up, self.reads_until = [], 0, False, self.now
        self.waiting.clear()
        return lost


class _Gate:
    """At most `places` at once, in order."""

    def __init__(self, places: int) -> None:
        self.free = places
        self.waiting: deque[Then] = deque()

    def enter(self, then: Then) -> None:
        if self.free:
            self.free -= 1
            then()
        else:
            self.waiting.append(then)

    def leave(self) -> None:
        if self.waiting:
            self.waiting.popleft()()
        else:
            self.free += 1


def rolled_out(config: TrainConfig, costs: Costs, workload: Workload, step: Drawn, seed: int = 0) -> Rolled:
    """Time the rollout of one step. `seed` is that of failures. Raises `NeverDone`."""
    return _Rollout(config, costs, workload, seed).run(step)


class _Rollout:
    def __init__(self, config: TrainConfig, costs: Costs, workload: Workload, seed: int) -> None:
        self.workload, self.costs = workload, costs
        self.now = 0.0
        self._events: list[tuple[float, int, Then]] = []
        self._count = 0
        self._dice = random.Random(seed)
        self.rolled = Rolled()
        self.engines = {
            name: [_Engine(costs.policies[name], policy.engine.max_batch) for _ in range(policy.engine.replicas)]
            for name, policy in config.policies.items()
        }
        self.stranded: dict[str, list[_Request]] = {name: [] for name in self.engines}
        self.roles = config.role_policies
        alone = config.cluster.layout == "one-process"
        workers = 1 if alone else config.cluster.nodes * config.cluster.run_workers_per_node
        self.turns, self.workers = _Gate(config.rollout.max_concurrent), _Gate(workers)
        self._left = 0
        """Questions and runs that are not done."""

    def run(self, step: Drawn) -> Rolled:
        self._left = len(step.questions)
        for name, engines in self.engines.items():
            for engine in engines:
                self._fails_some_time(name, engine)
        for designs in step.questions:
            self.turns.enter(lambda designs=designs: self._design(designs))
        while self._left and self._events:
            self.now, _, happens = heapq.heappop(self._events)
            if self.now > LONGEST_S:
                raise NeverDone("engines fail more often than their requests end. Fix: a smaller failure rate")
            happens()
        self.rolled.seconds = self.now
        for name, engines in self.engines.items():
            for engine in engines:
                engine.advance(self.now)
            self.rolled.engine_busy_s[name] = math.fsum(engine.busy_s for engine in engines)
        return self.rolled

    def _at(self, time: float, happens: Then) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, happens))

    # Questions and runs

    def _design(self, designs: Sequence[DrawnDesign]) -> None:
        """M replies; runs begin when all are there."""

        def done() -> None:
            self.turns.leave()
            runs = [run for design in designs for run in design.runs]
            self._left += len(runs) - 1
            for run in runs:
                self.turns.enter(lambda run=run: self._run(run))

        asked = self.workload.designer
        if asked is None:
            done()
            return
        self._ask("designer", asked, [design.reply for design in designs], done)

    def _run(self, run: DrawnRun) -> None:
        def works() -> None:
            self.rolled.worker_busy_s += self.costs.run_s
            self._at(self.now + self.costs.run_s, asks)

        def asks() -> None:
            self.workers.leave()
            self._round(run, 0)

        self.workers.enter(works)

    def _round(self, run: DrawnRun, number: int) -> None:
        if number == len(run.rounds):
            self.turns.leave()
            self._left -= 1
            return
        self._ask("executor", self.workload.executor, run.rounds[number], lambda: self._round(run, number + 1))

    # Engines

    def _ask(self, role: PolicyRole, asked: Requests, replies: Sequence[float], then: Then) -> None:
        """Go on when all are answered."""
        left = len(replies)
        self.rolled.generated += math.fsum(replies)

        def answered() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for reply in replies:
            self._send(self.roles[role], _Request(asked.prompt * asked.fresh, reply, answered))

    def _send(self, policy: str, request: _Request) -> None:
        engine = self._least_loaded(policy)
        if engine is None:
            self.stranded[policy].append(request)
            return
        engine.advance(self.now)
        engine.take(request)
        self._plan_end(engine)

    def _least_loaded(self, policy: str) -> _Engine | None:
        """The first of them; none where all are down."""
        found: _Engine | None = None
        for engine in self.engines[policy]:
            if engine.up and (found is None or engine.load < found.load):
                if not engine.load:  # of thousands of engines most have nothing to do
                    return engine
                found = engine
        return found

    def _plan_end(self, engine: _Engine) -> None:
        if not engine.running:
            return
        version = engine.version

        def ends() -> None:
            if engine.version != version:
                return
            engine.advance(self.now)
            request = engine.end()
            self._plan_end(engine)
            request.then()

        self._at(engine.next_end(), ends)

    def _fails_some_time(self, policy: str, engine: _Engine) -> None:
        rate = self.costs.failures_per_hour / 3600
        if not rate:
            return

        def fails() -> None:
            engine.advance(self.now)
            lost = engine.fail()
            self._at(self.now + self.costs.recovery_s, recovers)
            for request in lost:
                self._send(policy, request)

        def recovers() -> None:
            engine.advance(self.now)
            engine.up = True
            self._fails_some_time(policy, engine)
            stranded, self.stranded[policy] = self.stranded[policy], []
            for request in stranded:
                self._send(policy, request)

        self._at(self.now + self._dice.expovariate(rate), fails)
