"""A test writer turns the task into executable tests; a coder mends its code until they pass, at most four times.

Use when the task gives examples that can be run: the loop's decision is then a real test run, not an opinion.
"""

# /// template
# pattern = "loop until tests pass"
# domain = "code"
# structure = "loop"
# agent_calls = [2, 5]
# ///

import json
import re
import subprocess
import sys

from workflow import AgentNode, Context, LoopWorkflow, Message, MessageType, Workflow

# The two constants below say what is special about this problem; every role that needs one quotes it.
GUIDANCE = (
    "- Keep the names, parameters and input and output formats of the task exactly.\n"
    "- Handle the smallest and the largest inputs that the task allows.\n"
)
CHECKS = (
    "- Every example of the task gives the stated result.\n"
    "- Empty, smallest, largest, repeated and negative values behave as the task says.\n"
)

test_writer = AgentNode(
    name="TestWriter",
    system_prompt=(
        "You write tests for a programming task; you do not solve it.\n"
        "Take every example of the task, then add up to four edge cases whose results follow from the task with "
        "certainty. Leave out what you are not sure of: a wrong test does more harm than a missing one.\n\n"
        "FOR THIS TASK, TEST:\n" + CHECKS + "\n"
        "OUTPUT: a JSON list inside <tests>...</tests>. For a function, each test is\n"
        '{"call": "name(arguments)", "expected": "value"} with two Python expressions (round floats in both).\n'
        "For a program that reads standard input, each test is\n"
        '{"stdin": "input text", "expected": "output text"}.'
    ),
    max_turns=1,
)
coder = AgentNode(
    name="Coder",
    system_prompt=(
        "You are an expert Python programmer. Write the code that the task asks for.\n"
        "Your code is run against tests. When a test run reports failures, find the cause of each and mend the code. "
        "If a test contradicts the task, keep to the task and say why.\n\n"
        "FOR THIS TASK:\n" + GUIDANCE + "\n"
        "OUTPUT: the complete code with its imports, and nothing else, inside <solution>...</solution>."
    ),
    max_turns=1,
)


def latest_from(context: Context, agent: str) -> str:
    """The last text that an agent wrote, or an empty string."""
    texts = [message.content for message in context.messages if message.sender == agent]
    return texts[-1] if texts else ""


def tests_in(text: str) -> list:
    """The tests of a reply: the JSON list in its last tests block, or none."""
    marked = re.findall(r"<tests>(.*?)</tests>", text, re.DOTALL)
    text = marked[-1] if marked else text
    start, end = text.find("["), text.rfind("]")
    try:
        found = json.loads(text[start : end + 1], strict=False)
    except ValueError:
        return []
    return [test for test in found if isinstance(test, dict) and "expected" in test][:8]


def solution_in(text: str) -> str:
    """The code of the last solution block, without a surrounding code fence."""
    blocks = re.findall(r"<solution>(.*?)</solution>", text, re.DOTALL)
    return re.sub(r"^\s*`{3}\w*\n|\n?`{3}\s*$", "", blocks[-1]) if blocks else ""


def failure_of(solution: str, test: dict) -> str:
    """What goes wrong when the test is run, or an empty string."""
    code = solution
    if "call" in test:
        code += f"\n\ngot = {test['call']}\nassert got == ({test['expected']}), 'returned ' + repr(got)\n"
    try:
        run = subprocess.run(
            [sys.executable, "-c", code], input=str(test.get("stdin", "")), capture_output=True, text=True, timeout=10
        )
    except subprocess.TimeoutExpired:
        return "it ran longer than 10 seconds"
    if run.returncode != 0:
        return run.stderr.strip()[-500:] or f"it ended with exit status {run.returncode}"
    if "call" not in test and run.stdout.split() != str(test["expected"]).split():
        return "it printed:\n" + run.stdout[:500]
    return ""


def tests_fail(context: Context) -> bool:
    """Run the tests on the latest solution. On failure, tell the coder and go on."""
    solution = solution_in(latest_from(context, "Coder"))
    failures = []
    if not solution:
        failures.append("There was no code inside <solution>...</solution>.")
    else:
        for test in tests_in(latest_from(context, "TestWriter")):
            failure = failure_of(solution, test)
            if failure:
                failures.append(f"Test {json.dumps(test)} failed: {failure}")
    if not failures:
        return False
    report = "\n\n".join(failures[:3])
    context.add_message(Message(content=report, message_type=MessageType.TOOL_RESULT, sender="TestRun"))
    return True


loop = LoopWorkflow(name="CodingLoop", max_iterations=4)
loop.add_node(coder)
loop.set_loop_condition(tests_fail)

workflow = Workflow(name="code_loop_until_pass")
workflow.add_nodes([test_writer, loop])
