r"""What `metaagent demo` shows: AIME 2024 I, problem 4, a program written for it, and its agent's recorded reply.

Not here: what is done with it (`metaagent.commands.demo`). Data only (`lottery.py`, `lottery.replay.jsonl`); another
program whose agent has the same name can take its place.
"""

from __future__ import annotations

from importlib import resources

__all__ = ["GOLD", "PROBLEM", "PROGRAM", "REPLAY", "text"]

PROBLEM = (
    "Jen enters a lottery by picking 4 distinct numbers from S = {1,2,3,...,9,10}. 4 numbers are randomly chosen from "
    "S. She wins a prize if at least two of her numbers were 2 of the randomly chosen numbers, and wins the grand "
    "prize if all four of her numbers were the randomly chosen numbers. The probability of her winning the grand prize "
    "given that she won a prize is m/n where m and n are relatively prime positive integers. Find m+n."
)
GOLD = "116"
PROGRAM, REPLAY = "lottery.py", "lottery.replay.jsonl"


def text(name: str) -> str:
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
