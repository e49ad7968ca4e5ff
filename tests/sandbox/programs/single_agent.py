"""One agent that runs itself and prints its result, as published programs do."""

from workflow import AgentNode, ToolRegistry, Workflow

# No tools: reasoning only
tool_registry = ToolRegistry()

solver = AgentNode(
    name="Solver",
    system_prompt=(
        "You solve counting problems step by step.\n\n"
        "OUTPUT FORMAT:\n"
        "- Put your final answer in \\boxed{} format\n"
        "- Example: The answer is \\boxed{42}\n"
    ),
    tool_registry=tool_registry,
    max_turns=1,
)

workflow = Workflow(name="single_solver")
workflow.add_node(solver)

problem: str = "How many subsets of {1, 2, 3} have an even sum?"

if __name__ == "__main__":
    print("=" * 20)
    print("FINAL ANSWER:")
    result = workflow.run(problem)
    print(result.content)
    print("=" * 20)
