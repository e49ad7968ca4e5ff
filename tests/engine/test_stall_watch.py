import asyncio
import logging
import re
import time

import pytest

from engine.stall_watch import STALL_S, StallWatch


def hold(seconds: float) -> None:
    """By the clock of this thread: what it waits for a core is no stall."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def test_a_stall_is_measured_and_told_with_what_was_running(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> StallWatch:
        async with StallWatch() as watch:
            await asyncio.sleep(0.3)
            hold(STALL_S + 0.4)
            await asyncio.sleep(0.3)
        return watch

    with caplog.at_level(logging.WARNING, "metaagent"):
        watch = asyncio.run(work())
    assert watch.longest_s > STALL_S
    assert "in hold" in watch.stalls[0].stack
    assert "in hold" in caplog.text


def match_for(seconds: float) -> None:
    """Holds the interpreter for about so long: no thread can look before it has ended."""
    start, length = time.thread_time(), 1000
    while time.thread_time() - start < seconds:
        re.search("a*b", "a" * length)
        length = length * 3 // 2


def test_what_holds_the_interpreter_is_told_when_it_has_ended() -> None:
    async def work() -> StallWatch:
        async with StallWatch() as watch:
            await asyncio.sleep(0.3)
            match_for(STALL_S + 0.4)
            await asyncio.sleep(0.3)
        return watch

    (stall,) = asyncio.run(work()).stalls
    assert "in match_for" in stall.stack
    assert stall.stack.index("in match_for") < stall.stack.index("in work")


@pytest.mark.thorough
def test_looking_at_a_stall_disturbs_nothing() -> None:
    """Frames come and go while it is looked at."""

    def deep(levels: int) -> int:
        namespace: dict[str, int] = {}
        exec(compile(f"x = {levels}", f"file {levels}", "exec"), namespace)
        return namespace["x"] + (deep(levels - 1) if levels else 0)

    async def work() -> StallWatch:
        async with StallWatch() as watch:
            for _ in range(2):
                await asyncio.sleep(0.3)
                end = time.thread_time() + STALL_S + 0.4
                while time.thread_time() < end:
                    assert deep(20) == 210
            await asyncio.sleep(0.3)
        return watch

    assert [("in work" in stall.stack) for stall in asyncio.run(work()).stalls] == [True, True]


def test_waiting_is_no_stall(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> StallWatch:
        async with StallWatch() as watch:
            await asyncio.sleep(STALL_S + 0.4)
        return watch

    watch = asyncio.run(work())
    assert watch.stalls == []
    assert caplog.text == ""
