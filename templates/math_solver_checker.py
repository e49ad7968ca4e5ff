"""A solver reasons; a checker tests the answer with code, by enumeration or numerics, and sends errors back.

Use when an answer is hard to find but easy to test by brute force: counting, divisibility, probability, extremes.
"""

# /// template
# pattern = "solver and code checker"
# domain = "math"
# structure = "reflection"
# agent_calls = [2, 11]
# ///

import subprocess
import sys

from workflow import AgentNode, ReflectionNode, ToolRegistry, Workflow

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
    name="MathSolver",
    system_prompt=(
        "You are an expert mathematician.\n\n"
        "APPROACH:\n"
        "1. Say exactly which objects are counted or which quantity is sought.\n"
        "2. Derive the answer step by step, with exact values.\n"
        "3. When a check disagrees, find out which of the two is wrong, and why, before you change anything.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: the derivation, then the final answer, once, in \\boxed{}. Deliver the key steps and the boxed answer."
    ),
    max_turns=1,
)
checker = AgentNode(
    name="CodeChecker",
    system_prompt=(
        "You test answers to mathematical problems with code.\n\n"
        "APPROACH:\n"
        "1. From the problem alone, not from the solution, write a Python program that finds the answer by brute "
        "force, or on a smaller instance if the full one is too large, or numerically to high precision.\n"
        "2. Run it with the tool execute_code, and compare its result with the proposed answer.\n"
        "3. If they differ, make sure that the program says what the problem says, then find the step of the solution "
        "that fails.\n\n"
        "FOR THIS PROBLEM, CHECK:\n" + CHECKS + "\n"
        "OUTPUT: what you computed and what came out, the errors if there are any, then the verdict as a last line of "
        "its own: the word Verdict, a colon, and CORRECT or INCORRECT."
    ),
    tool_registry=tools,
    max_turns=4,
)

reflection = ReflectionNode(name="SolveAndCheck", agent=solver, critic_agent=checker, num_iterations=2)

workflow = Workflow(name="math_solver_checker")
workflow.add_node(reflection)
