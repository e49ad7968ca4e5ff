from workflow import AgentNode, Workflow

solver = AgentNode(name="Solver", system_prompt="Put the answer in \\boxed{}.")
workflow = Workflow(name="one").add_node(solver)
