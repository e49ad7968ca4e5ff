"""A tool-user computes with code and a reasoner derives the answer; they repeat until both agree, at most three times.

Use when a program for the problem is easy to write but easy to get subtly wrong, so that a second view should align.
"""

# /// template
# pattern = "reasoner and tool-user"
# domain = "math"
# structure = "loop"
# agent_calls = [2, 15]
# ///

import re
import subprocess
import sys

from workflow import AgentNode, Context, LoopWorkflow, ToolRegistry

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

tool_user = AgentNode(
    name="ToolUser",
    system_prompt=(
        "You solve mathematical problems with Python.\n"
        "1. Write a program that computes the answer exactly, straight from the problem's definitions.\n"
        "2. Run it with the tool execute_code, and test it on a small instance too.\n"
        "3. If a reasoner's answer differs from an earlier one of yours, find out which step or which line of code is "
        "wrong. Do not give way without a reason.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: how the program models the problem, what it printed, and the answer, once, in \\boxed{}."
    ),
    tool_registry=tools,
    max_turns=4,
)
reasoner = AgentNode(
    name="Reasoner",
    system_prompt=(
        "You are a mathematician who works beside a programmer.\n"
        "1. Solve the problem yourself, step by step, without using the programmer's number.\n"
        "2. Then compare. If the results differ, decide from the problem's words whether your argument or the "
        "program's model is wrong, and say where.\n"
        "3. Give the answer that you now hold to be right, even if you still disagree.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: your derivation and the comparison, then the answer, once, in \\boxed{}."
    ),
    max_turns=1,
)


def boxed_answer(context: Context, agent: str) -> str:
    """The last boxed answer that an agent gave, without spaces; empty if there is none."""
    for message in reversed(context.messages):
        if message.sender == agent:
            boxes = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", message.content)
            return boxes[-1].replace(" ", "") if boxes else ""
    return ""


def disagree(context: Context) -> bool:
    answer = boxed_answer(context, "Reasoner")
    return not answer or answer != boxed_answer(context, "ToolUser")


workflow = LoopWorkflow(name="math_reasoner_and_coder", max_iterations=3)
workflow.add_nodes([tool_user, reasoner])
workflow.set_loop_condition(disagree)
