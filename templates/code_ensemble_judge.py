"""Three programmers with different aims; a judge runs their programs against each other and picks or repairs one.

Use when speed and correctness pull apart: a slow certain version exposes errors in a fast one.
"""

# /// template
# pattern = "ensemble with executing judge"
# domain = "code"
# structure = "ensemble"
# agent_calls = [4, 8]
# ///

import subprocess
import sys

from workflow import AgentNode, EnsembleNode, ToolRegistry, Workflow

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

ANSWER_FORMAT = (
    "\n\nFOR THIS TASK:\n" + GUIDANCE + "\n"
    "OUTPUT: the idea in two sentences, then the complete code with its imports inside <solution>...</solution>. The "
    "judge sees only what you deliver: include the whole solution block there."
)

brute_force = AgentNode(
    name="BruteForceSolver",
    system_prompt=(
        "You are a programmer who values certainty. Follow the task's definitions literally, try all possibilities "
        "where needed, and use no clever observation. It may be slow; it must be right."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)
optimal = AgentNode(
    name="OptimalSolver",
    system_prompt=(
        "You are a programmer who values speed. Find the algorithm of the best complexity that the limits call for, "
        "argue why it is right, and write it."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)
edge_cases = AgentNode(
    name="EdgeCaseSolver",
    system_prompt=(
        "You are a programmer who thinks of edge cases first. List the unusual inputs that the task allows and what "
        "must come out for each; then write code that handles them all and is fast enough."
    )
    + ANSWER_FORMAT,
    max_turns=1,
)
judge = AgentNode(
    name="CodeJudge",
    system_prompt=(
        "You choose between programs by running them.\n\n"
        "APPROACH:\n"
        "1. With the tool execute_code, run every candidate on the task's examples.\n"
        "2. Compare them on small random inputs; where they differ, work out the right result from the task by hand.\n"
        "3. Time the best one on an input of the largest size. Repair it if it needs little, else take another.\n\n"
        "FOR THIS TASK, TEST:\n" + CHECKS + "\n"
        "OUTPUT: what decided, in a few sentences, then the complete chosen code inside <solution>...</solution>."
    ),
    tool_registry=tools,
    max_turns=5,
)

ensemble = EnsembleNode(
    name="ProgramsAndJudge",
    agents=[brute_force, optimal, edge_cases],
    strategy="consensus",
    consensus_agent=judge,
)

workflow = Workflow(name="code_ensemble_judge")
workflow.add_node(ensemble)
