"""Every template runs to its end, within the number of agent calls that it declares, and behaves as it says."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Mapping

import pytest
from canned_runs import TOOL_CALL, run, stubborn, values_of, willing

from templates import get_template, load_templates
from workflow import ToolRegistry
from workflow.requests import AgentCall
from workflow.text import last_boxed, solution_block

NAMES = [template.name for template in load_templates()]
CALLS = {template.name: template.agent_calls for template in load_templates()}


@pytest.mark.parametrize("name", NAMES)
def test_fewest_calls_and_an_answer(name: str) -> None:
    outcome = run(name, willing)
    assert len(outcome.calls) == CALLS[name][0]
    if name.startswith("code"):
        assert solution_block(outcome.message.content) == "def f():\n    return 7"
    else:
        assert last_boxed(outcome.message.content) == "7"


@pytest.mark.parametrize("name", NAMES)
def test_most_calls_and_still_an_answer(name: str) -> None:
    outcome = run(name, stubborn(), tool_output="stdout:\n7\n")
    assert len(outcome.calls) == CALLS[name][1]
    assert last_boxed(outcome.message.content) is not None


@pytest.mark.parametrize("name", [t.name for t in load_templates() if "tool_registry=tools" in t.source])
def test_tools_really_run_and_their_output_comes_back(name: str) -> None:
    called: set[str] = set()

    def reply(call: AgentCall) -> str:
        if call.tools and call.turn == 0:
            called.add(call.agent)
            return TOOL_CALL
        return willing(call) if not name.startswith("router") else willing(call).replace("OTHER", "MATH")

    outcome = run(name, reply)
    assert called
    assert {result.agent for result in outcome.results} == called
    assert {result.content for result in outcome.results} == {"stdout:\n7\n\n"}
    later = [call for call in outcome.calls if call.turn == 1]
    assert {call.agent for call in later} == called
    assert all(call.messages[-1] == {"role": "tool", "content": "stdout:\n7\n\n"} for call in later)


def test_the_code_tool_reports_errors_silence_and_long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = values_of(get_template("math_program_of_thought").source)["tools"]
    assert isinstance(registry, ToolRegistry)

    def execute(code: str) -> str:
        return registry.call_tool("execute_code", {"code": code})

    assert execute("pass") == "(nothing was printed)"
    assert "ZeroDivisionError" in execute("1 / 0")
    assert execute("print('a' * 9000, end='')").count("a") == 4000

    def too_long(*args: object, **options: object) -> None:
        raise subprocess.TimeoutExpired("python", 30)

    monkeypatch.setattr(subprocess, "run", too_long)
    assert "longer than 30 seconds" in execute("pass")


@pytest.mark.parametrize("name", NAMES)
def test_prompts_quote_the_slots_and_cannot_swallow_replies(name: str) -> None:
    template = get_template(name)
    values = values_of(template.source)
    runs = [run(name, willing), run(name, stubborn(), tool_output="7")]
    prompts = [call.messages[0]["content"] for outcome in runs for call in outcome.calls]
    for slot in template.slots:
        assert any(str(values[slot]) in prompt for prompt in prompts), f"no role quotes {slot}"
    for line in itertools.chain.from_iterable(prompt.splitlines() for prompt in prompts):
        # A reply's line that stands in its prompt counts as an echo, so no prompt may hold a line that is a reply.
        assert not re.fullmatch(r"\W*(?:final )?(?:verdict|next|type|confidence)\W+\w+\W*", line, re.IGNORECASE), line
        assert not re.search(r"\\boxed\{[^}]", line), line


def scripted(replies: Mapping[str, list[str]]) -> Callable[[AgentCall], str]:
    """Each agent gives its replies in order; running out is an error."""
    queues = {agent: list(texts) for agent, texts in replies.items()}
    return lambda call: queues[call.agent].pop(0)


def test_loop_until_tests_pass_reports_failures_and_stops() -> None:
    wrong = "<solution>\n```python\ndef f(x):\n    return x\n```\n</solution>"
    right = "<solution>\ndef f(x):\n    return x + 1\n</solution>"
    tests = 'As for f([1]):\n<tests>[{"call": "f(1)", "expected": "2"}, {"call": "f(-1)", "expected": "0"}]</tests>'
    outcome = run("code_loop_until_pass", scripted({"TestWriter": [tests], "Coder": ["no code", wrong, right]}))
    assert outcome.agents == ["TestWriter", "Coder", "Coder", "Coder"]
    assert outcome.message.content == right
    second, third = (call.messages[-1]["content"] for call in outcome.calls[2:])
    assert "no code inside <solution>" in second
    assert "### From TestRun" in third
    assert '{"call": "f(1)", "expected": "2"} failed' in third
    assert "returned 1" in third


@pytest.mark.parametrize(
    ("tests", "code", "passes"),
    [
        ('[{"stdin": "1 2\\n", "expected": "3"}]', "print(sum(map(int, input().split())))", True),
        ('[{"stdin": "1 2\\n", "expected": "3"}]', "print(4)", False),
        ('[{"stdin": "", "expected": "3"}]', "raise SystemExit(1)", False),
        ('[{"call": "g()", "expected": "[1, 2]"}]', "def g():\n    return [1, 2]", True),
        ("not JSON [", "print(1)", True),  # nothing to run
        ('[1, {"call": "g()"}]', "print(1)", True),
    ],
)
def test_loop_until_tests_pass_judges_by_running(tests: str, code: str, passes: bool) -> None:
    coder = [f"<solution>\n{code}\n</solution>"] * 4
    outcome = run("code_loop_until_pass", scripted({"TestWriter": [f"<tests>{tests}</tests>"], "Coder": coder}))
    assert outcome.agents.count("Coder") == (1 if passes else 4)


@pytest.mark.parametrize(
    ("verdicts", "agents"),
    [
        (["ACCEPT"], "PSV"),
        (["SOLVER", "ACCEPT"], "PSVSV"),
        (["PLANNER", "SOLVER", "PLANNER"], "PSVPSVSV"),
        (["forgotten"], "PSV"),
    ],
)
def test_graph_sends_the_work_back_to_who_erred(verdicts: list[str], agents: str) -> None:
    replies = scripted(
        {
            "Planner": ["<delivery>plan</delivery>"] * 4,
            "Solver": ["<delivery>\\boxed{6}</delivery>"] * 4,
            "Verifier": [f"\\boxed{{7}}\nNext: {verdict}" for verdict in verdicts],
        }
    )
    outcome = run("math_graph_replan", replies)
    assert "".join(agent[0] for agent in outcome.agents) == agents
    assert last_boxed(outcome.message.content) == "7"


@pytest.mark.parametrize(
    ("first", "second", "agents", "answer"),
    [
        ("\\boxed{7}\nConfidence: HIGH", "", ["FirstSolver"], "7"),
        ("\\boxed{7}\nConfidence: LOW", "\\boxed{ 7}", ["FirstSolver", "SecondSolver"], "7"),
        ("\\boxed{7}\nConfidence: LOW", "\\boxed{8}", ["FirstSolver", "SecondSolver", "Judge"], "9"),
        ("seven\nConfidence: HIGH", "\\boxed{8}", ["FirstSolver", "SecondSolver", "Judge"], "9"),
    ],
)
def test_second_opinion_is_asked_only_where_needed(first: str, second: str, agents: list[str], answer: str) -> None:
    replies = scripted({"FirstSolver": [first], "SecondSolver": [second], "Judge": ["\\boxed{9}"]})
    outcome = run("math_second_opinion", replies)
    assert outcome.agents == agents
    assert last_boxed(outcome.message.content) == answer


def test_reasoner_and_coder_repeat_until_they_agree() -> None:
    coder, reasoner = ["\\boxed{6}", "\\boxed{\\frac{7}{2}}"], ["\\boxed{5}", "\\boxed{ \\frac{7}{2} }"]
    outcome = run("math_reasoner_and_coder", scripted({"ToolUser": coder, "Reasoner": reasoner}))
    assert outcome.agents == ["ToolUser", "Reasoner"] * 2
    assert "### From Reasoner" in outcome.calls[2].messages[-1]["content"], "the second round sees the first"


@pytest.mark.parametrize(("kind", "agent"), [("MATH", "MathSolver"), ("code", "CodeSolver"), ("odd", "Generalist")])
def test_router_follows_the_classifier(kind: str, agent: str) -> None:
    replies = scripted({"Classifier": [f"A number is asked.\nType: {kind}"], agent: ["\\boxed{7}"]})
    assert run("router_by_type", replies).agents == ["Classifier", agent]


@pytest.mark.parametrize(("boxes", "winner"), [("7 8 9", "7"), ("7 8 8", "8")])
def test_weighted_vote_follows_the_computation_unless_both_reasoners_agree(boxes: str, winner: str) -> None:
    names = ("ComputingSolver", "DirectReasoner", "AlternativeReasoner")
    replies = scripted({name: [f"\\boxed{{{box}}}"] for name, box in zip(names, boxes.split(), strict=True)})
    assert last_boxed(run("math_weighted_vote", replies).message.content) == winner


@pytest.mark.parametrize(
    ("boxes", "calls", "winner"), [("5 5", 2, "5"), ("5 7 5 5", 4, "5"), ("1 2 3 4 2", 5, "2"), ("- - 4 4", 4, "4")]
)
def test_adaptive_vote_stops_when_an_answer_leads_by_two(boxes: str, calls: int, winner: str) -> None:
    texts = [f"\\boxed{{{box}}}" if box != "-" else "no idea" for box in boxes.split()]
    outcome = run("math_adaptive_vote", scripted({"Solver": texts}))
    assert len(outcome.calls) == calls
    assert last_boxed(outcome.message.content) == winner


def test_reflection_stops_at_correct_and_returns_the_solution() -> None:
    replies = scripted(
        {"MathSolver": ["\\boxed{6}", "\\boxed{7}"], "MathCritic": ["Wrong.\nVerdict: INCORRECT", "Verdict: CORRECT"]}
    )
    outcome = run("math_solver_critic", replies)
    assert outcome.agents == ["MathSolver", "MathCritic"] * 2
    assert last_boxed(outcome.message.content) == "7"
