"""One solver is asked again until one of its answers leads by two, at most five times; the leading answer wins.

Use when sampling helps but most problems settle early: a node of its own stops as soon as the vote is clear.
"""

# /// template
# pattern = "adaptive self-consistency"
# domain = "math"
# structure = "single"
# agent_calls = [2, 5]
# ///

import re

from workflow import AgentNode, Context, Message, Workflow, WorkflowNode

# The constant below says what is special about this problem.
GUIDANCE = (
    "- State what is given and what is asked before computing.\n"
    "- Give the answer in the form in which the problem asks for it.\n"
)

solver = AgentNode(
    name="Solver",
    system_prompt=(
        "You are a careful mathematician. Solve the problem from scratch, step by step, with exact values, and look "
        "back once for slips in arithmetic, signs and counting.\n\n"
        "FOR THIS PROBLEM:\n" + GUIDANCE + "\n"
        "OUTPUT: your reasoning, then the final answer in its simplest form, once, in \\boxed{}. Answers are compared as "
        "written, so put nothing but the answer in the box."
    ),
    max_turns=1,
)


class AdaptiveVote(WorkflowNode):
    """Asks one agent until an answer is two votes ahead of every other."""

    def __init__(self, name: str, agent: AgentNode, most: int = 5) -> None:
        super().__init__(name)
        self.agent = agent
        self.most = most

    def process(self, context: Context) -> Message:
        votes = {}
        replies = {}
        reply = None
        for number in range(self.most):
            reply = self.agent.process(context)
            boxes = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", reply.content)
            if boxes:
                answer = boxes[-1].replace(" ", "")
                votes[answer] = votes.get(answer, 0) + 1
                replies.setdefault(answer, reply)
            counts = sorted(votes.values(), reverse=True) + [0, 0]
            if counts[0] >= counts[1] + 2:
                break
        return replies[max(votes, key=votes.get)] if votes else reply


workflow = Workflow(name="math_adaptive_vote")
workflow.add_node(AdaptiveVote("AdaptiveVote", agent=solver))
