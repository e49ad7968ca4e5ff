"""Trajectories hold exactly what engines were asked and chose, token for token (docs/architecture.md, decision 6)."""

import asyncio
import sys
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numbered_engine import CHOSEN, NumberedEngine, logprob_of, rendered

from designer.sample import sample_designs
from engine.drivers import run_workflow
from engine.session import Run
from trainer.samples import (
    Coordinates,
    NoTokens,
    Trajectory,
    designer_trajectories,
    digest,
    executor_trajectories,
)
from workflow import AgentNode, EnsembleNode, ReflectionNode, ToolRegistry, Workflow
from workflow.completion import Completion, CompletionRequest, Sampling
from workflow.limits import Limits
from workflow.trace import AgentTurn, Trace

TOOL_CALL = '<tool_call>{"name": "double", "arguments": {"n": 21}}</tool_call>'


def tools() -> ToolRegistry:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    registry = ToolRegistry()
    registry.register("double", lambda n: str(2 * n), "Twice n.", schema)
    return registry


def uses_its_tool_twice(request: CompletionRequest) -> str:
    assert request.messages is not None
    done = sum(message["role"] == "tool" for message in request.messages)
    return TOOL_CALL if request.tools and done < 2 else r"It is \boxed{42}. Verdict: INCORRECT"


def ensemble() -> Workflow:
    """Two agents that call a tool in a loop, and an umpire."""
    members = [AgentNode("First", "Compute.", tools()), AgentNode("Second", "Calculate.", tools())]
    umpire = AgentNode("Umpire", "Decide.")
    return Workflow("w").add_node(EnsembleNode("Both", members, strategy="consensus", consensus_agent=umpire))


def run(node: Any, engine: Any, **options: Any) -> Run:
    options.setdefault("sampling", Sampling(temperature=0.7, logprobs=True))
    return asyncio.run(asyncio.wait_for(run_workflow(node, "What is 6 * 7?", engine, **options), timeout=30))


def cut(turns: list[AgentTurn], execution: int = 5) -> list[Trajectory]:
    return executor_trajectories(turns, question="q", design=2, execution=execution)


def check_tokens(trajectory: Trajectory) -> None:
    """The mask is 1 on chosen ids and nowhere else, and each has its own log-probability beside it."""
    assert list(trajectory.loss_mask) == [int(token >= CHOSEN) for token in trajectory.token_ids]
    expected = [logprob_of(token) if token >= CHOSEN else 0.0 for token in trajectory.token_ids]
    assert trajectory.behaviour_logprobs == array("f", expected)
    assert trajectory.chosen == sum(trajectory.loss_mask) > 0


def chosen(trajectory: Trajectory) -> list[int]:
    return [token for token, mask in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if mask]


def text(tokens: Sequence[int]) -> str:
    return "".join(chr(token) if token < CHOSEN else "#" for token in tokens)


def turns_of(ended: Run, agent: str) -> list[AgentTurn]:
    return [turn for turn in ended.trace.agent_turns if turn.agent == agent]


# Runs of real nodes under the real scheduler and session


def test_a_tool_loop_is_one_trajectory() -> None:
    ended = run(ensemble(), NumberedEngine(uses_its_tool_twice))
    assert ended.failure is None
    assert [len(turns_of(ended, agent)) for agent in ("First", "Second", "Umpire")] == [3, 3, 1]
    first, second, umpire = cut(ended.trace.agent_turns)
    for trajectory, agent in ((first, "First"), (second, "Second"), (umpire, "Umpire")):
        check_tokens(trajectory)
        turns = turns_of(ended, agent)
        ids = [turn.completion.token_ids for turn in turns if turn.completion]
        assert chosen(trajectory) == [token for each in ids for token in each or []]
        assert trajectory.role == "executor"
        assert trajectory.temperature == 0.7
        last = turns[-1].completion
        assert last is not None
        # Every token that the engine was shown or chose at the last turn, and no other.
        assert list(trajectory.token_ids) == [*(last.prompt_token_ids or []), *(last.token_ids or [])]
        assert trajectory.weights_version == last.weights_version
        prompt = turns[0].completion.prompt_token_ids if turns[0].completion else None
        assert trajectory.coordinates == Coordinates(
            question="q",
            design=2,
            execution=5,
            agent=agent,
            path=turns[0].path,
            turn=0,
            prompt=digest(prompt or []),
        )
    # What tools returned stands between the turns and is not learnt.
    assert text(first.token_ids).count("<tool>42\n") == 2
    assert first.coordinates.prompt != second.coordinates.prompt


