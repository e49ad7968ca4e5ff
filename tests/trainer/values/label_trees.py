"""Small trees of labels, written line by line, for tests of models of values."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from search.problem import AnyLine, NodeLine, SimulationLine, StateLine, TreeHeader, line_text
from workflow.completion import ChatMessage, Completion
from workflow.failures import Failure


def header(problem: str = "p0", question: str = "Why?", method: str | None = "label") -> TreeHeader:
    return TreeHeader(
        settings={} if method is None else {"method": method},
        problem=problem,
        problem_digest=f"digest of {problem}",
        question=question,
        domain="math",
        program="00",
        engine="stub",
    )


def asks(number: int, agent: str, *contents: str) -> StateLine:
    messages = [ChatMessage(role="user", content=content) for content in contents]
    return StateLine(id=number, terminal=False, agent=agent, messages=messages)


def ends(number: int, answer: str | None, graded: float | None) -> StateLine:
    return StateLine(id=number, terminal=True, answer=answer, graded=graded)


def reply(number: int, parent: int, agent: str, depth: int, text: str | Failure, **more: Any) -> NodeLine:
    said: dict[str, Any] = (
        {"failure": text} if isinstance(text, Failure) else {"completion": Completion(text=text, **more)}
    )
    return NodeLine(id=number, parent=parent, key=f"{depth}", path=agent, agent=agent, depth=depth, **said)


def simulated(value: float, *path: int) -> SimulationLine:
    return SimulationLine(path=list(path), value=value)


def write(path: Path, lines: Sequence[AnyLine]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(map(line_text, lines)), encoding="utf-8")
    return path


def relay(problem: str = "p0", question: str = "Why?") -> list[AnyLine]:
    """Ann is asked, then Bob. Ann says a (3 visits, Q = 1/3) or b (1 visit, Q = -1); c was drawn and never visited. Bob
    says d (right, 2 visits) or e (wrong) after a, and f after b, which is wrong."""
    return [
        header(problem, question),
        asks(0, "Ann", question),
        reply(1, 0, "Ann", 1, "a"),
        reply(2, 0, "Ann", 1, "b"),
        reply(3, 0, "Ann", 1, "c"),
        asks(1, "Bob", "a?"),
        reply(4, 1, "Bob", 2, "d"),
        reply(5, 1, "Bob", 2, "e"),
        ends(4, "42", 1.0),
        simulated(1.0, 1, 4),
        ends(5, "43", -1.0),
        simulated(-1.0, 1, 5),
        asks(2, "Bob", "b?"),
        reply(6, 2, "Bob", 2, "f"),
        ends(6, None, -1.0),
        simulated(-1.0, 2, 6),
        simulated(1.0, 1, 4),
    ]


def one_reply_trees(
    folder: Path, problems: int, said: Callable[[random.Random], Mapping[str, float]], seed: int = 0
) -> Path:
    """Trees of one decision: texts that Ann says, each with its R."""
    dice = random.Random(seed)
    for number in range(problems):
        replies = list(said(dice).items())
        lines: list[AnyLine] = [header(f"p{number}", f"Problem {number}?"), asks(0, "Ann", f"Problem {number}?")]
        lines += [reply(at, 0, "Ann", 1, text) for at, (text, _) in enumerate(replies, 1)]
        for at, (text, value) in enumerate(replies, 1):
            lines += [ends(at, text, value), simulated(value, at)]
        write(folder / "trees" / f"p{number:03}.jsonl", lines)
    return folder
