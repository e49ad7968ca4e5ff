"""One agent answers, mathematics and code alike: the program of the baseline `SA + GRPO` (Tables 1 and 2)."""

from workflow import AgentNode, Workflow

solver = AgentNode(
    name="Solver",
    system_prompt=(
        "Solve the problem step by step. Put the final answer of a mathematical problem in \\boxed{}. Put the complete "
        "code that a programming problem asks for inside <solution>...</solution>."
    ),
    max_turns=1,
)

workflow = Workflow(name="single_agent").add_node(solver)
