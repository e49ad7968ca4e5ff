"""A reasoner and a tool user work on a math problem (Stronger-MAS, Appendix C.2), first apart, then with what both have
found, until the boxed answer and the printed one agree."""

import re
import subprocess
import sys

from workflow import AgentNode, Workflow

TURNS = 4
LONGEST = 3000  # characters of a reply that later turns are shown

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
    """What stands in the last box that is closed, as the host reads it."""
    for box in [*re.finditer(r"\\(?:boxed|fbox)\s*(\{|[^\s{}\\$]+)", text)][:-20:-1]:
        if box.group(1) != "{":
            return box.group(1)
        depth, place = 1, box.end()
        for mark in re.finditer(r"\\.|[{}]", text[box.end() :]):
            depth += {"{": 1, "}": -1}.get(mark.group(), 0)
            if depth == 0:
                place = box.end() + mark.start()
                break
        found = text[box.end() : place].strip()
        if found:
            return found
    return ""


def code_of(reply):
    """The last block of Python, as the host reads it."""
    block, _, _ = reply.rpartition("</solution>")
    inside = block.rpartition("<solution>")[2] if "<solution>" in block else ""
    code, lines, ticks, language = "", None, 0, ""
    for line in (inside or reply).splitlines():
        bare = line.strip()
        marks = len(bare) - len(bare.lstrip("`"))
        if lines is None and marks >= 3:
            language = re.match(r"[\w+-]*", bare[marks:].strip()).group().lower()
            lines, ticks = [], marks
        elif lines is not None and marks >= ticks and marks == len(bare):
            if language in ("", "python", "python3", "py") and any(each.strip() for each in lines):
                code = "\n".join(lines)
            lines = None
        elif lines is not None:
            lines.append(line)
    return code or inside.strip()


def run(reply):
    """The code of a reply, and what it prints."""
    code = code_of(reply)
    if not code:
        return "", ""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return code, "(it ran out of time)"
    return code, done.stdout.strip()[:500] or "(nothing) " + done.stderr.strip()[-500:]


def formula(text):
    """A constant as Python writes it; else the text, without what does not matter."""
    text = re.sub(r"(?<=\d)\s+(?=\d)", "_", text)  # two numbers, not one
    text = re.sub(r"\\text\{[^{}]*\}|\^\s*(?:\{\s*)?\\circ(?:\s*\})?|\\(?:left|right|,|!|;|%|\$)|[$%\s]", "", text)
    text = re.sub(r"^[a-zA-Z]=", "", text)
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    text = re.sub(r"\\[dt]?frac(\d)(\d)", r"((\1)/(\2))", text)
    for _ in range(4):  # one in another
        text = re.sub(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", text)
        text = re.sub(r"\\sqrt\{([^{}]*)\}", r"sqrt(\1)", text)
    for mark, written in {"\\pi": "pi", "\\cdot": "*", "\\times": "*", "^": "**", "{": "(", "}": ")"}.items():
        text = text.replace(mark, written)
    return re.sub(r"([0-9)])(?=\(|sqrt|pi)", r"\1*", text)


CONSTANT = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+|sqrt|pi|\*\*(?=\(?-?[0-9]{1,2}(?![0-9]))|[-+*/()])+")


def same(one, other):
    one, other = formula(one), formula(other)
    if one == other or not (CONSTANT.fullmatch(one) and CONSTANT.fullmatch(other)):
        return one == other
    code = f"from math import *\nprint(abs(({one}) - ({other})) <= 1e-6 * max(1, abs({other})))"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=5)
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.strip() == "True"


history = []
for _ in range(TURNS):
    situation = "\n\n".join([question, *history])
    reasoning = ask(reasoner, situation)
    found = boxed(reasoning)
    code, printed = run(ask(tool, situation))
    if found and code and same(found, printed):
        break
    history.append(
        f"Attempt {len(history) + 1}. The reasoner:\n\n{reasoning[-LONGEST:]}\n\nIts boxed answer: "
        f"{found[:500] or 'none'}\n\nThe code:\n\n{code[-LONGEST:] or 'none'}\n\nIt printed: {printed}"
    )
answer = reasoning
