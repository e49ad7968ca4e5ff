"""What the nodes that are made of other nodes have in common: votes, labels, and requests to agents.

Which answers count as one is `workflow.voting`'s.
"""

from __future__ import annotations

import re

from workflow.agent import WorkflowNode
from workflow.messages import Message, MessageType
from workflow.text import last_boxed, solution_block
from workflow.voting import vote_key, winning_vote

_PLACEHOLDER = re.compile(r"\{(question|solution|critique|response|reflection)\}")


def answer_of(outcome: Message | Exception) -> str | None:
    """What a member votes for: its last box, else its solution block, else its marked delivery."""
    if isinstance(outcome, Exception):
        return None
    answer = last_boxed(outcome.content)
    if answer is None:
        answer = solution_block(outcome.content)
    if answer is None and outcome.metadata.get("delivery_source") in ("delivery", "final_answer"):
        answer = outcome.delivery
    return answer


def labelled(members: list[WorkflowNode], outcomes: list[Message | Exception]) -> list[Message]:
    """One message per member, in order; a failed member keeps its place and its label."""
    messages = []
    for index, (member, outcome) in enumerate(zip(members, outcomes, strict=True), 1):
        label = f"{index}. {member.name}"
        if isinstance(outcome, Exception):
            text = f"(failed: {type(outcome).__name__}: {outcome})"
            messages.append(Message(text, MessageType.ERROR, sender=label))
        else:
            metadata = {"delivery": outcome.delivery}
            messages.append(Message._made(outcome.content, outcome.message_type, metadata, label))
    return messages


def answers_of(outcomes: list[Message | Exception]) -> list[str | None]:
    """What each member votes for, None for one that failed or gave no answer."""
    return [answer_of(outcome) for outcome in outcomes]


def is_split(answers: list[str | None]) -> bool:
    """Whether members that answered gave different answers."""
    return len({vote_key(answer) for answer in answers if answer is not None}) > 1


def votes(members: list[WorkflowNode], answers: list[str | None], weights: list[float]) -> list[dict[str, object]]:
    return [
        {"member": member.name, "answer": answer, "weight": weight}
        for member, answer, weight in zip(members, answers, weights, strict=True)
    ]


def elect(name: str, members: list[WorkflowNode], outcomes: list[Message | Exception], weights: list[float]) -> Message:
    """The message of the member whose answer wins the vote, or of the first that did not fail."""
    answers = answers_of(outcomes)
    winner = winning_vote(answers, weights)
    if winner is None:
        winner = next((i for i, outcome in enumerate(outcomes) if isinstance(outcome, Message)), None)
    if winner is None:
        reasons = "; ".join(f"{member.name}: {outcome}" for member, outcome in zip(members, outcomes, strict=True))
        raise RuntimeError(f"{name}: every member failed ({reasons})")
    chosen = outcomes[winner]
    assert isinstance(chosen, Message), "a failed member has no vote"
    metadata = {**chosen.metadata, "votes": votes(members, answers, weights), "winner": members[winner].name}
    return Message(chosen.content, MessageType.ENSEMBLE_RESULT, metadata, sender=name)


def said_by(outcomes: list[Message | Exception]) -> list[str]:
    """The whole replies of the members that did not fail."""
    return [outcome.content for outcome in outcomes if isinstance(outcome, Message)]


def instruction(prompt: str, question: str = "", solution: str = "", critique: str = "") -> Message:
    """A request of the workflow. Fills its placeholders, and only them: a prompt may hold any other braces.

    `{response}` and `{reflection}` are the published names of `{solution}` and `{critique}`.
    """
    values = {"question": question, "solution": solution, "critique": critique}
    values |= {"response": solution, "reflection": critique}
    text = _PLACEHOLDER.sub(lambda match: values[match[1]], prompt)
    return Message(text, MessageType.USER_INPUT, {"instructions": prompt}, sender="workflow")
