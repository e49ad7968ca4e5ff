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
INSTRUMENT = (
    "speedrun/own_programs.py",
    "speedrun/phases.py",
    "speedrun/teacher.py",
    "speedrun/templates",
    "speedrun/tiny_policy.py",
    "tasks/data/miniature.py",
    "trainer/distill",
    "trainer/evaluate",
    "trainer/sft",
)
"""Makes problems, lessons and programs, teaches a start, and attempts the held-out problems."""
LEARNING = (
    "designer/prompts.py",
    "engine/authorship.py",
    "tasks/grading.py",
    "tasks/math",
    "trainer/credit",
    "trainer/rollout",
    "trainer/run/loop.py",
    "trainer/samples.py",
    *(f"workflow/{name}.py" for name in ("agent", "answers", "place", "text")),
    *(f"trainer/update/{name}.py" for name in ("dice", "forward", "loss", "master_adamw", "micro_batches")),
    *(f"trainer/update/{name}.py" for name in ("shared_prompts", "terms", "torch_backend", "torch_model")),
)
"""Says what is asked, what an answer earns, and what is learned from that. Not here: engines, sandboxes, nodes, which
are to give the same replies, outcomes and messages whatever they do inside, as suites of their own hold them to."""
VERBATIM = ("speedrun/templates", "recipes/programs")
"""Whose files are programs that are shown to somebody, with all that they say."""
_BETWEEN = (NEWLINE, INDENT, DEDENT)
ROOMS = ("workflow", "engine", "sandbox", "tasks", "search", "designer", "templates", "trainer", "speedrun")


@cache
def code_of_project() -> str:
    """SHA-256 of all the files that a run goes through, however little of it a change touches."""
    files = sorted(path for room in ROOMS for path in (_ROOT / room).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@cache
def code_of_instrument() -> str:
    """SHA-256 of `INSTRUMENT`."""
    return code_of(*INSTRUMENT)


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
    """SHA-256 of files, and of the modules in folders: of what they do, whatever they say of it; of `VERBATIM` all."""
    found = [_ROOT / place for place in places]
    files = [path for place in found for path in (sorted(place.glob("*.py")) if place.is_dir() else [place])]
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    whole = {path for path in files if path.relative_to(_ROOT).as_posix().startswith(VERBATIM)}
    done = [text if path in whole else code_alone(text) for path, text in texts.items()]
    return hashlib.sha256("\n".join(done).encode()).hexdigest()


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
