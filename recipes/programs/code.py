"""A coder and a tester work on a programming task (Stronger-MAS, Appendix C.2), first apart, then with what came of it,
until the code passes the test."""

import re
import subprocess
import sys

from workflow import AgentNode, Workflow

TURNS = 4

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


def bare(part):
    """Without a code fence around it."""
    fenced = re.match(r"```[^\n]*\n(.*?)\n?```", part.strip(), re.DOTALL)
    return fenced.group(1) if fenced else part.strip()


def test_in(reply):
    """The last input and output of a reply."""
    before, _, output = reply.rpartition("**Test Output:**")
    given = before.rpartition("**Test Input:**")[2]
    return (bare(given) + "\n", bare(output)) if before and output.strip() else ("", "")


def run(reply, given):
    """The code of a reply, and what it prints."""
    blocks = re.findall(r"```(?:python)?[ \t]*\n(.*?)```", reply, re.DOTALL)
    if not blocks:
        return "", ""
    try:
        done = subprocess.run(
            [sys.executable, "-c", blocks[-1]], input=given, capture_output=True, text=True, timeout=30
        )
    except subprocess.TimeoutExpired:
        return blocks[-1], "(it ran out of time)"
    return blocks[-1], done.stdout.strip()[:2000] or "(nothing) " + done.stderr.strip()[-500:]


history = []
for _ in range(TURNS):
    situation = "\n\n".join([question, *history])
    solution = ask(coder, situation)
    given, expected = test_in(ask(tester, situation))
    code, printed = run(solution, given)
    if code and expected and printed.split() == expected.split():
        break
    history.append(
        f"Attempt {len(history) + 1}. The code:\n\n{code or 'none'}\n\nInput of the test:\n\n{given or 'none'}\n\n"
        f"Expected output:\n\n{expected or 'none'}\n\nIt printed:\n\n{printed}"
    )
answer = solution
