"""`metaagent train` as a process on a tiny policy: steps, resuming, refusals, and signals that stop it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metaagent.cli import app
from trainer.disk.checkpoint import STATE

sys.path.append(str(Path(__file__).parents[2] / "trainer"))  # its helpers

METAAGENT = [sys.executable, "-m", "metaagent.cli"]
CONFIG = """\
policies.p0.model = "model"

[[data]]
format = "problems"
path = "problems.jsonl"

[rollout]
questions = 1
designs = 2
executions = 2
"""


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """A configuration that is right, with an empty folder for a model."""
    (tmp_path / "model").mkdir()
    (tmp_path / "problems.jsonl").write_text(
        json.dumps({"id": "1", "question": "1?", "domain": "math", "gold": "1"}) + "\n"
    )
    (tmp_path / "run.toml").write_text(CONFIG)
    return "run.toml"


@pytest.mark.parametrize(
    ("missing", "options", "told"),
    [
        ("torch", [], 'torch is not installed. Fix: pip install "metaagent[train]"'),
        ("wandb", ["--wandb", "p"], "wandb is not installed. Fix: pip install wandb"),
        ("tensorboard", ["--tensorboard"], "tensorboard is not installed. Fix: pip install tensorboard"),
    ],
)
def test_what_is_not_installed_is_told_before_the_folder_is_taken(
    missing: str, options: list[str], told: str, plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "tensorboard":
        pytest.importorskip("torch")
    for loaded in [
        name for name in sys.modules if name.startswith(("trainer.update.torch_backend", "torch.utils.tensorb"))
    ]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # so that what the command sets does not outlive the test
    result = CliRunner().invoke(app, ["train", plain, "--out", "out", *options])
    assert result.exit_code == 2, result.output
    assert told in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


# Whole runs


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from training import teach

    return teach(tmp_path_factory.mktemp("policy"), right=0.6, designer=False, steps=30)


@pytest.fixture
def toy_run(taught: Path, tmp_path: Path) -> str:
    """A fixed program and an executor that learns: a step takes a second."""
    import toy
    from training import configured, write_problems

    from trainer.config.toml_file import to_toml

    (tmp_path / "single.py").write_text(toy.SINGLE)
    problems = write_problems(tmp_path / "problems.jsonl")
    rollout = {"program": tmp_path / "single.py"}
    config = configured(taught, problems, schedule="executor-only", steps=4, rollout=rollout)
    (tmp_path / "toy.toml").write_text(to_toml(config))
    return "toy.toml"


NOTHING_LEARNED = re.compile(r"note: step \d: the executor learned nothing from rewards: .*")
"""Of a step whose rewards happened to be equal, as a line on stderr."""


def train(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*METAAGENT, "train", *arguments], capture_output=True, text=True, timeout=300)


def metrics(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_from_its_first_step_to_its_last(toy_run: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = train(toy_run, "steps=2", "--out", "out", "--json")
    assert ended.returncode == 0, ended.stderr
    assert [json.loads(line) for line in ended.stdout.splitlines()] == metrics(out)
    assert [line["step"] for line in metrics(out)] == [0, 1]
    assert [line for line in ended.stderr.splitlines() if not NOTHING_LEARNED.fullmatch(line)] == []

    refused = train(toy_run, "steps=2", "--out", "out")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: out holds a run already. Fix: continue it with --resume")
    other = train(toy_run, "seed=1", "--out", "out", "--resume")
    assert other.returncode == 2
    assert "out holds a run with seed = 0, not 1" in other.stderr

    (out / "checkpoints" / "step-00000002" / STATE).write_text("{}")
    resumed = train(toy_run, "steps=3", "--out", "out", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stderr.startswith(f"note: checkpoint step-00000002 is damaged and was passed over: {STATE} has ")
    assert [line.split("  ")[0] for line in resumed.stdout.splitlines()] == ["step 1", "step 2"]
    assert [line["step"] for line in metrics(out)] == [0, 1, 2]

    again = train(toy_run, "steps=3", "--out", "out", "--resume")
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr.startswith("note: all 3 steps were done already")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("number", "to_group"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_signal_stops_a_run_which_goes_on_with_the_command_it_names(
    number: signal.Signals, to_group: bool, toy_run: str, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [*METAAGENT, "train", toy_run, "rollout.retries=1", "-o", "a run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that starts the tests in its background has them ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("step 0 ")
    if to_group:
        os.killpg(process.pid, number)  # as a terminal does at Ctrl-C
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    told, command = [line for line in errors.splitlines() if not NOTHING_LEARNED.fullmatch(line)]
    assert told.startswith("error: stopped at step ")
    assert told.endswith(". To go on:")
    name, *arguments = shlex.split(command)
    assert (name, arguments) == ("metaagent", ["train", toy_run, "rollout.retries=1", "--out", "a run", "--resume"])
    assert len(metrics(tmp_path / "a run")) < 4
    resumed = subprocess.run([*METAAGENT, *arguments], capture_output=True, text=True, timeout=300)
    assert resumed.returncode == 0, resumed.stderr
    assert [line["step"] for line in metrics(tmp_path / "a run")] == [0, 1, 2, 3]
