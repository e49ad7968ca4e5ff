"""A tool agent and a planner play a game (Stronger-MAS, Appendices C.2 and D): the tool writes code that prints an
action, the planner is shown all of it and acts. Later turns are shown what was done before, and what came of it."""

import re
import subprocess
import sys

from workflow import AgentNode, Workflow

tool = AgentNode(
    "Tool",
    "You write Python that works out the next action of a game. Reply with one ```python block. What it prints is the "
    "action, in the form that the task wants behind ####, but without the ####, and nothing else. Where you are not "
    "sure of the whole way, print a part of it that you are sure of. The standard library is there, and nothing else.",
    max_turns=1,
)
planner = AgentNode(
    "Planner",
    "You decide the next action of a game. You are shown the task, the position, a colleague's code and what it "
    "printed. Check that against the rules, step by step. Adopt it if it is right; else correct it, or write an action "
    "of your own. Say briefly why. The last line of your reply is #### and the action.",
    max_turns=1,
)


def ask(agent, text):
    return Workflow(agent.name).add_node(agent).run(text).content


def run(reply):
    """The code of a reply, and what it prints."""
    blocks = re.findall(r"```(?:python)?[ \t]*\n(.*?)```", reply, re.DOTALL)
    if not blocks:
        return "", ""
    try:
        done = subprocess.run([sys.executable, "-c", blocks[-1]], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return blocks[-1], "(it ran out of time)"
    return blocks[-1], done.stdout.strip() or "(nothing) " + done.stderr.strip()[-500:]


history = []
seen = environment.observe("Planner")
while not seen.done:
    situation = "\n\n".join([question, *(history or [f"Now:\n\n{seen.text}"])])
    code, printed = run(ask(tool, situation))
    if code:
        environment.propose("Tool", printed)
    shown = f"The code:\n\n{code}\n\nIt printed:\n\n{printed}" if code else "There is no code."
    reply = ask(planner, f"{situation}\n\n{shown}")
    seen = environment.act("Planner", reply)
    action = reply.rpartition("####")[2].strip()[:1000]
    history.append(f"Action {len(history) + 1}: {action}\n\nIt led to:\n\n{seen.text}")
answer = seen.text
