"""What is kept of runs: enough for pages, the same bytes each time, never taken for another run's."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attempts import ENSEMBLE, attempts

from speedrun.arms import Job, in_todays_terms, kept_at, left, made_by, run_all
from speedrun.compare import system_of, verdict_in
from speedrun.kept import ATTEMPTS, FIXED, GREEDY, RL, Result, kept_of, read, write
from speedrun.phases import PROBLEMS, programs
from speedrun.settings import SpeedrunSettings
from speedrun.starts import POLICY, digest, fetch, keep, kept_digest
from speedrun.variants import ARMS, START, STARTS, WITH_FIXED
from speedrun.versions import code_of_project, now_runs
from tasks.data.miniature import KINDS
from trainer.disk import agree, agree_on_settings
from trainer.evaluate import RESULTS, Diversity
from trainer.run import METRICS, StepReport

SETTINGS = SpeedrunSettings(test_problems=40, validation_problems=20, overrides=("steps=2",))
STEP = StepReport(
    step=0,
    active=["executor"],
    questions=1,
    designs=1,
    executions=1,
    reward=0.5,
    reward_by_role={},
    terms={},
    correct=0.5,
    solved=0.5,
    ready=1.0,
    structures={},
    diversity=Diversity(designs=1, agents=1, role_names=1, unique_prompts=1.0, top_names={}),
    failures={},
    silent={},
    lengths={},
    usage={},
    updates={},
    weights={},
)


def leave(folder: Path, right: int, job: Job | None = None) -> None:
    """What a run leaves behind."""
    few = job is not None and job.tuning
    places = {ATTEMPTS: 5 if few else 10} | ({} if few else {GREEDY: 5, f"{FIXED}/one": 10})
    if job is not None and job.name in WITH_FIXED and not few:
        places |= {f"{FIXED}/{name}": 5 for name in programs()}
    for place, of in places.items():
        (folder / place).mkdir(parents=True)
        lines = [each.model_dump_json() + "\n" for each in attempts(dict.fromkeys(KINDS, right), of, ENSEMBLE)]
        (folder / place / RESULTS).write_text("".join(lines))
    if job is not None and job.name in ARMS:
        (folder / RL).mkdir()
        steps = 2 >> ARMS[job.name].half
        (folder / RL / METRICS).write_text(
            "".join(STEP.model_copy(update={"step": n}).model_dump_json() + "\n" for n in range(steps))
        )


def taught(policy: Path, weights: str) -> None:
    policy.mkdir()
    (policy / "model.safetensors").write_text(weights)
    (policy / "tokenizer.json").write_text("{}")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that a process was started for, in this order."""
    jobs: list[Job] = []

    def ended(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        job, out = Job(**json.loads(command[command.index("--one") + 1])), Path(command[command.index("--out") + 1])
        jobs.append(job)
        if job.name in STARTS and not (job.folder(out) / POLICY).exists():
            taught(job.folder(out) / POLICY, f"{job.name} {job.seed} of {out}")
        leave(job.folder(out), min(4 + job.seed, 5), job)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", ended)
    return jobs


def test_a_run_is_kept_as_it_was(tmp_path: Path) -> None:
    leave(tmp_path / "run", 3)
    assert kept_of(tmp_path / "run", {"job": "x"}, "policy").code == "unknown"
    now_runs(tmp_path / "run")
    run = kept_of(tmp_path / "run", {"job": "x"}, "policy")
    assert (run.start, run.code) == ("policy", code_of_project())
    assert len(run.sampled) == 10 * len(KINDS)
    assert run.sampled[0] == Result(f"{KINDS[0]}-0", KINDS[0], True, "ensemble")
    assert sum(each.correct for each in run.fixed["one"]) == 3 * len(KINDS)
    write(tmp_path / "kept" / "a.json.gz", run)
    write(tmp_path / "b.json.gz", run)
    assert (tmp_path / "kept" / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert (tmp_path / "b.json.gz").read_bytes()[4:8] == bytes(4), "no time of day in it"
    assert read(tmp_path / "b.json.gz") == run
    assert read(tmp_path / "none.json.gz") is None
    for broken in (b"", b"{}", (tmp_path / "b.json.gz").read_bytes()[:-9]):
        (tmp_path / "c.json.gz").write_bytes(broken)
        with pytest.raises(ValueError, match=r"c\.json\.gz holds no run that was kept: .*Fix: remove it"):
            read(tmp_path / "c.json.gz")


def test_a_run_is_of_all_the_versions_that_went_on_with_it(
    tmp_path: Path, made: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of that which happens to keep it."""
    start = Job(name=START, seed=1)
    monkeypatch.setattr("speedrun.versions.code_of_project", lambda: "first")
    now_runs(start.folder(tmp_path / "one"))
    for version in ("second", "second", "third"):
        monkeypatch.setattr("speedrun.versions.code_of_project", lambda version=version: version)
        run_all([start], SETTINGS, tmp_path / "one", 1, tmp_path / version)
        run = read(kept_at(start, tmp_path / version))
        assert run is not None
        assert run.code == "first+second"
    assert made == [start]


def test_what_is_kept_is_not_made_again_elsewhere(tmp_path: Path, made: list[Job]) -> None:
    kept = tmp_path / "kept"
    start, arm = Job(name=START, seed=1), Job(name="executor only", seed=1, factor=2.0)
    run_all([start, arm], SETTINGS, tmp_path / "one", 1, kept)
    assert made == [start, arm]
    began = digest(start.folder(kept))
    assert began == digest(start.folder(tmp_path / "one")) != ""
    assert read(kept_at(arm, kept)) == kept_of(arm.folder(tmp_path / "one"), made_by(arm, SETTINGS), began)
    shown = system_of("shown", [arm], kept)
    assert sum(each.correct for each in shown.sampled[0]) == 5 * len(KINDS)

    made.clear()
    run_all([start, arm], SETTINGS, tmp_path / "elsewhere", 1, kept)
    assert made == []
    # Another arm of that seed begins from the policy that is kept: nothing is taught or measured again.
    other = replace(arm, name="coupled")
    run_all([start, arm, other], SETTINGS, tmp_path / "elsewhere", 1, kept)
    assert made == [other]
    assert digest(start.folder(tmp_path / "elsewhere")) == began
    assert (start.folder(tmp_path / "elsewhere") / PROBLEMS / "train.jsonl").exists()
    made.clear()
    run_all([start, arm, other], SETTINGS, tmp_path / "one", 1, kept)
    assert made == []


def test_arms_of_another_start_are_made_again(tmp_path: Path, made: list[Job]) -> None:
    """As where a machine of another kind teaches other weights: arms of two starts are never paired."""
    kept, arm, other = tmp_path / "kept", Job(name="executor only", seed=1), Job(name="coupled", seed=1)
    run_all([arm, other], SETTINGS, tmp_path / "one", 1, kept)
    shutil.rmtree(arm.start.folder(kept))
    assert left([arm, other, arm.start], SETTINGS, kept) == [arm, other, arm.start]
    made.clear()
    run_all([arm], SETTINGS, tmp_path / "two", 1, kept)
    assert made == [arm.start, arm]
    assert left([arm, other], SETTINGS, kept) == [other]
    with pytest.raises(ValueError, match=r"one/seed-1/start/policy is another one than .*Fix: another --out"):
        run_all([other], SETTINGS, tmp_path / "one", 1, kept)
    (kept / "seed-1" / START / POLICY / "model.safetensors").write_text("damaged")
    assert left([arm], SETTINGS, kept) == [arm]


def test_a_start_is_kept_whole_with_what_it_was_made_by(tmp_path: Path) -> None:
    """The same weights under other settings are another start; what a kill left half copied is no hindrance."""
    start, kept = tmp_path / "start", tmp_path / "kept" / "start"
    start.mkdir()
    taught(start / POLICY, "weights")

    def found(**made_by: int) -> str:
        return kept_digest(kept, made_by, lambda written: written)

    assert found(seed=1) == ""
    keep(start, kept, {"seed": 1})
    assert (found(seed=1), found(seed=2)) == (digest(start), "")
    keep(start, kept, {"seed": 2})
    assert (found(seed=1), found(seed=2)) == ("", digest(start))
    (kept / "made_by.json").unlink()
    (kept.with_name(".start") / POLICY).mkdir(parents=True)
    keep(start, kept, {"seed": 1})
    assert found(seed=1) == digest(start)
    assert sorted(path.name for path in kept.parent.iterdir()) == ["start"]
    (kept / "made_by.json").write_text("{")
    with pytest.raises(
        ValueError, match=r"made_by.json does not say how .*start/policy was made: .*Fix: remove .*start"
    ):
        found(seed=1)


def test_a_copy_that_was_broken_off_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, start = tmp_path / "kept", tmp_path / "start"
    kept.mkdir()
    taught(kept / POLICY, "weights")
    copied = shutil.copytree

    def killed(source: Path, to: Path) -> None:
        to.mkdir(parents=True)
        (to / "tokenizer.json").write_text("{")
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copytree", killed)
    with pytest.raises(KeyboardInterrupt):
        fetch(kept, start)
    monkeypatch.setattr(shutil, "copytree", copied)
    fetch(kept, start)
    assert digest(start) == digest(kept) != ""
    assert [path.name for path in start.iterdir()] == [POLICY]


def test_a_policy_is_kept_in_half_precision(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors import safe_open
    from safetensors.torch import save_file

    from speedrun.starts import halved

    (tmp_path / "model").mkdir()
    save_file({"a": torch.tensor([1.0, 1 / 3])}, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    (tmp_path / "model" / "config.json").write_text("{}")
    halved(tmp_path / "model", tmp_path / "policy")
    with safe_open(tmp_path / "policy" / "model.safetensors", "pt") as file:
        assert (file.metadata(), file.get_tensor("a").tolist()) == ({"format": "pt"}, [1.0, 0.333251953125])
    assert (tmp_path / "policy" / "config.json").read_text() == "{}"


def test_what_was_made_otherwise_is_made_again(
    tmp_path: Path, made: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, arm = tmp_path / "kept", Job(name="executor only", seed=1)
    run_all([arm], SETTINGS, tmp_path / "one", 1, kept)
    assert left([arm], SETTINGS, kept) == []
    others = SETTINGS.model_copy(update={"designer_rows": 61})
    faster = replace(arm, factor=2.0)
    assert (left([arm], others, kept), left([faster], SETTINGS, kept)) == ([arm], [faster])
    monkeypatch.setattr("speedrun.arms.code_of_instrument", lambda: "other")
    assert left([arm], SETTINGS, kept) == [arm]


def test_a_tuning_is_kept_with_what_it_starts_from(tmp_path: Path, made: list[Job]) -> None:
    kept, tuning = tmp_path / "kept", Job(name="coupled", seed=1000, factor=0.5, tuning=True)
    run_all([tuning], SETTINGS, tmp_path / "one", 2, kept)
    assert made == [tuning.start, tuning]
    files = sorted(path.relative_to(kept / "tuning/seed-1000").as_posix() for path in kept.rglob("*.gz"))
    assert files == ["coupled at 0.5.json.gz", "start.json.gz"]


def test_an_arm_waits_for_its_own_start_alone(tmp_path: Path, made: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    """While the last start is taught, arms of the others use the other core."""
    first, last = Job(name="separate, half, 1e-4", seed=1), Job(name="coupled", seed=2)
    trained, ended = threading.Event(), subprocess.run

    def slow(command: list[str], **of: Any) -> Any:
        job = Job(**json.loads(command[command.index("--one") + 1]))
        assert job != last.start or trained.wait(20), "the last start is never done where arms wait for it"
        done = ended(command, **of)
        if job == first:
            trained.set()
        return done

    monkeypatch.setattr(subprocess, "run", slow)
    run_all([first, last], SETTINGS, tmp_path / "one", 2, tmp_path / "kept")
    assert made == [Job(name=START, seed=1), first.start, first, last.start, last], "half of a start, after its whole"


def test_what_is_kept_holds_no_place_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = [made_by(Job(name=name, seed=1), SETTINGS) for name in ("coupled", START)]
    monkeypatch.chdir(tmp_path)
    assert [made_by(Job(name=name, seed=1), SETTINGS) for name in ("coupled", START)] == here
    pages = Path(__file__).parents[2] / "docs" / "results"
    kept = [run for path in sorted((pages / "runs").rglob("*.gz")) if (run := read(path))]
    assert len(kept) >= 4
    texts = [run.model_dump_json() for run in kept] + [path.read_text() for path in pages.glob("*.json")]
    assert not any('"/' in text for text in texts)


def test_what_is_kept_of_the_pages_answers_today() -> None:
    """A key that recipes got since, with its default, makes nothing anew; a changed one does."""
    pages, settings = Path(__file__).parents[2] / "docs" / "results", SpeedrunSettings()
    kept = [run for path in sorted((pages / "runs").rglob("*.gz")) if (run := read(path))]
    jobs = [Job(**run.made_by["job"]) for run in kept]
    assert left(jobs, settings, pages / "runs") == [], "made with another instrument: they are not used any more"
    assert (verdict_in(pages, settings) is not None) == (pages / "gate.json").exists()
    assert left(jobs, SpeedrunSettings(designer_rows=61), pages / "runs") == jobs
    assert verdict_in(pages, SpeedrunSettings(designer_rows=61)) is None


@pytest.mark.parametrize(
    ("spoilt", "told"),
    [
        ({"sampled": slice(0, 39)}, "39 attempts at 39 problems, not one at each of 40"),
        ({"sampled": [0] * 40}, "40 attempts at 1 problems, not one at each of 40"),
        ({"greedy": slice(0, 0)}, "0 greedy attempts at 0 problems, not one at each of 20"),
        ({"steps": slice(0, 1)}, "1 steps of 2"),
        ({"steps": [0, 1, 1]}, "3 steps of 2"),
    ],
)
def test_a_kept_run_that_is_not_whole_is_told(
    tmp_path: Path, made: list[Job], spoilt: dict[str, Any], told: str
) -> None:
    kept, arm = tmp_path / "kept", Job(name="executor only", seed=1)
    run_all([arm], SETTINGS, tmp_path / "one", 1, kept)
    run = read(kept_at(arm, kept))
    assert run is not None
    for field, which in spoilt.items():
        had = getattr(run, field)
        run = run.model_copy(update={field: had[which] if isinstance(which, slice) else [had[n] for n in which]})
    write(kept_at(arm, kept), run)
    with pytest.raises(ValueError, match=rf"executor only.json.gz holds {told}. Fix: remove it"):
        left([arm], SETTINGS, kept)


def test_settings_of_an_earlier_version_go_on(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    before = SETTINGS.model_dump(mode="json")
    del before["architecture"]["alone"], before["kl_roles"]
    path.write_text(json.dumps(before))
    agree_on_settings(path, SETTINGS)
    for changed in ({"seed": 7}, {"architecture": SETTINGS.architecture.model_copy(update={"alone": "x"})}):
        with pytest.raises(ValueError, match=f"holds attempts with {next(iter(changed))}[.=]"):
            agree_on_settings(path, SETTINGS.model_copy(update=changed))
    path.write_text('{"no": "settings"}')
    with pytest.raises(ValueError, match="holds attempts with"):
        agree_on_settings(path, SETTINGS)


def test_a_folder_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    job = Job(name="coupled", seed=1)
    now = made_by(job, SETTINGS)
    before = json.loads(json.dumps(now))
    del before["rl"]["reward"], before["settings"]["kl_roles"]
    path = tmp_path / "made_by.json"
    path.write_text(json.dumps(before))
    agree(path, now, begun=True, today=in_todays_terms)
    before["rl"]["steps"] += 1
    path.write_text(json.dumps(before))
    with pytest.raises(ValueError, match=r"holds attempts with rl[.=]"):
        agree(path, now, begun=True, today=in_todays_terms)
    for broken in ("[]", '{"settings": 1}', '{"settings": {}, "rl": [1]}', '{"settings": {}, "rl": {"policies": 1}}'):
        path.write_text(broken)
        with pytest.raises(ValueError, match="holds attempts with"):
            agree(path, now, begun=True, today=in_todays_terms)
