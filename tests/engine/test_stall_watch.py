import asyncio
import logging
import time

import pytest

from engine.stall_watch import STALL_S, StallWatch


def hold(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
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


def test_waiting_is_no_stall(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> StallWatch:
        async with StallWatch() as watch:
            await asyncio.sleep(STALL_S + 0.4)
        return watch

    watch = asyncio.run(work())
    assert watch.stalls == []
    assert caplog.text == ""
