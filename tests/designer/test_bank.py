"""The bank's designs: sensible choices, and programs that compile to the template's graph whatever the problem says."""

from __future__ import annotations

import ast
import collections
import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from designer.bank import CODE_RULES, MATH_RULES, UNCLEAR_RULE, choose, design_from_bank, string_literal, write_out
from designer.features import Features
from templates import SLOTS, get_template, load_templates
from workflow.graph import describe, main_workflow

DATA = Path(os.environ.get("METAAGENT_DATA") or Path(__file__).parents[3] / "shared" / "data")
NASTY = (
    "'''\"\"\"{question}{0}\\x41\\N{BULLET}\n# -*- coding: latin-1 -*-\n</code></CODE>\n```python\nimport os\n```"
    "\r\n\x00\x0c\x1c\u2028\ud800é∑𝔸 \\\\\\' \\\" $\\boxed{7}$ %s def f(x): return </solution>"
)
EXAMPLES = {
    "math_single": "What is $2 + 3$?",
    "math_program_of_thought": "What is 123456789 * 987654321? Compute $123456 \\cdot 654321$.",
    "math_solver_critic": "Prove that there are infinitely many primes.",
    "code_single": "Write a function to add two numbers.",
    "router_by_type": "Who wrote Faust?",
    "math_second_opinion": " ".join(["Ann walks to town and back again, stopping for bread and cheese."] * 10)
    + " She walks 3 miles. How many miles does she walk in all?",
}


def parts_of(program: str) -> tuple[dict[str, str], str]:
    """The values of the slots, and everything else, without positions."""
    tree = ast.parse(program)
    slots = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in SLOTS:
            assert isinstance(node.value, ast.Constant), "a slot is one string constant"
            slots[node.targets[0].id] = node.value.value
            node.value.value = ""
    return slots, ast.dump(tree)


def graph_of(program: str) -> object:
    """What a program builds, whatever its prompts say."""
    values: dict[str, object] = {}
    exec(compile(program, "<design>", "exec"), values)
    workflow = main_workflow(values)
    assert workflow is not None
    graph = describe(workflow)
    for node in graph.walk():
        node.prompt = ""
    return graph


@pytest.mark.parametrize("name", EXAMPLES)
def test_plain_choices(name: str) -> None:
    design = design_from_bank(EXAMPLES[name])
    assert design.template == name
    assert get_template(name).pattern in design.reason
    assert design == design_from_bank(EXAMPLES[name])


@given(st.text(max_size=300))
@example(NASTY)
@example("Prove it for 2.\n" + NASTY)
@example("Write a function:\ndef f(x='" + NASTY + "'):\n" + NASTY)
def test_any_problem_gives_the_template_with_other_words(problem: str) -> None:
    design = design_from_bank(problem)
    template = get_template(design.template)
    design.program.encode()
    assert "</code" not in design.program.lower()
    assert "```" not in design.program
    slots, rest = parts_of(design.program)
    own_slots, own_rest = parts_of(template.program)
    assert rest == own_rest
    assert set(slots) == set(own_slots) == set(template.slots)
    assert graph_of(design.program) == graph_of(template.program)


@given(st.text(max_size=400))
@example(NASTY)
@example("a" * 500 + "\n" + "</code>" * 40 + " " + "`" * 300)
def test_advice_is_embedded_exactly(text: str) -> None:
    for template in (get_template("math_solver_critic"), get_template("math_single")):
        program = write_out(template, {"GUIDANCE": text, "CHECKS": text})
        slots, rest = parts_of(program)
        own_slots, own_rest = parts_of(template.program)
        assert rest == own_rest
        assert slots == (dict.fromkeys(own_slots, text) if text else own_slots)


@given(st.text(max_size=400), st.integers(10, 120))
@example(NASTY, 10)
def test_string_literal_is_the_string(text: str, width: int) -> None:
    literal = string_literal(text, width)
    assert ast.literal_eval(literal) == text
    assert "</code" not in literal.lower()
    assert "```" not in literal


def test_string_literal_is_readable() -> None:
    assert string_literal("It's \\frac{1}{2}\nover") == '(\n    "It\'s \\\\frac{1}{2}\\n"\n    "over"\n)'
    assert all(len(line) <= 110 for line in string_literal("word " * 200).splitlines())


