"""Checkpoints beside training: one at a time, errors told, and whatever is killed, the older ones whole."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from trainer.disk import CheckpointError, CheckpointWriter
from trainer.disk.checkpoint import latest, writing
from trainer.disk.folder_lock import LOCK


class State(BaseModel):
    step: int


class Slow:
    """A write that waits until it is let go."""

    def __init__(self, text: str = "weights", fails: bool = False) -> None:
        self.text, self.fails = text, fails
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self, folder: Path) -> None:
        self.begun.set()
        assert self.go.wait(30)
        if self.fails:
            raise OSError(28, "No space left on device")
        (folder / "weights").write_text(self.text)


def done(text: str) -> Slow:
    write = Slow(text)
    write.go.set()
    return write


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != LOCK)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_training_goes_on_while_it_is_written(tmp_path: Path) -> None:
    async def go() -> None:
        async with CheckpointWriter(tmp_path) as writer:
            slow = Slow()
            writer.begin(1, slow, State(step=1))
            await asyncio.to_thread(slow.begun.wait, 30)
            assert latest(tmp_path) is None
            writer.check()
            slow.go.set()
            await writer.wait()
            found = latest(tmp_path)
            assert found is not None
            assert (found.step, found.state(State)) == (1, State(step=1))
            assert (found.folder / "weights").read_text() == "weights"

    run(go())


def test_one_at_a_time(tmp_path: Path) -> None:
    slow = Slow()

    async def go() -> None:
        async with CheckpointWriter(tmp_path, keep=1) as writer:
            writer.begin(1, slow, State(step=1))
            with pytest.raises(RuntimeError, match=r"Fix: wait\(\)"):
                writer.begin(2, done("second"), State(step=2))
            waiting = asyncio.create_task(writer.wait())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            slow.go.set()
            await waiting
            assert steps(tmp_path) == ["step-00000001"]
            writer.begin(2, done("second"), State(step=2))

    run(go())
    assert steps(tmp_path) == ["step-00000002"]


@pytest.mark.parametrize("by", ["check", "wait", "begin", "end"])
def test_what_fails_is_told_once_by_what_comes_next(by: str, tmp_path: Path) -> None:
    async def next_call(writer: CheckpointWriter) -> None:
        while by == "check":
            writer.check()
            await asyncio.sleep(0.01)
        if by == "wait":
            await writer.wait()
        await asyncio.sleep(0.5)
        writer.begin(2, done(""), State(step=2))

    async def go() -> None:
        async with CheckpointWriter(tmp_path) as writer:
            failing = Slow(fails=True)
            writer.begin(1, failing, State(step=1))
            writer.check()
            failing.go.set()
            if by == "end":
                return
            with pytest.raises(CheckpointError, match=r"cannot save step-00000001.*No space left"):
                await next_call(writer)
            assert steps(tmp_path) == []
            writer.begin(3, done("third"), State(step=3))

    if by == "end":
        with pytest.raises(CheckpointError, match="cannot save step-00000001"):
            run(go())
    else:
        run(go())
        assert steps(tmp_path) == ["step-00000003"]


def test_where_training_fails_the_checkpoint_is_finished_first(tmp_path: Path) -> None:
    async def go(fails: bool) -> None:
        async with CheckpointWriter(tmp_path) as writer:
            slow = Slow(fails=fails)
            writer.begin(1, slow, State(step=1))
            asyncio.get_running_loop().call_later(0.05, slow.go.set)
            raise RuntimeError("training failed")

    with pytest.raises(RuntimeError, match="training failed") as caught:
        run(go(fails=True))
    assert "cannot save step-00000001" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="training failed"):
        run(go(fails=False))
    assert steps(tmp_path) == ["step-00000001"]


@pytest.mark.parametrize("during", ["write", "wait", "end"])
def test_cancelled_it_waits_for_what_is_under_way(during: str, tmp_path: Path) -> None:
    """What threads use is closed only after they are done with it."""
    slow = Slow()
    order: list[str] = []

    async def train() -> None:
        try:
            async with CheckpointWriter(tmp_path) as writer:
                writer.begin(1, slow, State(step=1))
                if during == "write":
                    await asyncio.sleep(60)
                if during == "wait":
                    await writer.wait()
        finally:
            order.append("closed")

    async def go() -> None:
        training = asyncio.create_task(train())
        await asyncio.to_thread(slow.begun.wait, 30)
        await asyncio.sleep(0.05)
        training.cancel()
        await asyncio.sleep(0.05)
        assert not training.done()
        slow.go.set()
        with pytest.raises(asyncio.CancelledError):
            await training
        assert steps(tmp_path) == ["step-00000001"]
        assert order == ["closed"]

    run(go())


LOOP = """
import asyncio, itertools, sys
from functools import partial
from pathlib import Path
from pydantic import BaseModel
from trainer.disk import CheckpointWriter
from trainer.disk.checkpoint import latest, writing

class State(BaseModel):
    step: int

def filled(step, folder):
    for name in ("a", "b"):
        (folder / name).write_bytes(str(step).encode() * 20_000)

async def train(folder):
    with writing(folder):
        found = latest(folder)
        async with CheckpointWriter(folder) as writer:
            for step in itertools.count(found.state(State).step + 1 if found else 0):
                await writer.wait()
                writer.begin(step, partial(filled, step), State(step=step))
                print(step - 1, flush=True)

asyncio.run(train(Path(sys.argv[1])))
"""


@pytest.mark.thorough
def test_killed_at_any_moment_it_leaves_a_whole_newest_checkpoint(tmp_path: Path) -> None:
    dice = random.Random(7)
    newest = -1
    for _ in range(8):
        process = subprocess.Popen([sys.executable, "-c", LOOP, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            written = max(int(process.stdout.readline()), int(process.stdout.readline()))
            assert written > newest, "it went on from what was there"
            time.sleep(dice.random() * 0.05)
        finally:
            process.send_signal(signal.SIGKILL)
            written = max([written, *map(int, process.communicate(timeout=30)[0].split())])
        found = latest(tmp_path)
        assert found is not None
        assert found.passed_over == {}
        step = found.state(State).step
        assert step == found.step >= written
        assert (found.folder / "b").read_bytes() == str(step).encode() * 20_000
        newest = step
    with writing(tmp_path):
        assert all(name.startswith("step-") for name in steps(tmp_path)), "what was half done is gone"
