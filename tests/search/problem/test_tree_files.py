"""Trees on disk: folding a file gives the search's numbers and choice, a tree that was cut off anywhere goes on to the
same bytes, and what is no part of this search is refused by its line."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from player import Player, WordScorer
from small_programs import labelled, lines_of, searched_for, short_word

from search.methods import MctsSettings, Node, SearchRefused
from search.problem import SearchSettings, TreeDamaged, TreeHeader, is_whole, read_lines, read_tree
from workflow.completion import Completion, CompletionRequest
from workflow.failures import LimitExceeded

SHAPES = st.text("aer", min_size=1, max_size=3)


def fallible(request: CompletionRequest) -> str:
    """Some calls are beyond the model's context."""
    said = short_word(request)
    if (request.sampling.seed or 0) % 7 == 0:
        raise LimitExceeded("context_tokens", 10, 11)
    return said


def in_figures(node: Node) -> list[object]:
    parent = None if node.parent is None else node.parent.id
    action, reply = node.action, None if node.action is None else node.action.reply
    said = reply if reply is None or isinstance(reply, Completion) else (reply.kind, reply.message)
    asked = None if action is None else (action.key, action.agent, said)
    figures = [node.visits, node.total, node.q, node.value, node.psi, node.virtual, node.copies]
    return [parent, node.number, node.depth, asked, *figures, node.seen, node.end, [each.id for each in node.children]]


def check_folds(path: Path, live: dict[int, Node]) -> None:
    record = read_tree(path)
    assert not record.torn
    assert record.nodes.keys() - {0} == live.keys()
    assert len(live) > 0
    for number, node in live.items():
        assert in_figures(record.nodes[number]) == in_figures(node)


