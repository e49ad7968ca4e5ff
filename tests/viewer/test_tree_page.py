"""The tree of a question: advantages are training's own, and what is missing, broken or rejected is shown as such."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from made_traces import HOSTILE, events, failed, write
from made_trees import CHECKED, SINGLE, SPINS, by_seed, configured, designed, grown, place

from trainer.credit import ROLES, credited
from trainer.trees import QuestionTree
from viewer.runs.matrix import compare_route, signed, strength, tone
from viewer.runs.question_tree import read_tree
from viewer.runs.tree_credit import Credit, NoCredit, credit_again
from viewer.runs.tree_page import tree_page

RIGHT_OR_WRONG = by_seed("It is \\boxed{4}.", "It is \\boxed{5}.", "It is four.")
PLACE = "traces/step-000003/question-0000"


def shown(run: Path) -> str:
    return str(tree_page(read_tree(place(run)), PLACE).body)


def same_as_training(tree: QuestionTree, run: Path, rule: Any) -> Credit:
    """What was worked out from the disk, where it is what training has from its own trees."""
    credit = credit_again(read_tree(place(run)))
    own = {role: {id(t): advantage for t, advantage in credited([tree], role, rule)} for role in ROLES}
    for design in tree.designs:
        expected = {own["designer"].get(id(trajectory)) for trajectory in design.trajectories} or {None}
        assert {credit.designs[design.index]} == expected
        assert credit.trajectories[design.index] == len(design.trajectories)
        for execution in design.executions:
            samples = [*execution.trajectories, *(each.trajectory for each in execution.candidates)]
            found = credit.executions[design.index, execution.index]
            assert [(each.agent, each.path, each.turn, each.advantage) for each in found] == [
                (t.coordinates.agent, t.coordinates.path, t.coordinates.turn, own["executor"].get(id(t)))
                for t in samples
            ]
            if execution.candidates:
                assert [(each.reward, each.chosen) for each in found] == [
                    (each.reward.total, each.chosen) for each in execution.candidates
                ]
    return credit


@pytest.mark.parametrize("rule", ["tree", "flat", "per-design"])
def test_advantages_are_those_of_training(rule: str, tmp_path: Path) -> None:
    config = configured(tmp_path, credit=rule, rollout={"designs": 3})
    tree = grown(tmp_path, config, designed(SINGLE, CHECKED, "no program"), RIGHT_OR_WRONG)
    credit = same_as_training(tree, tmp_path, rule)
    assert len({*credit.designs.values()}) > 1
    assert credit.executions[2, 0] == [], "a design that was rejected has no executions to learn from"
    assert {each.agent for each in credit.executions[1, 0]} == {"Solver", "Critic"}


def test_a_repaired_design_has_two_trajectories_of_the_designer(tmp_path: Path) -> None:
    config = configured(tmp_path, rollout={"repair": True})
    tree = grown(
        tmp_path,
        config,
        lambda request: "none" if request.key == "designer/0/0" else f"<code>\n{SINGLE}</code>",
        RIGHT_OR_WRONG,
    )
    credit = same_as_training(tree, tmp_path, "tree")
    assert credit.trajectories == {0: 2, 1: 1}
    assert "repaired" in shown(tmp_path)


def test_a_run_that_its_wall_clock_ended_is_left_out_with_its_design(tmp_path: Path) -> None:
    config = configured(tmp_path, rollout={"designs": 3, "executions": 3, "limits": {"wall_s": 1.5}})
    tree = grown(tmp_path, config, designed(SINGLE, SPINS, SINGLE), by_seed("It is \\boxed{4}.", "It is \\boxed{5}."))
    assert [any(run.timed_out for run in design.executions) for design in tree.designs] == [False, True, False]
    credit = same_as_training(tree, tmp_path, "tree")
    assert credit.designs[1] is None
    page = shown(tmp_path)
    assert "timed out, left out" in page
    assert "left out of training" in page


def test_replies_of_a_run_that_its_wall_clock_ended_are_left_out_in_older_traces_too(tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text(SPINS.replace('"4" in str(context)', "True"), encoding="utf-8")
    given = {"designs": 1, "executions": 2, "program": str(tmp_path / "given.py"), "limits": {"wall_s": 1.5}}
    turns = {"kind": "turns", "roles": {"Solver": "reasoner"}}
    config = configured(tmp_path, credit="agent-turn", schedule="executor-only", reward=turns, rollout=given)
    tree = grown(tmp_path, config, designed(), RIGHT_OR_WRONG)
    for path in tmp_path.rglob("*.jsonl"):
        events = [json.loads(line) for line in path.read_text().splitlines()]
        for event in events:
            if event["type"] in ("turn_rewarded", "reward"):
                assert event.pop("timed_out") is True
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
    found = same_as_training(tree, tmp_path, "agent-turn").executions
    assert [each.advantage for turns in found.values() for each in turns] == [None, None]


def test_a_fixed_program_has_no_designer(tmp_path: Path) -> None:
    (tmp_path / "given.py").write_text(SINGLE, encoding="utf-8")
    given = {"designs": 1, "executions": 6, "program": str(tmp_path / "given.py")}
    config = configured(tmp_path, credit="single-agent", schedule="executor-only", rollout=given)
    tree = grown(tmp_path, config, designed(), RIGHT_OR_WRONG)
    assert same_as_training(tree, tmp_path, "single-agent").designs == {0: None}
    page = shown(tmp_path)
    assert "given program" in page
    assert "Designer" not in page


@pytest.mark.parametrize(
    ("rule", "changes", "rollout"),
    [
        ("at-grpo", {}, {"branching": {"candidates": 3, "turns": 2}}),
        ("agent-turn", {}, {}),
        ("agent-turn", {"reward": {"kind": "turns", "roles": {"Solver": "reasoner", "Critic": "reasoner"}}}, {}),
        ("single-agent", {"reward": {"kind": "turns", "roles": {"Solver": "reasoner", "Critic": "reasoner"}}}, {}),
    ],
)
def test_single_turns_are_credited_as_in_training(
    rule: str, changes: dict[str, Any], rollout: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "given.py").write_text(CHECKED, encoding="utf-8")
    given = {"designs": 1, "executions": 3, "program": str(tmp_path / "given.py"), **rollout}
    config = configured(tmp_path, credit=rule, schedule="executor-only", rollout=given, **changes)
    tree = grown(tmp_path, config, designed(), RIGHT_OR_WRONG)
    credit = same_as_training(tree, tmp_path, rule)
    samples = [each for run in credit.executions.values() for each in run]
    assert any(each.advantage for each in samples)
    page = shown(tmp_path)
    assert "Advantages by call" in page
    assert f"{sum(bool(each) for each in credit.executions.values())}" == str(page.count('id="calls-'))
    if "branching" in rollout:
        assert "the run went on with it" in page
        assert "which traces do not say" in page


def test_the_matrix_shows_rewards_advantages_and_ways_on(tmp_path: Path) -> None:
    config = configured(tmp_path, rollout={"designs": 3})
    tree = grown(tmp_path, config, designed(SINGLE, SINGLE, "no program"), RIGHT_OR_WRONG)
    credit = credit_again(read_tree(place(tmp_path)))
    page = shown(tmp_path)
    rewards = {run.reward.total for design in tree.designs for run in design.executions}
    for reward in rewards:
        assert f"<b>{reward:g}</b>" in page
    for design, advantage in credit.designs.items():
        assert f">{signed(advantage)}<" in page, design
    for design in range(2):
        for execution in range(4):
            assert f'href="#/run/{PLACE}/design-0{design}-execution-0{execution}.jsonl"' in page
    assert "design-02-execution" not in page, "there is no trace of a design that was rejected"
    assert page.count(">∅</span>") == 4
    assert "the same program as design 0" in page
    assert 'class="py-' in page, "programs have colours"
    assert "There is no program in what the Designer wrote" in page
    assert page.count("<option") == 2 * 8
    assert len(re.findall(r'id="([^"]*)"', page)) == len(set(re.findall(r'id="([^"]*)"', page)))


def test_what_is_not_there_yet_is_said_and_nothing_is_made_up(tmp_path: Path) -> None:
    configured(tmp_path)
    tree_folder = place(tmp_path)
    tree_folder.mkdir(parents=True)
    assert "Nothing is here yet" in shown(tmp_path)
    place(tmp_path, 4).mkdir(parents=True)
    assert "a later step has begun" in shown(tmp_path)
    write(tree_folder / "design-00-execution-01.jsonl")
    write(tree_folder / "design-00-execution-02.jsonl", events()[:-1])
    write(tree_folder / "design-00-execution-03.jsonl", events()[:2])
    page = shown(tmp_path)
    assert "No advantages: " in page
    assert "not ended" in page
    assert "no trace yet" in page
    with pytest.raises(NoCredit):
        credit_again(read_tree(tree_folder))


def test_rewards_that_are_missing_leave_no_advantages(tmp_path: Path) -> None:
    config = configured(tmp_path)
    grown(tmp_path, config, designed(SINGLE), RIGHT_OR_WRONG)
    credit_again(read_tree(place(tmp_path)))
    file = place(tmp_path) / "design-01-execution-02.jsonl"
    whole = file.read_bytes()
    for cut in (len(whole) - 5, len(whole) // 2, 10, 0):
        file.write_bytes(whole[:cut])
        with pytest.raises(NoCredit, match=r"1 of 8 executions have no reward, such as design 1, execution 2"):
            credit_again(read_tree(place(tmp_path)))
        assert "1 of 8 executions have no reward" in shown(tmp_path)
    file.write_bytes(whole.replace(b'"type":"agent_call"', b'"type":"agent_call",,'))
    with pytest.raises(NoCredit, match=r"design-01-execution-02\.jsonl, line \d+: it is no JSON"):
        credit_again(read_tree(place(tmp_path)))
    file.unlink()
    assert "no trace yet" in shown(tmp_path)


def test_a_run_without_its_configuration_shows_rewards_and_says_why_no_more(tmp_path: Path) -> None:
    config = configured(tmp_path)
    grown(tmp_path, config, designed(SINGLE), RIGHT_OR_WRONG)
    for text, said in (("steps = 'many'\n", "config.toml"), (None, "cannot read")):
        if text is None:
            (tmp_path / "config.toml").unlink()
        else:
            (tmp_path / "config.toml").write_text(text, encoding="utf-8")
        page = shown(tmp_path)
        assert "the rule of credit is not known" in page
        assert said in page
        assert page.count('class="strength"') == 8


def test_a_record_of_a_design_that_was_cut_is_said(tmp_path: Path) -> None:
    config = configured(tmp_path)
    grown(tmp_path, config, designed(SINGLE), RIGHT_OR_WRONG)
    record = place(tmp_path) / "design-00.json"
    record.write_bytes(record.read_bytes()[:300])
    assert "design-00.json is no record of a design, or half of one" in shown(tmp_path)


def test_hostile_designs_and_traces_are_inert(tmp_path: Path) -> None:
    config = configured(tmp_path, rollout={"designs": 2})
    grown(tmp_path, config, lambda request: HOSTILE + "x" * 10_000, RIGHT_OR_WRONG)
    for execution in range(4):
        write(
            place(tmp_path) / f"design-01-execution-0{execution}.jsonl",
            events(HOSTILE, HOSTILE, program=HOSTILE, failure=failed("program_failed", HOSTILE)),
        )
    page = shown(tmp_path)
    for live in ("<script>alert", "<img", "\u202e", "\x1b", "\u2028", "49</pre>"):
        assert live not in page
    assert "&lt;script&gt;alert(1)" in page
    assert r"\u202e" in page


def test_a_comparison_is_asked_for_by_any_names() -> None:
    assert compare_route("a&b/c d.jsonl", "é?.jsonl") == "compare?left=a%26b/c%20d.jsonl&right=%C3%A9%3F.jsonl"


@pytest.mark.parametrize(
    ("advantage", "told"),
    [(None, ("–", "", 0)), (0.0, ("0", "", 0)), (1.0, ("+1.00", "up", 50)), (-9.0, ("-9.00", "down", 100))],
)
def test_signs_and_colours(advantage: float | None, told: tuple[str, str, int]) -> None:
    assert (signed(advantage), tone(advantage), strength(advantage)) == told
