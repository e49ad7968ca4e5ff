"""The policies that come with metaagent: small enough to ship, trained by the speedrun, good for the problems of
`tasks.data.miniature` alone. One designs programs, one plays their agents, on a machine with no GPU, no key and no
download.

Says when they may be used, and opens them as one engine. `speedrun.ship` puts their files into `policy/`, with what
they were trained with and how well they do (`recipe.json`).
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

from engine.protocol import Engine, Watch
from tasks.data import Difficulty, is_question, read
from workflow.completion import Completion, CompletionRequest
from workflow.usage import PolicyRole

SPEC = "embedded"
"""What the engine is called on the command line."""
FOLDER = Path(__file__).parent / "policy"
WEIGHTS, RECIPE = "model.safetensors", "recipe.json"
ROLES: tuple[PolicyRole, ...] = ("designer", "executor")
"""Each has a folder of its own."""
NEEDED = ("torch", "transformers")


def missing() -> str:
    """Why the policies cannot be used here and what to do, or an empty string."""
    files = [RECIPE, *(f"{role}/{WEIGHTS}" for role in ROLES)]
    if gone := [name for name in files if not (FOLDER / name).exists()]:
        return f"{gone[0]} is not in {FOLDER.name}/. Fix: reinstall metaagent"
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    return f'it needs {" and ".join(absent)}. Fix: pip install "metaagent[local]"' if absent else ""


def knows(problem: str) -> bool:
    """Whether a problem is one question of the family, as large as those that they were trained on."""
    reading = read(problem)
    return reading is not None and is_question(problem) and Difficulty().covers(reading)


def about() -> str:
    """What they are and how often they are right."""
    recipe = json.loads((FOLDER / RECIPE).read_text(encoding="utf-8"))
    trained = recipe["systems"][-1]["accuracy"]
    return (
        f"the embedded policy designed this: {recipe['weights'] / 1e6:.1f} million weights for each role that know the "
        f"small problems of tasks.data.miniature and no others, right on {trained['estimate']:.0%} of those held out"
    )


class EmbeddedEngine:
    """Asks the policy of the role that a request comes from."""

    name = SPEC

    def __init__(self) -> None:
        from engine.local import TransformersEngine

        self._engines = {role: TransformersEngine(str(FOLDER / role), "cpu", "float32") for role in ROLES}

    @property
    def digest(self) -> str:
        """See `engine.protocol.KnownEngine`."""
        return "-".join(self._engines[role].digest for role in ROLES)

    @property
    def watch(self) -> Watch | None:
        """See `engine.protocol.WatchedEngine`."""
        return self._engines["designer"].watch

    @watch.setter
    def watch(self, watch: Watch | None) -> None:
        for engine in self._engines.values():
            engine.watch = watch

    async def complete(self, request: CompletionRequest) -> Completion:
        """See `engine.protocol.Engine`."""
        # An agent may be called designer too; a run's calls have numbered keys (`workflow.scheduler`).
        role = "designer" if request.agent == "designer" and "#" not in request.key else "executor"
        return await self._engines[role].complete(request)

    async def close(self) -> None:
        """See `engine.protocol.Engine`."""
        for engine in self._engines.values():
            await engine.close()


def open_embedded() -> Engine:
    """The policies as an engine. Raises ValueError where they cannot be used."""
    if why := missing():
        raise ValueError(f"there is no embedded policy here: {why}")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # they load in no time
    return EmbeddedEngine()
