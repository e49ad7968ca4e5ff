"""A coder and a tester work on a programming task (Stronger-MAS, Appendix C.2), first apart, then with what came of it,
until the code passes the test."""

import re
import subprocess
import sys

from workflow import AgentNode, Workflow

TURNS = 4
LONGEST = 3000  # characters of a reply that later turns are shown

coder = AgentNode(
    "Coder",
    "You write Python that solves a programming task. It reads all input with input() and prints all results with "
    "print(). Think step by step, then reply with the whole program in one ```python block. Where you are shown "
    "earlier attempts: if the code crashed, mend that; if its output differs from the expected one, find out which of "
    "them is wrong. Where the test is wrong, keep the code.",
    max_turns=1,
)
tester = AgentNode(
    "Tester",
    "You write one test for a programming task: an input, and the output that a right program prints for it. Choose an "
    "input that tells right programs from wrong ones, and work its output out carefully. Where you are shown earlier "
    "attempts, find out whether your test was right, and correct it if not. End with\n\n**Test Input:**\nthe input\n"
    "**Test Output:**\nthe output",
    max_turns=1,
)


def ask(agent, text):
    return Workflow(agent.name).add_node(agent).run(text).content


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


HEADING = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]*)?\*{0,3}[ \t]*Test (Input|Output)[ \t]*\d{0,3}[ \t]*\*{0,3}[ \t]*:[ \t]*\*{0,3}",
    re.IGNORECASE | re.MULTILINE,
)


def bare(part):
    """Without a code fence or backticks around it."""
    fenced = re.match(r"```[^\n]*\n(.*?)\n?```", part.strip(), re.DOTALL)
    inline = re.fullmatch(r"`([^`]+)`", part.strip())
    found = fenced or inline
    return found.group(1) if found else part.strip()


def test_in(reply):
    """The first whole test of a reply, as the host reads it."""
    marks = [*HEADING.finditer(reply)]
    for place in range(len(marks) - 1):
        first, second = marks[place], marks[place + 1]
        end = marks[place + 2].start() if place + 2 < len(marks) else len(reply)
        expected = bare(reply[second.end() : end])
        if (first.group(1).lower(), second.group(1).lower()) == ("input", "output") and expected.strip():
            return bare(reply[first.end() : second.start()]) + "\n", expected
    return "", ""


def run(reply, given):
    """The code of a reply, and what it prints."""
    code = code_of(reply)
    if not code:
        return "", ""
    try:
        done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return code, "(it ran out of time)"
    return code, done.stdout.strip()[:2000] or "(nothing) " + done.stderr.strip()[-500:]


history = []
for _ in range(TURNS):
    situation = "\n\n".join([question, *history])
    solution = ask(coder, situation)
    given, expected = test_in(ask(tester, situation))
    code, printed = run(solution, given)
    if code and expected and printed.split() == expected.split():
        break
    history.append(
        f"Attempt {len(history) + 1}. The code:\n\n{code[-LONGEST:] or 'none'}\n\nInput of the test:\n\n"
        f"{given[:1000] or 'none'}\n\nExpected output:\n\n{expected[:1000] or 'none'}\n\nIt printed:\n\n{printed}"
    )
answer = solution
