# ruff: noqa: E501  (hostile one-liners)
"""Texts on which a careless reader spends seconds or days, as Python expressions: solutions print them, agents say them,
programs answer with them.

Contained means that the host reads each in no time worth measuring (`engine.stall_watch`), and pays none of them. What
is sound about each stands in `tests/test_hostile_texts.py`, next to the piece of old code that it beat.
"""

from __future__ import annotations

from sandbox.conformance.attacks.attack import REFUSED, Attack

TEXTS = {
    "a number that is none": "'1' * 200_000 + 'x'",
    "a number with a point that is none": "'1' * 100_000 + '.' + '1' * 100_000 + 'x'",
    "many numbers that are none": "('1' * 399 + 'x ') * 500",
    "an exponent without end": "'1e' + '9' * 200_000",
    "fences never closed": "'```python\\n' * 20_000",
    "fences of other languages never closed": "'```text\\nx\\n' * 15_000",
    "boxes in boxes": r"r'\boxed{' * 25_000 + '5' + '}' * 25_000",
    "boxes never closed": r"r'\boxed{' * 30_000",
    "spaced boxes in boxes": r"r'\boxed{ ' * 25_000 + '5' + ' }' * 25_000",
    "a final answer and asterisks": "'final answer' + '*' * 200_000",
    "lines of asterisks before an answer": "'_*' * 100_000 + 'final answer'",
    "correct and slashes": "'CORRECT' + '/' * 200_000",
    "verdicts and colons": "'verdict' + ':' * 200_000 + ' is'",
    "solutions never closed": "'<solution>' * 20_000",
    "tool calls never closed": "'<tool_call>{' * 20_000",
    "brackets": "'[' * 200_000",
    "JSON in JSON": "'{\"a\":' * 40_000",
    "deliveries of dots": "'<delivery>' + '.' * 200_000 + 'x</delivery>'",
    "LaTeX text without braces": r"r'\text' + ' ' * 200_000",
    "thousands": "',111' * 60_000",
    "one line of boxes": r"r'\boxed{1} ' * 25_000",
    "lines of boxes": r"'\n'.join(r'\boxed{%d} is it' % n for n in range(12_000))",
    "quoted three times": '\'"""\' * 80_000',
    "newlines": "'\\n' * 250_000",
    "carriage returns": "'\\r' * 250_000",
}
"""At most 256 KiB each, which is as much of a text as is read for an answer."""

WRONG = "\ndef square(x): return -7\n"
JUNK = """
import json, os, sys
def square(x):
    main = sys.modules['__main__']
    for n in range(60_000): os.write(4, b'{"nonce": "%016x", "value": 9}\\n' % n)
    return -7
"""

ATTACKS: list[Attack] = [
    *(
        Attack("hostile text", f"printed: {name}", "grade", f"print({text}){WRONG}", lasts=True)
        for name, text in TEXTS.items()
    ),
    *(
        Attack("hostile text", f"answered: {name}", "program", f"answer = {text}\n", ends=("answer", *REFUSED), lasts=True)
        for name, text in TEXTS.items()
    ),
    Attack("hostile text", "junk on the grader's channel", "grade", JUNK, lasts=True),
    Attack(
        "hostile text", "a list of millions", "grade", "def square(x): return [[]] * 10**6\n", lasts=True
    ),
    Attack("hostile text", "a number of millions of digits", "grade", "def square(x): return 1 << 10**7\n", lasts=True),
    Attack("hostile text", "a value nested deep", "grade",
           "def square(x):\n    v = []\n    for _ in range(900): v = [v]\n    return v\n", lasts=True),
    Attack("hostile text", "an answer beyond what is read", "program", "answer = 'x' * 300_000\n", ends=REFUSED, lasts=True),
    Attack("hostile text", "a prompt beyond what is asked", "program",
           "from workflow import AgentNode, Workflow\nWorkflow('v').add_node(AgentNode('a', 'x' * 2_000_000)).run('q')\n",
           ends=REFUSED, lasts=True),
]  # fmt: skip
