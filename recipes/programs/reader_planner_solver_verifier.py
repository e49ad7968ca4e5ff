"""Four agents in a line (MASPRM, Appendix C): the question reaches the reader, the planner and the verifier; the solver
has the plan alone. Prompts are those of C.1, but for the box, in which graders look for the answer."""

from workflow import AgentNode, Workflow

reader = AgentNode("Reader", "You are the Reader.\nExtract key facts and restate the question.", max_turns=1)
planner = AgentNode("Planner", "You are the Planner.\nPropose a concise plan to solve the task.", max_turns=1)
solver = AgentNode("Solver", "You are the Solver.\nCarry out the plan and compute results.", max_turns=1)
verifier = AgentNode(
    "Verifier",
    "You are the Verifier.\nDouble-check the result and output exactly:\nFinal Answer: \\boxed{value}",
    max_turns=1,
)


def ask(agent, text):
    return Workflow(agent.name).add_node(agent).run(text).content


facts = ask(reader, question)
plan = ask(planner, f"{question}\n\nReader:\n\n{facts}")
work = ask(solver, f"Planner:\n\n{plan}")
answer = ask(verifier, f"{question}\n\nSolver:\n\n{work}")
