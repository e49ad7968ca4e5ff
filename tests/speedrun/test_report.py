"""The speedrun's report: figures worked by hand, and words that do not say more than the intervals do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attempts import AGENT, ENSEMBLE, TOOL, attempt, attempts

from speedrun.report import (
    Measured,
    SpeedrunReport,
    accuracy_chart,
    differences_of,
    draw,
    page_of,
    pattern,
    result_of,
    training_chart,
)
from speedrun.settings import SpeedrunSettings
from tasks.data.miniature import KINDS
from trainer.evaluate import Attempt


def test_patterns_are_structures_tools_and_what_agents_are_told() -> None:
    graphs = (
        (AGENT, "at once"),
        (TOOL, "step by step"),
        (ENSEMBLE, "step by step ... at once"),
        (AGENT, ""),
        (None, ""),
    )
    assert [pattern(graph, program) for graph, program in graphs] == [
        "single, at once",
        "single with a tool, step by step",
        "ensemble, step by step and at once",
        "single",
        "no program",
    ]


def test_a_result_sums_up_its_attempts() -> None:
    made = attempts({"sum": 9, "chain": 5, "product": 0, "pair": 2}, of=10, calls=3)
    made += [attempt(99, "sum", False, None, calls=0)]
    found = result_of(Measured("RL", made))
    assert found.accuracy.estimate == pytest.approx(16 / 41)
    assert {kind: rate.estimate for kind, rate in found.by_kind.items()} == pytest.approx(
        {"sum": 9 / 11, "chain": 0.5, "product": 0, "pair": 0.2}
    )
    assert found.patterns["sum"] == pytest.approx({"single": 10 / 11, "no program": 1 / 11})
    assert found.agent_calls == pytest.approx(120 / 41)
    assert found.failures == {"program_rejected": 1}


def report(*right: int) -> SpeedrunReport:
    """Systems that are right on so many of 100 problems of each kind."""
    measured = [
        Measured(f"system {place}", attempts(dict.fromkeys(KINDS, count), of=100)) for place, count in enumerate(right)
    ]
    return SpeedrunReport(
        settings=SpeedrunSettings(seed=3, overrides=("steps=2", 'schedule="coupled"')),
        rl={},
        machine="2 cores",
        weights=1_250_000,
        systems=[result_of(each) for each in measured],
        differences=differences_of(measured),
        correct=[0.25, 0.5],
        ready=[1.0, 0.9],
        active=[["executor"], ["designer"]],
        seconds={"cold start": 20.0, "evaluation": 40.4},
    )


def test_systems_are_compared_on_the_same_problems() -> None:
    page = page_of(report(50, 51, 80, 10))
    told = [re.sub(r"\[.*\]", "[]", line) for line in page.splitlines() if line.startswith("- system")]
    assert told == [
        "- system 2 less system 0: +0.300 [], above",
        "- system 2 less system 1: +0.290 [], above",
        "- system 3 less system 0: -0.400 [], below",
        "- system 3 less system 1: -0.410 [], below",
        "- system 3 less system 2: -0.700 [], below",
    ]
    # Of 400 problems 4 are right that were not, which chance does once in eight times; 8, once in 128.
    few, more = report(50, 51).differences[0], report(50, 52).differences[0]
    assert (few.mean, few.p_value, few.told) == (0.01, 0.125, "cannot tell")
    assert (more.mean, more.told) == (0.02, "above")
    assert more.p_value == pytest.approx(2**-7)
    assert few.low > 0, "its interval alone would say too much"
    # As many the one way as the other.
    right = attempts({"sum": 50}, of=100)
    turned = [attempt(n, "sum", n >= 50) for n in range(100)]
    (found,) = differences_of([Measured("one", right), Measured("other", turned)])
    assert (found.after, found.before, found.mean, found.told) == ("other", "one", 0, "cannot tell")
    assert found.high == pytest.approx(0.196, abs=0.02), "1.96 standard errors of 1 or -1, a hundred times"


@pytest.mark.parametrize(
    "others", [attempts({"sum": 5}, of=9), attempts({"chain": 5}, of=10), [attempt(0, "sum", True)] * 10]
)
def test_systems_that_attempted_other_problems_are_not_compared(others: list[Attempt]) -> None:
    with pytest.raises(ValueError, match="SFT and agent are to have one attempt each at the same problems"):
        differences_of([Measured("agent", attempts({"sum": 5}, of=10)), Measured("SFT", others)])


def test_the_page_says_how_the_run_was_made() -> None:
    page = page_of(report(50, 51, 80, 10))
    assert "1.25 million weights" in page
    assert "`python -m speedrun --seed 3 steps=2 'schedule=\"coupled\"'` on 2 cores; one run." in page
    assert "| cold start | 20 |\n| evaluation | 40 |\n| all | 60 |" in page
    assert "| system 2 | 0.80 [" in page
    assert "| system 2 | chain | 100% |" in page
    assert "| system 1 | chain |" not in page, "it had no Designer"


def test_pictures_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    pictures = (tmp_path / "accuracy.png", tmp_path / "training.png")
    draw(report(50, 60), *pictures)
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_charts_show_what_the_report_says() -> None:
    found = report(50, 60)
    drawn = accuracy_chart(found)["layer"][0]["data"]["values"]
    assert len(drawn) == 2 * (1 + len(KINDS))
    assert drawn[0] == {
        "group": "all problems", "name": "system 0", "y": 0.5, "said": "0.5",
        "low": pytest.approx(found.systems[0].accuracy.low, abs=1e-6),
        "high": pytest.approx(found.systems[0].accuracy.high, abs=1e-6), "interval": drawn[0]["interval"],
    }  # fmt: skip
    executor, line, _ = training_chart(found)["layer"]
    assert [each["role"] for each in executor["data"]["values"]] == ["executor learns", "designer learns"]
    assert [each["y"] for each in line["data"]["values"]] == [0.25, 0.5, 1.0, 0.9]
