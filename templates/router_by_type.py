"""A classifier reads the problem; a router sends it to a mathematician, a programmer or a generalist.

Use when the text alone does not tell what kind of problem it is, or one program must serve mixed problems.
"""

# /// template
# pattern = "router by problem type"
# domain = "any"
# structure = "router"
# agent_calls = [2, 6]
# ///

import re
import subprocess
import sys

from workflow import AgentNode, Context, RouterNode, ToolRegistry, Workflow

# The constant below says what is special about this problem.
GUIDANCE = (
    "- State what is given and what is asked before answering.\n"
    "- Give the answer in the form in which it is asked for.\n"
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

classifier = AgentNode(
    name="Classifier",
    system_prompt=(
        "You sort problems; you do not solve them.\n"
        "OUTPUT: one sentence that says what is asked and in what form the answer is wanted, then a line of its own: "
        "the word Type, a colon, and MATH (a quantity, expression or proof), CODE (a program or function is to be "
        "written) or OTHER."
    ),
    max_turns=1,
)
math_solver = AgentNode(
    name="MathSolver",
    system_prompt=(
        "You are an expert mathematician. Solve the problem step by step with exact values. Use the tool execute_code "
        "to compute or to test the result where that helps.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: your reasoning, then the final answer, once, in \\boxed{}."
    ),
    tool_registry=tools,
    max_turns=4,
)
code_solver = AgentNode(
    name="CodeSolver",
    system_prompt=(
        "You are an expert Python programmer. Write the program or function that the task asks for, with its exact "
        "names and formats. Run it on the task's examples and on edge cases with the tool execute_code before you "
        "answer.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: the complete final code, and nothing else, inside <solution>...</solution>."
    ),
    tool_registry=tools,
    max_turns=5,
)
generalist = AgentNode(
    name="Generalist",
    system_prompt=(
        "You answer questions with care. Say what is known, reason from it to the answer, and check the answer against "
        "the question. Say so where you are not certain.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: a short justification, then the final answer, once, in \\boxed{}."
    ),
    max_turns=1,
)


def problem_type(context: Context) -> str:
    """The type that the classifier named, in lower case."""
    named = re.findall(r"type\W+(math|code|other)\b", context.messages[-1].content, re.IGNORECASE)
    return named[-1].lower() if named else "other"


router = RouterNode(
    name="RouteByType",
    routes={"math": math_solver, "code": code_solver, "other": generalist},
    routing_func=problem_type,
    default_route="other",
)

workflow = Workflow(name="router_by_type")
workflow.add_nodes([classifier, router])