def test_a_template_that_cannot_extend_begins_a_new_trajectory() -> None:
    ended = run(ensemble(), NumberedEngine(uses_its_tool_twice, extends=False))
    assert all(turn.continues is None for turn in ended.trace.agent_turns)
    trajectories = cut(ended.trace.agent_turns)
    assert [(each.coordinates.agent, each.coordinates.turn) for each in trajectories] == [
        *(("First", turn) for turn in range(3)),
        *(("Second", turn) for turn in range(3)),
        ("Umpire", 0),
    ]
    for trajectory in trajectories:
        check_tokens(trajectory)
        # What was generated before is prompt now: characters, masked.
        assert list(trajectory.loss_mask) == sorted(trajectory.loss_mask)
    assert TOOL_CALL in text(trajectories[1].token_ids)
    assert len({each.coordinates.prompt for each in trajectories}) == 7


def test_rounds_of_a_loop_are_counted() -> None:
    """A node that is run again asks its agent anew; `turn` goes on where the first round ended."""
    solver, critic = AgentNode("Solver", "Solve.", tools()), AgentNode("Critic", "Check.")
    ended = run(ReflectionNode("Loop", solver, 2, critic_agent=critic), NumberedEngine(uses_its_tool_twice))
    assert [turn.turn for turn in turns_of(ended, "Solver")] == [0, 1, 2] * 3
    places = [each.coordinates for each in cut(ended.trace.agent_turns)]
    assert sorted((each.agent, each.turn) for each in places) == [
        ("Critic", 0),
        ("Critic", 1),
        ("Solver", 0),
        ("Solver", 3),
        ("Solver", 6),
    ]


def test_agents_of_one_name_are_told_apart() -> None:
    """A sample's place is its own, also where one agent stands three times in an ensemble, and loops."""
    voter = AgentNode("Voter", "Vote.", tools())
    node = ReflectionNode("Loop", EnsembleNode("Votes", [voter] * 3), 1, critic_agent=AgentNode("Critic", "Check."))
    ended = run(node, NumberedEngine(uses_its_tool_twice, extends=False))
    places = [each.coordinates for each in cut(ended.trace.agent_turns)]
    votes = {(each.path.rpartition("/")[2], each.turn) for each in places if each.agent == "Voter"}
    assert votes == {(f"Voter[{member}]", turn) for member in range(3) for turn in range(6)}
    assert len({(each.path, each.turn) for each in places}) == len(places) == 3 * 6 + 1
    # All three begin in one state, in each round.
    first = [each.prompt for each in places if each.agent == "Voter" and each.turn == 0]
    assert len(first) == 3
    assert len(set(first)) == 1


def test_the_order_of_arrival_does_not_show() -> None:
    ended = run(ensemble(), NumberedEngine(uses_its_tool_twice))
    turns = ended.trace.agent_turns
    ended_first = [event.agent for event in ended.trace.events if isinstance(event, AgentTurn)]
    assert ended_first[:2] == ["Second", "First"], "the engine answers the later request first"
    assert [each.coordinates.agent for each in cut(turns)] == ["First", "Second", "Umpire"]
    by_agent = [turn for agent in ("Umpire", "First", "Second") for turn in turns_of(ended, agent)]
    assert cut(by_agent) == cut(turns)


def test_a_trace_that_was_written_and_read_gives_the_same() -> None:
    ended = run(ensemble(), NumberedEngine(uses_its_tool_twice))
    read = Trace.from_lines(list(ended.trace.lines()))
    assert cut(read.agent_turns) == cut(ended.trace.agent_turns)


