"""Programs as the published contract has them, in a jail: modules, runner of code, judges, several workflows."""

from __future__ import annotations

import pytest

from workflow.completion import Completion, CompletionRequest
from workflow.published import MODULES
from workflow.trace import AgentTurn, CodeRan


class Canned:
    """An engine whose agents say what a table says, in order."""

    name = "canned"

    def __init__(self, **replies: list[str]) -> None:
        self.replies = {agent: list(texts) for agent, texts in replies.items()}
        self.asked: list[str] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append(request.agent)
        return Completion(text=self.replies[request.agent].pop(0))

    async def close(self) -> None: ...


def run(jail, source, engine, **more):
    done = jail.run(jail.sandbox.run_program(source, "What is 6 * 7?", engine=engine, **more))
    assert done.failure is None, done.failure
    return done


IMPORTS = "\n".join(
    [
        *(f"from {module} import {', '.join(names)}" for module, names in MODULES.items()),
        "import workflow.nodes.agent_node",
        "import workflow.core as core",
        "assert core.Message is workflow.Message and workflow.nodes.agent_node.AgentNode is AgentNode",
    ]
)


def test_all_modules_can_be_imported_in_a_program(jail):
    source = IMPORTS + "\nflow = Workflow('w').add_node(AgentNode('A', 'p'))\n"
    assert run(jail, source, Canned(A=["done"])).answer == "done"


JUDGED = """
from workflow import AgentNode, Workflow, ToolRegistry
from workflow.nodes import EnsembleNode
tools = ToolRegistry()
solvers = [AgentNode(name=f"S{i}", system_prompt="Solve.", tool_registry=tools, max_turns=1) for i in range(3)]
judge = AgentNode(name="Judge", system_prompt="Decide. Answer in \\\\boxed{}.", tool_registry=tools, max_turns=1)
vote = EnsembleNode(name="Vote", agents=solvers, strategy="majority_vote", consensus_agent=judge)
workflow = Workflow(name="vote")
workflow.add_node(vote)
result = workflow.run(question)
print(result.content)
"""


@pytest.mark.parametrize(("third", "asked"), [(r"\boxed{42}", False), (r"\boxed{41}", True)])
def test_split_votes_reach_the_judge(jail, third, asked):
    engine = Canned(S0=[r"\boxed{42}"], S1=[r"\boxed{42}"], S2=[third], Judge=[r"It is \boxed{42}."])
    done = run(jail, JUDGED, engine)
    assert ("Judge" in engine.asked, done.answer) == (asked, r"It is \boxed{42}." if asked else r"\boxed{42}")
    described = jail.run(jail.sandbox.describe(JUDGED))
    assert described.unreachable == []
    assert "Judge" in {node.name for node in described.graph.walk()}


COMPUTING = """
from workflow import AgentNode, Workflow, ToolRegistry
from utils.environments.math_env import MathEnvironment
runner = MathEnvironment(timeout=20)
tools = ToolRegistry()
tools.register(name="python_execute", func=runner.execute, description="Runs Python code.",
               parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]})
solver = AgentNode(name="Solver", system_prompt="Compute.", tool_registry=tools, max_turns=4)
workflow = Workflow(name="w").add_node(solver)
print(workflow.run(question).content)
"""


def test_agents_compute_with_the_published_runner(jail):
    block, broken = "```python\nprint(6 * 7)\n```", "```python\n1 / 0\n```"
    call = '<tool_call>{"name": "python_execute", "arguments": {"code": "print(1)"}}</tool_call>'
    done = run(jail, COMPUTING, Canned(Solver=[block, broken, call, r"\boxed{42}"]))
    assert [event.stdout for event in done.trace.events if isinstance(event, CodeRan)] == ["42\n", "", "1\n"]
    turns = [event for event in done.trace.events if isinstance(event, AgentTurn)]
    assert turns[1].messages[-1]["content"] == "Executed successfully.\nOutput: 42"
    assert turns[2].messages[-1]["content"].startswith("Error (exit status 1):\n")
    assert "ZeroDivisionError" in turns[2].messages[-1]["content"]
    assert done.answer == r"\boxed{42}"


SEARCHING = "from utils.environments.search_env import SearchEnvironment\nSearchEnvironment\n" + COMPUTING


def test_the_published_search_is_refused_with_its_reason(jail):
    done = jail.run(jail.sandbox.run_program(SEARCHING, "?", engine=Canned()))
    assert "no network" in done.failure.message


TWICE = """
from workflow import AgentNode, Workflow
drafter, critic, spare = AgentNode("Drafter", "Draft."), AgentNode("Critic", "Check."), AgentNode("Spare", "x")
draft = Workflow("draft").add_node(drafter).run(question)
review = Workflow("review")
review.add_node(critic)
final = review.run(question + draft.content)
answer = final.content
"""


def test_a_program_that_runs_two_workflows_is_shown_whole(jail):
    described = jail.run(jail.sandbox.describe(TWICE))
    assert (described.graph.kind, described.graph.detail) == ("Program", "runs 2 workflows itself")
    assert [child.name for child in described.graph.children] == ["draft", "review"]
    assert described.unreachable == ["Spare"]


@pytest.mark.parametrize(
    ("between", "shown"),
    [
        ("1 / 0", ["draft"]),
        ("while True: pass", ["draft"]),
        ("x = ' ' * 10 ** 12", ["draft"]),
        ("", ["draft", "review"]),
    ],
)
def test_what_is_known_is_shown_where_the_rest_depends_on_replies(jail, monkeypatch, between, shown):
    monkeypatch.setattr("sandbox.host.broker.MORE_S", 0.5)
    source = TWICE.replace("review = Workflow", f"{between}\nreview = Workflow")
    described = jail.run(jail.sandbox.describe(source))
    assert described.findings == []
    names = [described.graph.name] if len(shown) == 1 else [child.name for child in described.graph.children]
    assert names == shown
    assert described.unreachable == ([] if between else ["Spare"])


LOOPING = """
from workflow import AgentNode, Workflow
import subprocess, sys
before = subprocess.run([sys.executable, "-c", "print(2)"], capture_output=True, text=True).stdout
flow = Workflow("again").add_node(AgentNode("A", "p"))
while True:
    if flow.run(before).content == "never said":
        break
"""


def test_a_program_that_waits_for_a_reply_that_never_comes_is_shown_all_the_same(jail):
    described = jail.run(jail.sandbox.describe(LOOPING))
    assert (described.graph.name, described.findings, described.unreachable) == ("again", [], [])


OWN = """
from workflow import AgentNode, Workflow
solver = AgentNode("Solver", "p", temperature=0.25, top_p=0.5, max_tokens=100_000)
workflow = Workflow("w").add_node(solver)
"""


@pytest.mark.parametrize("own", [True, False])
def test_own_sampling_counts_where_it_should_and_the_trace_says_where_not(jail, own):
    done = run(jail, OWN, Canned(Solver=["x"]), own_sampling=own)
    [turn] = done.trace.agent_turns
    sampling = (turn.sampling.temperature, turn.sampling.top_p, turn.sampling.max_tokens)
    if own:  # a program can lower the limit of tokens and not raise it
        assert (sampling, turn.overruled) == ((0.25, 0.5, 8192), {"max_tokens": 100_000})
    else:
        assert (sampling, turn.overruled) == (
            (1.0, 1.0, 8192),
            {"temperature": 0.25, "top_p": 0.5, "max_tokens": 100_000},
        )
