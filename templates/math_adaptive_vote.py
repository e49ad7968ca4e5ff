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
from collections import Counter

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
        "OUTPUT: your reasoning, then the final answer in its simplest form, once, in \\boxed{}. Answers are compared "
        "as written, so put nothing but the answer in the box."
    ),
    max_turns=1,
)


def answers_in(reply: Message) -> list[str]:
    """The answer that a reply boxes last, without spaces, in a list; an empty list if it boxes none."""
    boxes = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", reply.content)
    return [box.replace(" ", "") for box in boxes[-1:]]


class AdaptiveVote(WorkflowNode):
    """Asks one agent until an answer is two votes ahead of every other."""

    def __init__(self, name: str, agent: AgentNode, most: int = 5) -> None:
        super().__init__(name)
        self.agent = agent
        self.most = most

    def process(self, context: Context) -> Message:
        votes = Counter()
        replies = []
        while len(replies) < self.most:
            replies.append(self.agent.process(context))
            votes.update(answers_in(replies[-1]))
            counts = [*sorted(votes.values(), reverse=True), 0, 0]
            if counts[0] >= counts[1] + 2:
                break
        leaders = [answer for answer in votes if votes[answer] == max(votes.values())]
        return next((reply for reply in replies if answers_in(reply) == leaders[:1]), replies[0])


workflow = Workflow(name="math_adaptive_vote")
workflow.add_node(AdaptiveVote("AdaptiveVote", agent=solver))
