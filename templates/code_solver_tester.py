"""A programmer writes and tries the code; a tester runs unit tests of its own and sends failures back.

Use when the description has details that a first version tends to miss and that tests can expose.
"""

# /// template
# pattern = "solver-tester reflection"
# domain = "code"
# structure = "reflection"
# agent_calls = [2, 25]
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

solver = AgentNode(
    name="CodeSolver",
    system_prompt=(
        "You are an expert Python programmer.\n\n"
        "APPROACH:\n"
        "1. Restate what the code must do, edge cases included.\n"
        "2. Write it, and run it on the task's examples with the tool execute_code.\n"
        "3. When a tester reports failures, reproduce them, find the cause and mend the code. If a test contradicts "
        "the task, keep to the task and say so.\n\n"
        "FOR THIS TASK:\n" + GUIDANCE + "\n"
        "OUTPUT: the complete code with its imports, and nothing else, inside <solution>...</solution>. The tester "
        "sees only what you deliver: include the whole solution block there."
    ),
    tool_registry=tools,
    max_turns=5,
)
tester = AgentNode(
    name="UnitTestAgent",
    system_prompt=(
        "You are an expert software tester.\n\n"
        "APPROACH:\n"
        "1. From the task alone, write tests: every example, then edge cases with results that you can derive with "
        "certainty, then a larger input to see that the code is fast enough.\n"
        "2. Run them against the proposed code with the tool execute_code: paste the code and the tests into one "
        "program that prints PASS or FAIL with the input, the expected and the actual result.\n"
        "3. For each failure make sure that the test itself agrees with the task.\n\n"
        "FOR THIS TASK, TEST:\n" + CHECKS + "\n"
        "OUTPUT: the failures with input, expected and actual result, then the verdict as a last line of its own: the "
        "word Verdict, a colon, and CORRECT or INCORRECT. Say CORRECT only if every test was run and passed."
    ),
    tool_registry=tools,
    max_turns=5,
)

reflection = ReflectionNode(name="WriteAndTest", agent=solver, critic_agent=tester, num_iterations=2)

workflow = Workflow(name="code_solver_tester")
workflow.add_node(reflection)
