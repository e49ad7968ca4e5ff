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
from speedrun.masprm.kept_runs import began, kept_at, left, run_all
from speedrun.masprm.search_pages import write_page
from speedrun.masprm.search_runs import Job, KeptRun, Searched, Settings
from speedrun.masprm.value_pages import bias_and_pearson, by_chance, errors, falls
from speedrun.starts import digest, keep

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
            order = job.everything
            assert order[-1] == job
            assert all(order.index(before) < order.index(each) for each in order for before in each.taken)
            assert {each.name for each in order if each.task == "start"} == {job.taught}
            assert Job(**json.loads(json.dumps(asdict(job)))) == job


def test_folders_are_apart() -> None:
    jobs = {each for name in NAMES for job in command.jobs_of(name, 0) for each in job.everything}
    folders = [job.folder(Path("out")) for job in jobs]
    assert len(set(folders)) == len(folders)
    assert not any(one in other.parents for one in folders for other in folders)
    kept = [kept_at(job, Path("kept")) for job in jobs]
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


def weigh(job: Job, out: Path, said: str = "") -> None:
    """Write weights as the job would leave them."""
    assert job.weights is not None
    folder = job.folder(out) / job.weights
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_text(f"{job.title} {said}")


def keep_all(jobs: list[Job], out: Path, kept: Path, settings: Settings, said: str = "") -> None:
    """As if they had been done."""
    for job in jobs:
        if job.weights:
            weigh(job, out, said)
            keep(job.folder(out), job.folder(kept), runs.made_by(job, settings), job.weights)
    for job in jobs:
        write(kept_at(job, kept), runs.kept_run(job, settings).model_copy(update={"start": began(job, settings, kept)}))


def test_results_that_were_made_otherwise_are_not_taken(tmp_path: Path) -> None:
    settings, kept = Settings(), tmp_path / "kept"
    keep_all(ARM.everything, tmp_path / "out", kept, settings)
    assert left(ARM.everything, settings, kept) == []
    for changed in ({"test": 301}, {"forgets": 0.1}, {"values": settings.values.model_copy(update={"epochs": 9})}):
        assert left([ARM], settings.model_copy(update=changed), kept) == [ARM]
    bank = settings.bank.model_copy(update={"layers": 1})
    for changed in ({"states": 8, "max_concurrent": 3}, {"bank": bank}):
        assert left([ARM], settings.model_copy(update=changed), kept) == []
    start, labels = ARM.everything[:2]
    assert runs.made_by(start, settings) == runs.made_by(start, settings.model_copy(update={"test": 301}))
    assert runs.made_by(labels, settings)["labels"]["children"] == 3
    write(kept_at(start, tmp_path / "empty"), runs.kept_run(start, settings))
    assert left([start], settings, tmp_path / "empty") == [start], "its policy is not kept"
    other = Job(task="arm", seed=1, name="MCTS, own V", play="tool")
    assert runs.made_by(other, settings) != runs.made_by(other, settings.model_copy(update={"bank": bank}))


def test_arms_are_of_the_weights_that_are_kept(tmp_path: Path) -> None:
    """Another machine teaches other weights: what was made with others is made again."""
    settings, kept, out = Settings(), tmp_path / "kept", tmp_path / "out"
    greedy = Job(task="arm", seed=1, name="greedy", play="sum")
    keep_all([*ARM.everything, greedy], out, kept, settings)
    value = ARM.everything[2]
    assert value.weights == "values"
    weigh(value, out, "elsewhere")
    keep(value.folder(out), value.folder(kept), runs.made_by(value, settings), value.weights)
    assert left([*ARM.everything, greedy], settings, kept) == [value, ARM]
    start = ARM.everything[0]
    weigh(start, out, "elsewhere")
    keep(start.folder(out), start.folder(kept), runs.made_by(start, settings), "policy")
    assert left([*ARM.everything, greedy], settings, kept) == [*ARM.everything, greedy]
    assert digest(start.folder(kept)) == began(start, settings, kept)


