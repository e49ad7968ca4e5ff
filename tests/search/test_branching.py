"""Runs that part: every position is the one that a separate run with the same replies reaches, whatever the order of
arrival and however many runs are open at once; code is answered from the record; limits count the path alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from one_jail import in_jail

from engine import run_workflow
from engine.session import Run
from sandbox import ProcessSandbox
from search import AgentStep, Branching, CodeStep, Decision, Ended, OpenRuns, Path, Program, jailed, trusted
from search.branching import Position
from workflow import AgentNode, EnsembleNode, ReflectionNode, Workflow
from workflow.completion import Completion, CompletionRequest, Usage
from workflow.failures import EngineFailed, Failure, LimitExceeded
from workflow.limits import Limits
from workflow.requests import CodeReply
from workflow.trace import AgentTurn

EIGHT_IN_A_LOOP = """
from workflow import AgentNode, EnsembleNode, Workflow
from workflow.nodes import ReflectionNode
members = [AgentNode(f"M{n}", f"Member {n}.", max_turns=1) for n in range(8)]
judge = AgentNode("Judge", "Choose.", max_turns=1)
both = EnsembleNode("Both", members, strategy="consensus", consensus_agent=judge)
critic = AgentNode("Critic", "Verdict?", max_turns=1)
workflow = Workflow("w").add_node(ReflectionNode("Loop", both, 2, "Check.", critic, "Again."))
"""
TOOLS_SIDE_BY_SIDE = """
import subprocess
from workflow import AgentNode, EnsembleNode, ToolRegistry, Workflow
def note(text: str) -> str:
    code = f"open('notes', 'a').write({text!r}); print(open('notes').read())"
    return subprocess.run(["python", "-c", code], capture_output=True, text=True).stdout
def twice(n: int) -> int:
    return 2 * n
