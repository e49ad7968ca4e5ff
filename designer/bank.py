"""The designer that needs no model: picks a template for a problem and writes it out, deterministically.

The choice is a list of rules over features of the text (`designer.features`); the first that holds decides, and says
why. They are heuristics that weigh likely benefit against the number of agent calls. The program differs from the
template only in the values of its `GUIDANCE` and `CHECKS` constants.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from designer.features import Features, features_of
from designer.guidance import checks_for, guidance_for
from templates import Template, get_template


class BankDesign(BaseModel):
    """What the bank designed for one problem, and why."""

    model_config = ConfigDict(frozen=True)

    template: str
    features: Features
    reason: str
    """One or two sentences for people."""
    program: str
    """Python source, ready to run."""


class Rule(NamedTuple):
    template: str
    holds: Callable[[Features], bool]
    reason: str


def _has(features: Features, *topics: str) -> bool:
    return any(topic in features.topics for topic in topics)


CODE_RULES = [
    Rule(
        "code_ensemble_judge",
        lambda f: f.difficulty == "hard" and f.limit_exponent >= 5,
        "a hard task with large limits: a slow certain program exposes the errors of a fast one",
    ),
    Rule(
        "code_planner_solver_tester",
        lambda f: f.limit_exponent >= 5 or f.difficulty == "hard",
        "the obvious algorithm is probably too slow or wrong, so the idea is planned before it is coded and tested",
    ),
    Rule(
        "code_single",
        lambda f: f.difficulty == "easy",
        "a short, plainly specified task: more agents would cost more than they add",
    ),
    Rule(
        "code_loop_until_pass",
        lambda f: f.examples >= (1 if f.answer == "program" else 2),
        "the task gives examples that can be run, so real test runs decide when the code is done",
    ),
    Rule(
        "code_solver_tester",
        lambda f: True,
        "details that a first version tends to miss and few examples, so a tester writes tests of its own",
    ),
]

MATH_RULES = [
    Rule(
        "math_solver_critic",
        lambda f: f.answer == "proof",
        "a proof is wanted: there is no short answer to vote on or compute, but an argument to review",
    ),
    Rule(
        "math_adaptive_vote",
        lambda f: f.answer == "choice" and f.difficulty != "easy",
        "the answer is one of a few options, so samples are counted until one option leads clearly",
    ),
    Rule(
        "math_reasoner_and_coder",
        lambda f: f.heavy_arithmetic and f.difficulty == "hard",
        "hard and computational: a program and an argument must agree before the answer stands",
    ),
    Rule(
        "math_code_pipeline",
        lambda f: f.heavy_arithmetic and f.difficulty == "medium",
        "an argument leads to numbers too large for reasoning alone, so a derivation is followed by code",
    ),
    Rule(
        "math_program_of_thought",
        lambda f: f.heavy_arithmetic,
        "the difficulty is in the computation, which a program does exactly",
    ),
    Rule(
        "math_single",
        lambda f: f.difficulty == "easy",
        "one line of reasoning should settle it: more agents would cost more than they add",
    ),
    Rule(
        "math_second_opinion",
        lambda f: not f.notation and f.difficulty == "medium",
        "a story of many simple steps: a second solver is called only if the first is unsure",
    ),
    Rule(
        "math_pipeline",
        lambda f: f.words >= 100 or (f.difficulty == "hard" and f.conditions >= 6),
        "a long statement with many conditions, so reading it right is half of the work",
    ),
    Rule(
        "math_weighted_vote",
        lambda f: f.difficulty == "hard" and f.enumerable and _has(f, "probability"),
        "a finite probability that code can enumerate, with two reasoners to outvote a wrong model",
    ),
    Rule(
        "math_ensemble_verify",
        lambda f: f.difficulty == "hard" and f.enumerable and _has(f, "counting"),
        "hard counting: several strategies narrow the answer down and code verifies it",
    ),
    Rule(
        "math_solver_checker",
        lambda f: f.enumerable,
        "hard to find but easy to test: a checker tests the answer by brute force",
    ),
    Rule(
        "math_debate_judge",
        lambda f: f.difficulty == "hard" and _has(f, "extremum"),
        "an extremal value: an opponent looks for the bound that fails or is not attained",
    ),
    Rule(
        "math_ensemble_judge",
        lambda f: f.difficulty == "hard" and _has(f, "geometry", "complex numbers", "trigonometry"),
        "hard, and open to several methods: a judge weighs three different solutions",
    ),
    Rule(
        "math_graph_replan",
        lambda f: f.difficulty == "hard",
        "hard without a standard method: the first plan may be wrong, so the work can return to the planner",
    ),
    Rule(
        "math_majority_vote",
        lambda f: _has(f, "geometry"),
        "several standard methods lead to the same short answer, so their agreement is evidence",
    ),
    Rule(
        "math_self_consistency",
        lambda f: _has(f, "trigonometry", "complex numbers", "linear algebra"),
        "a standard method with a long calculation, where slips are likelier than a wrong idea",
    ),
    Rule(
        "math_solver_critic",
        lambda f: True,
        "several steps, each easy to get slightly wrong: a critic reviews them before the answer stands",
    ),
]

UNCLEAR_RULE = Rule(
    "router_by_type",
    lambda f: True,
    "the text does not say whether a quantity or a program is wanted, so a classifier decides first",
)


def choose(features: Features) -> Rule:
    """The first rule that holds for these features."""
    if features.domain == "unclear":
        return UNCLEAR_RULE
    rules = CODE_RULES if features.domain == "code" else MATH_RULES
    return next(rule for rule in rules if rule.holds(features))


def design_from_bank(problem: str) -> BankDesign:
    """Choose a template for the problem and write it out. Same problem, same design; raises nothing."""
    features = features_of(problem)
    rule = choose(features)
    template = get_template(rule.template)
    advice = {"GUIDANCE": guidance_for(problem, features), "CHECKS": checks_for(problem, features)}
    return BankDesign(
        template=rule.template,
        features=features,
        reason=f"{_summary(features)}. Hence {template.pattern}: {rule.reason}.",
        program=write_out(template, advice),
    )


def _summary(features: Features) -> str:
    if features.domain == "unclear":
        return "Neither clearly math nor code"
    about = f", about {', '.join(features.topics[:3])}" if features.topics else ""
    return f"Looks like {features.domain} of {features.difficulty} level{about}"


def write_out(template: Template, advice: Mapping[str, str]) -> str:
    """The template's program with the values of its slots replaced; slots without advice keep their own text.

    Only the string constants change, whatever the advice contains: it is embedded as a string literal.
    """
    lines = template.program.split("\n")
    for node in reversed(ast.parse(template.program).body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in template.slots and advice.get(name) and node.end_lineno is not None:
                lines[node.lineno - 1 : node.end_lineno] = [f"{name} = {string_literal(advice[name])}"]
    return "\n".join(lines)


def string_literal(text: str, width: int = 100) -> str:
    """Python source of a string, in parentheses, one literal per line of text and at most about `width` columns.

    Nothing in it can be mistaken for the end of a `<code>` block or of a Markdown fence.
    """
    pieces = re.findall(rf"[^\n]{{0,{width}}}(?:\n| |\Z)|[^\n]{{1,{width}}}", text)
    lines = [f"    {_quoted(piece)}\n" for piece in pieces if piece] or ['    ""\n']
    return "(\n" + "".join(lines) + ")"


def _quoted(piece: str) -> str:
    # repr() escapes whatever is not printable; it chooses double quotes where the text holds only single ones.
    literal = repr(piece) if '"' in piece else '"' + repr("'" + piece)[2:]
    return re.sub("</(?=code)", r"<\\x2f", literal, flags=re.IGNORECASE).replace("```", r"\x60\x60\x60")
