r"""The reward of one run: MetaAgent-X, Appendix B, Eq. 10, explained term by term.

R = R_correct + lambda R_format, with lambda = 0.4. R_correct is 0 or 1; R_format is the mean of solution format and
delivery format, both in [0, 1]; so R lies in [0, 1.4]. Everything is read off what agents wrote: instructions that a
reply merely repeats earn nothing, and neither does an answer that no agent produced. A game that was played through
`environment` is graded by where it ended; else the answer is one action from its start. Grading is `tasks`' business;
comparing rewards is `trainer.credit.rules`'s. Another task brings a `RewardFunction` of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from engine.session import Run
from tasks.environments import propose, reset
from tasks.grading import grade
from tasks.problems import Problem
from workflow.agent import DELIVERY_REQUEST, FROM, content_after
from workflow.answers import final_answer
from workflow.place import could_see
from workflow.text import blocks, delivery, strip_echo
from workflow.trace import AgentTurn, EnvironmentStepped, Rewarded, RewardTerm

if TYPE_CHECKING:
    from sandbox.protocol import Sandbox

FORMAT_WEIGHT = 0.4
"""lambda of Eq. 10."""
RewardFunction = Callable[[Problem, Run, "Sandbox"], Awaitable[Rewarded]]
"""The reward of one run, in `Rewarded.total`, with its terms. Raises `SandboxUnavailable` where it cannot be graded."""

_ASKED = DELIVERY_REQUEST.rpartition("{reader}")[2]
"""How the prompt ends of an agent whose result goes to another one."""


async def paper_reward(problem: Problem, run: Run, sandbox: Sandbox, format_weight: float = FORMAT_WEIGHT) -> Rewarded:
    """Eq. 10. A run that failed (rejected, raised, limit passed) has 0 in every term.

    Raises ValueError for a run that ended by a failure of engine or sandbox, which says nothing about the policies.
    """
    if run.failure is not None and run.failure.is_infrastructure:
        raise ValueError(f"a run that ended with {run.failure.kind} has no reward. Fix: run it again, or leave it out")
    if run.failure is not None:
        reason = f"the run failed: {run.failure.kind}"
        correct = Correctness(0.0, reason)
        solution = handed_on = (0.0, reason)
    else:
        correct = await correctness(problem, run, sandbox)
        solution = _solution_format(problem, run)
        handed_on = delivery_format(run.trace.agent_turns)
    terms = [
        RewardTerm(name="correct", value=correct.value, weight=1.0, reason=correct.reason),
        RewardTerm(name="solution format", value=solution[0], weight=format_weight / 2, reason=solution[1]),
        RewardTerm(name="delivery format", value=handed_on[0], weight=format_weight / 2, reason=handed_on[1]),
    ]
    total = sum(term.value * term.weight for term in terms)
    return Rewarded(t=run.duration_s, total=round(total, 12), terms=terms, timed_out=correct.timed_out)


class Correctness(NamedTuple):
    value: float
    """R_correct."""
    reason: str
    timed_out: bool = False
    """Whether a clock ended the answer's code while it was graded."""


async def correctness(problem: Problem, run: Run, sandbox: Sandbox) -> Correctness:
    """Of a run that did not fail. Raises `SandboxUnavailable` where it cannot be graded."""
    if moves := _moves(run):
        return Correctness(*_played_out(moves))
    if run.answer is None:
        return Correctness(0.0, "there is no answer")
    if run.answer_from is None:
        return Correctness(0.0, "the answer stands in no agent's reply")
    graded = await grade(problem, run.answer, sandbox, stop_at_failure=True)
    return Correctness(float(graded.correct), graded.verdict, graded.by_clock)


def _moves(run: Run) -> list[EnvironmentStepped]:
    """What a run did in its game, while it was under way."""
    steps = (event for event in run.trace.events if isinstance(event, EnvironmentStepped))
    return [step for step in steps if step.commit and step.before != step.after]


