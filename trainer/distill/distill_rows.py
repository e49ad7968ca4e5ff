"""What distillation keeps: which runs, which designs of a question, and the conversations in them as chat rows.

Pure functions. A run is kept whose answer is judged correct and whose formats are as asked for; every agent's
conversation in it becomes a row, as the engine saw it. Nothing here runs or grades anything, and reading rows is
`trainer.sft.chat_rows`' business.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from designer.prompts import short_design_messages
from engine.session import Run
from tasks.problems import Problem
from trainer.credit import conversations
from workflow.answers import final_answer
from workflow.completion import ChatMessage
from workflow.failures import FailureKind
from workflow.graph import Structure
from workflow.trace import AgentTurn, Rewarded
from workflow.usage import PolicyRole

Dropped = (
    FailureKind
    | Literal[
        "wrong",
        "no_answer",
        "unfounded_answer",
        "gold_unparseable",
        "timed_out",
        "cut_off",
        "empty_reply",
        "format",
        "surplus",
    ]
)
"""Why a run or a design is not learned from. `unfounded_answer`: it stands in no agent's reply; `timed_out`: a clock
ended code that it ran or was graded by; `cut_off`: a reply ended at its longest; `format`: below the least asked for;
`surplus`: beyond what is kept of one question."""


class Origin(BaseModel):
    """The design that a row comes from."""

    model_config = ConfigDict(frozen=True)

    question: str
    """The problem's id."""
    design: int
    structure: Structure
    template: str | None = None
    """Where the design is a template's."""


class Row(Origin):
    """One conversation to learn, in the `messages` form of `trainer.sft.chat_rows`."""

    role: PolicyRole
    messages: list[ChatMessage]
    tools: list[dict[str, Any]] | None = None
    execution: int | None = None
    """None for the Designer's."""
    agent: str
    right: bool = True
    """Whether its run's answer was right; for the Designer's, that of any run of the design."""


def digest(row: Row) -> bytes:
    """Equal where two rows teach the same: role, messages and tools."""
    taught = json.dumps([row.role, row.messages, row.tools], sort_keys=True)
    return hashlib.blake2b(taught.encode(), digest_size=16).digest()


def why_dropped(
    problem: Problem, run: Run, reward: Rewarded, min_format: float, keep_wrong: bool = False
) -> Dropped | None:
    """Why a run is not kept; None for one that is. `reward` is Eq. 10's, with its terms. With `keep_wrong` a wrong
    answer alone is no reason."""
    if run.failure is not None:
        return run.failure.kind
    if run.timed_out or reward.timed_out:
        return "timed_out"
    correct = next(term for term in reward.terms if term.name == "correct")
    if correct.value != 1:
        if correct.reason == "gold_unparseable":
            return "gold_unparseable"
        if run.answer is None or final_answer(run.answer, problem.domain) is None:
            return "no_answer"
        if run.answer_from is None:
            return "unfounded_answer"
        if not keep_wrong:
            return "wrong"
    replies = [turn.completion for turn in run.trace.agent_turns if turn.completion is not None]
    if any(reply.finish_reason != "stop" for reply in replies):
        return "cut_off"
    if not all(reply.text.strip() for reply in replies):
        return "empty_reply"
    return None if format_of(reward) >= min_format else "format"


def format_of(reward: Rewarded) -> float:
    """R_format of Eq. 10: the mean of solution format and delivery format, in [0, 1]."""
    values = [term.value for term in reward.terms if term.name.endswith("format")]
    return sum(values) / len(values)


def talks_of(turns: Iterable[AgentTurn]) -> list[tuple[str, list[ChatMessage], list[dict[str, Any]]]]:
    """The agent, messages and tools of each conversation of a run, its replies included, ordered by the keys of their
    first turns.

    A later turn goes on in the conversation of the one before where it shows all of that unchanged, as an agent's turns
    after its tool calls do; else it begins one. What an agent is only said to have replied is not taken up: a turn
    that shows it such a reply ends the conversation.
    """
    found = []
    for talk in sorted(conversations(turns), key=lambda talk: talk[0].key):
        said: list[ChatMessage] = []
        for number, turn in enumerate(talk):
            if turn.completion is None:
                continue
            extends = turn.messages[: len(said)] == said and turn.tools == talk[number - 1].tools if said else False
            new = turn.messages[len(said) :] if extends else turn.messages
            if any(message["role"] == "assistant" for message in new):
                break
            if not extends:
                said = []
                found.append((turn.agent, said, turn.tools))
            said += [*new, ChatMessage(role="assistant", content=turn.completion.text)]
    return found


def executor_rows(run: Run, execution: int, origin: Origin, *, right: bool = True) -> list[Row]:
    """One row per agent conversation."""
    return [
        Row(
            role="executor",
            messages=messages,
            tools=tools or None,
            execution=execution,
            agent=agent,
            right=right,
            **origin.model_dump(),
        )
        for agent, messages, tools in talks_of(run.trace.agent_turns)
    ]


def designer_row(question: str, reply: str, origin: Origin, *, right: bool = True) -> Row:
    """What the Designer is to write to the short prompt, which RL and the trained policy use."""
    messages = [*short_design_messages(question), ChatMessage(role="assistant", content=reply)]
    return Row(role="designer", messages=messages, agent="designer", right=right, **origin.model_dump())


def preferred(structures: Sequence[Structure | None], most: int) -> set[int]:
    """Places of at most `most` designs, given their structures: the first of each before the second of any."""
    seen: Counter[Structure | None] = Counter()
    ranked = []
    for place, structure in enumerate(structures):
        ranked.append((seen[structure], place))
        seen[structure] += 1
    return {place for _, place in sorted(ranked)[:most]}
