"""One agent with a tool that multiplies.

Use when a product is too long to be worked out in the head.
"""

# /// template
# pattern = "agent with a tool"
# domain = "math"
# structure = "single"
# agent_calls = [1, 3]
# ///

import subprocess
import sys

from workflow import AgentNode, ToolRegistry, Workflow


def multiply(a: int, b: int) -> str:
    code = f"print({a} * {b})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=10).stdout.strip()


tools = ToolRegistry()
numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
tools.register("multiply", multiply, "a * b", {"type": "object", "properties": numbers, "required": ["a", "b"]})
task = "Solve the problem step by step, multiply with the tool. Write the answer in \\boxed{}."
solver = AgentNode("Solver", task, tools, max_turns=3)
workflow = Workflow("tool").add_node(solver)