@given(SHAPES, st.integers(0, 5), st.integers(1, 12), st.integers(1, 3), st.floats(0, 8), st.integers(0, 99))
@settings(max_examples=25)
def test_folding_labels_gives_what_the_search_had(
    shape: str, seed: int, simulations: int, children: int, c: float, arrival: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tree.jsonl")
        plan = MctsSettings(simulations=simulations, children=children, c_uct=c)
        live = labelled(shape, plan, path, Player(fallible, dice=random.Random(arrival)), seed=seed)
        check_folds(path, live)
        record = read_tree(path)
        assert len(record.simulations) == simulations
        assert {line.value for line in record.simulations} <= {-1.0, 1.0}
        assert sum(node.visits for node in record.root.children) == simulations
        failed = [node for node in live.values() if node.end is not None and node.end.failure]
        assert all(node.end is not None and node.end.reward == -1.0 for node in failed)


@given(
    SHAPES,
    st.sampled_from(["psi", "V", "oracle", "V and Y"]),
    st.builds(
        SearchSettings,
        method=st.sampled_from(["greedy", "majority", "beam", "mcts"]),
        beam=st.integers(1, 3),
        samples=st.integers(1, 3),
        first=st.booleans(),
        simulations=st.integers(1, 10),
        children=st.integers(1, 3),
        c_uct=st.floats(0, 8),
        stop=st.sampled_from(["ended", "expanded"]),
        parallel=st.integers(1, 3),
        agent_calls=st.none() | st.integers(1, 30),
        tokens=st.none() | st.integers(1, 60),
    ),
)
@settings(max_examples=50)
def test_folding_a_search_gives_its_numbers_and_its_choice(shape: str, guide: str, plan: SearchSettings) -> None:
    prm: object = {"psi": None, "oracle": "oracle"}.get(guide, WordScorer())
    orm = guide == "V and Y" and plan.method == "mcts"
    if plan.method == "greedy" or (plan.method == "majority" and prm == "oracle"):
        prm = None
    if plan.method == "majority" and prm is not None:
        plan = plan.model_copy(update={"weights": "values"})
    if orm:
        plan = plan.model_copy(update={"mix": 0.5})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tree.jsonl")
        engine = Player(fallible)
        found, live = searched_for(shape, plan, path, engine, prm=prm, orm=orm)
        report = found.report
        if not live:  # the budget allowed no draw
            assert report.stopped_by
            return
        check_folds(path, live)
        record = read_tree(path)
        assert record.chosen is not None
        assert record.chosen.stopped_by == report.stopped_by
        chosen = record.nodes[record.chosen.id]
        assert [node.action.key for node in chosen.path if node.action] == [each.key for each in report.path]
        assert (chosen.end is None) == (found.run is None)
        if chosen.end is not None and found.run is not None:
            assert (chosen.end.answer, chosen.end.failure) == (report.answer, report.failure)
            assert found.run.answer == chosen.end.answer
        if plan.method == "mcts" and not report.stopped_by:
            node = record.root
            while node.children:
                node = max(node.children, key=lambda child: child.q)
            assert node is chosen
        assert report.agent_calls == len(engine.asked)
        assert report.agent_calls == sum(node.copies for node in live.values())
        given = [each.usage for each in engine.given]
        assert report.generated_tokens == sum(each.completion_tokens for each in given)
        assert report.prompt_tokens == sum(each.prompt_tokens for each in given)


PLAN = MctsSettings(simulations=6, children=2)


def whole(path: Path, shape: str = "rea", reply=fallible, **more: int) -> bytes:
    labelled(shape, PLAN, path, Player(reply), **more)
    return path.read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("shape", ["ra", "ea"])
def test_labels_that_were_cut_off_anywhere_go_on_to_the_same_bytes(tmp_path: Path, shape: str) -> None:
    unbroken = whole(tmp_path / "whole", shape)
    total = len([line for line in read_lines(tmp_path / "whole")[0] if line.type == "node"])
    at, cuts = 0, [0]
    for line in lines_of(tmp_path / "whole"):
        cuts += [at + 1, at + len(line) // 2, at + len(line) - 1, at + len(line)]
        at += len(line)
    assert len(cuts) > 60
    for cut in cuts:
        path = tmp_path / "cut"
        path.write_bytes(unbroken[:cut])
        there = unbroken[:cut].count(b'{"type": "node"') - (b'{"type": "node"' in unbroken[:cut].rpartition(b"\n")[2])
        engine = Player(fallible)
        labelled(shape, PLAN, path, engine)
        assert path.read_bytes() == unbroken, f"cut at byte {cut}"
        assert len(engine.asked) == total - there, "what is there is not asked for again"


@pytest.mark.parametrize("most", [1, 2])
def test_how_many_runs_are_open_and_what_comes_first_change_no_byte(tmp_path: Path, most: int) -> None:
    unbroken = whole(tmp_path / "whole")
    for seed in range(3):
        path = tmp_path / f"{seed}"
        labelled("rea", PLAN, path, Player(fallible, dice=random.Random(seed)), most=most)
        assert path.read_bytes() == unbroken
    assert whole(tmp_path / "other", seed=1) != unbroken, "another seed draws other replies"


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    whole(tmp_path / "whole")
    lines = lines_of(tmp_path / "whole")
    path = tmp_path / "damaged"
    for number in range(len(lines)):
        fix = "delete the file" if number else "a file that metaagent label"  # it may be somebody else's
        no_path = b'{"type": "simulation", "path": [], "value": 1.0}'
        for wrong in (b"", b"\xff\xfe", b"{}", no_path, NOTHING_SAID, lines[number][:-9]):
            path.write_bytes(b"".join([*lines[:number], wrong + b"\n", *lines[number + 1 :]]))
            with pytest.raises(TreeDamaged, match=rf"damaged:{number + 1} is no .*Fix: "):
                read_tree(path)
            with pytest.raises(TreeDamaged, match=rf"damaged:{number + 1} is no .*Fix: {fix}"):
                labelled("rea", PLAN, path, Player(fallible))


SAID = {"type": "node", "id": 99, "parent": 0, "key": "k", "path": "p", "agent": "a", "depth": 1,
        "completion": {"text": "x"}}  # fmt: skip
NOTHING_SAID = json.dumps({**SAID, "completion": None}).encode()


@pytest.mark.parametrize(
    "wrong",
    [
        SAID | {"parent": 98},
        SAID | {"id": 1},
        {"type": "state", "id": 99, "terminal": True},
        {"type": "simulation", "path": [99], "value": 1.0},
        {"type": "simulation", "path": [1, 2], "value": 1.0},
    ],
)
def test_a_line_that_does_not_follow_from_those_before_is_named(tmp_path: Path, wrong: dict[str, object]) -> None:
    whole(tmp_path / "whole")
    lines = lines_of(tmp_path / "whole")
    path = tmp_path / "damaged"
    path.write_bytes(b"".join([*lines[:6], json.dumps(wrong).encode() + b"\n", *lines[6:]]))
    with pytest.raises(TreeDamaged, match=r"damaged:7 does not follow from the lines before: .*Fix: delete the file"):
        read_tree(path)
    with pytest.raises(TreeDamaged, match=r"damaged:7 is not what the search does now: .*Fix: delete the file"):
        labelled("rea", PLAN, path, Player(fallible))


def test_a_header_that_is_none_or_a_second_one_is_named(tmp_path: Path) -> None:
    whole(tmp_path / "whole")
    lines = lines_of(tmp_path / "whole")
    path = tmp_path / "damaged"
    for text, number in ((b"".join(lines[1:]), 1), (b"".join([*lines[:3], lines[0], *lines[3:]]), 4), (b"", 1)):
        path.write_bytes(text)
        with pytest.raises(TreeDamaged, match=rf"damaged:{number} "):
            read_tree(path)


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    unbroken = whole(tmp_path / "whole")
    path = tmp_path / "torn"
    path.write_bytes(unbroken[:-5])
    record = read_tree(path)
    assert record.torn
    assert len(record.simulations) == PLAN.simulations - 1


def test_other_replies_are_refused_with_their_line(tmp_path: Path) -> None:
    """Somebody has changed what an agent said: the run goes elsewhere from there."""
    whole(tmp_path / "whole", reply=short_word)
    lines = [json.loads(line) for line in lines_of(tmp_path / "whole")]
    first = next(line for line in lines if line["type"] == "node")
    came = next(number for number, line in enumerate(lines, 1) if line["type"] == "state" and line["id"] == first["id"])
    first["completion"]["text"] = "Something else."
    path = tmp_path / "changed"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = path.read_bytes()
    with pytest.raises(TreeDamaged, match=rf"changed:{came} is not what the search does now.*Something else"):
        labelled("rea", PLAN, path, Player(short_word))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (MctsSettings(simulations=7, children=2), "simulations 6, now 7"),
        (MctsSettings(simulations=6), "children 2, now 3"),
        (MctsSettings(simulations=6, children=2, c_uct=1.5), r"c_uct 4\.0, now 1\.5"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path: Path, other: MctsSettings, named: str) -> None:
    path = tmp_path / "tree"
    unbroken = whole(path)
    path.write_bytes(unbroken[: len(unbroken) // 2])
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"{named}.*Fix: the same settings, or another folder"):
        labelled("rea", other, path, Player(fallible))
    with pytest.raises(ValueError, match="seed 0, now 9"):
        labelled("rea", PLAN, path, Player(fallible), seed=9)
    with pytest.raises(ValueError, match='program "rea", now "e"'):
        labelled("e", PLAN, path, Player(fallible))
    assert path.read_bytes() == before


def same_word_first(request: CompletionRequest) -> str:
    """The first agent always says the same; the others say their seed."""
    return "Same." if request.agent == "A0" else f"\\boxed{{{request.sampling.seed}}}"


def test_equal_siblings_stay_apart_in_labels_and_their_further_replies_differ(tmp_path: Path) -> None:
    engine = Player(same_word_first)
    live = labelled("aa", MctsSettings(simulations=9, children=3), tmp_path / "tree", engine)
    first = [node for node in live.values() if node.depth == 1]
    assert len(first) == 3
    assert all(node.visits and len(node.children) == 3 for node in first)
    replies = [node.action.reply for node in live.values() if node.depth == 2 and node.action]
    assert len({reply.text for reply in replies if isinstance(reply, Completion)}) == len(replies) == 9
    assert len({request.sampling.seed for request in engine.asked}) == len(engine.asked) == 12


def test_equal_siblings_are_merged_in_a_search_with_their_count(tmp_path: Path) -> None:
    engine = Player(same_word_first)
    plan = SearchSettings(simulations=5, children=3)
    found, live = searched_for("aa", plan, tmp_path / "tree", engine, prm=WordScorer())
    first = [node for node in live.values() if node.depth == 1]
    assert [node.copies for node in first] == [3]
    assert found.report.agent_calls == len(engine.asked) == 6
    assert found.report.path[0].siblings == found.report.path[1].siblings == 3
    assert found.report.nodes == 4
    assert read_tree(tmp_path / "tree").nodes[1].copies == 3


def test_a_search_again_makes_the_same_file(tmp_path: Path) -> None:
    texts = []
    for number, most in enumerate((64, 1, 64)):
        path = tmp_path / f"{number}"
        engine = Player(dice=random.Random(number))
        searched_for("rea", SearchSettings(simulations=6, parallel=2), path, engine, prm=WordScorer(), most=most)
        texts.append(path.read_bytes())
    assert texts[0] == texts[1] == texts[2]


def test_a_search_does_not_write_over_labels(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    labels = whole(path)
    lines = lines_of(path)
    other = tmp_path / "search"

    def search(path: Path) -> None:
        searched_for("rea", SearchSettings(simulations=2), path, Player(), prm=WordScorer())

    for _ in range(2):  # over a search it may
        search(other)
    found = other.read_bytes()
    for damaged in (
        labels,
        labels + b"x",
        labels + b"\xff\n",
        labels.replace(b'"depth": 1', b'"depth": "deep"'),
        labels.replace(b'"engine"', b'"motor"', 1),
        lines[0][:-2] + b"\n" + b"".join(lines[1:]),
        b"\n" + labels,
        b"\xff" + labels,
        b"".join(lines[1:]),
        lines[0],
        lines[0][:-1],
        found + labels,
        labels.replace(b'"type": "tree"', b'"type": "three"'),
    ):
        path.write_bytes(damaged)
        with pytest.raises(
            SearchRefused, match=r"tree is (a tree of labels|no tree of a search), and would be lost. Fix"
        ):
            search(path)
        assert path.read_bytes() == damaged
    for torn in (b"", found[:30], found[:-4], found + b"x"):  # as a kill leaves a search
        path.write_bytes(torn)
        search(path)
        assert path.read_bytes() == found


def test_lines_of_labels_agree_with_one_another(tmp_path: Path) -> None:
    """What somebody has edited is named with its line, also where each line by itself may stand."""
    whole(tmp_path / "whole", "ra")
    lines = [json.loads(line) for line in lines_of(tmp_path / "whole")]
    numbers = {kind: [at for at, line in enumerate(lines) if line["type"] == kind] for kind in ("node", "simulation")}
    last, node = numbers["simulation"][-1], numbers["node"][-1]
    end = next(at for at, line in enumerate(lines) if line.get("terminal"))
    chosen = [{"type": "chosen", "id": number} for number in (0, 99, 1)]
    path = tmp_path / "edited"
    for at, more, said in [
        (last, [lines[last] | {"value": 0.5}], "a simulation backed up 0.5 from node"),
        (last, [lines[last] | {"value": -lines[last]["value"]}], "which has R ="),
        (last, [lines[last], lines[last]], "it is one simulation more than the 6 of the settings"),
        (node, [lines[node] | {"depth": 7}], "at depth 7 comes after node"),
        (node, [lines[node] | {"parent": lines[end]["id"], "depth": 3}], "which is an end"),
        (node, [lines[node] | {"virtual": True}], "a virtual visit without a value"),
        (end, [lines[end], lines[end]], "its state is there"),
        (end, [lines[end] | {"graded": 0.5}], "R = 0.5"),
        (last, [lines[last], chosen[1]], "there is no node 99"),
        (last, [lines[last], chosen[0], chosen[2]], "the search had decided"),
    ]:
        edited = [*lines[:at], *more, *lines[at + 1 :]]
        path.write_text("".join(json.dumps(line) + "\n" for line in edited))
        with pytest.raises(
            TreeDamaged, match=rf"edited:{at + len(more)} does not follow from the lines before: .*{said}"
        ):
            read_tree(path)
        assert is_whole_refuses(path)


def is_whole_refuses(path: Path) -> bool:
    try:
        is_whole(path, read_header(path), PLAN.simulations)
    except TreeDamaged:
        return True
    return False


def read_header(path: Path) -> TreeHeader:
    return TreeHeader.model_validate_json(path.read_text().splitlines()[0])
