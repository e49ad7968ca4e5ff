"""A solver that may run code, and a tester that runs tests and gives a verdict."""

import subprocess

from workflow import AgentNode, ToolRegistry, Workflow
from workflow.nodes import ReflectionNode

tool_registry = ToolRegistry()


def execute_code(code: str) -> str:
    """Execute Python code and return what it printed."""
    try:
        result = subprocess.run(["python", "-c", code], capture_output=True, text=True, timeout=5)
        output = ""
        if result.stdout:
            output += f"stdout:\n{result.stdout}\n"
        if result.stderr:
            output += f"stderr:\n{result.stderr}\n"
        return output or "(no output)"
    except subprocess.TimeoutExpired:
        return "Error: timed out"


tool_registry.register(
    name="execute_code",
    func=execute_code,
    description="Execute Python code and return stdout and stderr",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "Python code"}},
        "required": ["code"],
    },
)

solver = AgentNode(
    name="Solver",
    system_prompt="Write a program. Try it with execute_code. Put it into <solution>...</solution>.",
    tool_registry=tool_registry,
    max_turns=3,
)
tester = AgentNode(
    name="Tester",
    system_prompt="Test the solution with execute_code. End with Verdict: CORRECT or Verdict: INCORRECT.",
    tool_registry=tool_registry,
    max_turns=3,
)

workflow = Workflow(name="solver_tester")
workflow.add_node(ReflectionNode(name="Reflection", agent=solver, critic_agent=tester, num_iterations=2))