def test_a_run_that_ended_first_keeps_what_was_chosen() -> None:
    class Hanging(NumberedEngine):
        async def complete(self, request: CompletionRequest) -> Completion:
            if request.agent == "Second" and len(request.messages or []) > 2:
                await asyncio.Event().wait()
            return await super().complete(request)

    ended = run(ensemble(), Hanging(uses_its_tool_twice), limits=Limits(reply_s=0.3))
    assert ended.failure is not None
    assert ended.failure.kind == "engine_failed"
    assert any(turn.completion is None and turn.error for turn in ended.trace.agent_turns)
    first, second = cut(ended.trace.agent_turns)
    check_tokens(first)
    check_tokens(second)
    assert len(turns_of(ended, "First")) == 3
    assert text(second.token_ids).endswith("#" * (len(TOOL_CALL) + 1)), "one turn, and nothing of the one that hung"
    assert second.chosen == len(TOOL_CALL) + 1


def test_a_turn_that_was_lost_breaks_no_chain() -> None:
    first, last = turn("A", [1], [CHOSEN]), turn("A", [1, CHOSEN, 2], [CHOSEN + 1], 1, continues="A#0")
    lost = replace(turn("B", [1], [CHOSEN]), completion=None, error="lost")
    assert len(cut([first, lost, last])) == 1
    assert cut([first, lost, last]) == cut([first, last])
    assert cut([lost]) == cut([]) == []


# Turns made by hand


def turn(path: str, prompt: list[int], ids: list[int], number: int = 0, continues: str | None = None) -> AgentTurn:
    done = Completion(
        text="x",
        prompt_token_ids=prompt,
        token_ids=ids,
        logprobs=[logprob_of(token) for token in ids],
        weights_version=7,
    )
    return AgentTurn(
        key=f"{path}#{number}", path=path, agent=path, turn=number, messages=[], completion=done, continues=continues
    )


def test_a_trajectory_worked_by_hand() -> None:
    a, b, c = CHOSEN, CHOSEN + 1, CHOSEN + 2
    (trajectory,) = cut([turn("A", [1, 2], [a]), turn("A", [1, 2, a, 3], [b, c], 1, continues="A#0")])
    assert trajectory.token_ids == array("i", [1, 2, a, 3, b, c])
    assert trajectory.loss_mask == array("b", [0, 0, 1, 0, 1, 1])
    assert trajectory.behaviour_logprobs == array("f", [0, 0, -0.001, 0, -0.002, -0.003])
    assert (trajectory.chosen, trajectory.weights_version) == (3, 7)


def test_no_token_is_learnt_twice_where_two_turns_continue_one() -> None:
    a, b, c = CHOSEN, CHOSEN + 1, CHOSEN + 2
    both = cut(
        [
            turn("A", [1], [a]),
            turn("A", [1, a, 2], [b], 1, continues="A#0"),
            turn("A", [1, a, 3], [c], 2, continues="A#0"),
        ]
    )
    assert [chosen(each) for each in both] == [[a, b], [c]]
    assert list(both[1].loss_mask) == [0, 0, 0, 1]


def test_a_token_takes_nine_bytes() -> None:
    """What a step of thousands of runs keeps until the update. Log-probabilities are float32, as it computes them."""
    ids = [1_000_000 + number for number in range(10_000)]
    (trajectory,) = cut([turn("A", [1], ids)])
    columns = (trajectory.token_ids, trajectory.loss_mask, trajectory.behaviour_logprobs)
    assert [(column.typecode, column.itemsize) for column in columns] == [("i", 4), ("b", 1), ("f", 4)]
    assert sum(map(sys.getsizeof, columns)) < 10 * len(ids)


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ({"token_ids": None}, "token ids"),
        ({"prompt_token_ids": None}, "token ids"),
        ({"logprobs": None}, r"log-probability for each of its 2 token ids \(0 given\)"),
        ({"logprobs": [-1.0]}, r"log-probability for each of its 2 token ids \(1 given\)"),
    ],
)
def test_completions_that_cannot_be_trained_on_are_named(lacks: dict[str, Any], said: str) -> None:
    bad = turn("Umpire", [1], [CHOSEN, CHOSEN + 1])
    assert bad.completion is not None
    for name, value in lacks.items():
        setattr(bad.completion, name, value)
    fix = r"Fix: train with an engine that owns its tokens \(transformers:FOLDER or vllm:FOLDER\)"
    with pytest.raises(NoTokens, match=f"the completion of agent 'Umpire' has no {said}. {fix}") as caught:
        cut([turn("A", [1], [CHOSEN]), bad])
    assert caught.value.agent == "Umpire"
    assert isinstance(caught.value, ValueError)
    with pytest.raises(NoTokens, match="agent 'designer'"):
        designer_trajectories([(bad.completion, Sampling())], question="q", design=0)


