"""Pages of comparisons: figures worked by hand, the gate's conditions one by one, and what comes before all others."""

from __future__ import annotations

from pathlib import Path

import pytest
from attempts import ENSEMBLE, attempts

from speedrun import compare as comparing
from speedrun.arms import Job
from speedrun.pages import System, gate, moving, page_of
from speedrun.variants import COMPARISONS
from tasks.data.miniature import KINDS
from trainer.evaluate.attempts import Attempt

pytest.importorskip("numpy")


def attempted(right: int, of: int = 100) -> list[Attempt]:
    return attempts(dict.fromkeys(KINDS, right), of=of, graph=ENSEMBLE)


def system(name: str, right: int, fixed: int | None = None) -> System:
    programs = {} if fixed is None else {"one": [attempted(fixed)] * 3, "other": [attempted(fixed // 2)] * 3}
    return System(name=name, sampled=[attempted(right)] * 3, greedy=[attempted(right + 1)] * 3, fixed=programs)


def gated(*right: int, best: int = 40) -> tuple[bool, list[str]]:
    names = ["before RL", "Executor", "Designer", "Executor, shuffled", "Designer, shuffled"]
    made = [system(name, each) for name, each in zip(names, right, strict=True)]
    return gate([system(names[0], right[0], best), *made[1:]])


def test_the_gate_holds_where_both_roles_learn_and_neither_from_shuffled_rewards() -> None:
    holds, lines = gated(30, 50, 60, 31, 29)
    assert holds
    assert "**The gate holds.**" in lines
    assert sum(line.startswith("- yes: ") for line in lines) == 5


@pytest.mark.parametrize(
    ("right", "best", "fails"),
    [
        ((30, 32, 60, 30, 30), 40, "- NO: Executor: 0.320"),
        ((30, 50, 20, 30, 30), 40, "- NO: Designer: 0.200"),
        ((30, 50, 60, 45, 30), 40, "- NO: Executor, shuffled: 0.450"),
        ((30, 50, 60, 30, 12), 40, "- NO: Designer, shuffled: 0.120"),
        ((30, 50, 60, 30, 30), 60, "- NO: the best fixed program before RL: 0.600"),
        ((30, 50, 60, 30, 30), 20, "- NO: the best fixed program before RL: 0.200"),
    ],
)
def test_each_condition_of_the_gate_can_fail(right: tuple[int, ...], best: int, fails: str) -> None:
    holds, lines = gated(*right, best=best)
    assert not holds
    assert [line[: len(fails)] for line in lines if line.startswith("- NO")] == [fails]


def test_a_page_shows_intervals_pairs_seeds_kinds_and_designs() -> None:
    rates = ([0, 10, 0, 10], [10, 10, 0, 10])
    seeds = [attempts(dict(zip(KINDS, each, strict=True)), of=10, graph=ENSEMBLE) for each in rates]
    systems = [
        System(name="before RL", sampled=seeds, greedy=seeds, fixed={"one": seeds, "two": seeds[:1] * 2}),
        System(name="stagewise", sampled=seeds[1:] * 2, greedy=seeds),
    ]
    page = page_of("schedule", systems, 2, {"coupled": {0.5: 0.25, 1.0: 0.5}})
    # Two seeds at 0.5 and 0.75, paired: the second system is right on all sums of seed 0, a quarter of its problems.
    assert "| before RL | 0.625 [" in page
    assert "| stagewise | 0.750 [" in page
    assert "| +0.125 [+0.000, +0.3" in page
    assert "| 0.750, 0.750 |" in page
    assert "| stagewise | chain | 100% |" in page
    assert COMPARISONS["schedule"].paper in page
    assert COMPARISONS["schedule"].unequal in page
    assert "| | 0.5 | 1 |\n|---|---|---|\n| coupled | 0.250 | **0.500** |" in page
    assert "| one | **0.62** | **0.50** | **1.00** | **0.00** | **1.00** |" in page
    assert "| two | 0.50 | 0.00 | **1.00** | **0.00** | **1.00** |" in page


def test_a_curve_is_flat_within_two_standard_errors() -> None:
    moved, bound = moving([0.0, 0.0, 0.4, 0.6, 0.5, 0.7], 2)
    # Means 0.5 and 0.6; each pair has a variance of 0.02, so the error is sqrt(0.01 + 0.01).
    assert (moved, bound) == pytest.approx((0.1, 2 * 0.02**0.5))
    assert moving([0.2], 1) == (0.0, 0.0)


def test_no_other_comparison_is_made_where_the_gate_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Job] = []
    monkeypatch.setattr(comparing, "run_all", lambda jobs, *_: asked.extend(jobs))
    monkeypatch.setattr(comparing, "chosen", lambda *_: {"executor only": {0.5: 0.4, 1.0: 0.2}})
    right = {"before RL": 30, "Executor alone learns": 31}
    monkeypatch.setattr(
        comparing,
        "systems_of",
        lambda name, *_: [system(each, right.get(each, 60), 40) for each in COMPARISONS[name].systems],
    )
    with pytest.raises(SystemExit) as ended:
        comparing.main(["tree", "--out", str(tmp_path)])
    assert "the gate fails, so tree would say nothing" in str(ended.value.code)
    factors = {(job.name, job.factor) for job in asked if job.seed == 2}
    assert factors == {
        ("start", 1.0),
        ("executor only", 0.5),
        ("designer only", 1.0),
        ("executor only, shuffled", 0.5),
        ("designer only, shuffled", 1.0),
    }
    assert {job.seed for job in asked} == {0, 1, 2}
    assert not (tmp_path / "tree.md").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which comparison? Fix: name one of gate, training, tree"),
        (["tree", "--seeds", "1"], "--seeds 1: intervals over seeds need two at least"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused_first(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        comparing.main([*arguments, "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
