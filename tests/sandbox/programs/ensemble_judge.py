"""Three solvers and a judge: the program only defines its workflow, the runner runs it."""

from workflow import AgentNode, ToolRegistry, Workflow
from workflow.nodes import EnsembleNode

tool_registry = ToolRegistry()
counts = {"solvers": 0}

solvers = []
for style in ("algebra", "geometry", "casework"):
    solvers.append(
        AgentNode(
            name=f"{style.capitalize()}Solver",
            system_prompt=f"Solve the problem by {style}. Put your final answer in \\boxed{{}}.",
            tool_registry=tool_registry,
            max_turns=1,
        )
    )
    counts["solvers"] += 1

judge = AgentNode(
    name="Judge",
    system_prompt=f"Read {counts['solvers']} solutions, choose one and put its answer in \\boxed{{}}.",
    tool_registry=tool_registry,
    max_turns=1,
)

ensemble = EnsembleNode(name="Ensemble", agents=solvers, strategy="consensus", consensus_agent=judge)

workflow = Workflow(name="ensemble_judge")
workflow.add_node(ensemble)
