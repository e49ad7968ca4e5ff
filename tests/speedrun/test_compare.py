"""Pages of comparisons: figures worked by hand, the gate's conditions one by one, and what comes before all others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from speedrun import compare as comparing
from speedrun.arms import Job
from speedrun.kept import Result
from speedrun.page_curves import moving
from speedrun.pages import HELD, gate, page_of
from speedrun.systems import System
from speedrun.variants import COMPARISONS, START
from tasks.data.miniature import KINDS
from trainer.run import StepReport

pytest.importorskip("numpy")


def results(right: dict[str, int], of: int) -> list[Result]:
    """`of` problems of each kind, the first `right[kind]` of them answered correctly."""
    return [Result(f"{kind}-{n}", kind, n < count, "ensemble") for kind, count in right.items() for n in range(of)]


def attempted(right: int, of: int = 100) -> list[Result]:
    return results(dict.fromkeys(KINDS, right), of)


VOTES, ALONE = ("vote, at once", "vote, step by step"), "single, step by step"


def step(ready: float) -> StepReport:
    """With nothing but what curves and budgets are made of."""
    told = {"ready": ready, "correct": 0.5, "active": ["designer"], "usage": {}, "designs": 4, "executions": 4}
    return StepReport.model_construct(**told, timed_out=0, outgrown=0)


def system(name: str, right: int, fixed: int | None = None, alone: int | None = None) -> System:
    """With programs that vote right on `fixed`, and a single agent right on `alone`, of each 100."""
    of = {} if fixed is None else dict.fromkeys(VOTES, fixed) | {ALONE: fixed // 2 if alone is None else alone}
    programs = {program: [attempted(each)] * 3 for program, each in of.items()}
    return System(name=name, sampled=[attempted(right)] * 3, greedy=[attempted(right + 1)] * 3, fixed=programs)


def gated(*right: int, best: int = 40, alone: int = 90, before: int | None = None) -> tuple[bool, list[str]]:
    names = ["before RL", "Executor", "Designer", "Executor, shuffled", "Designer, shuffled"]
    made = [system(name, each) for name, each in zip(names, right, strict=True)]
    return gate([system(names[0], right[0], best, before), system(names[1], right[1], 60, alone), *made[2:]])


def test_the_gate_holds_where_both_roles_learn_and_neither_from_shuffled_rewards() -> None:
    holds, lines = gated(30, 50, 60, 30, 29)
    assert holds
    assert "**The gate holds.**" in lines
    assert sum(line.startswith("- yes: ") for line in lines) == 6
    assert "sum, `vote, at once` less `single, step by step` +0.200 [" in lines[-1]


@pytest.mark.parametrize(
    ("right", "best", "fails"),
    [
        ((30, 32, 60, 30, 30), 40, "- NO: Executor: 0.320"),
        ((30, 50, 20, 30, 30), 40, "- NO: Designer: 0.200"),
        ((30, 50, 60, 45, 30), 40, "- NO: Executor, shuffled: 0.450"),
        ((30, 50, 60, 32, 30), 40, "- NO: Executor, shuffled: 0.320"),  # within the interval, but above in each seed
        ((30, 50, 60, 30, 12), 40, "- NO: Designer, shuffled: 0.120"),
        ((30, 50, 60, 30, 30), 60, "- NO: the best fixed program before RL: 0.600"),
        ((30, 50, 60, 30, 30), 20, "- NO: the best fixed program before RL: 0.200"),
    ],
)
def test_each_condition_of_the_gate_can_fail(right: tuple[int, ...], best: int, fails: str) -> None:
    holds, lines = gated(*right, best=best)
    assert not holds
    assert [line[: len(fails)] for line in lines if line.startswith("- NO")] == [fails]


@pytest.mark.parametrize(("before", "after"), [(20, 60), (40, 90), (50, 90)])
def test_the_gate_fails_where_what_is_best_stays_best(before: int, after: int) -> None:
    """The single agent catches up with the vote and is not above it; or it has never been below."""
    holds, lines = gated(30, 50, 60, 30, 30, alone=after, before=before)
    assert not holds
    [failed] = [line for line in lines if line.startswith("- NO")]
    assert failed.startswith("- NO: the worse of two programs for a kind of problem is the better one")


def test_a_page_shows_intervals_pairs_seeds_kinds_and_designs() -> None:
    rates = ([0, 10, 0, 10], [10, 10, 0, 10])
    seeds = [results(dict(zip(KINDS, each, strict=True)), of=10) for each in rates]
    systems = [
        System(name=each, sampled=seeds[1:] * 2, greedy=seeds) for each in COMPARISONS["schedule"].systems if each
    ]
    before = System(name="coupled", sampled=seeds, greedy=seeds, fixed={"one": seeds, "two": seeds[:1] * 2})
    systems = [before if system.name == "coupled" else system for system in systems]
    tried = {0.5: {"a": 0.0, "b": 0.5}, 1.0: {"a": 0.5, "b": 0.5}}
    page = page_of("schedule", systems, "make it", {"coupled": tried})
    # Seeds at 0.5 and 0.75 against 0.75 twice, paired: stages are right on all sums of seed 0, a quarter of its own.
    # A standard deviation of 0.177 over 0.125: with n seeds t is 0.71 sqrt(n), beyond 2.26 from 11 on.
    assert page.count("`make it`") == 1
    assert "40 of 80 held-out problems are different ones" in page
    assert "| coupled | 0.625 [" in page
    assert "| stagewise | 0.750 [" in page
    assert "| 0.750, 0.750 |" in page
    line = next(line for line in page.splitlines() if line.startswith("| stagewise less coupled |"))
    assert line.startswith("| stagewise less coupled | +0.125 [+0.000, +0.3")
    assert "| +0.250, +0.000 | cannot tell; 11 seeds might | [+0.0" in line
    assert "| stagewise less Executor only | +0.000 [+0.000, +0.000] | +0.000, +0.000 | cannot tell; " in page
    assert "| stagewise | chain | 100% |" in page
    assert COMPARISONS["schedule"].paper in page
    assert COMPARISONS["schedule"].unequal in page
    assert "| | 0.5 | 1 |\n|---|---|---|\n| coupled | 0.250 | **0.500** |" in page
    assert "| one | **0.62** | **0.50** | **1.00** | **0.00** | **1.00** |" in page
    assert "| two | 0.50 | 0.00 | **1.00** | **0.00** | **1.00** |" in page


def test_valid_programs_are_told_apart_by_the_seeds() -> None:
    some = [results(dict.fromkeys(KINDS, 5), of=10)] * 3
    low = [0.88, 0.86, 0.9]
    shares = {"Designer alone learns": [0.98, 0.97, 0.99], "weak KL": low, "rewards shuffled": low}
    systems = [
        System(
            name=name,
            sampled=some,
            greedy=some,
            steps=[] if arm == START else [[step(n - 0.1), step(n + 0.1)] for n in shares.get(name, [0.9] * 3)],
        )
        for name, arm in COMPARISONS["valid-programs"].systems.items()
    ]
    page = page_of("valid-programs", systems, "make it")
    assert "| Designer alone learns | 98.0% | 98.0%, 97.0%, 99.0% |" in page
    # -10, -11, -9: a standard deviation of 1, so t = 17; the other pair -2, 4 and 0 in turn.
    assert "| weak KL less Designer alone learns | -10.0 | -10.0, -11.0, -9.0 | below | +0.0 | +0.0, +0.0" in page
    assert "| weak KL, shuffled less rewards shuffled | +2.0 | +2.0, +4.0, +0.0 | cannot tell |" in page
    others = [replace(systems[0], name=name) for name in COMPARISONS["stage-length"].systems]
    assert "Differences in valid programs" not in page_of("stage-length", others, "make it")
    assert "gate.json" not in page


def test_spoilt_designs_are_counted_at_the_end_against_where_an_arm_began() -> None:
    """In the mean over all steps a loss at their end is diluted."""

    def designed(name: str, spoilt: list[int]) -> System:
        seeds = [
            [Result(f"{n}", "sum", True, "no program" if n < count else "single") for n in range(100)]
            for count in spoilt
        ]
        return System(name=name, sampled=seeds, greedy=seeds)

    counts = {"before RL": [1, 2, 0], "Executor only": [1, 3, 0], "Designer only": [4, 5, 3]}
    rows = COMPARISONS["schedule"].systems
    page = page_of("schedule", [designed(name, counts.get(name, [9, 1, 0])) for name in rows], "-")
    assert "| before RL | 1.0% | 1.0%, 2.0%, 0.0% |  |  |  |" in page
    assert "| Designer only | 4.0% | 4.0%, 5.0%, 3.0% | +3.0 | +3.0, +3.0, +3.0 | more |" in page
    assert "| Executor only | 1.3% | 1.0%, 3.0%, 0.0% | +0.3 | +0.0, +1.0, +0.0 | cannot tell |" in page


def test_problems_of_one_set_of_numbers_count_as_one() -> None:
    # Of two sets the first is always right: by problems 0.5 of 200 is told well, by sets it may be 0, 0.5 or 1.
    names = list(COMPARISONS["tree"].systems)
    right = [results({"sum": 100}, of=200)] * 3
    wrong = [results({"sum": 0}, of=200)] * 3
    systems = [System(name=name, sampled=right if name == names[1] else wrong, greedy=wrong) for name in names]
    sets = {f"sum-{n}": "first" if n < 100 else "second" for n in range(200)}
    page = page_of("tree", systems, "-", sets=sets)
    [line] = [line for line in page.splitlines() if line.startswith("| M=4, N=4 less M=2, N=8 | +0.500 [")]
    assert line.endswith("| above | [+0.000, +1.000] |")


def test_a_change_is_less_that_of_an_arm_with_the_same_questions() -> None:
    def steps(*right: float) -> list[StepReport]:
        return [step(1.0).model_copy(update={"correct": each}) for each in right]

    some = [results({"sum": 1}, of=2)]
    easy = [steps(0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.375, 0.375)]  # questions become harder, then easier
    names = list(COMPARISONS["tree"].systems)
    arms = {names[0]: easy, names[1]: [steps(0.625, 0.625, 0.625, 0.625, 0.375, 0.375, 0.5, 0.5)]}
    systems = [System(name=name, sampled=some, greedy=some, steps=arms.get(name, ())) for name in names]
    raw, less = (page_of("tree", systems, "-", control=control) for control in ((), easy))
    assert f"| {names[1]} | 0.625 | 0.500 | +0.125 ± 0.000, still moves |" in raw
    assert f"| {names[1]} | 0.625 | 0.500 | +0.000 ± 0.000 |" in less
    assert f"| {names[0]} | 0.500 | 0.375 | is what the others are less |" in less
    assert "whose rewards were shuffled" in less
    assert "whose rewards were shuffled" not in raw


def test_a_kind_without_problems_is_an_empty_cell() -> None:
    some = [results({"sum": 1}, of=2)] * 3
    shown = System(name="single agent", sampled=some, greedy=some, fixed={"one": some})
    names = COMPARISONS["training"].systems
    page = page_of("training", [replace(shown, name=name) for name in names], "make it")
    assert "| 0.50 (0.50) |  |  |  |" in page


def test_a_curve_moves_beyond_two_standard_errors() -> None:
    moved, bound = moving([0.0, 0.0, 0.4, 0.6, 0.5, 0.7], 2)
    # Means 0.5 and 0.6; each pair has a variance of 0.02, so the error is sqrt(0.01 + 0.01).
    assert (moved, bound) == pytest.approx((0.1, 2 * 0.02**0.5))
    assert moving([0.2], 1) == (0.0, 0.0)


def rates(right: int) -> dict[str, float]:
    return {str(problem): float(problem < right) for problem in range(100)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that would be run; none is. Accuracies are those of `right`, which a test may change."""
    jobs: list[Job] = []
    monkeypatch.setattr(comparing, "run_all", lambda given, *_: jobs.extend(given))
    monkeypatch.setattr(comparing, "chosen", lambda *_: {"executor only": {0.5: rates(40), 1.0: rates(20)}})
    monkeypatch.setattr(comparing, "png", lambda *_: None)
    return jobs


