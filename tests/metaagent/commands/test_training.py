"""`metaagent train`: overrides, mistakes, and what a dry run shows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from metaagent.cli import app

CONFIG = """\
steps = 45
stage_length = 10
policies.p0.model = "model"

[rollout]
questions = 2

[[data]]
format = "apps"
path = "apps.jsonl"
"""
MODEL = {
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "vocab_size": 32,
    "tie_word_embeddings": True,
}
PARAMETERS = 2 * (2 * 8 * 16 + 3 * 8 * 16 + 2 * 12) + 8 + 32 * 8


@pytest.fixture(autouse=True)
def _run_files(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(CONFIG)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    row = {"question": "Echo.", "input_output": '{"inputs": ["1"], "outputs": ["1"]}'}
    rows = [{**row, "id": number} for number in range(5)] + [{**row, "id": 5, "input_output": ""}]
    (tmp_path / "apps.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["train", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    return result


def dry_run(*arguments: str) -> dict[str, Any]:
    result = invoke("run.toml", *arguments, "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_dry_run_shows_configuration_and_plan() -> None:
    result = invoke("run.toml", "rollout.designs=3", "--dry-run")
    assert result.exit_code == 0
    assert "\ndesigns = 3\n" in result.stdout
    told = dict(line.strip().split("  ", 1) for line in result.stdout.splitlines() if "  " in line.strip())
    told = {name: value.strip() for name, value in told.items()}
    assert told["Policy p0"] == "designer and executor"
    assert told["Parameters"] == f"{PARAMETERS:,}, all learn"
    assert told["AdamW's moments"] == f"{8 * PARAMETERS / 1024:.1f} KiB"
    assert told["Engine's cache"] == "128.0 B per token, 2.0 MiB per request of full length"
    assert (told["Designs"], told["Runs"]) == ("6", "24")
    assert told["Tokens at most"] == "12,098,304; to design 98,304, in runs 12,000,000"
    assert told["With one agent call per run"] == "491,520 at most, of these 245,760 generated"
    assert told["Stages"] == "executor 10, designer 10, executor 10, designer 10, executor 5"
    assert told["Disk"].endswith(" for 4 checkpoints at once")
    assert told["apps:apps.jsonl"] == "2 per step of 5 problems: 22.5 epochs"
    assert "note: " in result.stderr
    assert "1 of 6 rows have no tests" in result.stderr


def test_samples_are_shown_where_runs_part(tmp_path: Path) -> None:
    (tmp_path / "vote.py").write_text("")
    parted = ("schedule=executor-only", "credit=at-grpo", "rollout.branching.turns=3", "rollout.program=vote.py")
    shown = invoke("run.toml", *parted, "rollout.designs=1", "--dry-run").stdout
    assert re.search(r"^Samples +96 per agent at most: 8 runs x 3 turns x 4 candidates$", shown, re.MULTILINE)
    cast = ("roles.agents.Ann=p0", "roles.agents.Bob=p0")
    shown = invoke("run.toml", *parted, *cast, "rollout.designs=1", "--dry-run").stdout
    assert re.search(r"^Samples +192 at most: 8 runs x 2 agents x 3 turns x 4 candidates$", shown, re.MULTILINE)
    assert "Samples" not in invoke("run.toml", "--dry-run").stdout


def test_many_stages_are_shortened() -> None:
    result = invoke("run.toml", "stage_length=1", "--dry-run")
    assert (
        "Stages  executor 1, designer 1, executor 1, designer 1, executor 1, designer 1, ... (45 stages)"
        in result.stdout
    )


def test_what_is_not_here_is_unknown() -> None:
    result = invoke("run.toml", "policies.p0.model=Qwen/Qwen3-8B", "data.0.path=none.jsonl", "--dry-run")
    assert result.exit_code == 2
    assert "Qwen/Qwen3-8B is no folder here, and not in Hugging Face's cache. Fix: " in result.stdout
    assert "2 per step; there is no " in result.stdout
    assert "Disk    unknown" in result.stdout


def test_json_has_configuration_and_plan(tmp_path: Path) -> None:
    document = dry_run("policies.p0.lora.rank=2", "roles.executor=p1", "policies.p1.model=model")
    assert document["config"]["data"][0]["path"] == str(tmp_path / "apps.jsonl")
    policies = {policy["name"]: policy for policy in document["plan"]["policies"]}
    assert (policies["p0"]["roles"], policies["p1"]["roles"]) == (["designer"], ["executor"])
    assert policies["p0"]["trained"] == 2 * 2 * (4 * 16 + 3 * 24)
    assert policies["p1"]["memory"]["moments"] == 8 * PARAMETERS
    assert dry_run("steps=7")["plan"]["sources"][0]["epochs"] == 3.5


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run.toml", "rollout.desings=3"], "unknown key rollout.desings; did you mean rollout.designs?"),
        (["run.toml", "rollout.designs=many"], 'rollout.designs = "many" should be a valid integer'),
        (["run.toml", "rollout.designs"], "override 'rollout.designs' is not KEY=VALUE"),
        (["absent.toml"], "absent.toml"),
        (["run.toml", "rollout.questions=9"], "apps:apps.jsonl: 5 problems do not fill 9 places"),
        (["run.toml", "data.0.format=aime"], "line 1, field problem: Field required"),
        (["run.toml"], "a run needs a folder. Fix: add --out FOLDER"),
    ],
)
def test_mistakes_are_usage_errors(arguments: list[str], told: str) -> None:
    result = invoke(*arguments, *([] if "needs a folder" in told else ["--dry-run"]))
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


DIVISORS = "How many positive whole-number divisors does 196 have?"
"""Of MATH-500."""


@pytest.mark.parametrize("how", [("--dry-run",), ("--dry-run", "--json"), ("--out", "out")])
def test_problems_of_a_test_set_are_told_and_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    questions = [f"Add {n} and {n}." for n in range(6)] + [DIVISORS, f"**1.** Read this. {DIVISORS} Box it."]
    rows = [{"id": str(n), "question": q, "domain": "math", "gold": "1"} for n, q in enumerate(questions)]
    (tmp_path / "math.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = invoke("run.toml", "data.0.format=problems", "data.0.path=math.jsonl", *how)
    told = " ".join(result.stderr.split())
    said = "note: 2 of 8 problems of problems:math.jsonl stand in MATH-500, so results on it would be no test"
    assert said in told
    if "--dry-run" in how:
        assert result.exit_code == 0
    if "--json" in how:
        assert json.loads(result.stdout)["plan"]["sources"][0]["math500"] == 2
    assert "MATH-500" not in invoke("run.toml", "--dry-run").stderr


FIXED = ("run.toml", "schedule=executor-only")


@pytest.mark.parametrize("how", [("--dry-run",), ("--dry-run", "--json"), ("--out", "out")])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("rollout.program=nope.py", r"rollout\.program \S+/nope\.py: No such file or directory\. Fix: name the file"),
        ("rollout.program=model", r"rollout\.program \S+/model: Is a directory\. Fix: "),
        ("rollout.program=bad.py", r"rollout\.program \S+/bad\.py: it is not UTF-8 text \(byte 0\)\. Fix: "),
        ("reward.prm=nope", r"reward\.prm \S+/nope: there is no scorer\.json\. Fix: name the model/"),
    ],
)
def test_what_a_run_reads_and_is_not_here_is_told_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: tuple[str, ...], change: str, told: str
) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    (tmp_path / "bad.py").write_bytes(b"\xff\xfe")
    (tmp_path / "vote.py").write_text("")
    values = ("reward.kind=values", "rollout.branching.score=turn", "rollout.program=vote.py", "credit=at-grpo")
    result = invoke(*FIXED, *(values if "prm" in change else ()), change, *how)
    assert result.exit_code == 2
    said = json.loads(result.stdout)["error"]["message"] if "--json" in how else result.stderr
    assert re.search(told, " ".join(said.split())), said
    assert not (tmp_path / "out").exists()


def test_data_that_is_not_here_is_told_when_a_run_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    result = invoke("run.toml", "data.0.path=none.jsonl", "--out", "out")
    assert result.exit_code == 2
    told = r"apps:none\.jsonl: there is no \S+/none\.jsonl\. Fix: name a file"
    assert re.search(told, " ".join(result.stderr.split()))
    assert not (tmp_path / "out").exists()


def test_mistakes_that_the_run_finds_are_usage_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # so that what the command sets does not outlive the test
    (tmp_path / "more.jsonl").write_text((tmp_path / "apps.jsonl").read_text())
    result = invoke("run.toml", "data.1.format=apps", "data.1.path=more.jsonl", "--out", "out")
    assert result.exit_code == 2
    told = " ".join(result.stderr.split())
    assert "error: problem id " in told
    assert "stands in apps:apps.jsonl and apps:more.jsonl" in told


def test_a_folder_whose_configuration_cannot_be_read_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "metrics.jsonl").write_text("")
    (tmp_path / "out" / "config.toml").write_text(CONFIG + "of_another_version = 1\n")
    result = invoke("run.toml", "--out", "out", "--resume")
    assert result.exit_code == 2
    assert "unknown key data.0.of_another_version" in " ".join(result.stderr.split())


def test_mistakes_of_a_file_are_all_told(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(f"seeds = 1\nstep = 2\n{CONFIG}")
    result = invoke("bad.toml", "--dry-run")
    assert result.exit_code == 2
    assert "unknown key seeds; did you mean seed?" in result.stderr
    assert "unknown key step; did you mean steps?" in result.stderr
