"""The bank as data: metadata is complete and true, bad scripts are refused in words."""

from __future__ import annotations

import ast

import pytest
from canned_runs import values_of, workflow_of

from templates import SLOTS, Template, get_template, load_templates, parse_template
from workflow import AgentNode
from workflow.graph import describe, structure

TEMPLATES = load_templates()
BY_NAME = pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)

PATTERNS = {
    "single agent",
    "self-consistency",
    "majority vote",
    "weighted vote",
    "ensemble with judge",
    "ensemble then verify",
    "solver-critic reflection",
    "solver-tester reflection",
    "debate with judge",
    "reader-planner-solver-verifier pipeline",
    "solver, code executor, verifier pipeline",
    "reasoner and tool-user",
    "router by problem type",
    "loop until tests pass",
}


def test_the_bank_has_every_pattern_once_under_a_unique_name() -> None:
    names = [template.name for template in TEMPLATES]
    assert names == sorted(set(names))
    assert {template.pattern for template in TEMPLATES} >= PATTERNS
    assert {(t.pattern, t.domain) for t in TEMPLATES} >= {("single agent", "math"), ("single agent", "code")}
    assert len({(t.pattern, t.domain) for t in TEMPLATES}) == len(TEMPLATES)


@BY_NAME
def test_metadata_is_true(template: Template) -> None:
    workflow = workflow_of(template.source)
    graph = describe(workflow)
    assert workflow.name == template.name
    assert structure(graph) == template.structure
    assert template.name.startswith(template.domain) or template.domain == "any"
    fewest, most = template.agent_calls
    assert 1 <= fewest <= most <= 64, "a run must fit the default limit of agent calls"
    assert "GUIDANCE" in template.slots


@BY_NAME
def test_every_agent_is_part_of_the_workflow(template: Template) -> None:
    built = {value.name for value in values_of(template.source).values() if isinstance(value, AgentNode)}
    reachable = {node.name for node in describe(workflow_of(template.source)).walk()}
    assert built <= reachable
    names = [node.name for node in describe(workflow_of(template.source)).walk() if node.kind == "AgentNode"]
    assert len(set(names)) == len(names), "agents of one program need different names"


@BY_NAME
def test_source_imports_only_what_programs_have_and_can_be_embedded(template: Template) -> None:
    tree = ast.parse(template.source)
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= {"workflow", "workflow.nodes", "collections", "json", "re", "subprocess", "sys"}
    assert "```" not in template.source
    assert "</code" not in template.source
    assert ast.dump(ast.parse(template.program)) == ast.dump(tree), "only comments go with the metadata"
    assert "/// template" not in template.program


def test_all_code_tools_are_the_same() -> None:
    def tool(template: Template) -> list[str]:
        body = ast.parse(template.source).body
        return [ast.dump(node) for node in body if isinstance(node, ast.FunctionDef) and node.name == "execute_code"]

    versions = {version for template in TEMPLATES for version in tool(template)}
    assert len(versions) == 1


GOOD = '''"""Does it.

Use when needed.
"""

# /// template
# pattern = "single agent"
# domain = "math"
# structure = "single"
# agent_calls = [1, 2]
# ///

from workflow import AgentNode

GUIDANCE = "- think\\n"
solver = AgentNode(name="Solver", system_prompt="Solve. " + GUIDANCE)
'''


def test_parse_template_reads_everything() -> None:
    template = parse_template("mine", GOOD)
    assert template.summary == "Does it."
    assert template.use_when == "Use when needed."
    assert template.agent_calls == (1, 2)
    assert template.slots == SLOTS[:1]
    assert template.program.startswith('"""Does it.\n\nUse when needed.\n"""\n\nfrom workflow')


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text.replace("# ///\n", "", 1), "metadata block"),
        (lambda text: text.replace('domain = "math"', 'domain = "maths"'), "domain"),
        (lambda text: text.replace('pattern = "single agent"', 'patern = "single agent"'), "patern"),
        (lambda text: text.replace("[1, 2]", "[1, 2"), "template 'mine'"),
        (lambda text: text.replace("Use when needed.", ""), "use_when"),
        (lambda text: text + "\nif:\n", "invalid syntax"),
    ],
)
def test_parse_template_names_what_is_wrong(change, told: str) -> None:
    with pytest.raises(ValueError, match="template 'mine'") as raised:
        parse_template("mine", change(GOOD))
    assert told in str(raised.value)


def test_an_unknown_template_is_named_with_the_known_ones() -> None:
    assert get_template("math_single").name == "math_single"
    with pytest.raises(ValueError, match=r"no template 'nope'.*math_single"):
        get_template("nope")