conversations = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.booleans()), min_size=1, max_size=4), max_size=4
)


@given(conversations, st.randoms(use_true_random=False))
def test_every_chosen_token_is_learnt_once_and_in_order(drawn: list[list[tuple[int, int, bool]]], random: Any) -> None:
    """For any conversations, continued or rendered anew, that arrive in any order which keeps each agent's own."""
    token = CHOSEN
    queues: list[list[AgentTurn]] = []
    for path, turns in enumerate(drawn):
        queue: list[AgentTurn] = []
        for number, (between, count, extends) in enumerate(turns):
            ids = list(range(token, token + count))
            token += count
            before = queue[-1] if queue and extends else None
            done = before.completion if before else None
            sofar = [*(done.prompt_token_ids or []), *(done.token_ids or [])] if done else [path, number]
            queue.append(
                turn(str(path), [*sofar, *range(between)], ids, number, continues=before.key if before else None)
            )
        queues.append(queue)
    arrived: list[AgentTurn] = []
    waiting = [list(queue) for queue in queues if queue]
    while waiting:
        queue = random.choice(waiting)
        arrived.append(queue.pop(0))
        waiting = [each for each in waiting if each]
    trajectories = cut(arrived)
    assert trajectories == cut([each for queue in queues for each in queue])
    completions = [each.completion for each in arrived if each.completion]
    assert sum(each.chosen for each in trajectories) == sum(len(done.token_ids or []) for done in completions)
    learnt: dict[str, list[int]] = defaultdict(list)
    for trajectory in trajectories:
        check_tokens(trajectory)
        learnt[trajectory.coordinates.agent] += chosen(trajectory)
    assert learnt == {
        str(path): [token for each in queue for token in (each.completion and each.completion.token_ids) or []]
        for path, queue in enumerate(queues)
    }
    assert len(trajectories) == sum(each.continues is None for each in arrived)


# What comes next can be built on these coordinates (docs/architecture.md, "Credit that comes next")


def test_turns_that_are_cut_one_by_one_are_actions() -> None:
    """A coach's rewards, one per action, want a sample per turn: the same tokens, each learnt in one of them."""
    ended = run(ensemble(), NumberedEngine(uses_its_tool_twice))
    turns = ended.trace.agent_turns
    actions = cut([replace(turn, continues=None) for turn in turns])
    assert len(actions) == len(turns) == 7
    assert sum(each.chosen for each in actions) == sum(each.chosen for each in cut(turns))
    assert [each.coordinates.turn for each in actions if each.coordinates.agent == "First"] == [0, 1, 2]
    by_text = {tuple(turn.completion.token_ids or []): turn.completion for turn in turns if turn.completion}
    for action in actions:
        done = by_text[tuple(chosen(action))]
        # The prompt holds what the same agent chose before; it is the earlier actions' to learn.
        assert list(action.token_ids) == [*(done.prompt_token_ids or []), *(done.token_ids or [])]
        assert list(action.loss_mask) == sorted(action.loss_mask)
        assert action.behaviour_logprobs[-action.chosen :] == array("f", done.logprobs or [])
        assert action.coordinates.prompt == digest(done.prompt_token_ids or [])