class Ended:
    """Processes that do nothing but leave what their job would."""

    def __init__(self, out: Path) -> None:
        self.asked: list[Job] = []
        self.out = out

    def __call__(self, told: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        job = Job(**json.loads(told[told.index("--one") + 1]))
        self.asked.append(job)
        if job.weights:
            weigh(job, self.out)
        write(job.folder(self.out) / runs.KEPT, runs.kept_run(job, Settings()))
        return subprocess.CompletedProcess(told, 0)


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, kept = tmp_path / "out", tmp_path / "kept"
    ended = Ended(out)
    monkeypatch.setattr(subprocess, "run", ended)
    run_all([ARM], Settings(), out, 1, kept)
    assert ended.asked == ARM.everything
    run_all([ARM], Settings(), out, 1, kept)
    other = Job(task="arm", seed=1, name="greedy", play="sum")
    run_all([ARM, other], Settings(), out, 1, kept)
    assert ended.asked == [*ARM.everything, other]
    with pytest.raises(ValueError, match=r"holds .* with .*Fix: use another folder"):
        run_all([ARM], Settings(slips=0.5), out, 1, kept)


def test_on_another_day_only_what_is_missing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights come from what is kept; trees are made again where a model that is not kept learns from them."""
    kept, ended = tmp_path / "kept", Ended(tmp_path / "second")
    keep_all(ARM.everything, tmp_path / "first", kept, Settings())
    monkeypatch.setattr(subprocess, "run", ended)
    other = Job(task="arm", seed=1, name="MCTS, V", play="sum")
    run_all([other], Settings(), ended.out, 1, kept)
    assert ended.asked == [other]
    start, labels, value = ARM.everything[:3]
    for job in (start, value):
        assert digest(job.folder(ended.out), job.weights or "") == digest(job.folder(kept), job.weights or "")
    reading = Job(task="reading", seed=1, name="V, by visits")
    model = Job(task="model", seed=1, name="V, by visits")
    run_all([reading], Settings(), ended.out, 1, kept)
    assert set(ended.asked[1:]) == {Job(task="states", seed=1), labels, model, reading}


def arm(right: int, calls: int = 20) -> KeptRun:
    searched = [
        Searched(problem=f"{n}", correct=n < right, calls=calls, scored=calls, generated=7 * calls, prompt=9, read=50)
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
    assert text.count("Differences, paired on the same problems") == len(COMPARISONS[name].plays)
    assert ("(GSM8K 1,319" in text) == ("GSM8K" in COMPARISONS[name].paper)
    if name == "guidance":
        assert "| greedy | 0.300 [" in text
        assert "| 0.300, 0.300, 0.300 | 20.0 | 20.0 | 140 | 50 | 43.9 | 25.1 |" in text
        # majority 5 is the second arm, two problems better
        assert "| majority 5 less greedy | +0.020 [" in text
        # 1.96 standard errors of shares of 1,319: 1.96 sqrt((43.9 * 56.1 + 59.7 * 40.3) / 1319) = 3.8
        assert "| +15.8 ± 3.8: agrees |" in text
        assert "| -2.6 ± 3.8: within its error |" in text
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
    assert bias_and_pearson(run)[0] == pytest.approx((-0.1 + 0.5) / 4)
    assert bias_and_pearson(run, 2) == (pytest.approx(0.5), None)
    # both fall most at their second step, and one of two went wrong there
    assert by_chance(run) == pytest.approx(0.5)
    assert falls(run) == {"0": 1.0, "2": 0.0}  # the third falls by 0.1 at the first step, by 0.9 at the second
    pytest.importorskip("numpy")
    pytest.importorskip("vl_convert")
    found = {job: run for seed in range(3) for job in command.jobs_of("values", seed)}
    found |= {Job(task="labels", seed=0, name="sum, N = 40"): KeptRun(made_by={}, figures={"calls": 4e4, "right": 0.5})}
    text = write_page("values", found, "c", tmp_path).read_text()
    assert "| V | 0.150 [" in text
    assert "| 0.100, -0.100 | 0.500, +0.500 | 0.000, +0.000 | 0.000, +0.000 |" in text
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
