"""What vLLM leaves behind when the process that it runs in is killed is removed, and nothing else is."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.vllm.remains import family

SHARED = Path("/dev/shm")
OWNER = """
import subprocess, sys, time
from engine.vllm.remains import Sweeper
sweeper = Sweeper(sys.argv[1])
holding = "import sys, time; held = open(sys.argv[1], 'w'); print('ready', flush=True); time.sleep(120)"
subprocess.Popen([sys.argv[2], "-c", holding, sys.argv[3]], executable=sys.executable)
time.sleep(1.5)
print(sweeper._pipe.fileno(), flush=True)
if sys.stdin.readline() == "close\\n":
    sweeper.closed()
    print("closed", flush=True)
time.sleep(120)
"""


class Scene:
    """An owner with a sweeper for a folder, and a child of some name that holds a file in shared memory."""

    def __init__(self, folder: Path, child: str) -> None:
        self.folder = folder / "metaagent-vllm-test"
        self.folder.mkdir()
        (self.folder / "socket").touch()
        self.file = SHARED / f"psm_test_{secrets.token_hex(4)}"
        words = [sys.executable, "-c", OWNER, str(self.folder), child, str(self.file)]
        self.owner = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.owner.stdout is not None
        assert self.owner.stdout.readline() == "ready\n"
        assert self.owner.stdout.readline().strip().isdigit()
        children = Path(f"/proc/{self.owner.pid}/task/{self.owner.pid}/children").read_text().split()
        [self.child] = map(int, children)

    def tell_closed(self) -> None:
        assert self.owner.stdin is not None
        assert self.owner.stdout is not None
        self.owner.stdin.write("close\n")
        self.owner.stdin.flush()
        assert self.owner.stdout.readline() == "closed\n"

    def end(self) -> None:
        self.owner.kill()
        self.owner.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)
        self.file.unlink(missing_ok=True)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[[str], Scene]]:
    scenes: list[Scene] = []

    def make(child: str) -> Scene:
        scenes.append(Scene(tmp_path, child))
        return scenes[-1]

    yield make
    for each in scenes:
        each.end()


def within(seconds: float, done: Callable[[], bool]) -> bool:
    ends = time.monotonic() + seconds
    while not done():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def lives(process: int) -> bool:
    return process in family([process])


@pytest.mark.thorough
def test_a_killed_owner_leaves_nothing_of_vllm(made: Callable[[str], Scene]) -> None:
    scene = made("VLLM::EngineCore")
    scene.owner.kill()
    assert within(30, lambda: not scene.folder.exists())
    assert not scene.file.exists()
    assert not lives(scene.child)


def test_what_is_not_vllms_is_left_alone(made: Callable[[str], Scene]) -> None:
    scene = made("python")
    scene.owner.kill()
    assert within(30, lambda: not scene.folder.exists())
    assert scene.file.exists()
    assert lives(scene.child)


@pytest.mark.thorough
def test_what_somebody_else_holds_stays(made: Callable[[str], Scene]) -> None:
    scene = made("VLLM::EngineCore")
    with scene.file.open("r"):
        scene.owner.kill()
        assert within(30, lambda: not scene.folder.exists())
        assert scene.file.exists()


@pytest.mark.thorough
def test_an_engine_that_was_closed_is_swept_by_nobody(made: Callable[[str], Scene]) -> None:
    scene = made("VLLM::EngineCore")
    scene.tell_closed()
    os.kill(scene.child, signal.SIGKILL)  # nobody waits for it, nor holds its file
    scene.owner.kill()
    scene.owner.wait(10)
    assert not within(3, lambda: not scene.folder.exists() or not scene.file.exists())


LAST_WORD = """
import os, signal, subprocess, sys
from engine.vllm import remains
owner = subprocess.Popen(["sleep", "60"])
told, tells = os.pipe()
os.dup2(told, 0)
family = remains.family

def says_closed_and_is_gone(roots):
    if owner.poll() is None:
        os.write(tells, b"closed")
        owner.kill()
        owner.wait()
    return family(roots)

remains.family = says_closed_and_is_gone
remains.sweep(owner.pid, sys.argv[1])
"""


def test_closed_is_heard_also_where_it_was_the_owners_last_word(tmp_path: Path) -> None:
    """It is said, and the owner gone, while the sweeper looks elsewhere."""
    folder = tmp_path / "metaagent-vllm-test"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", LAST_WORD, str(folder)], check=True, timeout=30)
    assert folder.exists()
