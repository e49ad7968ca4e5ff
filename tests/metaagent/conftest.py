import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

PROMPT = r"Solve it. Put the final answer in \\boxed{}."
ONE = f"""\
from workflow import AgentNode, Workflow

solver = AgentNode(name="Solver", system_prompt="{PROMPT}", max_turns=1)
workflow = Workflow(name="one").add_node(solver)
"""


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No engine, key or colour from outside; relative names mean files of this test."""
    for name in ("METAAGENT_ENGINE", "OPENAI_API_KEY", "OPENAI_BASE_URL", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    # Subprocesses find the packages from any folder.
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def one(tmp_path: Path) -> str:
    """A program with one agent, `Solver`."""
    (tmp_path / "one.py").write_text(ONE)
    return "one.py"


@pytest.fixture
def replay(tmp_path: Path) -> Callable[..., str]:
    """`replay(("Solver", "reply"), ...)` writes the replies to a file and returns it as an engine."""

    def write(*replies: Sequence[str]) -> str:
        entries = [dict(zip(("agent", "reply", "key"), reply, strict=False)) for reply in replies]
        (tmp_path / "replies.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        return "replay:replies.jsonl"

    return write
