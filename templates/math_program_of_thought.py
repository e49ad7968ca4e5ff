"""One solver turns the problem into a program, runs it and reads the answer off its output.

Use when the difficulty is in the computation: large operands, long sums, powers and remainders, many similar steps.
"""

# /// template
# pattern = "program of thought"
# domain = "math"
# structure = "single"
# agent_calls = [1, 4]
# ///

import subprocess
import sys

from workflow import AgentNode, ToolRegistry, Workflow

# The constant below says what is special about this problem.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
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
    name="ProgramSolver",
    system_prompt=(
        "You solve mathematical problems by writing and running short Python programs.\n\n"
        "APPROACH:\n"
        "1. Translate the problem into definitions and one quantity to compute.\n"
        "2. Write a program that computes it exactly: integers, fractions.Fraction or modular powers, never rounded "
        "floats. Print intermediate values that can be checked.\n"
        "3. Run it with the tool execute_code. If it fails or the output is implausible, mend it and run it again.\n"
        "4. Read the answer off the output and check that it fits the question.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: call the tool first; after its result, one or two sentences and the final answer, once, in \\boxed{}."
    ),
    tool_registry=tools,
    max_turns=4,
)

workflow = Workflow(name="math_program_of_thought")
workflow.add_node(solver)