def _played_out(moves: list[EnvironmentStepped]) -> tuple[float, str]:
    """Whether a game that was played is solved, by agents alone."""
    if not moves[-1].solved:
        return 0.0, f"not solved, {len(moves)} actions"
    # One that did nothing needs no author.
    foreign = next((n for n, move in enumerate(moves, 1) if move.action and move.from_agent is None), None)
    if foreign is not None:
        return 0.0, f"action {foreign} of {len(moves)} stands in no agent's reply"
    return 1.0, f"solved, {len(moves)} actions"


def _solution_format(problem: Problem, run: Run) -> tuple[float, str]:
    """1 where the answer can be read out of the final message, which an agent wrote; of a game that was played, the
    share of its actions."""
    if moves := _moves(run):
        readable = sum(move.action is not None and move.from_agent is not None for move in moves)
        return readable / len(moves), f"{readable} of {len(moves)} actions can be read, and are an agent's"
    asked = {"math": "in a box", "code": "in a <solution> block", "game": "an action"}[problem.domain]
    if run.answer is None or run.answer_from is None:
        return 0.0, "no agent gave an answer"
    if problem.domain == "game":
        readable = propose(reset(problem), run.answer_from, run.answer).readable
    else:
        readable = final_answer(run.answer, problem.domain) is not None
    if not readable:
        return 0.0, f"{run.answer_from}'s answer is not {asked}"
    return 1.0, f"{run.answer_from}'s answer is {asked}"


def delivery_format(turns: Iterable[AgentTurn]) -> tuple[float, str]:
    """The share of messages between agents that are enclosed in `<delivery>...</delivery>`, and what was seen.

    A message goes to another agent where the node asked its agent for a delivery, or where a later prompt of another
    agent shows it; what is handed on is what `workflow.agent` would. Agents of whom none hands anything on break no
    format: 1. A run without agents earns 0.
    """
    talks = conversations(turns)
    if not talks:
        return 0.0, "no agent said anything"
    handed_on = [
        talk
        for number, talk in enumerate(talks)
        if _prompt(talk[0]).endswith(_ASKED) or any(_shows(later[0], talk[0]) for later in talks[number + 1 :])
    ]
    if not handed_on:
        return 1.0, "no agent hands anything on"
    kept = sum(delivery(_said(talk))[1] == "delivery" for talk in handed_on)
    return kept / len(handed_on), f"{kept} of {len(handed_on)} messages between agents are deliveries"


def conversations(turns: Iterable[AgentTurn]) -> list[list[AgentTurn]]:
    """The turns of each agent's conversations: turn 0 begins one, later turns at the same path belong to it. Turns
    without a completion are left out."""
    begun: list[list[AgentTurn]] = []
    latest: dict[str, list[AgentTurn]] = {}
    for turn in turns:
        if turn.completion is None:
            continue
        if turn.turn == 0 or turn.path not in latest:
            latest[turn.path] = []
            begun.append(latest[turn.path])
        latest[turn.path].append(turn)
    return begun


def _prompt(turn: AgentTurn) -> str:
    return "\n\n".join(message["content"] for message in turn.messages if message["role"] == "user")


def _shows(turn: AgentTurn, sent: AgentTurn) -> bool:
    """Whether an agent is shown a message of another one that had come by then."""
    is_shown = turn.agent != sent.agent and FROM.format(sender=sent.agent) in _prompt(turn)
    return is_shown and could_see(turn.place, sent.place)


def _said(talk: list[AgentTurn]) -> str:
    """The content of the message that came of a conversation, without what the agent repeats from its instructions.

    A whole delivery in a user turn is an instruction's example: what agents hand on is shown without its tags.
    """
    instructions = [message["content"] for message in talk[0].messages if message["role"] == "system"]
    instructions += [f"<delivery>{example}</delivery>" for example in blocks("delivery", _prompt(talk[0]))]
    content = ""
    for turn in talk:
        if turn.completion is not None:
            content = content_after(content, strip_echo(turn.completion.text, instructions))
    return content
