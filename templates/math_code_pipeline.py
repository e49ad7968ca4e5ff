"""A solver derives a formula, an executor computes with code, a verifier compares both and answers.

Use when reasoning and computation should check each other: a derivation that ends in heavy or error-prone numbers.
"""

# /// template
# pattern = "solver, code executor, verifier pipeline"
# domain = "math"
# structure = "pipeline"
# agent_calls = [3, 6]
# ///

import subprocess
import sys

from workflow import AgentNode, ToolRegistry, Workflow

# The two constants below say what is special about this problem; every role that needs one quotes it.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)
CHECKS = (
    "- Every condition of the problem is used, and none was added.\n"
    "- The result is what the problem asks for, in the form it asks for.\n"
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
