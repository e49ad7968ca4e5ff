# A solver and a tester who share a tool around subprocess; the program only defines its workflow.
# Written as programs in the wild are, not as this project is:
# ruff: noqa: I001
# fmt: off
from workflow import AgentNode, Workflow, ToolRegistry
from workflow.nodes import ReflectionNode
import subprocess

tool_registry = ToolRegistry()

def run_python(code: str) -> str:
    """Run Python code and return what it printed."""
    try:
        result = subprocess.run(
            ["python", "-c", code],
            capture_output=True, text=True, timeout=20
        )
        output = ""
        if result.stdout:
            output += f"stdout:\n{result.stdout}\n"
        if result.stderr:
            output += f"stderr:\n{result.stderr}\n"
        return output or "(nothing printed)"
    except subprocess.TimeoutExpired:
        return "Error: timed out (20s limit)"

tool_registry.register(
    name="run_python",
    func=run_python,
    description="Run Python code and return what it printed",
    parameters={
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "Python code to run"}
        },
        "required": ["code"]
    }
)

solver_agent = AgentNode(
    name="Programmer",
    system_prompt=(
        "You write Python.\n\n"
        "Try it with the tool `run_python`:\n"
        '<tool_call>{"name": "run_python", "arguments": {"code": "your_python_code_here"}}</tool_call>\n\n'
        "Wrap the final code in <solution>...</solution> tags\n"
    ),
    tool_registry=tool_registry,
    max_turns=5
)

critic_agent = AgentNode(
    name="Tester",
    system_prompt=(
        "You test a proposed solution with run_python.\n\n"
        "OUTPUT FORMAT:\n"
        "- Each case and its result (PASS/FAIL)\n"
        "- Final verdict: CORRECT or INCORRECT\n"
    ),
    tool_registry=tool_registry,
    max_turns=5
)

reflection = ReflectionNode(
    name="WriteAndTest",
    agent=solver_agent,
    critic_agent=critic_agent,
    num_iterations=2
)

workflow = Workflow(name="programmer_and_tester")
workflow.add_node(reflection)
