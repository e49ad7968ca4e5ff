"""`metaagent simulate`, and what a dry run says of a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import document, invoke

from metaagent.terminal import prediction_fields
from trainer.predict.costs import PARAMETERS
from trainer.predict.simulate import Prediction
from trainer.run.step_report import StepReport

MODEL: dict[str, Any] = {
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
}
SPLIT = ["roles.executor=p1", "policies.p1.model=model"]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "problems.jsonl").write_text(
        "".join(json.dumps({"id": str(n), "question": "1?", "domain": "math", "gold": "1"}) + "\n" for n in range(8))
    )
    (tmp_path / "run.toml").write_text(
        'extends = "recipe.toml"\npolicies.p0.model = "model"\n[[data]]\nformat = "problems"\npath = "problems.jsonl"\n'
    )
    (tmp_path / "recipe.toml").write_text(
        'cluster.layout = "colocated"\n[policies.p0.update]\nbackend = "deepspeed"\nranks = 8\n'
        "[policies.p0.engine]\nreplicas = 8\noptions = { gpu_memory_utilization = 0.8 }\n"
    )


def simulated(*arguments: str) -> dict[str, Any]:
    return document(invoke("simulate", "run.toml", *arguments, "--json"))


# Simulations


def test_the_best_division_of_so_many_nodes() -> None:
    found = simulated("--nodes", "2,1")
    best = found["predicted"]["best"]
    assert [each["nodes"] for each in best] == [1, 2]
    for each in best:
        policy = each["policies"]["p0"]
        used = policy["ranks"] + (0 if each["layout"] == "colocated" else policy["engines"])
        assert used + each["unused"] == 8 * each["nodes"]
        assert each["prediction"]["step_s"] > 0
        assert set(each["prediction"]["idle"]) == {"ranks", "engines", "run_workers"}
    assert best[1]["prediction"]["step_s"] <= best[0]["prediction"]["step_s"]
    own = found["predicted"]["as_configured"]
    assert own["step_s"] >= best[0]["prediction"]["step_s"]
    assert (found["hardware"], found["fitted"]) == ("H100", [])
    assert set(PARAMETERS) < set(found["assumed"])


def test_settings_change_what_is_predicted() -> None:
    plain = simulated("--nodes", "1")["predicted"]["as_configured"]
    more = simulated("--nodes", "1", "rollout.designs=16")["predicted"]["as_configured"]
    assert more["rollout_s"] > plain["rollout_s"]
    quick = simulated("--nodes", "1", "--gpu", "H200")["predicted"]["as_configured"]
    assert quick["rollout_s"] < plain["rollout_s"]
    stale = simulated(
        "--nodes", "1", "cluster.layout=disaggregated", "cluster.staleness=1", "policies.p0.engine.replicas=4",
        "policies.p0.update.ranks=4",
    )  # fmt: skip
    assert stale["settings"]["staleness"] == 1
    assert [each["layout"] for each in stale["predicted"]["best"]] == ["disaggregated"]
    halves = ["policies.p0.update.ranks=4", "policies.p0.engine.replicas=4"]
    other = [each.replace("p0", "p1") for each in halves] + ['policies.p1.update.backend="deepspeed"']
    split = simulated("--nodes", "1", *SPLIT, *halves, *other)
    assert split["settings"]["shared"] is False
    assert set(split["predicted"]["best"][0]["policies"]) == {"p0", "p1"}


def test_what_is_shown_is_called_predicted() -> None:
    said = invoke("simulate", "run.toml", "--nodes", "1,2").stdout
    assert "Predicted, not measured  H100\n" in said
    assert "As configured  colocated, p0: 8 ranks beside 8 engines\nPredicted step " in said
    header, one, two = said[said.index("nodes\t") :].splitlines()[:3]
    assert header.split("\t") == [
        "nodes", "step", "rollout", "update", "sync", "GPUs changing hands", "idle ranks", "idle engines",
        "idle run workers", "times as fast", "division",
    ]  # fmt: skip
    step, *parts = (float(cell.removesuffix(" s").replace(",", "")) for cell in one.split("\t")[1:6])
    assert min(parts) > 0
    assert sum(parts) == pytest.approx(step, rel=0.01)
    assert (one.split("\t")[0], one.split("\t")[-2], two.split("\t")[0]) == ("1", "1.00", "2")
    assert "Assumed  an engine's decoding step, each request in it, " in said
    assert "Fitted" not in said


def a_run(folder: Path, seconds: float) -> None:
    """Six steps of a run on eight GPUs, whose rollouts take as long as that for each token of their replies."""
    folder.mkdir()
    (folder / "config.toml").write_text(
        Path("run.toml").read_text().replace("recipe.toml", str(Path.cwd() / "recipe.toml"))
    )
    lines = []
    for step in range(6):
        mean = 100.0 * (1 + step)
        report = {
            "step": step, "active": ["executor"], "questions": 8, "designs": 32, "executions": 128, "reward": 0,
            "reward_by_role": {}, "terms": {}, "correct": 0, "solved": 0, "ready": 1.0,
            "structures": {"single": 1.0}, "diversity": {}, "failures": {}, "silent": {},
            "lengths": {
                "designer": {"count": 32, "mean": 50, "p95": 50, "max": 50},
                "executor": {"count": 128, "mean": mean, "p95": mean, "max": mean},
            },
            "usage": {
                "designer": {"prompt_tokens": 3200, "completion_tokens": 1600},
                "executor": {"prompt_tokens": 12800, "completion_tokens": int(128 * mean)},
            },
            "updates": {"p0": {
                "loss": 0, "gradient_norm": 0, "steps": 1, "samples": 128, "computed_samples": 128, "tokens": 1,
                "duration_s": 10 + mean / 10,
            }},
            "weights": {}, "timings": {"rollout_s": seconds * mean, "update_s": 10 + mean / 10, "sync_s": 4.0},
        }  # fmt: skip
        lines.append(StepReport.model_validate(report).model_dump_json() + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines))


@pytest.mark.thorough
def test_a_run_shows_what_its_parts_take(tmp_path: Path) -> None:
    for name, seconds in (("quick", 0.02), ("slow", 0.2)):
        a_run(tmp_path / name, seconds)
    found = {name: simulated("--nodes", "1", "--fit", name) for name in ("quick", "slow")}
    assert {"update_s", "update_token_s", "sync_s"} <= set(found["quick"]["fitted"])
    assert not set(found["quick"]["fitted"]) & set(found["quick"]["assumed"])
    own = {name: each["predicted"]["as_configured"] for name, each in found.items()}
    assert own["quick"]["sync_s"] == pytest.approx(4.0)
    assert own["slow"]["rollout_s"] / own["quick"]["rollout_s"] == pytest.approx(10, rel=0.2)
    # 400 tokens in the mean of the steps that count, of which the executor's stage computes all.
    assert own["slow"]["step_s_by_roles"]["executor"] == pytest.approx(
        own["slow"]["rollout_s"] + 10 + 40 + 4 + own["slow"]["turn_s"], rel=0.1
    )
    said = invoke("simulate", "run.toml", "--nodes", "1", "--fit", "slow").stdout
    assert "\nRun      5 steps, whose rollouts are met within " in said
    assert "\nFitted   an engine's decoding step" in said
    # A run with GPUs does not show what CPUs take.
    cpus = simulated("--nodes", "1", "--fit", "slow", "cluster.gpus_per_node=0")
    assert cpus["hardware"] == "a CPU core"
    assert not set(cpus["fitted"]) & set(PARAMETERS)
    assert cpus["workload"]["executor"]["reply"]["mean"] == 400


def test_a_runs_own_model_has_to_be_there(tmp_path: Path) -> None:
    a_run(tmp_path / "run", 0.1)
    config = (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "run" / "config.toml").write_text(config.replace('model = "model"', 'model = "/gone/model"'))
    result = invoke("simulate", "run.toml", "--fit", "run", "policies.p0.model=model")
    assert result.exit_code == 2
    assert (
        f"error: {Path('run') / 'config.toml'}, which no override changes: policies.p0.model: the size of /gone/model "
        "is not known here. Fix: the model's folder, there again or named in that file"
    ) in " ".join(result.stderr.split())


@pytest.mark.thorough
def test_a_run_of_one_process_has_to_say_what_it_was_on(tmp_path: Path) -> None:
    a_run(tmp_path / "run", 0.1)
    alone = f'policies.p0.model = "{tmp_path / "model"}"\n[[data]]\nformat = "problems"\npath = "problems.jsonl"\n'
    (tmp_path / "run" / "config.toml").write_text(alone)
    unknown = invoke("simulate", "run.toml", "--nodes", "1", "--fit", "run")
    assert unknown.exit_code == 2
    assert (
        "error: the run in run: neither its steps nor its configuration say what it was on: policies.*.device = "
        '"auto". Fix: "cpu" or "cuda" there, in its config.toml'
    ) in " ".join(unknown.stderr.split())
    (tmp_path / "run" / "config.toml").write_text(f'policies.p0.device = "cpu"\n{alone}')
    found = simulated("--nodes", "1", "--fit", "run")
    assert not set(found["fitted"]) & set(PARAMETERS)  # CPUs show nothing of these GPUs


@pytest.mark.thorough
def test_another_programs_work_is_not_taken_over(tmp_path: Path) -> None:
    a_run(tmp_path / "designed", 0.1)
    (tmp_path / "agent.py").write_text("x = 1\n")
    (tmp_path / "same.py").write_text("x = 1\n")
    given = ["--nodes", "1", 'rollout.program="agent.py"', 'schedule="executor-only"']
    found = simulated(*given, "--fit", "designed")
    assert found["workload"]["designer"] is None
    assert found["workload"]["per_run"] == 1
    assert found["workload"]["executor"]["reply"]["mean"] == 400
    assert {"agents per run", "trajectories learned from"} <= set(found["assumed"])
    assert "lengths of the executor's prompts and replies" in found["fitted"]
    assert not {"designs that can run", "lengths of designs"} & {*found["fitted"], *found["assumed"]}
    said = invoke("simulate", "run.toml", *given, "--fit", "designed").stdout
    assert "and which has another program\n" in said

    a_run(tmp_path / "given", 0.1)
    program = f'schedule = "executor-only"\nrollout.program = "{tmp_path / "same.py"}"\n'
    (tmp_path / "given" / "config.toml").write_text(program + (tmp_path / "given" / "config.toml").read_text())
    same = simulated(*given, "--fit", "given")
    assert {"agents per run", "trajectories learned from"} <= set(same["fitted"])
    other = simulated("--nodes", "1", "--fit", "given")
    assert other["workload"]["designer"] is not None
    assert other["workload"]["per_run"] == 3
    assert {"agents per run", "lengths of designs", "designs that can run"} <= set(other["assumed"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--nodes", "1,zero"], "--nodes 1,zero: these are no numbers of nodes from 1 to 4096. Fix: such as 1,2,4"),
        (["--nodes", "0"], "these are no numbers of nodes"),
        (["--gpu", "T4"], "--gpu T4: there is no such kind here. Fix: one of H100, H200"),
        (["policies.p0.model=none/none"], "the size of none/none is not known here. Fix: a model's folder, or"),
        (["--fit", "nothing"], "nothing holds no run: "),
        (
            ["schedule=executor-only", "credit=at-grpo", "rollout.branching.candidates=4"],
            "rollout.branching: a simulation knows runs that do not part",
        ),
        (["rollout.desings=4"], "unknown key rollout.desings; did you mean rollout.designs?"),
        (["policies.p0.engine.options.gpu_memory_utilization=0.1"], "less than one request of full length. Fix:"),
        (["policies.p0.engine.options.gpu_memory_utilization=abc"], "gpu_memory_utilization = 'abc', of the policy"),
    ],
)
def test_what_cannot_be_predicted_is_told(arguments: list[str], told: str) -> None:
    result = invoke("simulate", "run.toml", *arguments)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_what_does_not_fit_hides_nothing_else() -> None:
    """On one node weights, gradients and optimizer of a rank do not fit at stage 1; as configured, layouts do not."""
    arguments = ["--nodes", "1,4", "policies.p0.update.zero_stage=1", "policies.p0.engine.replicas=4"]
    result = invoke("simulate", "run.toml", *arguments)
    assert result.exit_code == 0
    assert "\nNot predicted  policies.p0: 8 ranks and 4 engines x 1 (tensor_parallel) = 4 cannot share" in result.stdout
    one, four = result.stdout[result.stdout.index("\n1\t") :].splitlines()[1:3]
    assert one.split("\t")[1:10] == ["-"] * 9
    assert one.split("\t")[10].startswith("policies.p0: update takes ")
    assert " Fix: " in one
    assert float(four.split("\t")[1].removesuffix(" s")) > 0
    found = simulated(*arguments)["predicted"]
    assert found["as_configured"] is None
    assert found["as_configured_why_not"].startswith("policies.p0: 8 ranks and 4 engines")
    assert found["best"][0] == {"nodes": 1, "why_not": one.split("\t")[10]}
    assert found["best"][1]["prediction"]["step_s"] > 0


def test_where_nothing_can_be_predicted_each_reason_is_told() -> None:
    once = invoke("simulate", "run.toml", "policies.p0.engine.options.gpu_memory_utilization=0")
    assert once.exit_code == 2
    assert once.stderr.startswith("error: engine.options.gpu_memory_utilization = 0, of the policy with model = ")
    assert once.stderr.count("gpu_memory_utilization") == 1
    other = invoke(
        "simulate", "run.toml", "--nodes", "1,2", "policies.p0.engine.options.gpu_memory_utilization=0.1",
        "policies.p0.engine.replicas=4",
    )  # fmt: skip
    assert other.exit_code == 2
    assert "as configured: policies.p0: 8 ranks and 4 engines" in other.stderr
    assert "on 1 node, on 2 nodes: policies.p0: " in other.stderr.replace("\n", " ")


def test_a_model_that_cannot_be_sized_says_why(tmp_path: Path) -> None:
    def told(model: str) -> str:
        result = invoke("simulate", "run.toml", f"policies.p0.model={model}")
        assert result.exit_code == 2
        return " ".join(result.stderr.split())

    model = tmp_path / "strange"
    assert f"policies.p0.model: the size of {model} is not known here. Fix: a model's folder" in told(str(model))
    assert "hf download" not in told(str(model))
    model.mkdir()
    assert f"policies.p0.model: there is no {model / 'config.json'}. Fix: the folder of a dense model" in told(
        "strange"
    )
    (model / "config.json").write_text(json.dumps(MODEL | {"num_experts": 8}))
    assert "has num_experts: the size of mixtures of experts is not worked out here. Fix:" in told("strange")
    (model / "config.json").write_text("{")
    assert "config.json cannot be read: " in told("strange")
    (model / "config.json").write_text(json.dumps(MODEL))
    (model / "model.safetensors").write_bytes(b"cut short")
    assert "model.safetensors is no safetensors file: " in told("strange")


@pytest.mark.parametrize(("seconds", "shown"), [(42.0, "42 s"), (90.0, "1.5 min"), (5400.0, "1.5 h")])
def test_a_run_is_as_long_as_its_unit_shows(seconds: float, shown: str) -> None:
    found = Prediction.model_validate(simulated("--nodes", "1")["predicted"]["as_configured"])
    told = dict(prediction_fields(found.model_copy(update={"total_s": seconds})))
    assert told["Predicted in all"].startswith(f"{shown}, ")


# Dry runs


def test_a_dry_run_of_a_cluster_tells_each_gpus_memory_by_phase() -> None:
    said = invoke("train", "run.toml", "--dry-run").stdout
    assert "on one device" not in said
    table = said[said.index("On H100 GPUs  80 GB each\n") :].splitlines()[1:]
    assert table[0] == "p0: 8 x rank and engine\trollout\tsync\tupdate"
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in table if "\t" in line}
    assert rows["AdamW's moments"] == ["-", "-", f"{8_190_735_360 / 2**30:.1f} GiB"]  # 8 bytes of each, over 8 ranks
    assert rows["its cache"][0] != "-"
    assert rows["its cache"][1:] == ["-", "-"]
    assert "\np0: a sync             15.3 GiB sent, 122.1 GiB received\n" in said
    assert said.count("\nFits  yes\nPredicted step ") == 2
    found = document(invoke("train", "run.toml", "--dry-run", "--json"))
    assert set(found["predicted"]) == {"H100", "H200"}
    assert found["predicted"]["H100"]["step_s"] == simulated("--nodes", "1")["predicted"]["as_configured"]["step_s"]
    assert [each["gpu"] for each in found["plan"]["cluster"]] == ["H100", "H200"]


def test_what_does_not_fit_has_no_prediction() -> None:
    arguments = ["policies.p0.update.zero_stage=1"]
    said = invoke("train", "run.toml", *arguments, "--dry-run").stdout
    assert "\nFits  no\n" in said
    assert "policies.p0: update takes " in said
    assert "GiB more than an H100 has. Fix: " in said
    assert "update.zero_stage = 3" in said
    found = document(invoke("train", "run.toml", *arguments, "--dry-run", "--json"))
    assert set(found["predicted"]) == {"H200"}


def test_a_layout_that_cannot_be_is_told_before_a_run_starts() -> None:
    result = invoke("train", "run.toml", "cluster.gpus_per_node=4", "--dry-run")
    assert result.exit_code == 2
    assert "8 GPUs are needed" in result.stderr
    assert "4 too few. Fix: cluster.nodes = 2" in " ".join(result.stderr.split())


def test_one_process_is_planned_as_before() -> None:
    alone = ["cluster.layout=one-process", "policies.p0.update.backend=torch", "policies.p0.update.ranks=1"]
    said = invoke("train", "run.toml", *alone, "policies.p0.engine.replicas=1", "--dry-run").stdout
    assert "on one device, and the engine's cache\n" in said
    assert "Predicted" not in said
    found = document(invoke("train", "run.toml", *alone, "policies.p0.engine.replicas=1", "--dry-run", "--json"))
    assert set(found) == {"config", "plan"}