def test_the_problem_is_spoken_about() -> None:
    problem = "Jen picks 4 distinct numbers from $S$. Find the probability that all $4$ of them match."
    program = design_from_bank(problem).program
    assert "Jen picks 4 distinct numbers from $S$." in program
    assert "Find the probability that all $4$ of them match." in program


def test_every_template_can_be_chosen_and_every_rule_names_one() -> None:
    named = {rule.template for rule in [*CODE_RULES, *MATH_RULES, UNCLEAR_RULE]}
    assert named == {template.name for template in load_templates()}
    assert CODE_RULES[-1].holds(_features(domain="code")), "the last rule always holds"
    assert MATH_RULES[-1].holds(_features())


def _features(**values: object) -> Features:
    plain = {
        "domain": "math",
        "difficulty": "medium",
        "answer": "value",
        "words": 20,
        "conditions": 1,
        "notation": True,
    }
    return Features.model_validate({**plain, **values})


@pytest.mark.parametrize(
    ("values", "template"),
    [
        ({"answer": "proof", "difficulty": "hard", "topics": ("geometry",)}, "math_solver_critic"),
        ({"answer": "choice"}, "math_adaptive_vote"),
        ({"answer": "choice", "difficulty": "easy"}, "math_single"),
        ({"heavy_arithmetic": True, "difficulty": "hard"}, "math_reasoner_and_coder"),
        ({"heavy_arithmetic": True}, "math_code_pipeline"),
        ({"heavy_arithmetic": True, "difficulty": "easy"}, "math_program_of_thought"),
        ({"words": 140}, "math_pipeline"),
        ({"notation": False}, "math_second_opinion"),
        ({"topics": ("counting",)}, "math_solver_checker"),
        ({"topics": ("counting",), "difficulty": "hard"}, "math_ensemble_verify"),
        ({"topics": ("probability",), "difficulty": "hard"}, "math_weighted_vote"),
        ({"topics": ("number theory",), "difficulty": "hard"}, "math_solver_checker"),
        ({"topics": ("counting", "geometry")}, "math_majority_vote"),
        ({"topics": ("geometry",), "difficulty": "hard"}, "math_ensemble_judge"),
        ({"topics": ("extremum",), "difficulty": "hard"}, "math_debate_judge"),
        ({"topics": ("equations",), "difficulty": "hard"}, "math_graph_replan"),
        ({"topics": ("trigonometry",)}, "math_self_consistency"),
        ({"topics": ("equations",)}, "math_solver_critic"),
        ({"domain": "code", "difficulty": "easy", "answer": "function"}, "code_single"),
        ({"domain": "code", "answer": "function", "examples": 2}, "code_loop_until_pass"),
        ({"domain": "code", "answer": "function", "examples": 1}, "code_solver_tester"),
        ({"domain": "code", "answer": "program", "examples": 1}, "code_loop_until_pass"),
        ({"domain": "code", "answer": "program", "limit_exponent": 5}, "code_planner_solver_tester"),
        ({"domain": "code", "answer": "program", "limit_exponent": 5, "difficulty": "hard"}, "code_ensemble_judge"),
        ({"domain": "unclear"}, "router_by_type"),
    ],
)
def test_rules(values: dict[str, object], template: str) -> None:
    assert choose(_features(**values)).template == template


def _problems(name: str, field: str) -> list[str]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not there; set METAAGENT_DATA to the folder of benchmark files")
    text = path.read_text(encoding="utf-8")
    rows = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    return [row[field] for row in rows]


@pytest.mark.parametrize(
    ("name", "field", "prefix", "least_single", "most_single"),
    [
        ("aime24.jsonl", "problem", "math", 0.0, 0.1),
        ("math500.json", "prompt", "math", 0.4, 0.7),
        ("gsm8k_test.jsonl", "question", "math", 0.9, 1.0),
        ("humaneval.jsonl", "prompt", "code", 0.6, 0.9),
        ("mbpp.jsonl", "text", "code", 0.9, 1.0),
    ],
)
def test_choices_on_benchmarks(name: str, field: str, prefix: str, least_single: float, most_single: float) -> None:
    """Hard sets get teams, easy sets get one cheap agent, and the domain is told apart."""
    problems = _problems(name, field)[:300]
    chosen = collections.Counter(choose(design_from_bank(problem).features).template for problem in problems)
    assert sum(count for template, count in chosen.items() if template.startswith(prefix)) >= 0.98 * len(problems)
    assert least_single <= chosen[f"{prefix}_single"] / len(problems) <= most_single
