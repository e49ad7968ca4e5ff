"""The check names line, culprit and fix for what is wrong, and leaves good programs alone."""

import asyncio
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workflow
from designer.check import CheckReport, check_payload, check_program, check_source
from designer.extract import MAX_SOURCE_BYTES
from sandbox import Description, ProcessSandbox
from templates import load_templates
from workflow.failures import Finding, LimitExceeded, ProgramFailed, SandboxUnavailable
from workflow.graph import GraphNode

HEAD = f"from workflow import {', '.join(workflow.__all__)}\n"
PROMPT = r"'Solve it. Put the answer in \\boxed{}.'"
GOOD = f"""\
from workflow import AgentNode, EnsembleNode, Workflow

first = AgentNode(name="First", system_prompt={PROMPT}, max_turns=1)
second = AgentNode(name="Second", system_prompt={PROMPT})
both = EnsembleNode(name="Both", agents=[first, second], strategy="majority_vote")
workflow = Workflow(name="good")
workflow.add_node(both)
"""


def program(body: str) -> str:
    """Line 1 imports the contract; `body` begins on line 2; agents a and b and a workflow come after it."""
    rest = f"""\
a = AgentNode("A", {PROMPT})
b = AgentNode("B", {PROMPT})
workflow = Workflow("w")
workflow.add_nodes([a, b])
"""
    return HEAD + dedent(body) + rest


def errors(source: str) -> list[Finding]:
    return [finding for finding in check_source(source) if finding.severity == "error"]


