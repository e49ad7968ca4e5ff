# Three solvers and a judge; the program only defines its workflow.
# Written as programs in the wild are, not as this project is:
# ruff: noqa: I001
# fmt: off
from workflow import AgentNode, Workflow, ToolRegistry
from workflow.nodes import EnsembleNode

tool_registry = ToolRegistry()

solver1 = AgentNode(
    name="Algebraist",
    system_prompt=(
        "You set up equations.\n"
        "Put your final answer in \\boxed{} format.\n\n"
        "\\[\\begin{array}{|c|c|} \\hline a & b \\ \\hline c & d \\ \\hline \\end{array}\\]\n"
        "Condition: (10a + b) + (10c + d) = 99, with 0 <= a,b,c,d <= 9."
    ),
    tool_registry=tool_registry,
    max_turns=1
)

solver2 = AgentNode(
    name="Geometer",
    system_prompt=(
        "You draw the grid.\n"
        # ... (the same conditions as above) ...
    ),
    tool_registry=tool_registry,
    max_turns=1
)

solver3 = AgentNode(
    name="Counter",
    system_prompt=(
        "You go case by case.\n"
        # ... (the same conditions as above) ...
    ),
    tool_registry=tool_registry,
    max_turns=1
)

judge_agent = AgentNode(
    name="Judge",
    system_prompt=(
        "You receive three solutions.\n\n"
        "Select ONE answer and put it in \\boxed{answer} format.\n\n"
        # ... (the same conditions as above) ...
    ),
    tool_registry=tool_registry,
    max_turns=1
)

ensemble = EnsembleNode(
    name="Panel",
    agents=[solver1, solver2, solver3],
    strategy="consensus",
    consensus_agent=judge_agent
)

workflow = Workflow(name="panel_with_judge")
workflow.add_node(ensemble)
