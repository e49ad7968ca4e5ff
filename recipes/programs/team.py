"""Agents that propose, and one that acts: the program of AT-GRPO's miniature (`speedrun.at_grpo`). Each is shown the
position as it is now, who acts also the proposals."""

from workflow import AgentNode, Workflow

TOOLS = 1
ACTS = "Planner"

tools = [AgentNode(f"Tool{number}", "Propose.", max_turns=1) for number in range(1, TOOLS + 1)]
acts = AgentNode(ACTS, "Act." if ACTS == "Planner" else "Propose.", max_turns=1)


def ask(agent, text):
    return Workflow(agent.name).add_node(agent).run(text).content


seen = environment.observe(ACTS)
while not seen.done:
    shown = seen.text
    for tool in tools:
        proposal = ask(tool, seen.text).rpartition("####")[2].strip()
        environment.propose(tool.name, proposal)
        shown += f"\nProposed: {proposal}"
    seen = environment.act(ACTS, ask(acts, shown))
answer = seen.text
