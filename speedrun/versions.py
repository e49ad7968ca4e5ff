"""Which version of the code results are of: what is made again for it, and what is only said. Runs nothing."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

CODE = "code"
"""In a run's folder: the versions of the project that it was made with."""
_ROOT = Path(__file__).parents[1]
LEARNING = ("trainer/credit", "trainer/update/loss.py", "trainer/update/terms.py")
"""Says from rewards what is learned."""
ROOMS = ("workflow", "engine", "sandbox", "tasks", "search", "designer", "templates", "trainer", "speedrun")


@cache
def code_of_project() -> str:
    """SHA-256 of all the code that a run goes through, however little of it a change touches."""
    files = sorted(path for room in ROOMS for path in (_ROOT / room).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@cache
def code_of_instrument() -> str:
    """SHA-256 of the code that makes problems, lessons and programs."""
    return _digest("speedrun/teacher.py", "speedrun/phases.py", "tasks/data/miniature.py", "speedrun/templates")


@cache
def learning_code(*controls: str) -> str:
    """SHA-256 of the code of credit and loss, and of `controls`, which change rewards before them: with another one a
    run is made again, as with other settings."""
    return _digest(*LEARNING, *controls)


def now_runs(folder: Path) -> None:
    """Say in a run's folder that this version of the project goes on with it."""
    folder.mkdir(parents=True, exist_ok=True)
    said = (folder / CODE).read_text().split() if (folder / CODE).exists() else []
    if code_of_project() not in said:
        with (folder / CODE).open("a") as file:
            file.write(code_of_project() + "\n")


def ran_with(folder: Path) -> str:
    """The version of the project that a run was made with; several, joined by +, where another one went on with it;
    "unknown" where it was not said yet."""
    return "+".join((folder / CODE).read_text().split()) if (folder / CODE).exists() else "unknown"


def _digest(*places: str) -> str:
    """Of files, and of the modules in folders."""
    found = [_ROOT / place for place in places]
    files = [path for place in found for path in (sorted(place.glob("*.py")) if place.is_dir() else [place])]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
