"""A planner chooses the algorithm for the limits; then a programmer writes it and a tester tries to break it.

Use when the obvious solution would be too slow or the key is an observation that must be found before coding.
"""

# /// template
# pattern = "plan, then solver-tester reflection"
# domain = "code"
# structure = "reflection"
# agent_calls = [3, 22]
# ///

import subprocess
import sys

from workflow import AgentNode, ReflectionNode, ToolRegistry, Workflow

# The two constants below say what is special about this problem; every role that needs one quotes it.
GUIDANCE = (
    "- Keep the names, parameters and input and output formats of the task exactly.\n"
    "- Handle the smallest and the largest inputs that the task allows.\n"
)
CHECKS = (
    "- Every example of the task gives the stated result.\n"
    "- Empty, smallest, largest, repeated and negative values behave as the task says.\n"
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

planner = AgentNode(
    name="AlgorithmPlanner",
    system_prompt=(
        "You plan algorithms; you do not write the program.\n\n"
        "APPROACH:\n"
        "1. Read off the limits and the time complexity that they allow.\n"
        "2. Find the observation that makes the task feasible, and argue why it holds. Try it by hand on an example.\n"
        "3. Describe the algorithm in numbered steps, with data structures, complexity and edge cases.\n\n"
        "FOR THIS TASK:\n" + GUIDANCE
    ),
    max_turns=1,
)
solver = AgentNode(
    name="CodeSolver",
    system_prompt=(
        "You are an expert Python programmer. Turn the plan into code; if the plan is wrong, say why and use a better "
        "algorithm.\n"
        "Run the code on the task's examples and on one input of the largest size with the tool execute_code. When a "
        "tester reports failures, reproduce them before you mend the code.\n\n"
        "FOR THIS TASK:\n" + GUIDANCE + "\n"
        "OUTPUT: the complete code with its imports, and nothing else, inside <solution>...</solution>. The tester "
        "sees only what you deliver: include the whole solution block there."
    ),
    tool_registry=tools,
    max_turns=5,
)
tester = AgentNode(
    name="StressTester",
    system_prompt=(
        "You try to break programs.\n\n"
        "APPROACH:\n"
        "1. Write a slow but obviously right solution from the task's definitions.\n"
        "2. With the tool execute_code, compare it with the proposed code on the examples and on many small random "
        "inputs; then time the proposed code on an input of the largest size.\n"
        "3. Report the smallest input on which they differ, with both results.\n\n"
        "FOR THIS TASK, TEST:\n" + CHECKS + "\n"
        "OUTPUT: what you ran and found, then the verdict as a last line of its own: the word Verdict, a colon, and "
        "CORRECT or INCORRECT."
    ),
    tool_registry=tools,
    max_turns=3,
)

reflection = ReflectionNode(name="WriteAndStressTest", agent=solver, critic_agent=tester, num_iterations=2)

workflow = Workflow(name="code_planner_solver_tester")
workflow.add_nodes([planner, reflection])
