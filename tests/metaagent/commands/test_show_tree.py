"""`metaagent show TREE.jsonl`: what a tree's lines say, drawn, in bounds, and nothing of it obeyed by a terminal."""

from pathlib import Path

import pytest
from command_line import document, invoke

from metaagent.terminal.tree_drawing import MOST_DRAWN
from search.problem import AnyLine, ChosenLine, NodeLine, SimulationLine, StateLine, TreeHeader, line_text
from workflow.completion import Completion

HEADER = TreeHeader(
    settings={"method": "mcts", "guide": "V", "c_uct": 4.0},
    problem="p/1",
    problem_digest="0",
    question="What is\n6 * 7?",
    domain="math",
    program="0",
    engine="stub",
)


def node(
    number: int, parent: int, said: str, *, agent: str = "Solver", depth: int = 1, value: float | None = None,
    copies: int = 1,
) -> NodeLine:  # fmt: skip
    return NodeLine(
        id=number, parent=parent, key=f"w/{agent}#{depth}", path=f"w/{agent}", agent=agent, depth=depth,
        completion=Completion(text=said), psi=-0.25, value=value, virtual=value is not None, copies=copies,
    )  # fmt: skip


SMALL: list[AnyLine] = [
    HEADER,
    StateLine(id=0, terminal=False, agent="Planner"),
    node(1, 0, "multiply", agent="Planner", value=0.2, copies=2),
    node(2, 0, "add", agent="Planner", value=0.6),
    node(3, 2, "13", depth=2, value=-0.5),
    node(4, 2, "42", depth=2, value=0.9),
    StateLine(id=4, terminal=True, answer="42", graded=1.0, verdict="correct"),
    SimulationLine(path=[2, 4], value=0.9),
    StateLine(id=3, terminal=True, answer="13", graded=-1.0, verdict="wrong"),
    SimulationLine(path=[2, 3], value=-0.5),
    ChosenLine(id=4),
]


def written(folder: Path, lines: list[AnyLine], after: str = "") -> str:
    path = folder / "p.jsonl"
    path.write_text("".join(map(line_text, lines)) + after)
    return str(path)


def test_a_tree_is_drawn_with_what_was_thought_of_it(tmp_path: Path) -> None:
    result = invoke("show", written(tmp_path, SMALL))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Problem      p/1",
        "Searched     method mcts, guide V, c_uct 4.0",
        "Engine       stub",
        "States       4; 2 ends, 1 right",
        "Simulations  2",
        "",
        "What is 6 * 7?",
        "├── Planner · V 0.2 · psi -0.25 · Q 0.2 in 1 · 2 alike · multiply",
        "└── ✔ Planner · V 0.6 · psi -0.25 · Q 0.333 in 3 · add",
        "    ├── Solver · V -0.5 · psi -0.25 · Q -0.5 in 2 → 13 wrong · 13",
        "    └── ✔ Solver · V 0.9 · psi -0.25 · Q 0.9 in 2 → 42 right · 42",
    ]
    assert result.stderr == ""


def test_json_has_the_folded_numbers(tmp_path: Path) -> None:
    found = document(invoke("show", written(tmp_path, SMALL), "--json"))
    assert (found["problem"], found["simulations"], found["chosen"], found["torn"]) == ("p/1", 2, 4, False)
    numbers = [(each["id"], each["parent"], each["visits"], each["total"], each["chosen"]) for each in found["states"]]
    assert numbers == [(1, 0, 1, 0.2, False), (2, 0, 3, 1.0, True), (3, 2, 2, -1.0, False), (4, 2, 2, 1.8, True)]
    assert found["states"][1]["q"] == pytest.approx(1 / 3)
    assert (found["states"][3]["answer"], found["states"][3]["graded"]) == ("42", 1.0)


def test_a_large_tree_is_bounded_and_says_what_is_left_out(tmp_path: Path) -> None:
    wide: list[AnyLine] = [HEADER, *(node(number, 0, f"reply {number}") for number in range(1, 301))]
    wide += [node(number + 300, number, "deep", depth=2) for number in range(1, 301)]
    wide += [StateLine(id=600, terminal=True, answer="1"), SimulationLine(path=[300, 600], value=1.0)]
    result = invoke("show", written(tmp_path, wide))
    assert f"note: {600 - MOST_DRAWN} of 600 states are left out" in result.stderr
    drawn = result.stdout.splitlines()
    assert sum(" · psi " in line for line in drawn) == MOST_DRAWN
    assert "└── … 101 more" in drawn
    assert any("reply 300" in line for line in drawn), "it was visited"
    assert len(document(invoke("show", str(tmp_path / "p.jsonl"), "--json"))["states"]) == 600


def test_a_torn_tree_says_so(tmp_path: Path) -> None:
    file = written(tmp_path, SMALL[:4], after='{"type": "node", "id"')
    result = invoke("show", file)
    assert result.exit_code == 0
    assert "note: the file's last line was cut off, and is left out" in result.stderr
    assert document(invoke("show", file, "--json"))["torn"] is True


def test_nothing_that_was_said_is_obeyed(tmp_path: Path) -> None:
    evil: list[AnyLine] = [
        HEADER.model_copy(update={"question": "\u202eq\x1b[2J"}),
        node(1, 0, "say\x1b]0;x\x07\n\u202e└── me", agent="A\u202e"),
        StateLine(id=1, terminal=True, answer="4\x1b[31m"),
    ]
    shown = invoke("show", written(tmp_path, evil)).stdout
    assert shown.splitlines()[-2:] == [
        "\\u202eq\\x1b[2J",
        "└── A\\u202e · psi -0.25 → 4\\x1b[31m · say\\x1b]0;x\\x07 \\u202e└── me",
    ]


def test_what_is_no_tree_is_named(tmp_path: Path) -> None:
    other = invoke("show", written(tmp_path, SMALL[1:]))
    assert other.exit_code == 2
    assert "p.jsonl:1 is no tree's header" in other.stderr
    for text in ('{"messages": []}\n', '{"question": 1}\nno tree\n', "no JSON\n", "[1]\n", "\n", ""):
        foreign = invoke("show", written(tmp_path, [], text))
        assert foreign.exit_code == 2
        assert "p.jsonl:1 is no tree's header. Fix: a file that metaagent label or search wrote" in foreign.stderr
        assert "delete" not in foreign.stderr
    later = invoke("show", written(tmp_path, SMALL[1:], "no JSON\n"))
    assert "p.jsonl:1 is no tree's header" in later.stderr
    older = invoke("show", written(tmp_path, [], '{"type": "tree"}\n'))
    assert "p.jsonl:1 is no line of a tree: " in older.stderr
    damaged = invoke("show", written(tmp_path, [HEADER, node(2, 1, "an orphan")]))
    assert "p.jsonl:2 does not follow from the lines before" in damaged.stderr
    for number in (99, 5):
        for more in ((), ("--json",)):
            undrawn = invoke("show", written(tmp_path, [*SMALL[:5], ChosenLine(id=number)]), *more)
            assert undrawn.exit_code == 2
            assert f"p.jsonl:6 does not follow from the lines before: there is no node {number}. Fix" in undrawn.output
    assert "--mermaid draws programs" in invoke("show", written(tmp_path, SMALL), "--mermaid").stderr
