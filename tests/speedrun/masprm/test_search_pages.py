"""Jobs of MASPRM's miniature, what is kept of them, and pages from figures worked by hand."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from speedrun.kept import read_as, write
from speedrun.masprm import __main__ as command
from speedrun.masprm import search_runs as runs
from speedrun.masprm.guided_arms import ARMS, COMPARISONS, GRADER, MODELS, NAMES, OWN, PERFECT, PLAYS, READ
from speedrun.masprm.search_pages import write_page
from speedrun.masprm.search_runs import TASKS, Job, KeptRun, Searched, Settings
from speedrun.masprm.value_pages import errors, falls

ARM = Job(task="arm", seed=1, name="MCTS, V and Y", play="sum")


def test_a_job_needs_what_is_made_before_it() -> None:
    named = [(job.task, job.name) for job in ARM.everything]
    assert named == [
        ("start", "relay"),
        ("labels", "sum, N = 40"),
        ("model", "V"),
        ("model", "Y"),
        ("arm", "MCTS, V and Y"),
    ]
    own = Job(task="arm", seed=1, name="beam 1/5, own V", play="tool")
    assert [(job.task, job.name) for job in own.everything][:3] == [
        ("start", "bank"),
        ("labels", "tool, N = 40"),
        ("model", "V of tool"),
    ]
    for name in NAMES:
        for job in command.jobs_of(name, 0):
            order = [TASKS.index(each.task) for each in job.everything]
            assert all(TASKS.index(each.task) < TASKS.index(job.task) for each in job.taken)
            assert order[-1] == max(order)
            assert Job(**json.loads(json.dumps(asdict(job)))) == job


def test_folders_are_apart() -> None:
    jobs = {each for name in NAMES for job in command.jobs_of(name, 0) for each in job.everything}
    folders = [job.folder(Path("out")) for job in jobs]
    assert len(set(folders)) == len(folders)
    assert not any(one in other.parents for one in folders for other in folders)
    kept = [runs.kept_at(job, Path("kept")) for job in jobs]
    assert len(set(kept)) == len(kept)


def test_every_comparison_has_its_arms() -> None:
    for comparison in COMPARISONS.values():
        for arms in comparison.plays.values():
            assert {name for pair in comparison.pairs for name in pair} <= set(arms) <= ARMS.keys()
            assert len(set(arms)) == len(arms)
            assert all(of.keys() <= set(arms) for of in comparison.paper.values())
        assert comparison.plays.keys() <= PLAYS.keys()
    for arm in ARMS.values():
        assert {arm.prm, arm.orm} <= {None, *MODELS, OWN, PERFECT, GRADER}
    assert set(READ) <= MODELS.keys()


def test_results_that_were_made_otherwise_are_not_taken(tmp_path: Path) -> None:
    settings = Settings()
    write(runs.kept_at(ARM, tmp_path), runs.kept_run(ARM, settings))
    assert command.left([ARM], settings, tmp_path) == []
    for changed in ({"test": 301}, {"forgets": 0.1}, {"values": settings.values.model_copy(update={"epochs": 9})}):
        assert command.left([ARM], settings.model_copy(update=changed), tmp_path) == [ARM]
    assert command.left([ARM], settings.model_copy(update={"states": 8, "max_concurrent": 3}), tmp_path) == []
    start = ARM.everything[0]
    assert runs.made_by(start, settings) == runs.made_by(start, settings.model_copy(update={"test": 301}))


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Job] = []

    def ended(told: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        job = Job(**json.loads(told[told.index("--one") + 1]))
        asked.append(job)
        write(job.folder(tmp_path / "out") / runs.KEPT, runs.kept_run(job, Settings()))
        return subprocess.CompletedProcess(told, 0)

    monkeypatch.setattr(subprocess, "run", ended)
    command.run_all([ARM], Settings(), tmp_path / "out", 1, tmp_path / "kept")
    assert asked == ARM.everything
    command.run_all([ARM], Settings(), tmp_path / "out", 1, tmp_path / "kept")
    other = Job(task="arm", seed=1, name="greedy", play="sum")
    command.run_all([ARM, other], Settings(), tmp_path / "out", 1, tmp_path / "kept")
    assert asked == [*ARM.everything, other]
    runs.kept_at(ARM, tmp_path / "kept").unlink()
    with pytest.raises(ValueError, match=r"holds .* with .*Fix: use another folder"):
        command.run_all([ARM], Settings(slips=0.5), tmp_path / "out", 1, tmp_path / "kept")


def arm(right: int, calls: int = 20) -> KeptRun:
    searched = [
        Searched(problem=f"{n}", correct=n < right, calls=calls, scored=calls, generated=7 * calls, prompt=9, read=50,
                 seconds=1.0)
        for n in range(100)
    ]  # fmt: skip
    return KeptRun(made_by={}, searched=searched)


def found_of(name: str) -> dict[Job, KeptRun]:
    found: dict[Job, KeptRun] = {}
    for seed in range(3):
        for number, job in enumerate(command.jobs_of(name, seed)):
            found[job] = arm(30 + 2 * number)
            for each in job.taken:
                figures = {"sum, greedy, passes": 0.4} if each.task == "start" else {"rows": 1000.0, "rmse": 0.25}
                found[each] = KeptRun(made_by={}, figures=figures)
    return found


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_page_by_hand(name: str, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("vl_convert")
    page = write_page(name, found_of(name), f"python -m speedrun.masprm {name} --seeds 3", tmp_path)
    text = page.read_text()
    pictures = [line.partition("](")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert len(pictures) == len(COMPARISONS[name].plays)
    assert all((tmp_path / picture).stat().st_size > 5000 for picture in pictures)
    assert "| sum, greedy, passes | 0.400, 0.400, 0.400 |" in text
    if name == "guidance":
        assert "| greedy | 0.300 [" in text
        assert "| 0.300, 0.300, 0.300 | 20.0 | 20.0 | 140 | 50 | 43.9 | 25.1 |" in text
        # majority 5 is the second arm, two problems better
        assert "| majority 5 less greedy | +0.020 [" in text
        assert "| +15.8: " in text
        assert "| V | 1,000 | 0.250 |" in text
    page.write_text(text + "\n## Reading\n\nWritten by hand.\n")
    again = write_page(name, found_of(name), "other words", tmp_path).read_text()
    assert again.endswith("\n## Reading\n\nWritten by hand.\n")
    assert "`other words`" in again
    assert again.count("## Reading") == 1


def reading(values: list[float], along: list[float]) -> KeptRun:
    series = {"value": values, "estimate": [0.5, -1.0, 0.0, 1.0], "depth": [1, 2, 3, 4], "along": along}
    return KeptRun(made_by={}, series={**series, "wrong": [1, -1, 0]})


def test_values_by_hand(tmp_path: Path) -> None:
    along = [0.2, -0.9, -0.8, -0.9, 0.1, 0.2, 0.5, 0.9, 0.0, -0.9, -0.9, -0.9]
    run = reading([0.4, -0.5, 0.0, 1.0], along)
    assert errors(run) == pytest.approx({"0": 0.1, "1": 0.5, "2": 0.0, "3": 0.0})
    assert errors(run, 2) == pytest.approx({"1": 0.5})
    assert falls(run) == {"0": 1.0, "2": 0.0}  # the third falls by 0.1 at the first step, by 0.9 at the second
    pytest.importorskip("numpy")
    pytest.importorskip("vl_convert")
    found = {job: run for seed in range(3) for job in command.jobs_of("values", seed)}
    found |= {Job(task="labels", seed=0, name="sum, N = 40"): KeptRun(made_by={}, figures={"calls": 4e4, "right": 0.5})}
    text = write_page("values", found, "c", tmp_path).read_text()
    assert "| V | 0.150 [" in text
    assert "| 0.100 | 0.500 | 0.000 | 0.000 |" in text
    assert "| V | 0.500 [" in text
    assert "| sum, N = 40 | 40,000 |  | 0.500 |" in text


def test_the_wall_by_hand(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    kinds = [f"{what}, {how}" for what in ("call", "value") for how in ("alone", "together")]
    figures = dict(zip([*kinds, "state, in this process", "state, jailed"], (0.02, 0.01, 0.002, 0.001, 1e-3, 9e-3),
                       strict=True))  # fmt: skip
    found = {Job(task="wall", seed=seed): KeptRun(made_by={}, figures=figures) for seed in range(3)}
    text = write_page("wall", found, "c", tmp_path).read_text()
    assert "| call, alone | 20.00 | 20.00, 20.00, 20.00 |" in text
    assert "- a call, alone takes 10.0 times a value, alone" in text
    assert "- a state, jailed takes 9.0 times a state, in this process" in text


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    kept = arm(3).model_copy(update={"figures": {"seconds": 1.5}})
    write(tmp_path / "a.json.gz", kept)
    assert read_as(tmp_path / "a.json.gz", KeptRun) == kept


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which comparison? Fix: name one of guidance, outcome, transfer, frontier, programs, values, wall"),
        (["values", "--seeds", "2"], "--seeds 2: intervals over seeds need three at least"),
    ],
)
def test_what_makes_no_sense_is_told(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert said in capsys.readouterr().err


def test_settings_that_are_none_are_told(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps({"agents": 3}))
    with pytest.raises(SystemExit, match=r"s\.json holds no settings of this miniature"):
        command.main(["wall", "--out", str(tmp_path / "out"), "--settings", str(tmp_path / "s.json")])
