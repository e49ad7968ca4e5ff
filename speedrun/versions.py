"""Which version of the code results are of: what is made again for it, and what is only said. Runs nothing."""

from __future__ import annotations

import hashlib
from functools import cache
from io import StringIO
from itertools import pairwise
from pathlib import Path
from tokenize import COMMENT, DEDENT, INDENT, NEWLINE, NL, STRING, generate_tokens

CODE = "code"
"""In a run's folder: the versions of the project that it was made with."""
_ROOT = Path(__file__).parents[1]
LEARNING = (
    "designer/prompts.py",
    "tasks/math",
    "trainer/credit",
    *(f"trainer/update/{name}.py" for name in ("dice", "forward", "loss", "master_adamw", "micro_batches")),
    *(f"trainer/update/{name}.py" for name in ("shared_prompts", "terms", "torch_backend", "torch_model")),
)
"""Says what a Designer is asked, what an answer earns, and what is learned from that."""
_BETWEEN = (NEWLINE, INDENT, DEDENT)
ROOMS = ("workflow", "engine", "sandbox", "tasks", "search", "designer", "templates", "trainer", "speedrun")


@cache
def code_of_project() -> str:
    """SHA-256 of all the files that a run goes through, however little of it a change touches."""
    files = sorted(path for room in ROOMS for path in (_ROOT / room).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@cache
def code_of_instrument() -> str:
    """SHA-256 of the code that makes problems, lessons and programs."""
    return code_of("speedrun/teacher.py", "speedrun/phases.py", "tasks/data/miniature.py", "speedrun/templates")


@cache
def learning_code(*controls: str) -> str:
    """SHA-256 of the code of prompts, rewards, credit and updates, and of `controls`, which change rewards before them:
    with another one a run is made again, as with other settings."""
    return code_of(*LEARNING, *controls)


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


def code_of(*places: str) -> str:
    """SHA-256 of files, and of the modules in folders: of what they do, whatever they say of it."""
    found = [_ROOT / place for place in places]
    files = [path for place in found for path in (sorted(place.glob("*.py")) if place.is_dir() else [place])]
    return hashlib.sha256(
        "\n".join(code_alone(path.read_text(encoding="utf-8")) for path in files).encode()
    ).hexdigest()


def code_alone(source: str) -> str:
    """A module without comments, docstrings, empty lines and spaces at the ends of lines. The same in every version of
    Python, unlike a syntax tree."""
    lines, ends = source.split("\n"), dict[int, int]()
    begins = True
    for token, after in pairwise(generate_tokens(StringIO(source).readline)):
        is_docstring = token.type == STRING and begins and after.type == NEWLINE
        if token.type in (COMMENT, NL):
            continue
        begins = token.type in _BETWEEN
        if not begins and not is_docstring:
            (first, _), (last, end) = token.start, token.end
            ends |= {row: len(lines[row - 1]) for row in range(first, last)} | {last: end}
    return "\n".join(lines[row - 1][:end] for row, end in ends.items())
