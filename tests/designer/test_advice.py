"""Advice is worth what it mends: templates are damaged as models damage programs, and fixes are applied to the letter.

Prints the share of damaged programs that pass the check after that. A fix is applied by `applied`, which reads nothing
but a finding: it knows no damage.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable

import pytest

from designer.check import check_source, has_errors
from templates import load_templates
from workflow.failures import Finding

MUTANTS = 100
ROUNDS = 3
"""Repairs of one program: a fix may bring to light what is wrong behind it."""
SHARE = 0.83
"""Nobody can say in one line how numpy, a file or a bracket that is still open is done without."""


def _slip(word: str, draw: random.Random) -> str:
    """A letter left out of the middle of a word."""
    place = draw.randrange(1, len(word) - 1)
    return word[:place] + word[place + 1 :]


def _one(pattern: str, source: str, draw: random.Random, change: Callable[[str], str]) -> str | None:
    """One place of those that `pattern` finds, changed; None where there is none."""
    places = list(re.finditer(pattern, source, re.MULTILINE))
    if not places:
        return None
    place = draw.choice(places)
    return source[: place.start(1)] + change(place[1]) + source[place.end(1) :]


Damage = Callable[[str, random.Random], str | None]
DAMAGES: dict[str, Damage] = {
    "argument misspelt": lambda s, d: _one(
        r"\b(system_prompt|max_turns|agents|strategy)=", s, d, lambda w: _slip(w, d)
    ),
    "class misspelt": lambda s, d: _one(r"= (AgentNode|EnsembleNode|Workflow)\(", s, d, lambda w: _slip(w, d)),
    "variable misspelt": lambda s, d: _one(r"\.add_nodes?\((\w{5,})\)", s, d, lambda w: _slip(w, d)),
    "method misspelt": lambda s, d: _one(r"\.(add_nodes?|register)\(", s, d, lambda w: _slip(w, d)),
    "name not imported": lambda s, d: _one(r"^from workflow import (?:.*, )?(AgentNode, )", s, d, lambda w: ""),
    "contract from elsewhere": lambda s, d: _one(r"^from (workflow) import", s, d, lambda w: "workflow.core"),
    "module not imported": lambda s, d: f"{s}\nprint(math.pi)\n" if "import math" not in s else None,
    "module misspelt": lambda s, d: f"import collectons\nprint(collectons.Counter())\n{s}",
    "function of a module misspelt": lambda s, d: f"import math\nprint(math.sqr(2))\n{s}",
    "the problem as task_description": lambda s, d: f"{s}\nprint(task_description)\n",
    "the problem as input()": lambda s, d: f"problem = input()\n{s}\nprint(problem)\n",
    "an import that nothing uses": lambda s, d: f"import os.path, numpy\nimport socket\n{s}",
    "a message's text": lambda s, d: f"from workflow import Message\n{s}\nprint(Message('x').text)\n",
    "an argument of another library": lambda s, d: _one(r"AgentNode\((\w+, |name=)", s, d, lambda w: f"model='m', {w}"),
    "tools as a list": lambda s, d: _one(r"AgentNode\((\w+, |name=)", s, d, lambda w: f"tools=[], {w}"),
    "nodes of a workflow": lambda s, d: _one(r"Workflow\((name=|\")", s, d, lambda w: f"nodes=[], {w}"),
    "a method of another library": lambda s, d: _one(r"workflow\.(add_node)\(", s, d, lambda w: "add_agent"),
    "numpy": lambda s, d: f"import numpy as np\n{s}\nprint(np.mean([1, 2]))\n",
    "a file": lambda s, d: f"{s}\nprint(open('data.txt').read())\n",
    "a dunder": lambda s, d: f"{s}\nprint(workflow.__len__())\n",
    "a bracket left open": lambda s, d: _one(r"(\)\n)(?=\n|\w)", s, d, lambda w: "\n"),
    "a fence": lambda s, d: f"```python\n{s}\n```\n",
    "a strategy that there is not": lambda s, d: _one(r"strategy=\"(\w+)\"", s, d, lambda w: _slip(w, d)),
    "no prompt": lambda s, d: f"{s}\nworkflow.add_node(AgentNode('Last'))\n" if "workflow =" in s else None,
}


def applied(source: str, finding: Finding) -> str:
    """The program after the fix, read as a person without imagination would; unchanged where it says nothing of use."""
    lines = source.split("\n")
    index = max(finding.line, 1) - 1
    culprit = re.findall(r"'([^']+)'", finding.message)
    if meant := re.match(r"did you mean '([^']+)'\?", finding.fix):
        for word in reversed(culprit):
            if re.search(rf"\b{re.escape(word)}\b", lines[index]) and word != meant[1]:
                return "\n".join([*lines[:index], re.sub(rf"\b{word}\b", meant[1], lines[index]), *lines[index + 1 :]])
    if statement := re.match(r"write: (.+)", finding.fix):
        return "\n".join([*lines[:index], statement[1], *lines[index + 1 :]])
    if statement := re.match(r"add: ((?:from|import) .+)", finding.fix):
        return f"{statement[1]}\n{source}"
    if argument := re.match(r"add (?:the argument )?(\w+)=\.\.\.", finding.fix):
        return "\n".join(
            [*lines[:index], re.sub(r"\)", f", {argument[1]}='x')", lines[index], count=1), *lines[index + 1 :]]
        )
    if words := re.match(r"write (\w+) instead of (\w+)", finding.fix):
        return re.sub(rf"\b{words[2]}\b", words[1], source)
    if call := re.match(r"write (\w+)\(x\)$", finding.fix):
        attribute = re.findall(r"\.(__\w+__)", finding.message)
        if attribute:
            changed = re.sub(rf"(\w+)\.{attribute[0]}\(\)", rf"{call[1]}(\1)", lines[index])
            return "\n".join([*lines[:index], changed, *lines[index + 1 :]])
    if finding.fix.startswith("leave it out") and finding.code == "unknown-argument":
        changed = re.sub(rf"\b{culprit[-1]}=(\[\]|[^,()]*),? ?", "", lines[index])
        return "\n".join([*lines[:index], changed, *lines[index + 1 :]])
    if finding.fix.startswith("remove the Markdown fence"):
        return "\n".join(lines[:index] + lines[index + 1 :])
    if "the variable question" in finding.fix:
        return source.replace("input()", "question")
    if finding.fix.startswith("delete this line"):
        return "\n".join(lines[:index] + lines[index + 1 :])
    return source


@pytest.mark.thorough
def test_a_fix_to_the_letter_makes_the_program_pass() -> None:
    draw = random.Random(7)
    sources = [template.program for template in load_templates()]
    mended: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    left: list[str] = []
    for number in range(10 * MUTANTS):
        kind = list(DAMAGES)[number % len(DAMAGES)]
        source = DAMAGES[kind](draw.choice(sources), draw)
        if source is None or sum(tried.values()) == MUTANTS:
            continue
        tried[kind] += 1
        findings = check_source(source)
        for _ in range(ROUNDS):
            for finding in sorted(findings, key=lambda each: -each.line):
                if finding.severity == "error":
                    source = applied(source, finding)
                    break
            findings = check_source(source)
        if has_errors(findings):
            left.append(f"{kind}: {next(each for each in findings if each.severity == 'error')}")
        else:
            mended[kind] += 1
    total = sum(tried.values())
    print(*left, sep="\n")
    print(f"{sum(mended.values())} of {total} damaged programs pass after their fixes")
    for kind, count in tried.items():
        print(f"  {mended[kind]:3} of {count:3}  {kind}")
    assert total == MUTANTS
    assert sum(mended.values()) >= SHARE * total, "\n".join(left)
