# ruff: noqa: E501  (hostile one-liners)
"""Programs that misuse what the published contract offers: tools as mappings, dicts of messages, the stand-in that runs
code, runs on a context, modules, names in graphs, an agent's own sampling."""

from __future__ import annotations

from sandbox.conformance.attacks.attack import REFUSED, Attack, programs

TOOL = "from workflow import ToolRegistry\ntools = ToolRegistry()\ntools.register('n', print)\ntool = tools.get_tool('n')\n"
RUNNER = "from utils.environments.math_env import MathEnvironment\n"
DOORS = {
    "a tool's function and what it knows": TOOL + "keep(tool['function'].__globals__)",
    "another key of a tool": TOOL + "keep(tool['__class__'])",
    "the entries of a tool": TOOL + "keep(tool._entries())",
    "a tool changed by item": TOOL + "tool['function'] = keep; keep('ESCAPED')",
    "a tool's get on another object": TOOL + "keep(type(tool).get(keep, 'function'))",
    "the function behind from_dict": "from workflow import Message; keep(Message.from_dict.__func__.__globals__)",
    "from_dict for another class": "from workflow import Message; keep(Message.from_dict.__func__(dict, {}))",
    "a message of an unknown type": "from workflow import Message; keep(Message.from_dict({'content': 'x', 'type': print}))",
    "a message that is no text": "from workflow import Message; keep(Message.from_dict({'content': keep, 'type': 'error'}))",
    "the logger's function": "from workflow import AgentNode; keep(AgentNode('n', 'p').logger.info.__func__)",
    "a logger for everybody": "from workflow import WorkflowNode; WorkflowNode.logger = keep; keep('ESCAPED')",
    "a logger with a method of one's own": "from workflow import AgentNode; AgentNode('n', 'p').logger.info = keep; keep('ESCAPED')",
    "other names of an argument": "from workflow import Workflow; keep(Workflow.run._other_names)",
    "the function without its checks": "from workflow import Workflow; keep(Workflow.run.__wrapped__)",
    "a run of what is no workflow": "from workflow import Workflow; keep(Workflow.run_with_context(3, None))",
    "a context that is none": "from workflow import Workflow; keep(Workflow('w').run_with_context({'messages': []}))",
    "the helper of run_with_context": "from workflow.flows import InContext; keep(InContext)",
    "host code of the graph module": "from workflow.graph import describe; keep(describe)",
    "the table of modules": "import workflow.published; keep(workflow.published)",
    "a module of the contract changed": "import workflow.core; workflow.core.Message = keep; keep('ESCAPED')",
    "utils of the machine": "import utils; keep(utils.os)",
    "the search of the machine": "from utils.environments.search_env import SearchEnvironment; keep(SearchEnvironment)",
    "the runner's channel": RUNNER + "keep(MathEnvironment.execute.__closure__)",
    "the runner's slots": RUNNER + "keep(MathEnvironment.timeout)",
    "the runner on another object": RUNNER + "keep(MathEnvironment.execute(keep, 'print(1)'))",
    "a runner with an odd timeout": RUNNER + "keep(MathEnvironment(timeout=float('nan')).execute('print(1)'))",
    "a runner changed for everybody": RUNNER + "MathEnvironment.execute = keep; keep('ESCAPED')",
}
SPOILT = {
    "a runner whose timeout is no number": """
        class Runner(MathEnvironment):
            def spoil(self):
                self.timeout = [1]
        runner = Runner()
        runner.spoil()
        keep(runner.execute('print(1)'))
        """,
    "code that is no text": """
        class Code(str):
            def strip(self): return self
        keep(MathEnvironment().execute(Code('print(1)')))
        """,
}
SAMPLING = """
from workflow import AgentNode, Workflow
agent = AgentNode('n', 'p')
agent.{}
workflow = Workflow('w').add_node(agent)
workflow.run('q')
print('ESCAPED')
"""
GRAPH = """
from workflow import AgentGraph, AgentNode
class Name(str):
    def __hash__(self): return hash('a')
    def __eq__(self, other): return True
graph = AgentGraph().add_node('a', AgentNode('n', 'p'))
graph.add_conditional_edges('a', lambda context: Name('nobody'))
graph.run('q')
"""

ATTACKS = [
    *programs("doors of the contract", DOORS, control=False),
    *programs(
        "doors of the contract",
        {
            name: RUNNER + "\n".join(line[8:] for line in source.strip("\n").split("\n"))
            for name, source in SPOILT.items()
        },
        control=False,
    ),
    *(
        Attack("doors of the contract", f"sampling: {change}", "program", SAMPLING.format(change), ends=REFUSED)
        for change in ("temperature = float('nan')", "max_tokens = 10**9", "top_p = 'x'", "temperature = [0.1]")
    ),
    Attack(
        "doors of the contract",
        "a node's name that is never the same",
        "program",
        GRAPH,
        ends=("answer", *REFUSED, "limit:agent_calls"),
        limits={"agent_calls": 20},
    ),
]