# fmt: off
FINDINGS = [
    # (name, source, code, line, parts of the message, parts of the fix)
    ("syntax", "x = (1,\ny = 2\n", "syntax", 1, ["never closed", "x = (1,"], ["close it"]),
    ("fence left in", "```python\nx = 1\n```\n", "syntax", 1, ["```python"], ["fence"]),
    ("tag left in", "<code>\nx = 1\n", "syntax", 1, ["<code>"], ["remove the tag <code>"]),
    ("prose", "Here is the program:\nx = 1\n", "syntax", 1, ["Here is the program"], ["valid Python"]),
    ("smart quotes", "x = 1\ny = “a”\n", "syntax", 2, ["“"], ["ASCII"]),
    ("cut off", 'x = """abc\ndef\n', "syntax", 1, ["triple-quoted"], ["close the string"]),
    ("indentation", "if True:\nx = 1\n", "syntax", 2, ["x = 1"], ["indent"]),
    ("return at top level", "x = 1\nreturn x\n", "syntax", 2, ["return x"], []),
    ("null byte", "x = 1\n\0", "syntax", 2, ["null"], ["plain text"]),
    ("surrogate", "x = 1\ny = '\ud800'\n", "syntax", 2, [r"\ud800"], ["remove"]),
    ("too large", "#" * (MAX_SOURCE_BYTES + 1), "too-large", 0, ["100,001", "100,000"], ["shorten"]),
    ("too deep", "x = " + "-" * 50_000 + "1\n", "too-complex", 0, ["deeply"], ["split"]),
    ("policy", program("open('f')\n"), "forbidden-name", 2, ["open"], ["messages"]),

    ("module", program("import shutil\nshutil.rmtree\n"), "unknown-import", 2, ["'shutil'"], ["no files"]),
    ("misspelt module", program("import jsn\njsn.loads\n"), "unknown-import", 2, ["'jsn'"], ["'json'"]),
    ("module of the same sound", program("import bisex\nbisex.a\n"), "unknown-import", 2, ["'bisex'"],
     ["modules: abc"]),
    ("misspelt name", program("from math import cmb\ncmb\n"), "unknown-import", 2, ["'cmb'"], ["'comb'"]),
    ("the problem by another name", program("print(task_description)\n"), "undefined-name", 2, ["'task_description'"],
     ["write question instead"]),
    ("the problem by a third name", program("def route_after_test(): pass\nprint(code_to_test)\n"), "undefined-name", 3,
     ["'code_to_test'"], ["write question instead"]),
    ("misspelt attribute", program("import math\nmath.sqr(2)\n"), "unknown-import", 3, ["'sqr'"], ["'sqrt'"]),
    ("misspelt class", program("from workflow import AgentNod\n"), "unknown-import", 2, ["'AgentNod'"],
     ["'AgentNode'"]),
    ("wrong module", program("from workflow.nodes import Workflow\n"), "unknown-import", 2, ["'Workflow'"],
     ["from workflow import Workflow"]),
    ("no such module", program("from workflow.agents import AgentNode\n"), "unknown-import", 2, ["workflow.agents"],
     ["from workflow import AgentNode"]),
    ("module attribute", program("import workflow as wf\nwf.AgentNod('x', 'y')\n"), "unknown-import", 3,
     ["'AgentNod'"], ["'AgentNode'"]),

    ("unknown argument", program("AgentNode(\n    'S',\n    promt='x',\n)\n"), "unknown-argument", 4,
     ["AgentNode 'S'", "'promt'"], ["'system_prompt'"]),
    ("unknown, no likeness", program("Workflow('w', zzz=1)\n"), "unknown-argument", 2, ["'zzz'"], []),
    ("unknown method argument", program("ToolRegistry().register(nam='f', func=print)\n"), "unknown-argument", 2,
     ["ToolRegistry.register", "'nam'"], ["'name'"]),
    ("missing argument", program("AgentNode('S')\n"), "missing-argument", 2, ["AgentNode 'S'", "'system_prompt'"],
     ["system_prompt=..."]),
    ("missing method argument", program("w = Workflow()\nw.add_node()\n"), "missing-argument", 3,
     ["Workflow.add_node", "'node'"], ["node=..."]),
    ("too many arguments", program("Workflow('w', 1, 2)\n"), "too-many-arguments", 2,
     ["Workflow 'w'", "3 positional", "at most 1"], ["name"]),
    ("repeated argument", program("AgentNode('S', 'p', name='T')\n"), "repeated-argument", 2, ["'name'", "twice"],
     ["once"]),
    ("strategy", program("EnsembleNode('E', [AgentNode('S', 'p')], strategy='majority')\n"), "wrong-value", 2,
     ["EnsembleNode 'E'", "'strategy'", "'majority'"], ["'majority_vote'"]),
    ("strategy by name", program("kind = 'vote'\nEnsembleNode('E', [AgentNode('S', 'p')], strategy=kind)\n"),
     "wrong-value", 3, ["'strategy'", "kind, which is 'vote'"],
     ["majority_vote"]),
    ("turns", program("AgentNode('S', 'p', max_turns=0)\n"), "wrong-value", 2, ["'max_turns'", "0"], ["equal to 1"]),
    ("negative turns", program("AgentNode('S', 'p', max_turns=-1)\n"), "wrong-value", 2, ["-1"], ["equal to 1"]),
    ("wrong type", program("AgentNode('S', None)\n"), "wrong-value", 2, ["'system_prompt'", "None"], ["string"]),
    ("node for list", program("s = AgentNode('S', 'p')\nEnsembleNode('E', s)\n"), "wrong-value", 3, ["'agents'", "s"],
     ["list"]),
    ("text for node", program("ReflectionNode('R', 'solver')\n"), "wrong-value", 2, ["'agent'", "'solver'"],
     ["WorkflowNode"]),
    ("no members", program("EnsembleNode('E', [])\n"), "wrong-value", 2, ["'agents'", "[]"], ["at least 1"]),
    ("one debater", program("DebateNode('D', [AgentNode('S', 'p')])\n"), "wrong-value", 2, ["'debaters'"],
     ["at least 2"]),
    ("tools for text", program("AgentNode('S', 'p', tool_registry='tools')\n"), "wrong-value", 2, ["'tools'"],
     ["ToolRegistry"]),
    ("function for call", program("RouterNode('R', {'x': AgentNode('S', 'p')}, 'x')\n"), "wrong-value", 2,
     ["'routing_func'"], ["callable"]),
    ("message type", program("Message('hi', 'question')\n"), "wrong-value", 2, ["'message_type'", "'question'"],
     ["user_input"]),
    ("consensus", program("members = [AgentNode('S', 'p')]\nEnsembleNode('E', members, strategy='consensus')\n"),
     "missing-argument", 3, ["EnsembleNode 'E'", "consensus"], ["consensus_agent="]),
    ("too many weights", program("EnsembleNode('E', [AgentNode('S', 'p')], 'weighted_vote', weights=[1, 2])\n"),
     "wrong-value", 2, ["2 weights for 1 members"], ["one for each"]),
    ("weights for nobody", program("EnsembleNode('E', [AgentNode('S', 'p')], 'weighted_vote', weights={'T': 1})\n"),
     "wrong-value", 2, ["'T'"], ["'S'"]),
    ("method", program("w = Workflow('x')\nw.add_nod(AgentNode('S', 'p'))\n"), "unknown-method", 3,
     ["Workflow", "'add_nod'"], ["'add_node'"]),
    ("method of a chain", program("LoopWorkflow('x').add_node(AgentNode('S', 'p')).set_lop_condition(print)\n"),
     "unknown-method", 2, ["LoopWorkflow", "'set_lop_condition'"], ["'set_loop_condition'"]),
    ("method without likeness", program("Workflow('x').execute('q')\n"), "unknown-method", 2, ["'execute'"], ["run"]),
    ("attribute of a result", program("""\
        result = Workflow('x').add_node(AgentNode('S', 'p')).run(question)
        print(result.contents)
        """), "unknown-attribute", 3, ["Message", "'contents'"], ["'content'"]),
    ("attribute of a parameter", program("def f(context: Context):\n    return context.get_sate('x')\n"),
     "unknown-method", 3, ["Context", "'get_sate'"], ["'get_state'"]),
    ("member of an enumeration", program("x = MessageType.AGENT_RESPONS\n"), "unknown-attribute", 2,
     ["MessageType", "'AGENT_RESPONS'"], ["'AGENT_RESPONSE'"]),
    ("no process", program("class N(WorkflowNode):\n    def proces(self, context):\n        return 1\nN('n')\n"),
     "missing-process", 2, ["class N"], ["'proces'", "'process'"]),

    ("undefined", program("print(qestion)\n"), "undefined-name", 2, ["'qestion'"], ["'question'"]),
    ("undefined class", "x = AgentNode('S', 'p')\n", "undefined-name", 1, ["'AgentNode'"],
     ["from workflow import AgentNode"]),
    ("missing import", program("x = Optional[int]\n"), "undefined-name", 2, ["'Optional'"],
     ["from typing import Optional"]),
    ("missing module", program("x = re.findall('a', 'b')\n"), "undefined-name", 2, ["'re'"], ["import re"]),
    ("undefined in a function", program("def f():\n    return solutoin\nsolution = 1\n"), "undefined-name", 3,
     ["'solutoin'"], ["'solution'"]),
    ("undefined in an f-string", program("x = f'{1} {zzz}'\n"), "undefined-name", 2, ["'zzz'"], ["define zzz"]),
    ("used too early", program("print(x)\nx = 1\n"), "use-before-definition", 2, ["'x'", "line 3"], ["above line 2"]),
    ("used too early in a function", program("def f():\n    print(x)\n    x = 1\nx = 2\n"), "use-before-definition", 3,
     ["'x'"], ["above line 3"]),
    ("comprehension variable", program("y = [i for i in range(3)]\nprint(i)\n"), "undefined-name", 3, ["'i'"],
     ["line 2"]),
    ("name of an exception", program("try:\n    pass\nexcept ValueError as e:\n    pass\nprint(e)\n"),
     "undefined-name", 6, ["'e'", "except"], ["another name"]),
    ("class variable", program("class C:\n    v = 1\n    def f(self):\n        return v\n"), "undefined-name", 5,
     ["'v'"], ["line 3"]),
    ("braces in format", program("p = 'Put it in {answer}: {}'.format(1)\n"), "bad-format", 2, ["answer"], ["{{"]),
    ("percent", program("p = '%s %s' % (1,)\n"), "bad-format", 2, ["2 placeholder"], ["f-string"]),

    ("no workflow at all", "print('hello')\n", "no-workflow", 0, ["no workflow"], ["AgentNode", "add_node"]),
    ("empty workflow", HEAD + f"w = Workflow('w')\na = AgentNode('A', {PROMPT})\nw.run(question)\n", "empty-workflow",
     2, ["Workflow 'w'"], ["w.add_node"]),
    ("schema and function", program("""\
        def run_code(code):
            return code
        tools = ToolRegistry()
        tools.register("run", run_code, "Runs code.",
            {"type": "object", "properties": {"source": {"type": "string"}}})
        """), "tool-arguments", 6, ["tool 'run'", "'source'"], ["'code'"]),
    ("schema lacks an argument", program("""\
        tools = ToolRegistry()
        tools.register(name="run", func=lambda code, timeout: code, description="Runs code.",
            parameters={"type": "object", "properties": {"code": {"type": "string"}}})
        """), "tool-arguments", 4, ["'timeout'"], ["'timeout'", "default"]),
    ("schema requires a stranger", program("""\
        tools = ToolRegistry()
        tools.register("run", lambda code: code, "Runs code.",
            {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["cod"]})
        """), "tool-arguments", 4, ["'cod'"], ["properties"]),
]

