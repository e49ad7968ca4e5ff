"""Every template passes the whole check and runs in the jail to an answer that an agent gave."""

from __future__ import annotations

import asyncio

import pytest
from canned_runs import Reply, stubborn, willing

from designer.check import CheckReport, check_program
from engine import Run
from sandbox import ProcessSandbox
from templates import load_templates
from workflow.completion import Completion, CompletionRequest
from workflow.requests import AgentCall
from workflow.trace import ToolCalled

TEMPLATES = {template.name: template for template in load_templates()}


class CannedEngine:
    """Answers as a canned agent does."""

    name = "canned"

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    async def complete(self, request: CompletionRequest) -> Completion:
        call = AgentCall(request.agent, request.messages or [], request.tools)
        return Completion(text=self.reply(call))

    async def close(self) -> None:
        return None


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[CheckReport, Run, Run]]:
    """Of each template: its check, a run with the fewest agent calls and one with the most."""

    async def all_of_them() -> dict[str, tuple[CheckReport, Run, Run]]:
        async with ProcessSandbox(preload=("designer.check",)) as sandbox:
            found = {}
            for name, template in TEMPLATES.items():
                found[name] = (
                    await check_program(template.source, sandbox),
                    await sandbox.run_program(template.source, "What is 3 + 4?", engine=CannedEngine(willing)),
                    await sandbox.run_program(template.source, "What is 3 + 4?", engine=CannedEngine(stubborn())),
                )
            return found

    return asyncio.run(all_of_them())


@pytest.mark.thorough
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_passes_the_check(name: str, outcomes: dict[str, tuple[CheckReport, Run, Run]]) -> None:
    report = outcomes[name][0]
    assert report.findings == []
    assert report.graph is not None


@pytest.mark.thorough
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_runs_in_the_jail(name: str, outcomes: dict[str, tuple[CheckReport, Run, Run]]) -> None:
    _, fewest, most = outcomes[name]
    for run in (fewest, most):
        assert run.failure is None
        assert run.answer
        assert run.answer_from
    calls = [len(run.trace.agent_turns) for run in (fewest, most)]
    assert tuple(calls) == TEMPLATES[name].agent_calls
    if any(turn.tools for turn in most.trace.agent_turns):
        assert any(isinstance(event, ToolCalled) for event in most.trace.events)
