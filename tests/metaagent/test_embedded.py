"""The embedded policy: used for the problems it knows where torch is there, and never silently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.replay import ReplayEngine
from metaagent import embedded
from metaagent.cli import app
from tasks.data import miniature
from workflow.completion import ChatMessage, Completion, CompletionRequest

KNOWN = "What is 47 + 38?"


@pytest.mark.parametrize(
    ("problem", "known"),
    [
        (KNOWN, True),
        (f"\n{KNOWN}\n", True),
        ("Add up 4, 8, 6, 2.", True),
        ("Which two of 13, 18, 21, 24 add up to 39?", True),
        (f"{KNOWN} Explain.", False),
        ("What is a monoid?", False),
        ("What is 470 + 38?", False),
        ("What is 482 * 771?", False),
        ("Add up 4, 8, 6.", False),
        ("Which two of 11, 13, 18, 21, 24 add up to 39?", False),
        ("Which two of 13, 18, 21, 26 add up to 39?", False),
    ],
)
def test_it_knows_single_questions_as_large_as_it_was_taught(problem: str, known: bool) -> None:
    assert embedded.knows(problem) is known


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded, "NEEDED", ("torch_that_is_not_there",))
    assert embedded.missing() == 'it needs torch_that_is_not_there. Fix: pip install "metaagent[local]"'
    with pytest.raises(ValueError, match="no embedded policy here: it needs torch_that"):
        embedded.open_embedded()
    monkeypatch.setattr(embedded, "FOLDER", tmp_path / "gone")
    assert embedded.missing() == "recipe.json is not in gone/. Fix: reinstall metaagent"


@pytest.mark.parametrize("kind", miniature.KINDS)
def test_it_knows_what_is_drawn(kind: miniature.Kind) -> None:
    assert all(embedded.knows(problem.question) for problem in miniature.problems(kind, 20, seed=3))


def test_design_uses_it_for_what_it_knows(
    one: str, replay: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replay(("designer", f"<code>\n{(tmp_path / one).read_text()}</code>"), ("Solver", "\\boxed{85}"))
    engine = ReplayEngine(tmp_path / "replies.jsonl")
    engine.name = embedded.SPEC
    monkeypatch.setattr(embedded, "missing", lambda: "")
    monkeypatch.setattr(embedded, "open_embedded", lambda: engine)
    result = CliRunner().invoke(app, ["design", KNOWN, "--run"])
    assert result.exit_code == 0
    assert "85" in result.stdout
    assert "the embedded policy designed this" in result.stderr.replace("\n", " ")
    assert "% of those held out; to have a real model design and run it, add --engine" in result.stderr.replace(
        "\n", " "
    )
    result = CliRunner().invoke(app, ["design", "What is a monoid?"])
    assert "so the template bank designed this" in result.stderr.replace("\n", " ")
    assert "embedded" not in result.stderr


def test_without_torch_the_bank_designs_and_it_is_said_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "missing", lambda: "it needs torch. Fix: pip install it")
    result = CliRunner().invoke(app, ["design", KNOWN])
    assert result.exit_code == 0
    assert "so the template bank designed this" in result.stderr.replace("\n", " ")
    assert "the embedded policy knows such problems, but it needs torch. Fix" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["What is a monoid?", "--engine", "embedded"], "knows the small problems of tasks.data.miniature alone"),
        ([KNOWN, "--engine", "embedded", "--cache", "kept"], "replies are not kept. Fix: leave --cache out"),
        ([KNOWN, "--cache", "kept"], "--cache keeps an engine's replies"),
    ],
)
def test_what_it_cannot_do_is_refused(arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "missing", lambda: "")
    result = CliRunner().invoke(app, ["design", *arguments])
    assert result.exit_code == 2
    assert said in result.stderr.replace("\n", " ")


def test_it_is_asked_with_the_prompt_it_was_taught(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    async def design(*_: object, style: str, **__: object) -> None:
        asked.append(style)
        raise ValueError("enough")

    monkeypatch.setattr("metaagent.commands.design._design", design)
    CliRunner().invoke(app, ["design", KNOWN, "--engine", "embedded"])
    assert asked == ["short"]


class Named:
    """Says which model it stands for."""

    def __init__(self, folder: str, *_: object) -> None:
        self.folder = Path(folder)
        self.closed = False

    async def complete(self, request: CompletionRequest) -> Completion:
        return Completion(text=self.folder.name)

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("agent", "key", "role"),
    [
        ("designer", "designer/0/0", "designer"),
        ("Solver", "single/Solver#0", "executor"),
        ("designer", "designer/0/designer#0", "executor"),
    ],
)
def test_each_role_has_its_own_policy(agent: str, key: str, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.setattr("engine.local.TransformersEngine", Named)
    made = embedded.EmbeddedEngine()

    async def ask() -> str:
        reply = await made.complete(
            CompletionRequest(messages=[ChatMessage(role="user", content="?")], agent=agent, key=key)
        )
        await made.close()
        return reply.text

    assert asyncio.run(ask()) == role
