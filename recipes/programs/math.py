"""A reasoner and a tool user work on a math problem (Stronger-MAS, Appendix C.2), first apart, then with what both have
found, until the boxed answer and the printed one agree."""

import re
import subprocess
import sys

from workflow import AgentNode, Workflow

TURNS = 4

reasoner = AgentNode(
    "Reasoner",
    "You solve math problems by careful reasoning. First say the key steps, then carry them out. Where you are shown "
    "earlier attempts, find out which of the answers is wrong, and why. End with the answer in \\boxed{}: a single "
    "number or expression, simplified, without words.",
    max_turns=1,
)
tool = AgentNode(
    "Tool",
    "You write Python that works out the answer to a math problem. Reply with one ```python block that prints the "
    "final answer, on one line, and nothing else. Compute exactly where that is possible. Where you are shown earlier "
    "attempts, find out which of the answers is wrong, and mend your code. The standard library is there, and nothing "
    "else.",
    max_turns=1,
)


def ask(agent, text):
    return Workflow(agent.name).add_node(agent).run(text).content


def boxed(text):
    """What stands in the last box."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return ""
    start += len("\\boxed{")
    depth = 1
    for place in range(start, min(len(text), start + 500)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place].strip()
    return ""


def run(reply):
    """The code of a reply, and what it prints."""
    blocks = re.findall(r"```(?:python)?[ \t]*\n(.*?)```", reply, re.DOTALL)
    if not blocks:
        return "", ""
    try:
        done = subprocess.run([sys.executable, "-c", blocks[-1]], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return blocks[-1], "(it ran out of time)"
    return blocks[-1], done.stdout.strip()[:500] or "(nothing) " + done.stderr.strip()[-500:]


def same(one, other):
    one, other = (re.sub(r"[\s$,]|\\left|\\right", "", each) for each in (one, other))
    try:
        return abs(float(one) - float(other)) <= 1e-6 * max(1.0, abs(float(other)))
    except ValueError:
        return one == other


history = []
for _ in range(TURNS):
    situation = "\n\n".join([question, *history])
    reasoning = ask(reasoner, situation)
    found = boxed(reasoning)
    code, printed = run(ask(tool, situation))
    if found and code and same(found, printed):
        break
    history.append(
        f"Attempt {len(history) + 1}. The reasoner:\n\n{reasoning}\n\nIts boxed answer: {found or 'none'}\n\n"
        f"The code:\n\n{code or 'none'}\n\nIt printed: {printed}"
    )
answer = reasoning
