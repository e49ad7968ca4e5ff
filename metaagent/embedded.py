"""The policy that comes with metaagent: small enough to ship, trained by the speedrun, good for the problems of
`tasks.miniature` alone. It designs programs and plays their agents, on a machine with no GPU, no key and no download.

Says when it may be used, and opens it. `speedrun.ship` puts its files into `policy/`, with what they were trained with
and how well they do (`recipe.json`).
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.miniature import Difficulty, is_question, read

if TYPE_CHECKING:
    from engine.transformers import TransformersEngine

SPEC = "embedded"
"""What the engine is called on the command line."""
FOLDER = Path(__file__).parent / "policy"
WEIGHTS, RECIPE = "model.safetensors", "recipe.json"
NEEDED = ("torch", "transformers")


def missing() -> str:
    """Why the policy cannot be used here and what to do, or an empty string."""
    if gone := [name for name in (WEIGHTS, RECIPE) if not (FOLDER / name).exists()]:
        return f"{gone[0]} is not in {FOLDER.name}/. Fix: reinstall metaagent"
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    return f'it needs {" and ".join(absent)}. Fix: pip install "metaagent[local]"' if absent else ""


def knows(problem: str) -> bool:
    """Whether a problem is one question of the family, as large as those that the policy was trained on."""
    reading = read(problem)
    return reading is not None and is_question(problem) and Difficulty().covers(reading)


def about() -> str:
    """What it is and how often it is right."""
    recipe = json.loads((FOLDER / RECIPE).read_text(encoding="utf-8"))
    trained = recipe["systems"][-1]["accuracy"]
    return (
        f"the embedded policy designed this: {recipe['weights'] / 1e6:.1f} million weights that know the small "
        f"problems of tasks.miniature and no others, right on {trained['estimate']:.0%} of those held out"
    )


def open_embedded() -> TransformersEngine:
    """The policy as an engine. Raises ValueError where it cannot be used."""
    if why := missing():
        raise ValueError(f"there is no embedded policy here: {why}")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # it loads in no time
    from engine.transformers import TransformersEngine

    engine = TransformersEngine(str(FOLDER), "cpu", "float32")
    engine.name = SPEC
    return engine