def found(monkeypatch: pytest.MonkeyPatch, executor: int) -> None:
    """What the runs left behind: the gate holds where `executor` is far above 30."""
    right = {"before RL": 30, "Executor alone learns": executor, "Designer alone learns": 60}
    monkeypatch.setattr(
        comparing,
        "systems_of",
        lambda name, *_: [
            system(each, right.get(each, 30), 40, 90 if each in right and right[each] > 30 else None)
            for each in COMPARISONS[name].systems
        ],
    )


def test_no_other_comparison_is_made_where_the_gate_fails(
    asked: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, executor=31)
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
    tuning = {(job.seed, job.tuning) for job in asked if job.seed not in (0, 1, 2)}
    assert tuning == {(1000, True)}
    assert not (tmp_path / "tree.md").exists()
    assert "`python -m speedrun.compare gate --seeds 3`" in (tmp_path / "gate.md").read_text()

    asked.clear()  # a gate that is known to fail is not tried again
    with pytest.raises(SystemExit):
        comparing.main(["tree", "--out", str(tmp_path)])
    assert asked == []


def test_a_gate_that_holds_is_not_made_again_for_the_same_instrument(
    asked: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, executor=50)
    comparing.main(["tree", "--first-seed", "3", "--out", str(tmp_path)])
    assert {job.name for job in asked} > {"executor only", "16x1"}
    assert HELD in (tmp_path / "tree-from-3.md").read_text()

    asked.clear()
    comparing.main(["stage-length", "--out", str(tmp_path)])
    assert {job.name for job in asked} == {"start", "K=1", "K=5", "stagewise", "K=20"}

    asked.clear()
    settings = tmp_path / "other.json"
    settings.write_text('{"designer_rows": 61}')
    verdict = tmp_path / "other" / "gate.json"
    verdict.parent.mkdir()
    verdict.write_bytes((tmp_path / "gate.json").read_bytes())
    comparing.main(["tree", "--settings", str(settings), "--out", str(verdict.parent)])
    assert "executor only" in {job.name for job in asked}

    verdict.write_text('{"holds": true}')
    with pytest.raises(SystemExit) as ended:
        comparing.main(["tree", "--out", str(verdict.parent), "--settings", str(settings)])
    assert f"{verdict} holds no verdicts of the gate" in str(ended.value.code)


