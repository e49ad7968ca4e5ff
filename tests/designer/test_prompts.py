"""The designer's prompts: true to the real contract and policy, deterministic, varied, and repairable."""

from __future__ import annotations

import enum
import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workflow
from designer.prompts import (
    ENTRIES,
    ONE_WAY,
    choose_templates,
    contract_text,
    design_messages,
    repair_messages,
    short_design_messages,
    signature_lines,
    standard_modules,
)
from sandbox.language.compiler import compile_program
from templates import load_templates
from workflow.failures import Finding
from workflow.limits import Limits

TEMPLATES = load_templates()
MATH = "Find $x$ with $x^2 = 4$."
CODE = "Write a function that reverses a string."


def test_the_contract_lists_every_name_that_programs_may_import() -> None:
    assert sorted(ENTRIES) == sorted(workflow.__all__)


@pytest.mark.parametrize("name", sorted(set(workflow.__all__) - {"MessageType"}))
def test_signatures_are_the_real_ones(name: str) -> None:
    first, *methods = signature_lines(name)
    listed = [
        (line, getattr(getattr(workflow, name), method), (name, method) in ONE_WAY)
        for line, method in zip(methods, ENTRIES[name].methods, strict=True)
    ]
    for line, function, one_way in [(first, getattr(workflow, name), False), *listed]:
        shown = re.findall(r"(\w+)(?:=|[,)])", line[line.index("(") :].replace("=...", "="))
        given = [item for item in inspect.signature(function).parameters.values() if item.kind is not item.KEYWORD_ONLY]
        real = [parameter.name for parameter in given if parameter.name != "self"]
        told = [word for word in shown if word in real]
        assert told == [word for word in real if word in told or not one_way], line
        assert not one_way or told == shown, line
    assert first in contract_text()


def test_signatures_by_hand() -> None:
    """Written out once by hand, so that a changed constructor is noticed and the meaning beside it is reread."""
    assert signature_lines("AgentNode") == ["AgentNode(name, system_prompt, tool_registry=None, max_turns=10)"]
    assert signature_lines("EnsembleNode") == [
        "EnsembleNode(name, agents, strategy='majority_vote', consensus_agent=None, weights=None)"
    ]
    assert signature_lines("ReflectionNode") == [
        "ReflectionNode(name, agent, num_iterations=2, reflection_prompt=None, critic_agent=None, "
        "refinement_prompt=None, include_history=False)"
    ]
    assert signature_lines("DebateNode") == ["DebateNode(name, debaters, judge=None, num_rounds=2)"]
    assert signature_lines("RouterNode") == ["RouterNode(name, routes, routing_func, default_route='default')"]
    assert signature_lines("WorkflowNode") == ["WorkflowNode(name, **config)", ".process(context)"]
    assert signature_lines("Workflow") == [
        "Workflow(name='workflow')",
        ".add_node(node)",
        ".add_nodes(nodes)",
        ".run(question, initial_state=None)",
    ]
    assert signature_lines("ConditionalWorkflow")[1:] == [".add_node(node, condition=None)"]
    assert signature_lines("LoopWorkflow")[0] == "LoopWorkflow(name='loop_workflow', max_iterations=10)"
    assert signature_lines("AgentGraph")[0] == "AgentGraph(name='agent_graph', max_steps=50)"
    assert signature_lines("ToolRegistry") == [
        "ToolRegistry()",
        ".register(name, func, description='', parameters=None)",
    ]
    assert signature_lines("Message") == [
        "Message(content, message_type=MessageType.AGENT_RESPONSE, metadata=None, sender=None, recipient=None)"
    ]


@pytest.mark.parametrize("name", sorted(workflow.__all__))
def test_meanings_speak_of_real_arguments(name: str) -> None:
    """Every word in backquotes is a parameter of the constructor or of a listed method, or a method itself."""
    value = getattr(workflow, name)
    entry = ENTRIES[name]
    known = set(entry.methods)
    if not (isinstance(value, type) and issubclass(value, enum.Enum)):
        for function in (value, *(getattr(value, method) for method in entry.methods)):
            known |= set(inspect.signature(function).parameters)
    assert set(re.findall(r"`(\w+)`", entry.meaning)) <= known


