"""The clock of a run: seconds of its own and seconds of the engine's, with one request under way and with several."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from engine.run_clock import RunClock
from workflow.failures import EngineFailed, LimitExceeded
from workflow.limits import Limits


def bounded(limits: Limits, work: Callable[[RunClock], Awaitable[None]]) -> RunClock:
    async def run() -> RunClock:
        clock = RunClock(limits, "an engine")
        async with clock.bounding():
            await work(clock)
        return clock

    return asyncio.run(asyncio.wait_for(run(), 20))


async def waits(clock: RunClock, seconds: float, *, after_s: float = 0.0) -> None:
    await asyncio.sleep(after_s)
    with clock.waiting():
        await asyncio.sleep(seconds)


def test_it_stands_still_while_a_reply_is_waited_for() -> None:
    async def work(clock: RunClock) -> None:
        for _ in range(3):
            await waits(clock, 0.2, after_s=0.02)

    clock = bounded(Limits(wall_s=0.3), work)
    assert clock.elapsed >= 0.66
    assert clock.own_s < 0.3


def test_replies_waited_for_together_are_waited_for_once() -> None:
    """From 0.0 to 0.3, from 0.1 to 0.4, and from 0.5 to 0.6: half a second, and 0.1 of the run's own."""

    async def work(clock: RunClock) -> None:
        await asyncio.gather(waits(clock, 0.3), waits(clock, 0.3, after_s=0.1), waits(clock, 0.1, after_s=0.5))

    clock = bounded(Limits(wall_s=5), work)
    assert clock.own_s == pytest.approx(0.1, abs=0.08)


def test_code_that_runs_is_the_runs_own_time_whatever_the_engine_does() -> None:
    """Half a second of code beside a reply of any length."""

    async def code(clock: RunClock) -> None:
        with clock.working():
            await asyncio.sleep(0.5)

    def beside(reply_s: float, wall_s: float) -> Callable[[], RunClock]:
        async def work(clock: RunClock) -> None:
            await asyncio.gather(code(clock), waits(clock, reply_s))

        return lambda: bounded(Limits(wall_s=wall_s), work)

    for reply_s in (0.0, 0.2, 0.9):
        assert beside(reply_s, 5)().own_s == pytest.approx(0.5, abs=0.15)
        with pytest.raises(LimitExceeded, match=r"wall_s=0\.3"):
            beside(reply_s, 0.3)()


def test_a_reply_that_is_late_beside_code_is_the_engines_fault() -> None:
    async def work(clock: RunClock) -> None:
        with clock.working():
            await waits(clock, 9)

    with pytest.raises(EngineFailed, match=r"reply_s=0\.2"):
        bounded(Limits(reply_s=0.2), work)


def test_it_strikes_between_replies_and_after_them() -> None:
    async def work(clock: RunClock) -> None:
        await waits(clock, 0.3)
        await asyncio.sleep(10)

    began = time.monotonic()
    with pytest.raises(LimitExceeded, match=r"limit wall_s=0\.2 exceeded") as struck:
        bounded(Limits(wall_s=0.2), work)
    assert 0.5 <= time.monotonic() - began < 5
    assert 0.2 <= struck.value.used < 3


def test_each_reply_has_its_own_time() -> None:
    """Five replies that overlap take longer together than one may; what takes too long is the engine's fault."""

    async def work(clock: RunClock) -> None:
        await asyncio.gather(*(waits(clock, 0.2, after_s=0.1 * n) for n in range(5)))

    bounded(Limits(wall_s=0.2, reply_s=0.4), work)

    async def late(clock: RunClock) -> None:
        await asyncio.gather(waits(clock, 0.1), waits(clock, 9, after_s=0.05), waits(clock, 0.1, after_s=0.2))

    began = time.monotonic()
    with pytest.raises(EngineFailed, match=r"engine an engine failed: no reply within reply_s=0\.4\. Fix: "):
        bounded(Limits(reply_s=0.4), late)
    assert 0.44 <= time.monotonic() - began < 5


@pytest.mark.parametrize("waiting", [True, False])
def test_a_cancellation_that_nobody_minds_ends_the_run_all_the_same(waiting: bool) -> None:
    async def work(clock: RunClock) -> None:
        try:
            if waiting:
                await waits(clock, 9)
            else:
                await asyncio.sleep(9)
        except asyncio.CancelledError:
            pass
        with pytest.raises((LimitExceeded, EngineFailed)):
            clock.check()  # as whatever is asked next
        with clock.waiting():  # and what is under way ends in peace
            pass

    with pytest.raises(EngineFailed if waiting else LimitExceeded):
        bounded(Limits(wall_s=0.1, reply_s=0.1), work)


def test_a_request_that_ends_after_its_run_changes_nothing() -> None:
    async def run() -> None:
        clock = RunClock(Limits(wall_s=5), "an engine")
        async with clock.bounding():
            left = asyncio.create_task(waits(clock, 0.2))
            await asyncio.sleep(0.05)
        await left
        assert clock.own_s < 0.2

    asyncio.run(run())


def test_a_timeout_of_somebody_else_is_not_the_clocks() -> None:
    async def work(clock: RunClock) -> None:
        raise TimeoutError("a socket's")

    with pytest.raises(TimeoutError, match="a socket's"):
        bounded(Limits(), work)