def test_a_gate_of_other_seeds_stands_beside_the_first_and_counts(
    asked: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, executor=50)
    comparing.main(["gate", "--out", str(tmp_path)])
    first = (tmp_path / "gate.md").read_text()
    found(monkeypatch, executor=31)
    comparing.main(["gate", "--first-seed", "3", "--out", str(tmp_path)])
    assert (tmp_path / "gate.md").read_text() == first
    other = (tmp_path / "gate-from-3.md").read_text()
    assert "**The gate holds.**" in first
    assert "**The gate FAILS" in other
    assert "![Accuracy](gate-from-3.png)" in other
    with pytest.raises(SystemExit) as ended:
        comparing.main(["tree", "--out", str(tmp_path)])
    assert "the gate fails" in str(ended.value.code)

    found(monkeypatch, executor=50)  # the same seeds made again are another try, and no other recipe's try wipes it out
    comparing.main(["gate", "--first-seed", "3", "--out", str(tmp_path)])
    assert "**The gate holds.**" in (tmp_path / "gate-from-3.md").read_text()
    with pytest.raises(SystemExit, match="the gate fails"):
        comparing.main(["tree", "--out", str(tmp_path)])
    settings = tmp_path / "other.json"
    settings.write_text('{"designer_rows": 61}')
    other = tmp_path / "other"
    other.mkdir()
    (other / "gate.json").write_bytes((tmp_path / "gate.json").read_bytes())
    comparing.main(["gate", "--settings", str(settings), "--out", str(other)])
    comparing.main(["tree", "--out", str(other)])
    (tmp_path / "gate.json").write_bytes((other / "gate.json").read_bytes())
    comparing.main(["gate", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="the gate fails"):
        comparing.main(["tree", "--out", str(tmp_path)])


def test_seeds_that_are_added_do_not_mend_a_gate_that_failed(
    asked: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, executor=31)
    comparing.main(["gate", "--out", str(tmp_path)])
    found(monkeypatch, executor=50)
    others = (["--seeds", "4"], ["--first-seed", "3"], ["--seeds", "6"])
    for other in (*others, *reversed(others)):  # each twice: the same command again is no other try
        comparing.main(["gate", *other, "--out", str(tmp_path)])
        assert "**The gate holds.**" in (tmp_path / "gate.md").read_text()
        with pytest.raises(SystemExit, match="the gate fails"):
            comparing.main(["tree", "--out", str(tmp_path)])


def test_pages_of_other_settings_stay_out_of_the_repository_and_say_so(
    asked: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, executor=50)
    pages, out = tmp_path / "pages", tmp_path / "out"
    monkeypatch.setattr(comparing, "PAGES", pages)
    settings = tmp_path / "few.json"
    settings.write_text('{"test_problems": 8}')
    with pytest.raises(SystemExit, match=r"few.json has other settings than the defaults.*leave out --write"):
        comparing.main(["gate", "--write", "--settings", str(settings), "--out", str(out)])
    assert not pages.exists()
    comparing.main(["gate", "--settings", str(settings), "--out", str(out)])
    assert "gate --seeds 3 --settings few.json`" in (out / "gate.md").read_text()
    comparing.main(["tree", "--out", str(out)])  # whose folder has them
    assert "tree --seeds 3 --settings settings.json`" in (out / "tree.md").read_text()
    with pytest.raises(SystemExit, match=r"--write: .*settings.json has other settings"):
        comparing.main(["tree", "--write", "--out", str(out)])
    assert not pages.exists()
    comparing.main(["gate", "--write", "--out", str(tmp_path / "plain")])
    assert "gate --seeds 3`" in (pages / "gate.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which comparison? Fix: name one of gate, training, tree"),
        (["tree", "--seeds", "2"], "--seeds 2: intervals over seeds need three at least"),
        (["tree", "--seed", "3"], "unrecognized arguments: --seed 3"),
        (["tree", "--first-seed", "-1"], "--first-seed -1: seeds are 0 or more"),
        (["tree", "--first-seed", "999"], "--first-seed 999: seeds are 0 or more, and 1000 is for tuning"),
        (["tree", "--jobs", "0"], "--jobs 0: at least one runs at a time"),
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "settings.json holds no settings of a speedrun"),
        ("{", "settings.json holds no settings of a speedrun"),
        ('{"test_problems": 1}', "test_problems"),
        ('{"pretrained": "model"}', "Fix: no pretrained, no shared"),
        ('{"shared": true}', "Fix: no pretrained, no shared"),
        ('{"kl_roles": "all"}', 'kl_roles="all" is for one policy'),
    ],
)
def test_settings_that_no_arm_can_have_are_refused_before_anything_is_written(
    text: str | None, said: str, tmp_path: Path
) -> None:
    given = tmp_path / "settings.json"
    if text is not None:
        given.write_text(text)
    with pytest.raises(SystemExit) as ended:
        comparing.main(["gate", "--settings", str(given), "--out", str(tmp_path / "out")])
    assert said in str(ended.value.code)
    assert not (tmp_path / "out").exists()
