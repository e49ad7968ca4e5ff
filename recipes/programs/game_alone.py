"""A planner plays a game by itself (the single agent of Stronger-MAS, Tables 1 and 2): it has no tool to ask. Later
turns are shown what was done before, and what came of it."""

from workflow import AgentNode, Workflow

planner = AgentNode(
    "Planner",
    "You decide the next action of a game. You are shown the task and the position. Check your action against the "
    "rules, step by step. Say briefly why it is right. The last line of your reply is #### and the action.",
    max_turns=1,
)

history = []
seen = environment.observe("Planner")
while not seen.done:
    situation = "\n\n".join([question, *(history or [f"Now:\n\n{seen.text}"])])
    reply = Workflow("Planner").add_node(planner).run(situation).content
    seen = environment.act("Planner", reply)
    action = reply.rpartition("####")[2].strip()[:1000]
    history.append(f"Action {len(history) + 1}: {action}\n\nIt led to:\n\n{seen.text}")
answer = seen.text
