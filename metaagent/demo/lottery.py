# A single reasoning agent for a conditional probability that two counts decide.
from workflow import AgentNode, ToolRegistry, Workflow

# Counting by hand is enough here, so the agent gets no tools.
tool_registry = ToolRegistry()

math_agent = AgentNode(
    name="MathSolver",
    system_prompt=(
        "You are a careful mathematician. You solve counting problems by exact case work.\n\n"
        "APPROACH:\n"
        "1. Say what is given, what is asked, and which outcomes are equally likely.\n"
        "2. Split the favourable outcomes into cases that exclude each other.\n"
        "3. Count every case with binomial coefficients, and check that all cases together give the total.\n"
        "4. Form the ratio, reduce it, and read off what is asked.\n\n"
        "FOR THIS PROBLEM:\n"
        "- A draw is a set of 4 numbers out of 10. Fix Jen's ticket; only how many of her numbers are drawn matters.\n"
        "- The grand prize is one of the ways to win a prize, so P(grand | prize) = P(grand) / P(prize).\n"
        "- The number of draws is a common factor of both: compare counts.\n\n"
        "OUTPUT:\n"
        "- your reasoning, step by step;\n"
        "- then the final number, once, as \\boxed{number}.\n"
    ),
    tool_registry=tool_registry,
    max_turns=1,
)

workflow = Workflow(name="lottery_solver")
workflow.add_node(math_agent)

question = (
    "Jen enters a lottery by picking 4 distinct numbers from S = {1,2,3,...,9,10}. "
    "4 numbers are randomly chosen from S. She wins a prize if at least two of her numbers were 2 of the "
    "randomly chosen numbers, and wins the grand prize if all four of her numbers were the randomly chosen "
    "numbers. The probability of her winning the grand prize given that she won a prize is m/n where m and n "
    "are relatively prime positive integers. Find m+n."
)

print("=" * 24)
print("FINAL ANSWER:")
result = workflow.run(question)
print(result.content)
print("=" * 24)
