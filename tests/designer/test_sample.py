"""M designs at once: what is extracted, checked, repaired, recorded and raised."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from designer.check import check_payload
from designer.sample import Design, sample_designs
from sandbox import Description
from workflow.completion import Completion, CompletionRequest, Sampling, Usage
from workflow.failures import EngineFailed, LimitExceeded, SandboxUnavailable
from workflow.graph import GraphNode

GOOD = """\
from workflow import AgentNode, Workflow

workflow = Workflow(name="w")
workflow.add_node(AgentNode(name="A", system_prompt="Answer in \\\\boxed{}."))
"""
BAD = GOOD.replace("system_prompt", "prompt")
GRAPH = GraphNode(kind="Workflow", name="w")

Script = Callable[[CompletionRequest], str | Exception]


def reply(source: str) -> str:
    return f"Problem Type: MATH\n<code>\n{source}</code>"


class ScriptedEngine:
    """Answers by a function of the request and remembers what it was asked; later samples answer first."""

    name = "scripted"

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[CompletionRequest] = []
        self.open = self.most_open = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.requests.append(request)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(0.01 / (1 + int(request.key.split("/")[1])))
        self.open -= 1
        said = self.script(request)
        if isinstance(said, Exception):
            raise said
        return Completion(text=said, usage=Usage(prompt_tokens=10, completion_tokens=2), token_ids=[1, 2])

    async def close(self) -> None: ...

    def asked(self, key: str) -> CompletionRequest:
        return next(request for request in self.requests if request.key == key)


class FakeSandbox:
    """Checks without a jail; every sound program builds."""

    def __init__(self, description: Description | Exception | None = None) -> None:
        self.description = description or Description(graph=GRAPH)
        self.questions: list[str] = []

    async def call(self, target: str, payload: Any, **limits: Any) -> Any:
        return check_payload(payload)

    async def describe(self, source: str, question: str = "") -> Description:
        self.questions.append(question)
        if isinstance(self.description, Exception):
            raise self.description
        return self.description


def sample(engine: ScriptedEngine, sandbox: FakeSandbox | None = None, **options: Any) -> list[Design]:
    jail: Any = sandbox or FakeSandbox()
    return asyncio.run(sample_designs("What is 1 + 1?", engine, jail, **options))


def by_key(**replies: str | Exception) -> Script:
    """Replies by `s{sample}_{turn}`; a good program otherwise."""
    return lambda request: replies.get("s" + request.key.removeprefix("designer/").replace("/", "_"), reply(GOOD))


def test_a_good_design() -> None:
    engine, sandbox = ScriptedEngine(by_key()), FakeSandbox()
    (design,) = sample(engine, sandbox)
    assert (design.index, design.ok, design.error, design.findings) == (0, True, None, [])
    assert (design.source, design.graph, design.repaired) == (GOOD, GRAPH, False)
    assert design.replies == [reply(GOOD)]
    assert design.messages[-1] == {"role": "assistant", "content": reply(GOOD)}
    assert design.messages[:-1] == engine.requests[0].messages
    assert "What is 1 + 1?" in design.messages[-2]["content"]
    assert sandbox.questions == ["What is 1 + 1?"]
    assert design.turns[0].completion.token_ids == [1, 2], "what training needs is kept"
    assert Design.model_validate_json(design.model_dump_json()) == design


def test_samples_run_at_once_in_order_with_seeds_of_their_own() -> None:
    engine = ScriptedEngine(lambda request: reply(GOOD.replace('"w"', f'"w{request.key.split("/")[1]}"')))
    designs = sample(engine, m=4, sampling=Sampling(temperature=0.7, seed=99), seed=3)
    assert engine.most_open == 4
    assert [design.index for design in designs] == [0, 1, 2, 3]
    assert all(f'"w{design.index}"' in (design.source or "") for design in designs)
    seeds = [design.turns[0].request.sampling.seed for design in designs]
    assert len(set(seeds)) == 4
    assert 99 not in seeds
    assert {design.turns[0].request.sampling.temperature for design in designs} == {0.7}
    prompts = [design.turns[0].request.messages for design in designs]
    assert all(prompt == prompts[0] for prompt in prompts), "a group shares one prompt"
    again = sample(ScriptedEngine(engine.script), m=4, seed=3)
    assert [design.turns[0].request.sampling.seed for design in again] == seeds
    other = sample(ScriptedEngine(engine.script), m=4, seed=4)
    assert not set(seeds) & {design.turns[0].request.sampling.seed for design in other}


def test_one_repair_round_continues_the_conversation() -> None:
    engine = ScriptedEngine(by_key(s0_0=reply(BAD)))
    (design,) = sample(engine)
    assert (design.ok, design.repaired, design.source, design.findings) == (True, True, GOOD, [])
    assert design.replies == [reply(BAD), reply(GOOD)]
    first, second = engine.asked("designer/0/0"), engine.asked("designer/0/1")
    assert second.messages is not None
    assert first.messages is not None
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[len(first.messages)] == {"role": "assistant", "content": reply(BAD)}
    request = second.messages[-1]["content"]
    assert all(part in request for part in ("line 4", "'prompt'", "'system_prompt'"))
    assert first.sampling.seed != second.sampling.seed
    assert design.usage == Usage(prompt_tokens=20, completion_tokens=4)


def test_only_one_repair_round() -> None:
    engine = ScriptedEngine(by_key(s0_0=reply(BAD), s0_1=reply(BAD), s0_2=reply(GOOD)))
    (design,) = sample(engine)
    assert len(engine.requests) == 2
    assert (design.ok, design.repaired, design.source) == (False, True, BAD)
    assert design.error is not None
    assert design.error.kind == "program_rejected"
    assert not design.error.is_infrastructure
    assert [finding["code"] for finding in design.error.fields["findings"]] == ["unknown-argument"]


def test_without_repair_the_first_reply_stands() -> None:
    engine = ScriptedEngine(by_key(s0_0=reply(BAD)))
    (design,) = sample(engine, repair=False)
    assert (len(engine.requests), design.ok, design.repaired) == (1, False, False)


def test_a_reply_without_a_program_is_told_so() -> None:
    engine = ScriptedEngine(by_key(s0_0="I would rather not."))
    (design,) = sample(engine)
    assert (design.ok, design.source) == (True, GOOD)
    messages = engine.asked("designer/0/1").messages or []
    assert "holds no program" in messages[-1]["content"]
    assert "<code>" in messages[-1]["content"]
    (design,) = sample(engine, repair=False)
    assert (design.source, design.findings[0].code) == (None, "no-program")
    assert design.error is not None
    assert design.error.kind == "program_rejected"


def test_warnings_alone_call_for_no_repair() -> None:
    engine = ScriptedEngine(by_key(s0_0=f"<code>\n{GOOD}spare = AgentNode('Spare', 'p')\n"))
    (design,) = sample(engine)
    assert (design.ok, design.repaired) == (True, False)
    assert [finding.code for finding in design.findings] == ["reply-cut-off", "unreachable-node"]


def test_what_goes_wrong_in_building_is_repaired_too() -> None:
    (design,) = sample(ScriptedEngine(by_key()), FakeSandbox(LimitExceeded("cpu_s", 10, 10)))
    assert (design.ok, design.repaired, design.findings[0].code) == (False, True, "build-failed")


def test_a_failed_engine_is_recorded_for_its_sample_only() -> None:
    engine = ScriptedEngine(by_key(s1_0=EngineFailed("scripted", "no answer")))
    designs = sample(engine, m=3)
    assert [design.ok for design in designs] == [True, False, True]
    failed = designs[1]
    assert failed.error is not None
    assert (failed.error.kind, failed.error.is_infrastructure) == ("engine_failed", True)
    assert (failed.turns, failed.messages, failed.source, failed.usage) == ([], [], None, Usage())


def test_a_failed_repair_keeps_the_first_turn() -> None:
    engine = ScriptedEngine(by_key(s0_0=reply(BAD), s0_1=EngineFailed("scripted", "no answer")))
    design = sample(engine, m=2)[0]
    assert design.error is not None
    assert design.error.kind == "engine_failed", "nobody may be rewarded for what the infrastructure did"
    assert (design.source, len(design.turns), design.findings[0].code) == (BAD, 1, "unknown-argument")


def test_a_repair_that_does_not_fit_the_model_leaves_the_first_try_rejected() -> None:
    engine = ScriptedEngine(by_key(s0_0=reply(BAD), s0_1=LimitExceeded("context_tokens", 20, 21)))
    designs = sample(engine, m=3)
    assert [design.ok for design in designs] == [False, True, True]
    rejected = designs[0]
    assert rejected.error is not None
    assert (rejected.error.kind, rejected.source, rejected.replies) == ("program_rejected", BAD, [reply(BAD)])
    assert rejected.findings[0].code == "unknown-argument"
    assert rejected.usage == Usage(prompt_tokens=10, completion_tokens=2)


def test_a_first_prompt_that_does_not_fit_the_model_is_raised() -> None:
    engine = ScriptedEngine(by_key(s1_0=LimitExceeded("context_tokens", 20, 21)))
    with pytest.raises(LimitExceeded, match="context_tokens"):
        sample(engine, m=3)


def test_an_engine_that_always_fails_is_raised() -> None:
    engine = ScriptedEngine(lambda request: EngineFailed("scripted", f"no answer to {request.key}"))
    with pytest.raises(EngineFailed, match="designer/0/0"):
        sample(engine, m=3)


def test_a_defect_of_the_engine_is_a_failure_of_the_engine() -> None:
    engine = ScriptedEngine(lambda request: ZeroDivisionError("in the engine"))
    with pytest.raises(EngineFailed, match="scripted failed: ZeroDivisionError: in the engine"):
        sample(engine, m=1)


def test_a_missing_sandbox_stops_everything() -> None:
    engine = ScriptedEngine(by_key())
    with pytest.raises(SandboxUnavailable, match="no jail"):
        sample(engine, FakeSandbox(SandboxUnavailable("no jail")), m=3)


def test_an_engine_that_cancels_a_call_itself_or_replies_too_late_has_failed() -> None:
    class Cancelling(ScriptedEngine):
        async def complete(self, request: CompletionRequest) -> Completion:
            raise asyncio.CancelledError

    class Deaf(ScriptedEngine):
        async def complete(self, request: CompletionRequest) -> Completion:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.5)
            return await super().complete(request)

    with pytest.raises(EngineFailed, match="it cancelled a call itself"):
        sample(Cancelling(by_key()))
    with pytest.raises(EngineFailed, match=r"no reply within reply_s=0\.1"):
        sample(Deaf(by_key()), reply_s=0.1)


def test_prompts_by_style() -> None:
    engine = ScriptedEngine(by_key())
    sample(engine, style="short")
    sample(engine, templates=[])
    sample(engine, k=2)
    short, bare, full = [sum(len(m["content"]) for m in request.messages or []) for request in engine.requests]
    assert short < bare < full


def test_the_number_of_samples_is_checked() -> None:
    with pytest.raises(ValueError, match="m=0"):
        sample(ScriptedEngine(by_key()), m=0)


def test_a_reply_is_read_in_the_jail_alone() -> None:
    """Python's parser holds whoever runs it for a fifth of a second for each candidate in a long reply."""
    asked: list[Any] = []

    class Jail(FakeSandbox):
        async def call(self, target: str, payload: Any, **limits: Any) -> Any:
            asked.append(payload)
            return {"source": "found", "problem": None, "findings": [], "lines": {}}

    (design,) = sample(ScriptedEngine(by_key()), Jail())
    assert asked == [{"reply": reply(GOOD)}]
    assert design.source == "found"
