"""What a run's report says beside its result: how to mend a failure, and what of its replies is odd. Runs nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from engine import Engine, Run
from engine.replay import ReplayEngine
from metaagent.terminal import one_line
from workflow.answers import Domain
from workflow.completion import Completion
from workflow.failures import Failure
from workflow.trace import AgentTurn, EnvironmentStepped

_NO_GAME = re.compile(r"'NoneType' object has no attribute '(?:observe|act|propose)'")


def fix_of(failure: Failure | None, program: str, *, plays: bool = False) -> str:
    """`plays` says whether there was a game."""
    if failure is None:
        return ""
    if failure.kind == "limit_exceeded":
        kind = str(failure.fields["limit_kind"])
        if kind == "context_tokens":
            return "make the agents say less, or use a model with a longer context"
        return f"raise it with --{kind.replace('_', '-')}, or make the program do less"
    if failure.kind == "program_failed":
        line = failure.fields.get("line")
        if not plays and _NO_GAME.search(failure.message):
            return "`environment` is None without a game: run the program with --task FORMAT:FILE, whose problem is one"
        return f"mend {program}" + (f", line {line}" if line else "")
    if failure.kind == "engine_failed":
        return "" if "Fix: " in failure.message else "see that the engine is up; `metaagent doctor` shows what is set"
    return "" if "Fix: " in failure.message else "run `metaagent doctor`"


def actions_of(run: Run) -> int:
    """Done in a game that was under way; proposals are none."""
    steps = (event for event in run.trace.events if isinstance(event, EnvironmentStepped))
    return sum(step.commit and step.before != step.after for step in steps)


def notes_of(run: Run, problem: str, engine: Engine) -> list[str]:
    turns = run.trace.agent_turns
    empty, cut = empty_replies(turns), cut_replies(turns)
    notes = [*empty, *cut]
    if actions_of(run):  # the game says what came of it, and agents are shown positions
        problem = ""
    elif run.failure is None and run.answer is not None and not run.answer.strip():
        notes.append("the answer is empty" + ("" if empty else ": the program reported nothing. Fix: mend the program"))
    elif run.answer is not None and run.answer_from is None:
        notes.append("no agent produced this answer: the program made it itself")
    said = (message["content"] for turn in turns for message in turn.messages)
    if turns and problem.strip() and not any(problem.strip() in text for text in said):
        notes.append("no agent was shown the problem as given: the program asked something of its own")
    if isinstance(engine, ReplayEngine) and run.failure is None and engine.unused():
        notes.append(f"{len(engine.unused())} recorded replies were not asked for")
    return notes


def no_answer(reason: str, domain: Domain) -> list[str]:
    """One line where a message has nothing that could be graded."""
    place = {"math": "\\boxed{}", "code": "<solution></solution>", "game": "a list behind ####"}[domain]
    return [f"nothing of the answer can be graded. Fix: have it written in {place}"] if reason == "no_answer" else []


def void_tokens(tokens: int | None, calls: float, counted: float) -> list[str]:
    """One line where `--tokens` was given and ended nothing, since no engine that was asked counts tokens."""
    if tokens is None or not calls or counted:
        return []
    return [f"--tokens {tokens} ends nothing: the engine counts no tokens. Fix: --agent-calls, or an engine that does"]


MORE_TOKENS = "raise it with --max-tokens; where the agent's node sets max_tokens itself, raise that, too"


def empty_replies(turns: Iterable[AgentTurn]) -> list[str]:
    """One line for each agent and reason for which a reply of it was empty, with what to do."""
    return _by_agent((turn.agent, why_empty(turn.completion)) for turn in turns if turn.completion is not None)


def why_empty(reply: Completion) -> str:
    """Why a reply says nothing and what to do about it, or an empty string for one that says something."""
    if reply.text.strip():
        return ""
    thought = " but reasoning" if reply.reasoning else ""
    if reply.finish_reason == "length":
        return f"said nothing{thought} before it was cut off by max_tokens. Fix: {MORE_TOKENS}"
    if reply.finish_reason == "abort":
        return (
            f"said nothing{thought}, as the server filtered it or broke it off. Fix: ask in other words, use another "
            "model, or see the server's content filter and log"
        )
    if thought:
        return (
            "said nothing but reasoning. Fix: turn the model's thinking off, or see that the server's reasoning parser "
            "fits the model"
        )
    return "said nothing at all. Fix: make the agent's prompts ask for an answer, or use another model"


def cut_replies(turns: Iterable[AgentTurn]) -> list[str]:
    """One line for each agent of which a reply that says something was cut off."""
    return _by_agent(
        (turn.agent, f"was cut off by max_tokens. Fix: {MORE_TOKENS}")
        for turn in turns
        if turn.completion and turn.completion.finish_reason == "length" and turn.completion.text.strip()
    )


def _by_agent(found: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of what befell replies of agents, the same thing told once with its count."""
    counts = Counter(each for each in found if each[1])
    return [
        f"{one_line(agent)}: {'a reply' if count == 1 else f'each of {count} replies'} {what}"
        for (agent, what), count in counts.items()
    ]
