"""`metaagent search` and `metaagent eval --search` from their arguments to their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import document, invoke
from replying_server import ReplyingServer

from engine import retries
from search.problem import read_tree
from viewer import open_site, write

TWO = """\
from workflow import AgentNode, Workflow
first, last = AgentNode("First", "Think.", max_turns=1), AgentNode("Last", "Answer.", max_turns=1)
workflow = Workflow("two").add_nodes([first, last])
"""
NOBODY = """\
from workflow import Workflow, WorkflowNode
class Four(WorkflowNode):
    def process(self, context):
        return "\\\\boxed{4}"
workflow = Workflow("w").add_node(Four("four"))
"""
QUESTION = "What is 2 + 2?"
ORACLE = ("--prm", "oracle", "--gold", "4")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)
    (tmp_path / "two.py").write_text(TWO)
    (tmp_path / "nobody.py").write_text(NOBODY)
    problems = [
        {"id": f"p/{n}", "question": f"What is {n} + {n}?", "domain": "math", "gold": str(2 * n)} for n in (1, 2)
    ]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    (tmp_path / "empty.jsonl").write_text("")


def search(engine: str, *more: str, program: str = "two.py") -> list[str]:
    return ["search", program, "-e", engine, *more]


ONE = """\
from workflow import AgentNode, Workflow
workflow = Workflow("one").add_node(AgentNode("Solver", "Answer.", max_turns=1))
"""


def said(*replies: str) -> str:
    lines = (json.dumps({"agent": "Solver", "reply": reply}) + "\n" for reply in replies)
    Path("replies.jsonl").write_text("".join(lines))
    Path("one.py").write_text(ONE)
    return "replay:replies.jsonl"


VOTE = ("--method", "majority", "--samples", "3")


def test_what_is_graded_is_what_votes_for_one_problem_as_for_many(tmp_path: Path) -> None:
    replies = ("It is 5.", "It is 5.", "So \\boxed{4}.")
    alone = document(invoke(*search(said(*replies), QUESTION, *VOTE, "--gold", "4", "--json", program="one.py")))
    assert (alone["report"]["answer"], alone["report"]["correct"]) == ("4", True)
    (tmp_path / "one.jsonl").write_text(json.dumps({"id": "p", "question": QUESTION, "domain": "math", "gold": "4"}))
    many = ("--problems", "problems:one.jsonl", *VOTE, "--json")
    found = document(invoke(*search(said(*replies), *many, program="one.py")))
    assert found["report"]["accuracy"]["estimate"] == 1.0


VOID = "--tokens 5 ends nothing: the engine counts no tokens. Fix: --agent-calls, or an engine that does"


def test_a_budget_of_tokens_that_nobody_counts_is_told(tmp_path: Path) -> None:
    replies = ["So \\boxed{4}."] * 3
    asked = search(said(*replies), QUESTION, *VOTE, "--tokens", "5", program="one.py")
    assert VOID in " ".join(invoke(*asked).stderr.split())
    said(*replies)
    assert document(invoke(*asked, "--json"))["notes"] == [VOID]
    (tmp_path / "one.jsonl").write_text(json.dumps({"id": "p", "question": QUESTION, "domain": "math", "gold": "4"}))
    many = ("--problems", "problems:one.jsonl", *VOTE, "--tokens", "5", "--json")
    assert document(invoke(*search(said(*replies), *many, program="one.py")))["notes"] == [VOID]
    alone = ("run", "one.py", QUESTION, "-e", said(*replies[:1]), "--json")
    assert document(invoke(*alone, "--tokens", "5"))["notes"] == [VOID]
    assert document(invoke(*alone))["notes"] == []
    with ReplyingServer() as server:
        assert document(invoke(*search(server.spec, QUESTION, *VOTE, "--tokens", "5", "--json")))["notes"] == []


def test_without_a_gold_answer_all_of_a_message_may_be_one() -> None:
    replies = ("It is 5.", "It is 5.", "So \\boxed{4}.")
    found = invoke(*search(said(*replies), QUESTION, *VOTE, "--json", program="one.py"))
    assert (found.exit_code, document(found)["report"]["answer"]) == (0, "It is 5.")


def test_a_message_that_answers_nothing_is_shown_and_is_wrong() -> None:
    asked = search(said(*["It is 4."] * 3), QUESTION, *VOTE, "--gold", "4", program="one.py")
    told = invoke(*asked)
    assert told.exit_code == 1
    assert "It is 4." in told.stdout
    found = document(
        invoke(*search(said(*["It is 4."] * 3), QUESTION, *VOTE, "--gold", "4", "--json", program="one.py"))
    )
    assert (found["report"]["answer"], found["report"]["correct"], found["message"]) == (None, False, "It is 4.")


def test_the_answer_its_path_and_what_it_cost(tmp_path: Path) -> None:
    with ReplyingServer() as server:
        files = ("--trace", "t.jsonl", "--tree", "tree.jsonl")
        result = invoke(*search(server.spec, QUESTION, *ORACLE, *files, "--json"))
        asked = len(server.asked)
        told = invoke(*search(server.spec, QUESTION, *ORACLE, "--trace", "again.jsonl", "--tree", "again-tree.jsonl"))
    report: dict[str, Any] = document(result)["report"]
    assert (result.exit_code, report["answer"], report["correct"], report["method"]) == (0, "4", True, "mcts")
    assert report["agent_calls"] == asked == len(server.asked) / 2
    assert (report["generated_tokens"], report["prompt_tokens"]) == (3 * asked, 12 * asked)
    assert [each["agent"] for each in report["path"]] == ["First", "Last"]
    assert report["path"][-1]["value"] == 1.0
    record = read_tree(tmp_path / "tree.jsonl")
    assert len(record.nodes) - 1 == report["nodes"]
    assert record.chosen is not None
    assert (tmp_path / "tree.jsonl").read_bytes() == (tmp_path / "again-tree.jsonl").read_bytes()
    assert told.exit_code == 0
    assert "correct (gold 4)" in told.stdout
    assert "mcts, guided by oracle" in told.stdout
    assert f"{asked}, {report['nodes']} of them different" in told.stdout
    # What other commands make of the trace
    shown = invoke("trace", "t.jsonl").stdout
    assert "V 1" in shown
    assert "one of 3" in shown
    site = open_site(tmp_path / "t.jsonl")
    assert write(site, tmp_path / "page.html")
    assert "one of 3" in (tmp_path / "page.html").read_text()
    again = document(invoke("run", "two.py", QUESTION, "-e", "replay:t.jsonl", "--json"))
    assert (again["failure"], again["answer"]) == (None, "4")
    assert not [each for each in again["notes"] if "not asked for" in each]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("more", "stopped", "calls"),
    [
        (("--agent-calls", "7"), "agent_calls", 6),
        (("--tokens", "10"), "tokens", 4),
        (("--agent-calls", "2"), "agent_calls", 2),
        (("--wall", "0.3"), "wall_s", None),
    ],
)
def test_budgets_end_it_with_the_best_so_far_and_are_told(
    more: tuple[str, ...], stopped: str, calls: int | None
) -> None:
    with ReplyingServer(pause_s=30 if calls is None else 0) as server:
        told = invoke(*search(server.spec, QUESTION, *ORACLE, "--simulations", "200", *more, "--json"))
        report = document(told)["report"]
        assert report["stopped_by"] == stopped
        if calls is not None:
            assert report["agent_calls"] == len(server.asked) == calls
        assert told.exit_code == (0 if report["correct"] else 1)
        if stopped == "agent_calls":
            people = invoke(*search(server.spec, QUESTION, *ORACLE, "--simulations", "200", *more))
            best = "this is the best that had ended" if report["path"] else "no run had ended"
            assert f"--agent-calls ended the search: {best}" in people.stderr


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--method", "astar"), "--method astar"),
        (("--children", "0"), "--children 0"),
        (("--beam", "0"), "--beam 0"),
        (("--samples", "0"), "--samples 0"),
        (("--simulations", "-3"), "--simulations -3"),
        (("--c-uct", "-0.5"), "--c-uct -0.5"),
        (("--c-uct", "inf"), "--c-uct inf"),
        (("--mix", "1.5"), "--mix 1.5"),
        (("--mix", "-0.1"), "--mix -0.1"),
        (("--parallel", "0"), "--parallel 0"),
        (("--stop", "never"), "--stop never"),
        (("--agent-calls", "0"), "--agent-calls 0"),
        (("--tokens", "0"), "--tokens 0"),
        (("--wall", "0"), "--wall 0"),
        (("--weights", "values"), "weights=values are those of votes"),
        (("--method", "beam", "--mix", "0.5"), "mix=0.5 is Eq. 3's"),
        (("--out", "kept"), "--out and --limit go with --problems"),
        (("--limit", "2"), "--out and --limit go with --problems"),
        (("--problems", "problems:own.jsonl", "--gold", "4"), "--gold goes with one problem"),
        (("--problems", "problems:own.jsonl", "--tree", "t"), "--tree goes with one problem"),
        (("--trace", "own.jsonl"), "no trace"),
        (("--tree", "own.jsonl"), "no tree"),
    ],
)
def test_what_is_no_search_is_a_usage_error(more: tuple[str, ...], named: str, tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    result = invoke(*search("replay:empty.jsonl", QUESTION, *more))
    assert result.exit_code == 2
    assert named in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.thorough
def test_what_cannot_be_searched_is_a_usage_error_with_a_fix_before_anybody_is_asked(tmp_path: Path) -> None:
    with ReplyingServer() as server:
        for more, program, named in (
            ((), "two.py", "psi needs those of the one sampled from"),
            (("--prm", "oracle"), "two.py", "the oracle grades, and nothing says what is right"),
            ((*ORACLE, "--method", "majority"), "two.py", "votes with weights none"),
            (ORACLE, "nobody.py", "the program asks no agent"),
        ):
            result = invoke(*search(server.spec, QUESTION, *more, "--tree", "tree.jsonl", program=program))
            assert (result.exit_code, len(server.asked)) == (2, 0), named
            assert named in result.stderr
            assert "Fix: " in result.stderr
        assert not (tmp_path / "tree.jsonl").exists() or (tmp_path / "tree.jsonl").read_text().count("\n") < 3


@pytest.mark.thorough
def test_a_file_of_problems_is_searched_and_goes_on(tmp_path: Path) -> None:
    with ReplyingServer() as server:
        oracle = ("--prm", "oracle", "--simulations", "6")
        problems = search(server.spec, "--problems", "problems:own.jsonl", *oracle, "--out", "out")
        told = document(invoke(*problems, "--json"))
        asked = len(server.asked)
        again = invoke(*problems)
        assert len(server.asked) == asked, "what is there is not done again"
        by_eval = ("eval", "problems:own.jsonl", "-e", server.spec, "-d", "two.py", "--k", "1", "--search", "mcts")
        evaluation = document(invoke(*by_eval, *oracle, "--temperature", "0.7", "--max-tokens", "1024", "--json"))
        refused = invoke(*problems, "--c-uct", "1")
    report = told["report"]
    assert report["search"]["agent_calls"] == asked / 2
    assert report["usage"]["calls"] == asked
    assert (report["search"]["method"], report["search"]["guide"]) == ("mcts", "oracle")
    assert len([*(tmp_path / "out" / "trees").iterdir()]) == 2
    assert evaluation["report"]["search"]["method"] == "mcts"
    assert again.exit_code == 0
    assert "oracle" in again.stdout
    assert refused.exit_code == 2
    assert "search.c_uct=4.0, not 1.0" in refused.stderr
    for option in (("--prm", "oracle"), ("--beam", "2"), ("--wall", "3")):
        result = invoke("eval", "problems:own.jsonl", "-e", "replay:empty.jsonl", *option)
        assert result.exit_code == 2
        assert "--search METHOD" in result.stderr