def test_the_policy_told_is_the_policy_applied() -> None:
    text = contract_text()
    limits = Limits()
    assert f"more than {limits.agent_calls} agent calls or {limits.tool_calls} tool calls" in text
    for module in standard_modules():
        assert re.search(rf"\b{re.escape(module)}\b", text)
    for refused in (
        "exec('1')",
        "open('x')",
        "a.__globals__",
        "a.__mro__",
    ):
        assert compile_program(refused).findings, refused
    for word in ("exec()", "open()", "type parameters", "__globals__"):
        assert word in text
    for word in (
        "<tool_call>",
        "<delivery>",
        "\\boxed{...}",
        "<solution>",
        "Verdict: CORRECT",
        "`question`",
        "`workflow`",
    ):
        assert word in text


def test_the_full_prompt_shows_templates_contract_problem_and_request() -> None:
    system, user = design_messages(MATH, TEMPLATES, k=3, seed=1)
    assert (system["role"], user["role"]) == ("system", "user")
    assert contract_text() in system["content"]
    chosen = choose_templates(MATH, TEMPLATES, 3, seed=1)
    assert len(chosen) == 3
    for template in chosen:
        assert template.program.strip() in user["content"]
        assert "/// template" not in user["content"]
    assert f"<problem>\n{MATH}\n</problem>" in user["content"]
    places = [
        user["content"].rindex(word)
        for word in ("Problem Analysis", "Workflow Pattern", "Agent Design", "Workflow Flow", "<code>")
    ]
    assert places == sorted(places)


def test_templates_fit_the_domain_and_vary() -> None:
    for seed in range(20):
        math = choose_templates(MATH, TEMPLATES, 4, seed=seed)
        assert {template.domain for template in math} <= {"math", "any"}
        assert len({template.structure for template in math}) == 4
        assert {template.domain for template in choose_templates(CODE, TEMPLATES, 4, seed=seed)} <= {"code", "any"}
    assert len({tuple(t.name for t in choose_templates(MATH, TEMPLATES, 3, seed=seed)) for seed in range(20)}) > 10
    assert {template.domain for template in choose_templates("Who wrote Faust?", TEMPLATES, 99)} == {
        "math",
        "code",
        "any",
    }


def test_choice_is_deterministic_and_does_not_depend_on_the_order_of_the_bank() -> None:
    chosen = choose_templates(MATH, TEMPLATES, 3, seed=7)
    assert choose_templates(MATH, TEMPLATES[::-1], 3, seed=7) == chosen
    assert design_messages(MATH, TEMPLATES, seed=7) == design_messages(MATH, TEMPLATES[::-1], seed=7)


def test_no_templates_is_fine() -> None:
    assert choose_templates(MATH, TEMPLATES, 0) == []
    assert "template bank" not in design_messages(MATH, [])[1]["content"]


@given(st.text(max_size=200))
def test_any_problem_makes_prompts(problem: str) -> None:
    for messages in (design_messages(problem, TEMPLATES), short_design_messages(problem)):
        assert [message["role"] for message in messages] == ["system", "user"]
        assert problem.strip() in messages[-1]["content"]


def test_the_short_prompt_is_short_and_still_says_what_counts() -> None:
    system, user = short_design_messages(MATH)
    full = sum(len(message["content"]) for message in design_messages(MATH, TEMPLATES))
    assert len(system["content"]) < full / 4
    assert "AgentNode(name, system_prompt, tool_registry=None, max_turns=10)" in system["content"]
    for word in ("\\boxed{...}", "<solution>", "<delivery>", "<code>...</code>", "`workflow`"):
        assert word in system["content"]
    assert user["content"] == f"<problem>\n{MATH}\n</problem>"


def test_repair_feeds_every_finding_back_errors_first() -> None:
    findings = [
        Finding(line=2, code="unused", message="agent 'B' is never used", severity="warning"),
        Finding(line=9, code="unknown-argument", message="unknown argument 'agent'", fix="did you mean 'agents'?"),
    ]
    before = design_messages(MATH, TEMPLATES)
    messages = repair_messages(before, "<code>x</code>", findings)
    assert messages[: len(before)] == before
    assert messages[-2] == {"role": "assistant", "content": "<code>x</code>"}
    told = messages[-1]["content"]
    assert "- error: line 9: unknown argument 'agent' Fix: did you mean 'agents'?" in told
    assert told.index("line 9") < told.index("line 2")
    assert "<code>...</code>" in told


def test_repair_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to repair"):
        repair_messages([], "x", [])
