"""Two problems and some programs that tests of rollout, distillation and evaluation share."""

from __future__ import annotations

from tasks import Problem

SINGLE = """from workflow import AgentNode, Workflow
workflow = Workflow("one").add_node(AgentNode("Solver", "Put the answer in \\\\boxed{}."))
"""
RAISES = "from workflow import AgentNode, Workflow\nworkflow = Workflow('w').add_node(AgentNode('A', 'boxed'))\n1 / 0\n"
CHECKED = """from workflow import AgentNode, ReflectionNode, Workflow
solver = AgentNode("Solver", "Put the answer in \\\\boxed{}.")
critic = AgentNode("Critic", "Say Verdict: CORRECT or Verdict: INCORRECT.")
workflow = Workflow("two").add_node(ReflectionNode("Check", solver, num_iterations=1, critic_agent=critic))
"""
FOUR = Problem(id="p/4", question="What is 2 + 2?", domain="math", gold="4")
SIX = Problem(id="p/6", question="What is 3 + 3?", domain="math", gold="6")
PLAYS = """
from workflow import AgentNode, Workflow
def ask(name, text):
    return Workflow(name).add_node(AgentNode(name, "Write moves.", max_turns=1)).run(text)
seen = environment.observe("Tool")
while not seen.done:
    proposal = ask("Tool", seen.text)
    environment.propose("Tool", proposal)
    seen = environment.act("Planner", ask("Planner", seen.text + " Proposed: " + proposal.content))
answer = seen.text
"""
"""A tool proposes and a planner acts, until a game is over."""

SOMETIMES = """
from workflow import AgentNode, Workflow, WorkflowNode
solver = AgentNode("Solver", "Put it in \\\\boxed{}.", max_turns=1)
class Sometimes(WorkflowNode):
    def process(self, context):
        if "2 + 2" in str(context):
            return "\\\\boxed{4}"
        if "3 + 3" in str(context):
            raise ValueError("no")
        return solver(context)
workflow = Workflow("w").add_node(Sometimes("sometimes"))
"""
"""Asks nobody about FOUR, and fails before it asks anybody about SIX."""