def test_branches_of_one_state_share_agent_and_prompt() -> None:
    """AT-GRPO's groups: runs that were led to one state by the same replies, whatever they do afterwards."""

    def branch(execution: int, last: str) -> list[Trajectory]:
        def reply(request: CompletionRequest) -> str:
            return last if request.agent == "Umpire" else r"\boxed{42}"

        ended = run(ensemble(), NumberedEngine(reply))
        return cut(ended.trace.agent_turns, execution)

    groups: dict[tuple[str, str, str], set[int | None]] = defaultdict(set)
    for execution, last in enumerate(("yes", "no", "maybe")):
        for trajectory in branch(execution, last):
            place = trajectory.coordinates
            groups[place.question, place.agent, place.prompt].add(place.execution)
    assert {(agent, len(runs)) for (_, agent, _), runs in groups.items()} == {
        ("First", 3),
        ("Second", 3),
        ("Umpire", 3),
    }
    assert len(groups) == 3


# The Designer


def designer_turn(prompt: list[int], ids: list[int], temperature: float = 0.9) -> tuple[Completion, Sampling]:
    done = turn("designer", prompt, ids).completion
    assert done is not None
    return done, Sampling(temperature=temperature, logprobs=True)


def test_a_design_is_one_trajectory() -> None:
    turns = [designer_turn([1, 2], [CHOSEN, CHOSEN + 1])]
    (trajectory,) = designer_trajectories(turns, question="q", design=3)
    assert trajectory == Trajectory(
        role="designer",
        coordinates=Coordinates(question="q", design=3, agent="designer", turn=0, prompt=digest([1, 2])),
        token_ids=array("i", [1, 2, CHOSEN, CHOSEN + 1]),
        loss_mask=array("b", [0, 0, 1, 1]),
        behaviour_logprobs=array("f", [0, 0, -0.001, -0.002]),
        temperature=0.9,
        weights_version=7,
    )
    assert trajectory.coordinates.execution is None
    assert designer_trajectories([], question="q", design=3) == []


def test_a_repair_goes_on_where_its_prompt_extends_the_reply() -> None:
    first = designer_turn([1], [CHOSEN])
    (whole,) = designer_trajectories([first, designer_turn([1, CHOSEN, 2], [CHOSEN + 1])], question="q", design=0)
    assert (list(whole.token_ids), list(whole.loss_mask)) == ([1, CHOSEN, 2, CHOSEN + 1], [0, 1, 0, 1])
    assert (whole.coordinates.turn, whole.coordinates.prompt) == (0, digest([1]))
    for anew in ([1, 9, 2], [1], [9, CHOSEN, 2]):
        parts = designer_trajectories([first, designer_turn(anew, [CHOSEN + 1])], question="q", design=0)
        assert [(list(each.token_ids), each.loss_mask[-1], each.coordinates.turn) for each in parts] == [
            ([1, CHOSEN], 1, 0),
            ([*anew, CHOSEN + 1], 1, 1),
        ]
        assert sum(each.chosen for each in parts) == 2


def test_designs_that_were_really_sampled(in_jail: Callable[..., Any]) -> None:
    program = "from workflow import AgentNode, Workflow\nw = Workflow('w').add_node(AgentNode('A', 'Solve.'))"

    def reply(request: CompletionRequest) -> str:
        return f"<code>\n{program}\n</code>" if len(request.messages or []) > 2 else "<code>import os</code>"

    engine = NumberedEngine(reply)
    (design,) = in_jail(
        lambda sandbox: sample_designs("Q?", engine, sandbox, style="short", sampling=Sampling(logprobs=True))
    )
    assert design.ok
    assert design.repaired
    turns = [(each.completion, each.request.sampling) for each in design.turns]
    bad, mended = designer_trajectories(turns, question="q", design=0)
    for trajectory, each in ((bad, design.turns[0]), (mended, design.turns[1])):
        check_tokens(trajectory)
        prompt = rendered(each.request.messages)
        assert list(trajectory.token_ids[: len(prompt)]) == prompt
        assert trajectory.chosen == len(each.completion.text) + 1
    assert [bad.coordinates.turn, mended.coordinates.turn] == [0, 1]


def test_digests_tell_sequences_apart() -> None:
    sequences = [[], [1], [1, 2], [2, 1], [12], [1, 2, 3], [12, 3], [1, 23]]
    assert len({digest(each) for each in sequences}) == len(sequences)
    assert digest([1, 2]) == digest((1, 2))
