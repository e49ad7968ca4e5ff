"""One programmer writes the solution in one go.

Use when the task is a short, fully specified function whose logic is plain.
"""

# /// template
# pattern = "single agent"
# domain = "code"
# structure = "single"
# agent_calls = [1, 1]
# ///

from workflow import AgentNode, Workflow

# The constant below says what is special about this problem.
GUIDANCE = (
    "- Keep the names, parameters and input and output formats of the task exactly.\n"
    "- Handle the smallest and the largest inputs that the task allows.\n"
)

solver = AgentNode(
    name="CodeSolver",
    system_prompt=(
        "You are an expert Python programmer.\n\n"
        "APPROACH:\n"
        "1. Restate what the code must return or print, for ordinary and for edge inputs.\n"
        "2. Choose the simplest algorithm that meets the limits.\n"
        "3. Trace the code by hand on an example before you answer.\n\n"
        "FOR THIS TASK:\n" + GUIDANCE + "\n"
        "OUTPUT: a short explanation, then the complete code with its imports, and nothing else, inside "
        "<solution>...</solution>."
    ),
    max_turns=1,
)

workflow = Workflow(name="code_single")
workflow.add_node(solver)
