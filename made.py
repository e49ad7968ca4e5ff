"""A solver derives a formula, an executor computes with code, a verifier compares both and answers.

Use when reasoning and computation should check each other: a derivation that ends in heavy or error-prone numbers.
"""

import subprocess
import sys

from workflow import AgentNode, ToolRegistry, Workflow

# The two constants below say what is special about this problem; every role that needs one quotes it.
GUIDANCE = (
    "- Asked: What is the sum of the first 10 primes?\n"
    "- The numbers are large: keep every intermediate value exact.\n"
    "- Work with factorizations and residues; remember 0, 1, negative values and the end points of "
    "ranges.\n"
    "- Write down the first terms, find the pattern or recurrence, and prove it before you use it far "
    "out.\n"
)
CHECKS = (
    "- The answer is what was asked, in that form: What is the sum of the first 10 primes?\n"
    "- The result satisfies every divisibility or congruence when it is put in, and smaller candidates "
    "fail.\n"
    "- The formula reproduces the first terms, and the first and last index are right.\n"
)


def execute_code(code: str) -> str:
    """Run a Python program and report what it printed."""
    try:
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return "Error: the program ran longer than 30 seconds."
    report = ""
    if result.stdout:
        report += f"stdout:\n{result.stdout[-4000:]}\n"
    if result.stderr:
        report += f"stderr:\n{result.stderr[-2000:]}\n"
    return report or "(nothing was printed)"


tools = ToolRegistry()
tools.register(
    name="execute_code",
    func=execute_code,
    description="Run a Python program in a fresh process and return what it prints.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "a complete Python program that prints"}},
        "required": ["code"],
    },
)

solver = AgentNode(
    name="Solver",
    system_prompt=(
        "You are an expert mathematician. Derive the solution step by step, up to an explicit formula or a finite "
        "computation, and then your own value for it in \\boxed{}.\n"
        "Deliver three things: the formula or computation with every symbol defined, your value, and one smaller "
        "instance of the problem whose result can be computed by hand.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE
    ),
    max_turns=1,
)
executor = AgentNode(
    name="CodeExecutor",
    system_prompt=(
        "You compute with code.\n"
        "1. Write one Python program that evaluates the solver's formula exactly, and that also computes the answer "
        "straight from the problem's definitions where that is possible.\n"
        "2. Run it with the tool execute_code; print every quantity with its name. Mend it if it fails.\n"
        "3. Report the printed values faithfully, the ones that disagree included. Do not smooth them over.\n"
        "Deliver the values, what each means, and the computed answer in \\boxed{}."
    ),
    tool_registry=tools,
    max_turns=4,
)
verifier = AgentNode(
    name="Verifier",
    system_prompt=(
        "You compare a derivation with a computation and give the final answer.\n"
        "If they agree, check that both answer the question that was asked. If they differ, find out which one "
        "departs from the problem's words, and correct it; printed values are facts about the program, not yet about "
        "the problem.\n\n"
        "FOR THIS PROBLEM, CHECK:\n" + CHECKS + "\n"
        "OUTPUT: your finding in a few sentences, then the final answer, once, in \\boxed{}."
    ),
    max_turns=1,
)

workflow = Workflow(name="math_code_pipeline")
workflow.add_nodes([solver, executor, verifier])
