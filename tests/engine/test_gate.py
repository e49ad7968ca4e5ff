"""The gate that requests pass and updates close: who waits for whom, and that nobody cancelled leaves it shut."""

from __future__ import annotations

import asyncio

import pytest

from engine.gate import Gate


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_closes_it_waits_for_those_inside_and_keeps_others_out() -> None:
    async def go() -> list[str]:
        gate, seen, leave = Gate(), list[str](), asyncio.Event()

        async def visit(name: str) -> None:
            async with gate.passing():
                seen.append(f"{name} in")
                await leave.wait()
            seen.append(f"{name} out")

        async def shut() -> None:
            async with gate.closed():
                seen.append("shut")
                await settled()
            seen.append("open")

        first, second = (asyncio.create_task(visit(name)) for name in ("a", "b"))
        await settled()
        closing = asyncio.create_task(shut())
        await settled()
        late = asyncio.create_task(visit("late"))
        await settled()
        assert seen == ["a in", "b in"]
        leave.set()
        await asyncio.gather(first, second, closing, late)
        return seen

    assert asyncio.run(go()) == ["a in", "b in", "a out", "b out", "shut", "open", "late in", "late out"]


def test_of_two_who_close_it_one_waits_for_the_other() -> None:
    async def go() -> None:
        gate = Gate()
        await gate.close()
        second = asyncio.create_task(gate.close())
        await settled()
        assert not second.done()
        gate.open()
        await asyncio.wait_for(second, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), gate.passing():
                raise AssertionError("it is shut")

    asyncio.run(go())


def test_one_who_is_cancelled_while_closing_leaves_it_open() -> None:
    async def go() -> None:
        gate, leave = Gate(), asyncio.Event()

        async def visit() -> None:
            async with gate.passing():
                await leave.wait()

        inside = asyncio.create_task(visit())
        await settled()
        closing, waiting = asyncio.create_task(gate.close()), asyncio.create_task(visit())
        await settled()
        closing.cancel()
        await asyncio.wait({closing})
        leave.set()
        await asyncio.wait_for(asyncio.gather(inside, waiting), 1)
        async with asyncio.timeout(1), gate.closed():
            pass

    asyncio.run(go())


def test_one_who_fails_inside_is_out() -> None:
    async def go() -> None:
        gate = Gate()
        with pytest.raises(ZeroDivisionError):
            async with gate.passing():
                raise ZeroDivisionError
        with pytest.raises(ZeroDivisionError):
            async with gate.closed():
                raise ZeroDivisionError
        async with asyncio.timeout(1), gate.closed():
            pass

    asyncio.run(go())