tools = ToolRegistry()
tools.register("note", note, "Note a text.", {"type": "object", "properties": {"text": {"type": "string"}}})
tools.register("twice", twice, "Double.", {"type": "object", "properties": {"n": {"type": "integer"}}})
members = [AgentNode(f"M{n}", "Use tools.", max_turns=3, tool_registry=tools) for n in range(3)]
workflow = Workflow("w").add_node(EnsembleNode("E", members, strategy="majority_vote"))
"""


def talk(request: CompletionRequest, number: int) -> Completion:
    """Candidate `number`: tools first, a verdict from a critic, else a word that depends on what was asked."""
    said = random.Random(repr((request.messages, number))).randrange(100)
    text = f"<delivery>\\boxed{{{said}}}</delivery>"
    if request.agent == "Critic":
        text = f"Verdict: {'CORRECT' if number else 'INCORRECT'}"
    if request.tools and len(request.messages or []) < 4:
        call = f'{{"name": "note", "arguments": {{"text": "{said} "}}}}'
        if (said + number) % 3 == 0:
            call = f'{{"name": "twice", "arguments": {{"n": {said}}}}}'
        text = f"<tool_call>{call}</tool_call>"
    return Completion(text=text, usage=Usage(prompt_tokens=10, completion_tokens=5))


def in_jails(work: Callable[[ProcessSandbox], Coroutine[Any, Any, Any]]) -> Any:
    return in_jail(work, 120)


async def grow(
    branching: Branching, position: Position, widths: Sequence[int], dice: random.Random | None = None
) -> list[Ended]:
    """All ends of a tree that parts as often as `widths` says, and goes on with candidate 0 then."""
    if isinstance(position, Ended):
        return [position]
    if dice is not None:
        await asyncio.sleep(dice.random() / 100)
    width, rest = (widths[0], widths[1:]) if widths else (1, ())
    ways = [grow_on(branching, position, talk(position.request, number), rest, dice) for number in range(width)]
    if dice is not None:
        dice.shuffle(ways)
    return sorted(chain.from_iterable(await asyncio.gather(*ways)), key=lambda end: end.path.digest)


async def grow_on(
    branching: Branching, decision: Decision, reply: Completion, widths: Sequence[int], dice: random.Random | None
) -> list[Ended]:
    return await grow(branching, await branching.go_on(decision, reply), widths, dice)


def seen(end: Ended) -> Any:
    """What is to be the same, however the end was reached."""
    return end.path.model_dump(mode="json"), what(end.run), end.differences


def what(run: Run) -> Any:
    turns = {turn.key: (turn.agent, turn.messages, turn.completion and turn.completion.text) for turn in calls(run)}
    return run.answer, run.failure, turns, run.usage


def calls(run: Run) -> list[AgentTurn]:
    return [event for event in run.trace.events if isinstance(event, AgentTurn)]


class Recorded:
    """Plain replies by key, which arrive in any order."""

    name = "recorded"

    def __init__(self, path: Path) -> None:
        self.replies = {step.key: step.reply for step in path.decisions}
        self.dice = random.Random(path.digest)

    async def complete(self, request: CompletionRequest) -> Completion:
        await asyncio.sleep(self.dice.random() / 200)
        reply = self.replies[request.key]
        assert isinstance(reply, Completion)
        return reply

    async def close(self) -> None: ...


@pytest.mark.parametrize("source", [EIGHT_IN_A_LOOP, TOOLS_SIDE_BY_SIDE], ids=["eight in a loop", "tools"])
def test_a_tree_is_the_set_of_separate_runs(source: str) -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        program = jailed(sandbox, source, "What?", seed=3)
        branching = Branching(program)
        widths = (2, 1, 2, 1, 1, 1, 2)
        ends = await grow(branching, await branching.start(), widths)
        assert len(ends) == len({end.path.digest for end in ends}) >= 4
        for end in ends:
            run = await sandbox.run_program(source, "What?", engine=Recorded(end.path), seed=3)
            assert len(calls(run)) == len(end.path.decisions)
            if source is EIGHT_IN_A_LOOP:
                assert what(run) == what(end.run)
            else:  # a file that three write at once has no order of its own
                assert len(what(run)[2]) == len(what(end.run)[2])
            replayed = await branching.at(end.path)
            assert isinstance(replayed, Ended)
            assert seen(replayed) == seen(end)
        kept = [Path.model_validate_json(end.path.model_dump_json()) for end in ends]
        assert [path.digest for path in kept] == [end.path.digest for end in ends]
        assert [seen(await branching.at(path)) for path in kept] == [seen(end) for end in ends]  # pyright: ignore
        await branching.close()

    in_jails(go)


@pytest.mark.parametrize("most", [1, 2, 64])
def test_how_many_are_open_and_who_comes_first_change_nothing(most: int) -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        program = jailed(sandbox, TOOLS_SIDE_BY_SIDE, "What?")
        plain = Branching(program, open_runs=OpenRuns(64))
        expected = [seen(end) for end in await grow(plain, await plain.start(), (2, 2, 2))]
        other = Branching(program, open_runs=OpenRuns(most))
        ends = await grow(other, await other.start(), (2, 2, 2), random.Random(most))
        assert [seen(end) for end in ends] == expected
        await plain.close()
        await other.close()

    in_jails(go)


def test_spare_runs_change_nothing_are_there_for_the_next_reply_and_are_dropped_in_the_end() -> None:
    begun: list[int] = []

    class Counted(ProcessSandbox):
        async def run_program(self, *given: Any, **options: Any) -> Run:
            begun.append(len(options["engine"].path.decisions))
            return await super().run_program(*given, **options)

    async def go() -> None:
        async with Counted() as sandbox:
            program = jailed(sandbox, EIGHT_IN_A_LOOP, "What?")
            plain, spare = Branching(program), Branching(program, open_runs=OpenRuns(8), spares=True)
            start = await plain.start()
            expected = [seen_at(await grow_to(plain, start, number)) for number in range(3)]
            await plain.close()
            start = await spare.start()
            begun.clear()
            for number in range(3):
                assert seen_at(await grow_to(spare, start, number)) == expected[number]
                deadline = asyncio.get_running_loop().time() + 30
                while (spare, start.path.digest) not in spare._open._held:  # it comes by itself
                    assert asyncio.get_running_loop().time() < deadline
                    await asyncio.sleep(0.01)
            assert set(begun) == {0}, "of the spare ones; nobody waited for another"
            none = Branching(program, open_runs=OpenRuns(1), spares=True)
            await grow_to(none, await none.start(), 0)
            assert not none._spares, "where there is no room there is none"
            await none.close()
            await spare.close()
            assert not spare._spares

    async def grow_to(branching: Branching, position: Position, number: int) -> Position:
        assert isinstance(position, Decision)
        return await branching.go_on(position, talk(position.request, number))

    def seen_at(position: Position) -> Any:
        assert isinstance(position, Decision)
        return position.path.digest, position.request.key, position.request.messages

    asyncio.run(asyncio.wait_for(go(), 100))


def ensemble(turns: int = 1) -> Workflow:
    members = [AgentNode(f"M{n}", "Say.", max_turns=turns) for n in range(3)]
    judge = AgentNode("Judge", "Choose.", max_turns=1)
    node = EnsembleNode("E", [ReflectionNode(f"R{n}", each, 2) for n, each in enumerate(members)])
    return Workflow("w").add_node(node).add_node(judge)


def one_by_one(program: Program) -> list[str]:
    """The keys of the decisions on one way to the end."""

    async def go() -> list[str]:
        branching, keys = Branching(program), []
        position = await branching.start()
        while isinstance(position, Decision):
            keys.append(position.request.key)
            position = await branching.go_on(position, Completion(text="\\boxed{1}"))
        assert position.run.failure is None
        return keys

    return asyncio.run(asyncio.wait_for(go(), 30))


def test_calls_that_are_open_at_once_are_decided_in_the_order_of_their_keys() -> None:
    keys = one_by_one(trusted(ensemble(), "What?"))
    members = [key for key in keys if "E/" in key]
    assert len(members) == 15
    assert members == sorted(members), "each member to its end, as its next call is open before the next member's"
    assert keys[len(members) :] == [key for key in keys if key not in members]


def test_a_trusted_workflow_parts_as_a_jailed_one() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        inside: dict[str, Any] = {}
        exec(EIGHT_IN_A_LOOP, inside)
        ends = []
        for program in (trusted(inside["workflow"], "What?"), jailed(sandbox, EIGHT_IN_A_LOOP, "What?")):
            branching = Branching(program)
            ends.append(await grow(branching, await branching.start(), (2, 2)))
        answers = [sorted(str(end.run.answer) for end in each) for each in ends]
        assert answers[0] == answers[1]
        assert [len(end.path.steps) for end in ends[0]] == [len(end.path.steps) for end in ends[1]]

    in_jails(go)


WRITES = """
import subprocess
from workflow import AgentNode, Workflow
def run(code):
    return subprocess.run(["python", "-c", code], capture_output=True, text=True).stdout.strip()
