# One agent whose prompt is put together from pieces; the program runs its workflow and prints the result.
# Written as programs in the wild are, not as this project is:
# ruff: noqa: I001
# fmt: off
from workflow import AgentNode, Workflow, ToolRegistry

# Nothing to call: pure reasoning
tool_registry = ToolRegistry()

counter = AgentNode(
    name="Counter",
    system_prompt=(
        "You count things exactly.\n\n"

        "STEPS:\n"
        "1. Say what is counted\n"
        "2. Count case by case\n\n"

        "FOR THIS PROBLEM:\n"
        "- A box holds balls numbered S = {1,2,...,6}.\n"
        "- P(a | b) = P(a and b) / P(b), and 0 <= k <= 6.\n\n"

        "OUTPUT:\n"
        "- The number in \\boxed{} format\n"
        "- Example: The answer is \\boxed{42}\n\n"

        "IMPORTANT: the answer MUST be in \\boxed{answer} format."
    ),
    tool_registry=tool_registry,
    max_turns=1
)

workflow = Workflow(name="counting")
workflow.add_node(counter)

question = (
    "Two balls are drawn from S = {1,2,3,4,5,6} without replacement. "
    "How many pairs have an even sum?"
)

print("----------------")
print("RESULT:")
result = workflow.run(question)
print(result.content)
print("----------------")
