"""Traces for tests of the viewer: made of real events, whole, half-written, broken and hostile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workflow.completion import Completion, Usage
from workflow.failures import Failure
from workflow.trace import AgentTurn, Answered, Event, Rewarded, RewardTerm, RunEnded, RunStarted, event_to_json

PROGRAM = (
    'from workflow import AgentNode, Workflow\nworkflow = Workflow("w").add_node(AgentNode("Solver", "Solve it."))\n'
)
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e\x1b[31m\"'&{{ 7 * 7 }}\u2028</pre>"


def failed(kind: str, message: str, **fields: object) -> Failure:
    return Failure.model_validate({"kind": kind, "message": message, "fields": fields})


def events(
    question: str = "What is 2 + 2?",
    answer: str | None = "\\boxed{4}",
    *,
    reward: float | None = 1.4,
    failure: Failure | None = None,
    program: str = PROGRAM,
    run_id: str = "r0",
    turns: int = 1,
    words: str = "It is 4.",
) -> list[Event]:
    """The events of a run, in the order in which a session writes them."""
    made: list[Event] = [RunStarted(run_id=run_id, question=question, program=program, engine="tokens", seed=7)]
    for number in range(turns):
        ids = list(words.encode())
        done = Completion(
            text=words,
            token_ids=ids,
            prompt_token_ids=[1, 2, 3],
            logprobs=[-0.5] * len(ids),
            usage=Usage(prompt_tokens=3, completion_tokens=len(ids)),
        )
        key = f"w/Solver#{number}"
        made.append(AgentTurn(t=0.5, key=key, path="w/Solver", agent="Solver", messages=[], completion=done))
    if answer is not None:
        made.append(Answered(t=1.0, text=answer, from_agent="Solver"))
    usage = Usage(prompt_tokens=3 * turns, completion_tokens=len(words.encode()) * turns)
    made.append(RunEnded(t=1.5, failure=failure, usage=usage))
    if reward is not None:
        right = float(reward >= 1)
        terms = [RewardTerm(name="correct", value=right, weight=1.0, reason="correct" if right else "wrong")]
        made.append(Rewarded(t=1.6, total=reward, terms=terms))
    return made


def lines_of(made: Sequence[Event]) -> bytes:
    return b"".join(event_to_json(event).encode() + b"\n" for event in made)


def write(path: Path, made: Sequence[Event] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines_of(events() if made is None else made))
    return path