one, two = AgentNode("One", "Say.", max_turns=1), AgentNode("Two", "Say.", max_turns=1)
run("open('f', 'w').write('first')")
said = Workflow("A").add_node(one).run("a").content
stamp = run("import os, time; print(os.getpid(), time.time_ns())")
said = Workflow("B").add_node(two).run("b " + stamp).content
answer = run("print(open('f').read())") + " " + said
"""


def test_files_are_made_anew_and_the_record_stands() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        branching = Branching(jailed(sandbox, WRITES, "What?"))
        first = await branching.start()
        assert isinstance(first, Decision)
        second = await branching.go_on(first, Completion(text="x"))
        assert isinstance(second, Decision)
        stamp = second.path.steps[-1]
        assert isinstance(stamp, CodeStep)
        held = await branching.go_on(second, Completion(text="y"))
        again = await branching.go_on(second, Completion(text="z"))
        assert isinstance(held, Ended)
        assert isinstance(again, Ended)
        assert (held.run.answer, again.run.answer) == ("first y", "first z")
        assert held.differences == ()
        [told] = again.differences
        assert f"code {stamp.key!r}, run again, has stdout " in told
        assert calls(held.run)[1].messages == calls(again.run)[1].messages, "the second agent is told what is recorded"
        assert again.path.steps[:-2] == held.path.steps[:-2]

    in_jails(go)


def test_waiting_for_the_search_counts_against_no_limit() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        limits = Limits(wall_s=1, reply_s=1)
        source = WRITES.replace("import os, time; ", "import os, time; time.sleep(0.2); ")
        branching = Branching(jailed(sandbox, source, "What?", limits=limits))
        position = await branching.start()
        while isinstance(position, Decision):
            await asyncio.sleep(1.2)
            position = await branching.go_on(position, Completion(text="x"))
        assert position.run.failure is None
        slow = Branching(jailed(sandbox, source.replace("sleep(0.2)", "sleep(3)"), "What?", limits=limits))
        position = await slow.start()
        assert isinstance(position, Decision)
        ended = await slow.go_on(position, Completion(text="x"))
        assert isinstance(ended, Ended)
        assert ended.run.failure is not None
        assert ended.run.failure.fields["limit_kind"] == "wall_s", "the run's own code does"

    in_jails(go)


class Always:
    name = "always"

    def __init__(self, said: Completion) -> None:
        self.said = said

    async def complete(self, request: CompletionRequest) -> Completion:
        return self.said

    async def close(self) -> None: ...


def test_calls_and_tokens_of_the_whole_path_count() -> None:
    async def go() -> None:
        spent = Completion(text="\\boxed{1}", usage=Usage(prompt_tokens=10, completion_tokens=5))
        for limits in (Limits(agent_calls=4), Limits(tokens=44)):
            plain = await run_workflow(ensemble(), "What?", Always(spent), limits=limits)
            branching = Branching(trusted(ensemble(), "What?", limits=limits), open_runs=OpenRuns(1))
            position: Position = await branching.start()
            while isinstance(position, Decision):
                rebuilt = await Branching(branching.program).at(position.path)
                assert isinstance(rebuilt, Decision)
                assert rebuilt.request == position.request
                position = await branching.go_on(position, spent)
            assert plain.failure is not None
            assert position.run.failure == plain.failure

    asyncio.run(asyncio.wait_for(go(), 30))


class Drawing:
    """Says its seed; long prompts are beyond its context; some agents make it fail."""

    name = "drawing"

    def __init__(self, context: int = 10**6, fails: str = "") -> None:
        self.context, self.fails = context, fails

    async def complete(self, request: CompletionRequest) -> Completion:
        if request.agent == self.fails:
            raise EngineFailed(self.name, "gone")
        size = sum(len(message["content"]) for message in request.messages or [])
        if size > self.context:
            raise LimitExceeded("context_tokens", self.context, size)
        return Completion(text=f"\\boxed{{{request.sampling.seed}}}")

    async def close(self) -> None: ...


async def drawn(branching: Branching, decision: Decision, numbers: Iterable[int]) -> list[str]:
    replies = await asyncio.gather(*(branching.candidate(decision, Drawing(), number) for number in numbers))
    return [reply.text for reply in replies if isinstance(reply, Completion)]


def test_candidates_depend_on_seed_key_and_replies_alone() -> None:
    async def go() -> None:
        one, same = (Branching(trusted(ensemble(), "What?", seed=1)) for _ in range(2))
        start, again = await one.start(), await same.start()
        assert isinstance(start, Decision)
        assert isinstance(again, Decision)
        four = await drawn(one, start, range(4))
        assert len(set(four)) == 4
        assert await drawn(same, again, (2, 3)) == four[2:]
        others = []
        for program in (trusted(ensemble(), "What?", seed=2), trusted(ensemble(), "Which?", seed=1)):
            position = await Branching(program).start()
            assert isinstance(position, Decision)
            others += await drawn(Branching(program), position, range(4))
        for text in ("a", "b"):
            position = await one.go_on(start, Completion(text=text))
            assert isinstance(position, Decision)
            others += await drawn(one, position, range(4))
        assert len({*others, *four}) == 20

    asyncio.run(asyncio.wait_for(go(), 30))


def test_a_call_beyond_the_context_ends_its_run_and_an_engine_that_fails_makes_no_reply() -> None:
    async def go() -> None:
        branching = Branching(trusted(ensemble(), "What?"))
        start = await branching.start()
        assert isinstance(start, Decision)
        with pytest.raises(EngineFailed, match="gone"):
            await branching.candidate(start, Drawing(fails="M0"), 0)
        reply = await branching.candidate(start, Drawing(context=3), 0)
        assert isinstance(reply, Failure)
        ended = await branching.go_on(start, reply)
        assert isinstance(ended, Ended)
        assert ended.run.failure is not None
        assert ended.run.failure.fields["limit_kind"] == "context_tokens"
        kept = Path.model_validate_json(ended.path.model_dump_json())
        assert isinstance(await branching.at(kept), Ended)

    asyncio.run(asyncio.wait_for(go(), 30))


def test_a_path_that_does_not_fit_says_where() -> None:
    async def go() -> None:
        branching = Branching(trusted(ensemble(), "What?"))
        position = await branching.start()
        assert isinstance(position, Decision)
        position = await branching.go_on(position, Completion(text="\\boxed{1}"))
        assert isinstance(position, Decision)
        [step] = position.path.steps
        assert isinstance(step, AgentStep)
        asked = [*step.messages[:-1], {**step.messages[-1], "content": "Who?"}]
        for other, said in (
            (step.model_copy(update={"key": "E[9]/M#0"}), "was asked, recorded was 'E[9]/M#0'"),
            (step.model_copy(update={"agent": "M7"}), "the recorded agent is 'M7'"),
            (step.model_copy(update={"messages": asked}), "differs from character"),
            (
                CodeStep(key=step.key, code="1", reply=CodeReply(0, "", "")),
                "recorded was code",
            ),
        ):
            with pytest.raises(EngineFailed, match="does not fit the program at its step 1") as failed:
                await branching.at(Path(program=position.path.program, steps=(other,)))
            assert said in str(failed.value)
        with pytest.raises(EngineFailed, match="recorded with another program"):
            await Branching(trusted(ensemble(), "Which?")).at(position.path)
        end: Position = position
        while isinstance(end, Decision):
            end = await branching.go_on(end, Completion(text="\\boxed{1}"))
        with pytest.raises(EngineFailed, match="the run ended before"):
            await branching.at(end.path.then(step))

    asyncio.run(asyncio.wait_for(go(), 30))


def test_nothing_is_left_of_runs_that_were_dropped() -> None:
    async def go(sandbox: ProcessSandbox) -> None:
        pool = OpenRuns(3)
        branching = Branching(jailed(sandbox, EIGHT_IN_A_LOOP, "What?"), open_runs=pool)
        start = await branching.start()
        assert isinstance(start, Decision)
        before = len(asyncio.all_tasks())
        for number in range(12):
            await branching.go_on(start, Completion(text=f"\\boxed{{{number}}}"))
            assert len(pool._held) <= 3
        cut = [asyncio.create_task(branching.go_on(start, Completion(text=f"cut {n}"))) for n in range(6)]
        await asyncio.sleep(0.02)
        for task in cut:
            task.cancel()
        await asyncio.gather(*cut, return_exceptions=True)
        await branching.close()
        await asyncio.sleep(0.2)
        assert len(asyncio.all_tasks()) < before
        assert pool._held == {}
        others = await asyncio.gather(*(branching.go_on(start, Completion(text=f"then {n}")) for n in range(3)))
        assert len(others) == 3, "all permits are there again"
        await branching.close()

    in_jails(go)


def test_a_pool_needs_a_place() -> None:
    with pytest.raises(ValueError, match="most=0"):
        OpenRuns(0)


def test_a_request_is_not_changed_by_drawing_for_it() -> None:
    async def go() -> None:
        branching = Branching(trusted(ensemble(), "What?"))
        start = await branching.start()
        assert isinstance(start, Decision)
        before = replace(start.request)
        await branching.candidate(start, Drawing(), 1)
        assert start.request == before

    asyncio.run(asyncio.wait_for(go(), 30))
