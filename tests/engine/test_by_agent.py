"""Each agent's engine is asked for that agent, and for no other."""

import asyncio

from fake_engines import CannedEngine

from engine import run_workflow
from engine.by_agent import ByAgent
from engine.protocol import Engine
from workflow import AgentNode, Workflow


def test_agents_are_answered_by_their_own_engines() -> None:
    engine = ByAgent({"A": CannedEngine("of a"), "B": CannedEngine("of b")}, CannedEngine("of others"))
    assert isinstance(engine, Engine)
    flow = Workflow("w").add_nodes([AgentNode(name, "Say.") for name in ("A", "C", "B")])
    run = asyncio.run(asyncio.wait_for(run_workflow(flow, "q", engine), 30))
    said = {turn.agent: turn.completion.text for turn in run.trace.agent_turns if turn.completion}
    assert said == {"A": "of a", "B": "of b", "C": "of others"}
    assert run.trace.started is not None
    assert run.trace.started.engine == engine.name == "canned"
    asyncio.run(engine.close())


def test_all_engines_are_changed_and_agents_keep_theirs() -> None:
    engine = ByAgent({"A": CannedEngine("of a"), "B": CannedEngine("of b")}, CannedEngine("of others"))
    texts = iter(["first", "second", "third"])
    changed = engine.each(lambda _: CannedEngine(next(texts)))
    flow = Workflow("w").add_nodes([AgentNode(name, "Say.") for name in ("A", "C", "B")])
    run = asyncio.run(asyncio.wait_for(run_workflow(flow, "q", changed), 30))
    said = {turn.agent: turn.completion.text for turn in run.trace.agent_turns if turn.completion}
    assert said == {"A": "first", "B": "second", "C": "third"}