WARNINGS = [
    ("unused agent", program("judge = AgentNode('Judge', 'p')\n"), "unreachable-node", 2, ["'Judge'", "variable judge"],
     ["workflow.add_node(judge)"]),
    ("unused ensemble and its members", program("s = AgentNode('S', 'p')\ne = EnsembleNode('E', [s])\n"),
     "unreachable-node", 2, ["'S'"], ["add_node(s)"]),
    ("only looked at", program("s = AgentNode('S', 'p')\nprint(s.name)\ns.max_turns = 3\n"), "unreachable-node", 2,
     ["'S'"], ["add_node(s)"]),
    ("dropped at once", program("AgentNode('S', 'p')\n"), "unreachable-node", 2, ["'S'"], ["workflow.add_node"]),
    ("unused in a list", program("s = AgentNode('S', 'p')\nteam = [s]\n"), "unreachable-node", 2, ["'S'"], []),
    ("unused node of its own class", program("""\
        class Checker(AgentNode):
            pass
        c = Checker('C', 'p')
        """), "unreachable-node", 4, ["variable c"], []),
    ("nodes only", HEAD + f"a = AgentNode('A', {PROMPT})\n", "no-workflow", 0, ["only the last node"], ["Workflow"]),
    ("one turn with tools", program("""\
        tools = ToolRegistry()
        tools.register("f", lambda: "x", "A tool.")
        workflow2 = Workflow().add_node(AgentNode("S", "p", tools, max_turns=1))
        """), "tools-unused", 4, ["'S'", "max_turns=1"], ["max_turns=5"]),
    ("no answer format", HEAD + "w = Workflow().add_node(AgentNode('A', 'Solve it.'))\n", "no-answer-format", 0,
     ["answer format"], ["boxed", "<solution>"]),
    ("escape", program(r"""w2 = Workflow().add_node(AgentNode("S", "in \boxed{}"))""" + "\n"), "bad-escape", 2,
     [r"\boxed"], [r"\\boxed"]),
    ("no schema", program("tools = ToolRegistry()\ntools.register('f', lambda code: code, 'Runs code.')\n"),
     "tool-arguments", 3, ["tool 'f'", "'code'"], ['"code"']),
    ("bound in the loop before", program("for i in range(3):\n    if i:\n        print(last)\n    last = i\n"),
     "use-before-definition", 4, ["'last'"], ["define last"]),
    ("perhaps another class", program("def f(message: Message):\n    return message.txt\n"), "unknown-attribute", 3,
     ["'txt'"], []),
    ("import that nothing uses", program("import shutil\n"), "unused-import", 2, ["'shutil'"], ["delete"]),
    ("import with a plan", program("try:\n    import numpy\nexcept ImportError:\n    numpy = None\n"), "unknown-import",
     3, ["'numpy'"], []),
]
# fmt: on


