"""What is shown while a model writes: its lines as they come, and how fast it is; nothing where nobody looks."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal

import pytest
from rich.console import Console

from engine import Run
from engine.protocol import Watch
from engine.replay import ReplayEngine, ReplayEntry
from metaagent.commands.run import run_checked
from metaagent.commands.run_settings import RunSettings
from metaagent.opening import open_sandbox
from metaagent.terminal import LiveProgress, RunReport, progress
from tasks import Problem
from workflow.completion import ChatMessage, Completion, CompletionRequest
from workflow.trace import AgentTurn


class Slow:
    """An engine that writes two lines and a half for each request, a word at a time."""

    name = "slow"

    def __init__(self) -> None:
        self.watch: Watch | None = None
        self.watched = False

    async def complete(self, request: CompletionRequest) -> Completion:
        for piece in ("first ", "line\nse", "cond\n", "and \x1b[31mmore"):
            await asyncio.sleep(0.01)
            if self.watch is not None:
                self.watched = True
                self.watch(request.key, piece)
        return Completion(text="done")

    async def close(self) -> None:
        pass


class Terminal:
    def __init__(self) -> None:
        self.file = io.StringIO()
        self.console = Console(file=self.file, force_terminal=True, width=100, color_system=None)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(progress, "stderr", lambda: made.console)
    return made


def ask(key: str) -> CompletionRequest:
    messages: list[ChatMessage] = [{"role": "user", "content": "?"}]
    return CompletionRequest(messages=messages, key=key)


def test_lines_are_shown_as_they_come_and_the_speed_beside_them(terminal: Terminal) -> None:
    engine = Slow()
    with LiveProgress("Designing") as shown, shown.watching(engine, "one"):
        asyncio.run(engine.complete(ask("one")))
        asyncio.run(engine.complete(ask("two")))
    text = terminal.file.getvalue()
    assert text.count("first line") == text.count("second") == 1, "of the other request nothing"
    assert "and " in text, "the half line, at the end"
    assert "\x1b[31m" not in text
    assert "tokens/s" in text
    assert engine.watch is None


def test_what_was_written_stays_when_it_is_stopped(terminal: Terminal) -> None:
    engine = Slow()

    def stopped() -> None:
        with LiveProgress("Designing") as shown, shown.watching(engine, ""):
            asyncio.run(engine.complete(ask("one")))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert "first line" in terminal.file.getvalue()
    assert "and " in terminal.file.getvalue(), "the half line, too"
    assert engine.watch is None


def test_without_a_terminal_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(progress, "stderr", lambda: Console(file=file, force_terminal=False))
    engine = Slow()
    with LiveProgress("Designing") as shown, shown.watching(engine):
        asyncio.run(engine.complete(ask("one")))
    assert not engine.watched
    assert file.getvalue() == ""


def test_agents_asked_at_once_are_shown_one_after_another(terminal: Terminal) -> None:
    def turn(key: str, reply: Completion | None = None) -> AgentTurn:
        return AgentTurn(key=key, path=key, agent=key.upper(), messages=[], completion=reply)

    engine = Slow()
    with LiveProgress("Running") as shown, shown.watching(engine):
        for key in "abc":
            shown.asking(turn(key))
        assert engine.watch is not None
        for key, piece in (("b", "of b,\n"), ("a", "of a,\n"), ("b", "b again\n"), ("c", "of c\n"), ("a", "a again")):
            engine.watch(key, piece)
        shown(turn("c", Completion(text="of c")))
        engine.watch("nobody", "of a request that is no agent's\n")
        shown(turn("a", Completion(text="of a, a again")))
        shown.asking(turn("d"))
        engine.watch("d", "of d")
        engine.watch("b", "half a line")
    written = re.findall("of [abcd]\\b|[ab] again|half a line|of a request", terminal.file.getvalue())
    assert written == ["of a", "a again", "of b", "b again", "half a line", "of d"], "in the end also what others have"


def test_what_agents_of_a_program_write_is_shown(terminal: Terminal) -> None:
    program = """
from workflow import AgentNode, EnsembleNode, Workflow
solvers = [AgentNode(f"Solver{n}", "Solve it.", max_turns=1) for n in range(2)]
workflow = Workflow("two").add_node(EnsembleNode("Vote", solvers, strategy="majority_vote"))
"""

    async def ran(engine: Slow, shown: LiveProgress) -> None:
        async with open_sandbox("process") as sandbox:
            await run_checked(
                program,
                "2 + 2?",
                program="two.py",
                engine=engine,
                sandbox=sandbox,
                settings=RunSettings(),
                sink=shown,
                asking=shown.asking,
            )

    engine = Slow()
    with LiveProgress("Running") as shown, shown.watching(engine):
        asyncio.run(ran(engine, shown))
    text = terminal.file.getvalue()
    assert text.count("first line") == text.count("second") == 2
    first, second = text.index("first line"), text.rindex("first line")
    assert "second" in text[first:second], "the replies are not mixed"


def test_ctrl_c_while_the_answer_is_graded_keeps_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    async def ran() -> tuple[RunReport, Run]:
        async with open_sandbox("process") as sandbox:
            return await run_checked(
                'from workflow import AgentNode, Workflow\nworkflow = Workflow("w").add_node(AgentNode("A", "x"))',
                "2 + 2?",
                program="one.py",
                engine=ReplayEngine([ReplayEntry(agent="A", completion=Completion(text="It is \\boxed{4}."))]),
                sandbox=sandbox,
                settings=RunSettings(graded=Problem(id="p", question="2 + 2?", domain="math", gold="4")),
            )

    monkeypatch.setattr("metaagent.commands.run.correctness", never)
    report, run = asyncio.run(ran())
    assert (report.interrupted, report.answer, report.verdict, run.failure) == (True, "4", None, None)
    assert report.exit_code == 130


def test_an_engine_that_cannot_be_watched_is_left_alone(terminal: Terminal) -> None:
    with LiveProgress("Running") as shown, shown.watching(object()):
        pass
    assert "tokens/s" not in terminal.file.getvalue()


def test_who_is_asked_is_named_until_the_reply_comes(terminal: Terminal) -> None:
    def turn(agent: str, key: str, reply: Completion | None = None) -> AgentTurn:
        return AgentTurn(key=key, path=key, agent=agent, messages=[], completion=reply)

    def said(shown: LiveProgress) -> str:
        return shown._progress.tasks[0].description  # what rich draws of it depends on the clock

    with LiveProgress("Running") as shown:
        shown.asking(turn("Solver", "a"))
        assert said(shown) == "Running: asking Solver"
        for key in "bcd":
            shown.asking(turn(f"Critic-{key}", key))
        shown.asking(turn("Solver", "e"))
        assert said(shown) == "Running: asking Solver, Critic-b, Critic-c and 1 more"
        shown(turn("Critic-b", "b", Completion(text="yes")))
        shown(turn("Solver", "a", Completion(text="yes")))
        assert said(shown) == "Running: asking Critic-c, Critic-d, Solver; 2 agent calls, 0 tokens"