def matching(source: str, code: str, severity: str) -> list[Finding]:
    return [found for found in check_source(source) if found.code == code and found.severity == severity]


@pytest.mark.parametrize(
    ("severity", "case"),
    [("error", case) for case in FINDINGS] + [("warning", case) for case in WARNINGS],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_each_finding_names_line_culprit_and_fix(severity: str, case: tuple[Any, ...]) -> None:
    _, source, code, line, message_parts, fix_parts = case
    found = matching(source, code, severity)
    assert found, check_source(source)
    assert found[0].line == line
    assert all(part in found[0].message for part in message_parts), found[0]
    assert all(part in found[0].fix for part in fix_parts), found[0]
    others = [other for other in errors(source) if other.code != code]
    assert not others or code in ("no-workflow", "undefined-name", "unreachable-node"), others


GOOD_PROGRAMS = {
    "ordinary Python": r"""
from workflow import *
import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

a = AgentNode("A", "Put the answer in \\boxed{}.", max_turns=1)
b = AgentNode("B", "Put the answer in \\boxed{}.")

class Both(WorkflowNode):
    def process(self, context):
        return asyncio.run(self.asked(context))

    async def asked(self, context):
        async def ask(agent):
            return agent.process(context)
        first, second = await asyncio.gather(ask(a), ask(b))
        async with contextlib.AsyncExitStack():
            messages = [message async for message in self.all([first, second])]
        match [message.content for message in messages]:
            case [x, y] if x == y:
                return first
            case [str() as x, *rest]:
                return Message(x + "".join(rest))
            case {"k": k, **others}:
                return Message(str(k) + str(others))
        return second

    async def all(self, messages):
        for message in messages:
            yield message

def total(text):
    size = 3
    return eval(text, {"size": size})

try:
    print(total("size + 1"))
    with ThreadPoolExecutor() as pool:
        print(list(pool.map(total, ["1", "2"])))
except* ValueError as group:
    print(group.exceptions)

workflow = Workflow("w").add_node(Both("both"))
""",
    "plain": GOOD,
    "nodes of its own": r"""
from __future__ import annotations

import math
import re
import subprocess, sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Optional

import workflow as wf
from workflow import AgentNode, Context, Message, MessageType, ToolRegistry, Workflow, WorkflowNode
from workflow.nodes import EnsembleNode as Ensemble

ROUNDS: int = 3
STYLES = ["algebra", "geometry"]
state: dict[str, int] = {}

@dataclass
class Attempt:
    text: str
    score: float = 0.0
    notes: list[str] = field(default_factory=list)

class Base(WorkflowNode):
    def helper(self) -> str:
        return self.name

class Picker(Base):
    def __init__(self, name: str, solvers: list[AgentNode], checker=None, **options: Any) -> None:
        super().__init__(name, **options)
        self.solvers = solvers
        self.checker = checker
        self.tries = 0

    def process(self, context: Context) -> Message:
        best: Optional[Attempt] = None
        for solver in self.solvers:
            self.tries += 1
            message = solver.process(context)
            found = re.findall(r"\\boxed\{(.+?)\}", message.content)
            attempt = Attempt(message.content, len(found))
            if best is None or attempt.score > best.score:
                best = attempt
            context.add_message(message)
        if (latest := context.get_latest_message()) is not None and hasattr(latest, "confidence"):
            print(latest.confidence)
        counts = Counter(a for a in STYLES if a)
        state["seen"] = state.get("seen", 0) + sum(counts.values())
        try:
            winner = best.text
        except AttributeError as error:
            winner = f"{error!s}"
        return Message(content=winner, message_type=MessageType.AGENT_RESPONSE, sender=self.name)

class Special(Picker):
    pass

def make(style, number=1, *, turns=2):
    prompt = f"Solve by {style}. " + "Answer in \\boxed{}." + {"algebra": " x"}.get(style, "")
    agent = AgentNode(name=f"{style}_{number}", system_prompt=prompt, max_turns=turns)
    return agent

def build(count):
    agents = []
    for index in range(count):
        for style in STYLES:
            node = make(style, index)
            agents.append(node)
    extra = AgentNode("Extra", "Solve. \\boxed{}")
    agents += [extra]
    return agents

def tools():
    registry = ToolRegistry()

    def run(code: str, timeout: int = 10, **ignored) -> str:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout)
        return done.stdout or done.stderr
    registry.register("run", run, "Run code", {"type": "object", "properties": {"code": {"type": "string"}}})
    registry.register(name="root", func=lambda x: str(math.sqrt(x)), description="Root",
                      parameters={"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]})
    registry.register("schema", run, "Run code", schema_of(run))
    return registry

def schema_of(function):
    global made
    made = defaultdict(int)
    made["schemas"] += 1
    return {"type": "object", "properties": {"code": {"type": "string"}}}

options = {"max_turns": 4, "tool_registry": tools()}
positional = ("Tool user", "Use tools. \\boxed{}")
coder = AgentNode(*positional, **options)
first, second = make("a"), make("b")
members = build(2)
weights = [1.0] * len(members)
vote = Ensemble("Vote", members, strategy="weighted_vote", weights=weights, ai_client=None)
strategy = "consensus" if len(members) > 3 else "majority_vote"
judge = AgentNode("Judge", "Judge. \\boxed{}", enable_thinking=True, server_address="x")
other = wf.EnsembleNode("Other", [first, second], strategy, consensus_agent=judge)
special = Special("Special", [coder], checker=judge)
loop = wf.LoopWorkflow("loop", max_iterations=ROUNDS).add_node(special).set_loop_condition(
    lambda context: context.get_state("iteration", 0) < ROUNDS and "yes" in context.messages[-1].content
)
router = wf.RouterNode("router", routes={"v": vote, "o": other}, routing_func=lambda context: "v", default_route="o")
flow = Workflow()
for node in [router, loop]:
    flow.add_node(node)
flow.extra_note = "x"
print(flow.extra_note, flow.name, flow.nodes, coder.system_prompt, judge.max_turns, vote.agents)

if __name__ == "__main__":
    result = flow.run(question, initial_state={"a": 1})
    answer = result.content
    print(answer, result.metadata.get("x"), result.sender, result.delivery)
    print("made", made["schemas"], __name__, *(m.content for m in [result]))
""",
    "graph": rf"""
from workflow import AgentGraph, AgentNode, ConditionalWorkflow, create_simple_chain
agents = {{name: AgentNode(name, {PROMPT}) for name in ("x", "y")}}
graph = AgentGraph("g", max_steps=5)
for agent in agents.values():
    graph.add_node(agent)
graph.set_entry_point("x").add_edge("x", agents["y"])
graph.add_conditional_edge("y", lambda context: len(context.messages) < 4, "x").set_finish_point("y")
last = AgentNode("Last", {PROMPT})
maybe = ConditionalWorkflow().add_node(last, condition=lambda context: True)
chain = create_simple_chain([graph, maybe], name="chain")
""",
    "function that builds all": rf"""
from workflow import AgentNode, Workflow

class Team:
    member = AgentNode("Member", {PROMPT})
    size = 1

def main():
    solver = AgentNode(name="Solver", system_prompt={PROMPT})
    critic: AgentNode = AgentNode(name="Critic", system_prompt={PROMPT})
    team = Workflow("team")
    nodes = [solver]
    nodes.append(critic)
    team.add_nodes(nodes).add_node(Team.member)
    return team

def show(agent):
    shown[agent.name] = agent

shown = {{}}
seen = AgentNode("Seen", {PROMPT})
show(seen)
workflow = main()
""",
    "names": rf"""
import workflow
from workflow import AgentNode
first: "Undefined" = 1
def f(a: Missing, *args: "Also", b=first, **kw) -> "Nowhere":
    x: Later = a
    def inner():
        nonlocal x
        x = [y for y in args if (z := y)]
        return x, z
    return inner() or [f(a) for a in (lambda q, *r: (q, r))(1)[1]] or helper()
def helper():
    return counter
counter = 0
def bump():
    global counter
    counter += 1
while counter < 2:
    if counter:
        old = counter
    bump()
for i, (j, *k) in enumerate([(1, 2)]):
    pass
print(i, j, k, sorted(set(map(str, [1]))), ValueError, "{{}}".format(1), "%d%%" % 3, "{{a}}".format(a=1), exit, id(1))
with_self = workflow.Workflow("n")
with_self.add_node(AgentNode("A", {PROMPT}))
del first
""",
}


@pytest.mark.parametrize("name", GOOD_PROGRAMS)
def test_good_programs_get_no_findings(name: str) -> None:
    assert check_source(GOOD_PROGRAMS[name]) == []


@pytest.mark.parametrize("template", load_templates(), ids=lambda template: template.name)
def test_templates_get_no_findings(template: Any) -> None:
    assert check_source(template.source) == []
    assert check_source(template.program) == []


KEYWORDS = [
    ("AgentNode", "name"),
    ("AgentNode", "system_prompt"),
    ("AgentNode", "max_turns"),
    ("EnsembleNode", "agents"),
    ("EnsembleNode", "strategy"),
    ("Workflow", "name"),
]


@given(case=st.sampled_from(KEYWORDS), data=st.data())
def test_a_misspelt_keyword_is_named_and_the_original_suggested(case: tuple[str, str], data: st.DataObject) -> None:
    """Mutation: one letter of one keyword argument of a good program is dropped, doubled or swapped."""
    owner, keyword = case
    index = data.draw(st.integers(1, len(keyword) - 2))
    kind = data.draw(st.sampled_from(["drop", "double", "swap"]))
    letter, following = keyword[index], keyword[index + 1]
    middle = {"drop": "", "double": letter * 2, "swap": following + letter}[kind]
    wrong = keyword[:index] + middle + keyword[index + (2 if kind == "swap" else 1) :]
    if wrong == keyword:
        return
    lines: list[str] = str(GOOD).splitlines()
    line = next(i for i, text in enumerate(lines) if f"{owner}(" in text and f"{keyword}=" in text)
    lines[line] = lines[line].replace(f"{keyword}=", f"{wrong}=", 1)
    found = errors("\n".join(lines))
    assert [(item.line, item.code) for item in found] == [(line + 1, "unknown-argument")]
    assert repr(wrong) in found[0].message
    assert repr(keyword) in found[0].fix


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_arbitrary_text_never_raises(text: str) -> None:
    assert isinstance(check_source(text), list)


FRAGMENTS = st.sampled_from(
    [
        "from workflow import *",
        "from workflow import AgentNode as A, Workflow",
        "import workflow",
        "global x",
        "x = AgentNode('a', *x, **x)",
        "x: int",
        "x += x",
        "for x in x: x = x",
        "class x(x): x = x",
        "def x(x=x, *, y): return x",
        "x = lambda x: (y := x)",
        "x = Workflow(name=x)",
        "x.add_node(x)",
        "x = [x for x in x if x]",
        "try: import x\nexcept x as x: del x",
        "workflow = workflow.Workflow(*workflow)",
        "x = EnsembleNode(x, x, x, x, weights=x)",
        "x = ToolRegistry(); x.register(x, x, x, {x: x, **x})",
        "match x:\n  case {'a': x, **y}: pass",
        "'{}{}'.format(x); '%s%s' % x",
        "with x as x: pass",
        "x.x.x.x",
        "MessageType.x",
        "@x\ndef y(): yield x",
        "async def z(): await x",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAGMENTS, max_size=8))
def test_odd_but_valid_programs_never_raise(fragments: list[str]) -> None:
    findings = check_source("\n".join(fragments) + "\n")
    assert [finding.line for finding in findings] == sorted(finding.line for finding in findings)


def test_all_stages_report_at_once() -> None:
    source = "import shutil\nfrom workflow import AgentNode\nAgentNode('A')\nprint(zzz, shutil)\n"
    codes = {finding.code for finding in errors(source)}
    assert codes == {"unknown-import", "missing-argument", "undefined-name"}


def test_the_list_of_modules_is_told_once() -> None:
    found = [each for each in errors(program("import aaa\nimport bbb\naaa, bbb\n")) if each.code == "unknown-import"]
    assert [each.line for each in found] == [2, 3]
    assert found[0].fix.startswith("available modules: abc, array")
    assert found[1].fix == "use one of the modules listed for line 2"


def test_the_number_of_findings_is_bounded() -> None:
    assert len(check_source(HEAD + "AgentNode('A')\n" * 3000)) == 100


def test_what_is_no_program_is_told_so() -> None:
    source = "def solve():\n    print(int(input()) + 1)\n\nsolve()\n"
    assert "no-workflow" in [finding.code for finding in errors(source)]


class FakeSandbox:
    """Does what a sandbox does here, without a jail."""

    def __init__(self, description: Description | Exception, call_fails: Exception | None = None) -> None:
        self.description = description
        self.call_fails = call_fails
        self.described: list[str] = []

    async def call(self, target: str, payload: Any, **limits: Any) -> Any:
        assert target == "designer.check:check_payload"
        if self.call_fails:
            raise self.call_fails
        return check_payload(payload)

    async def describe(self, source: str, question: str = "") -> Description:
        self.described.append(question)
        if isinstance(self.description, Exception):
            raise self.description
        return self.description


GRAPH = GraphNode(kind="Workflow", name="good")


def checked(sandbox: FakeSandbox, source: str = GOOD) -> CheckReport:
    return asyncio.run(check_program(source, sandbox, "q"))  # type: ignore[arg-type]  # a sandbox's two methods used here


def test_a_good_program_gets_its_graph() -> None:
    sandbox = FakeSandbox(Description(graph=GRAPH))
    report = checked(sandbox)
    assert (report.ok, report.findings, report.graph, sandbox.described) == (True, [], GRAPH, ["q"])


def test_a_program_with_errors_is_not_built() -> None:
    sandbox = FakeSandbox(Description(graph=GRAPH))
    report = checked(sandbox, GOOD.replace("strategy=", "strat="))
    assert not report.ok
    assert report.graph is None
    assert sandbox.described == []


def test_build_errors_and_unreachable_nodes_are_merged_without_repetition() -> None:
    source = GOOD + "third = AgentNode('Third', 'p')\nfor n in range(2):\n    AgentNode(f'N{n}', 'p').process\n"
    static = [finding.message for finding in check_source(source)]
    assert len([message for message in static if "'Third'" in message]) == 1
    report = checked(FakeSandbox(Description(graph=GRAPH, unreachable=["Third", "N0", "First"])), source)
    assert report.ok
    assert [f.line for f in report.findings if "'Third'" in f.message] == [8]
    assert [f.line for f in report.findings if "'First'" in f.message] == [3], "the jail's names get their lines"
    assert [f.line for f in report.findings if "'N0'" in f.message] == [0]
    failed = Finding(line=6, code="build-failed", message="building the workflow failed: x")
    assert not checked(FakeSandbox(Description(findings=[failed]))).ok


def test_no_graph_and_no_reason_is_an_error() -> None:
    assert [finding.code for finding in checked(FakeSandbox(Description())).findings] == ["no-workflow"]


def test_limits_and_failures_of_the_jail_become_findings() -> None:
    good = Description(graph=GRAPH)
    slow = checked(FakeSandbox(good, LimitExceeded("cpu_s", 10, 10)))
    assert (slow.ok, slow.findings[0].code, "cpu_s" in slow.findings[0].message) == (False, "too-complex", True)
    with pytest.raises(SandboxUnavailable, match=r"too little of the processor.* Fix: run less"):  # the machine's fault
        checked(FakeSandbox(good, LimitExceeded("wall_s", 60, 60)))
    died = checked(FakeSandbox(good, ProgramFailed("Died", "signal 11")))
    assert (died.ok, "signal 11" in died.findings[0].message) == (False, True)
    with pytest.raises(ProgramFailed, match="KeyError"):  # a defect of the check, not of the program
        checked(FakeSandbox(good, ProgramFailed("KeyError", "x")))
    endless = checked(FakeSandbox(LimitExceeded("cpu_s", 10, 10)))
    assert (endless.ok, endless.findings[0].code) == (False, "build-failed")
    assert "every loop outside of functions ends" in endless.findings[0].fix


def test_an_unavailable_sandbox_is_raised() -> None:
    with pytest.raises(SandboxUnavailable):
        checked(FakeSandbox(SandboxUnavailable("no jail")))
    with pytest.raises(SandboxUnavailable):
        checked(FakeSandbox(Description(), SandboxUnavailable("no jail")))


def test_oversized_source_never_reaches_the_jail() -> None:
    report = checked(FakeSandbox(Description(), AssertionError("was called")), "#" * (MAX_SOURCE_BYTES + 1))
    assert [finding.code for finding in report.findings] == ["too-large"]


def test_in_a_real_jail() -> None:
    """The jail adds the graph, what only building shows, and walls around hostile source."""
    fails = GOOD + "prompts = {}\nprint(prompts['First'])\n"
    bomb = "from workflow import Workflow\nx = " + "[" * 150 + "]" * 150 + "\nx = " + "-" * 90_000 + "1\n"
    sources = [GOOD, GOOD_PROGRAMS["nodes of its own"], GOOD_PROGRAMS["function that builds all"], fails, bomb]

    async def check_all() -> list[CheckReport]:
        async with ProcessSandbox(preload=("designer.check",)) as sandbox:
            return [await check_program(source, sandbox, "q") for source in sources]

    good, own, hidden, failing, hostile = asyncio.run(check_all())
    assert (good.ok, good.findings) == (True, [])
    assert good.graph is not None
    assert [node.name for node in good.graph.walk()] == ["good", "Both", "First", "Second"]
    assert (own.ok, own.findings) == (True, [])
    assert [(f.code, f.line, "'Seen'" in f.message) for f in hidden.findings] == [("unreachable-node", 21, True)]
    assert [(f.code, f.line, "KeyError" in f.message) for f in failing.findings] == [("build-failed", 9, True)]
    assert [finding.code for finding in hostile.findings] == ["too-complex"]


# The published contract


PUBLISHED = {
    "modules": """
        from workflow.core import ToolRegistry, Message, MessageType
        from workflow.nodes.agent_node import AgentNode
        from workflow.nodes.ensemble_node import EnsembleNode
        from workflow.workflow import Workflow
        from utils.environments.math_env import MathEnvironment, python_execute
        import workflow.graph as graphs
        import workflow.nodes.router_node as routers
        print(MessageType.FINAL_RESULT, MessageType.TOOL_CALL, MathEnvironment(timeout=3).execute("1"))
        a = AgentNode("A", "\\\\boxed{}", description="d", role="r", temperature=0.5, top_p=0.9, max_tokens=100)
        route = routers.create_keyword_router("R", {"sum": a}, a)
        graph = graphs.AgentGraph().add_node("a", a).add_node(node=route).set_entry_point(node_name="a")
        graph.add_edge("a", "R", condition=lambda context: True).add_conditional_edges("R", routing_func=lambda c: "a")
        graph.run(input_message=question, initial_state={})
        print(graph.run(question).to_dict(), Message.from_dict({"content": "x", "type": "error"}))
        """,
    "chains": """
        from workflow import AgentNode, Context, Workflow, create_simple_chain
        a, b = AgentNode("A", "\\\\boxed{}"), AgentNode("B", "p")
        c = AgentNode("C", "p")
        first = create_simple_chain(("one", a), ("two", b))
        first.add_node("three", c).add_edge("two", "three")
        second = create_simple_chain([AgentNode("D", "p")], name="second")
        second.run_with_context(Context())
        first.run(question)
        """,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_programs_of_the_published_contract_have_no_findings(name: str) -> None:
    assert check_source(dedent(PUBLISHED[name])) == []


def test_a_wrong_module_or_name_of_the_published_contract_is_still_found() -> None:
    wrong = [
        ("from workflow.core import Workflow", "write: from workflow import Workflow"),
        ("from workflow.compat import CompatBaseAgent", "AgentNode(name, system_prompt)"),
        ("from utils.environments.search_env import SearchEnvironment", "no network"),
        ("from workflow.graph import describe", "it offers"),
    ]
    for line, fix in wrong:
        found = matching(program(f"{line}\n{line.split()[-1]}\n"), "unknown-import", "error")
        assert any(fix in finding.fix for finding in found), (line, found)
    misspelt = "from workflow import AgentGraph\nAgentGraph().set_entry_point(node_nam='a')\n"
    assert any("'node" in finding.fix for finding in check_source(misspelt))


USES_OF_OUTPUT = (
    "assert r.stdout.strip() == '42'",
    "print(json.loads(r.stdout)['x'])",
    "print(r.stderr.strip().splitlines()[-1])",
)
RUNS_CODE = """
import json, subprocess, sys
r = subprocess.run([sys.executable, "-c", "x"], capture_output=True, text=True)
{use}
from workflow import AgentNode, Workflow
workflow = Workflow("w").add_node(AgentNode("a", "Put it in \\\\boxed{{}}."))
"""


def checked_in_jail(*sources: str) -> list[CheckReport]:
    async def main() -> list[CheckReport]:
        async with ProcessSandbox(preload=("designer.check",)) as sandbox:
            return [await check_program(source, sandbox) for source in sources]

    return asyncio.run(main())


def test_what_is_done_with_the_output_of_code_while_building_is_not_held_against_the_program() -> None:
    for report in checked_in_jail(*(RUNS_CODE.format(use=use) for use in USES_OF_OUTPUT)):
        assert report.ok, report.findings
        unclear = [finding for finding in report.findings if finding.code == "build-unclear"]
        assert [finding.line for finding in unclear] == [4]
        assert "Error: " in unclear[0].message
        assert "in a tool" in unclear[0].fix


def test_advice_about_a_limit_is_what_a_program_can_do() -> None:
    hungry = "held = []\nwhile True: held.append('x' * 10_000_000)\n"
    (report,) = checked_in_jail(hungry + RUNS_CODE.format(use=""))
    assert [finding.code for finding in report.findings] == ["build-failed"]
    assert "Limits." not in str(report.findings[0])
    assert "memory" in report.findings[0].fix


@pytest.mark.parametrize(
    "source", ["import sys\nsys.exc_inf()", "import json\njson.lod", "import time\ntime.timeit(1)"]
)
def test_names_that_are_only_alike_are_not_advised(source: str) -> None:
    fixes = [finding.fix for finding in check_source(source) if finding.code == "unknown-import"]
    assert len(fixes) == 1
    assert "version_info" not in fixes[0].partition("did you mean")[2]
