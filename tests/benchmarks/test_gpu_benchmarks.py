"""The benchmarks for GPUs on a CPU: each runs its tiny shape, says what it left out, and fails where its claim does not
hold. None of the figures is looked at.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import colocated, common, learners, serve, sync, update
from benchmarks.gpu.common import SHAPES, Report

ROOT = Path(__file__).parents[2]
SCRIPTS = {"update": update, "serve": serve, "colocated": colocated, "sync": sync}
MIB = 1 << 20


@pytest.fixture(autouse=True)
def environment_of_before() -> Iterator[None]:
    """A script sets variables for its process, which here is that of other tests, too."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def need(*packages: str) -> None:
    if absent := [name for name in packages if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{', '.join(absent)} not installed")


def run(script: str, out: Path, *words: str, hidden: Sequence[str] = ()) -> tuple[int, dict[str, Any], str]:
    """Exit status, document and output of a script in a process of its own, where `hidden` packages are missing."""
    code = (
        "import importlib.util as u; found = u.find_spec\n"
        f"u.find_spec = lambda name, *more: None if name in {list(hidden)} else found(name, *more)\n"
        f"from benchmarks.gpu.{script} import main\n"
        f"raise SystemExit(main({['--tiny', '--out', str(out), *words]}))\n"
    )
    if not hidden:
        code = ""
    command = [sys.executable, "-c", code] if code else [sys.executable, "-m", f"benchmarks.gpu.{script}"]
    ended = subprocess.run(
        command if code else [*command, "--tiny", "--out", str(out), *words],
        cwd=ROOT,
        env=os.environ | {"RAY_memory_monitor_refresh_ms": "0", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    said = ended.stdout + ended.stderr
    assert out.exists(), said
    return ended.returncode, json.loads(out.read_text()), said


# What all of them do


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_help_names_every_package_and_wheel(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        SCRIPTS[script].main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "Needs torch" in said
    assert all(wheel in said for wheel in ("pydantic-core", "greenlet", "RestrictedPython"))
    assert "--tiny" in said


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_torch_everything_is_left_out_with_the_reason(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "torch" else found(name, *more)
    )
    out = tmp_path / "deep" / "out.json"
    assert SCRIPTS[script].main(["--tiny", "--out", str(out)]) == 0
    document = json.loads(out.read_text())
    assert document["rows"] == []
    assert document["left_out"][0].startswith("everything: torch")
    assert "Fix: pip install torch" in document["left_out"][0]
    assert document["machine"]["cpu_cores"] == os.cpu_count()
    assert document["left_out"][0] in capsys.readouterr().out


@pytest.mark.parametrize("script", SCRIPTS)
def test_real_shapes_are_not_for_a_machine_without_a_gpu(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SCRIPTS[script], "missing", lambda *packages: "")
    monkeypatch.setattr(common, "gpus", lambda: 0)
    assert SCRIPTS[script].main(["--out", str(tmp_path / "out.json")]) == 0
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["left_out"] == ["everything: there is no GPU. Fix: --tiny for a CPU, or a torch that sees the GPU"]


def test_a_report_keeps_what_was_measured_before_something_went_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report("x", {}, ("what", "seconds", "more"))
    report.row(what="one", seconds=common.spread([3.0, 1.0, 2.0]))
    with report.keeping("the second part"):
        raise RuntimeError("it broke\nat length")
    assert report.end(tmp_path / "out.json") == 1
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["rows"] == [{"what": "one", "seconds": [2.0, 1.0, 3.0]}]
    assert document["failures"] == ["the second part: RuntimeError: it broke"]
    table = capsys.readouterr().out.splitlines()
    assert "what  seconds     more" in table
    assert "one   2 (1 to 3)  -" in table


def test_what_would_begin_too_late_is_left_out() -> None:
    report = Report("x", {}, ())
    assert report.has_time(60, "a", 30)
    assert not report.has_time(60, "b", 90)
    assert report.left_out == ["b: 60 s of --limit-s 60 are left, and it takes 90"]


# The models


@pytest.mark.parametrize(("shape", "billions"), [("0.6b", 0.596), ("1.7b", 1.72)])
def test_shapes_have_the_size_that_they_are_named_after(shape: str, billions: float) -> None:
    made = SHAPES[shape]
    assert (made.in_layers + made.vocabulary * made.hidden) / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_model_is_made_whole_with_a_text_for_every_token(tmp_path: Path) -> None:
    need("torch", "transformers")
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    shape = SHAPES["tiny"]
    common.make_model(tmp_path, shape, "float32")
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == shape.vocabulary
    assert all(tokenizer.convert_ids_to_tokens(index) is not None for index in range(shape.vocabulary))
    assert tokenizer.decode(tokenizer.encode("Was nun?")) == "Was nun?"
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    matrices = sum(each.numel() for name, each in model.named_parameters() if each.dim() == 2)
    assert matrices == shape.in_layers + shape.vocabulary * shape.hidden
    tokens = 48
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, tokens, dtype=torch.long), use_cache=False).logits.sum().backward()
    causal_half = 6 * shape.layers * shape.heads * shape.head_dim * tokens**2  # torch counts the other half, too
    # The first layer's input needs no gradient, which saves nothing here: it is an embedding's.
    assert counter.get_total_flops() == pytest.approx(shape.training_flops([tokens], [tokens]) + causal_half, rel=0.02)


# Each of them


def test_updates_of_all_ways_learn_the_same(tmp_path: Path) -> None:
    need("torch", "transformers", "deepspeed")
    status, document, said = run("update", tmp_path / "out.json", "--repeats", "1", "--zero-stages", "3")
    assert status == 0, said
    norms = {row["way"]: row["gradient_norm"] for row in document["rows"]}
    assert list(norms) == [
        "plain transformers",
        *(["TRL"] if importlib.util.find_spec("trl") and importlib.util.find_spec("datasets") else []),
        "ours, torch",
        "ours, DeepSpeed ZeRO-3",
        "plain transformers, again",
    ]
    assert max(norms.values()) == pytest.approx(min(norms.values()), rel=1e-4)
    assert min(norms.values()) > 0
    assert all(row["tokens_per_s"] > 0 and row["mfu"] is None for row in document["rows"])


def test_what_is_not_installed_is_left_out_and_the_others_are_measured(tmp_path: Path) -> None:
    need("torch", "transformers")
    status, document, said = run("update", tmp_path / "out.json", "--repeats", "1", hidden=["deepspeed", "trl"])
    assert status == 0, said
    ways = ["plain transformers", "ours, torch", "plain transformers, again"]
    assert [row["way"] for row in document["rows"]] == ways
    told = [f"ours, DeepSpeed ZeRO-{stage}, tiny: deepspeed not installed" for stage in (1, 3)]
    assert all(any(each.startswith(one) for each in document["left_out"]) for one in told)


def test_a_way_that_fails_is_left_out_with_what_it_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pretended(way: str, setting: learners.Setting) -> learners.Measured:
        if way == "ours, torch":
            raise RuntimeError("CUDA out of memory.\nTried to allocate")
        return learners.Measured([2.0, 1.0, 3.0], norm=1.5, peak_bytes=3 << 30)

    monkeypatch.setattr(update, "in_a_process", pretended)
    monkeypatch.setattr(update, "peak_flops", lambda: 1e12)
    monkeypatch.setattr(update, "missing", lambda *packages: "")
    setting = learners.Setting(
        tmp_path, SHAPES["tiny"], learners.Load(2, 4, 16, (8, 32)), "cpu", "float32", 128, False, 3
    )
    report = Report("update", {}, ())
    update.run("tiny", setting, [3], report, 600)
    assert report.left_out == ["ours, torch, tiny: RuntimeError: CUDA out of memory."]
    assert [row["way"] for row in report.rows] == [
        "plain transformers",
        "TRL",
        "ours, DeepSpeed ZeRO-3",
        "plain transformers, again",
    ]
    samples = setting.load.samples(512)
    lengths = [len(sample.token_ids) for sample in samples]
    flops = SHAPES["tiny"].training_flops(lengths, [length - 16 for length in lengths])
    assert report.rows[0]["mfu"] == pytest.approx(flops / 2.0 / 1e12, rel=1e-2)
    assert report.rows[0]["tokens_per_s"] == round(sum(lengths) / 2.0)
    assert report.rows[0]["peak_gib"] == 3.0


def test_a_process_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(update, "ONE_WAY_S", 0.5)
    setting = learners.Setting(tmp_path, SHAPES["tiny"], learners.Load(), "cpu", "float32", 128, False, 3)
    monkeypatch.setattr(update, "measured", _sleeping)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"more than 0\.5 s"):
        update.in_a_process("ours, torch", setting)
    assert time.monotonic() - began < 40


def _sleeping(way: str, setting: learners.Setting) -> None:
    time.sleep(100)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", ["vllm-serve"])
def test_every_engine_serves(backend: str, tmp_path: Path) -> None:
    need("torch", "transformers", "vllm")
    status, document, said = run("serve", tmp_path / "out.json", "--rounds", "1", "--at-once", "1", "4")
    assert status == 0, said
    assert {(row["way"], row["at_once"]) for row in document["rows"]} == {
        (way, count) for way in (serve.OURS, serve.RAW, serve.LOCAL) for count in (1, 4)
    }
    assert all(row["tokens_per_s"][0] > 0 for row in document["rows"])
    assert document["left_out"] == []


def test_without_vllm_the_local_engine_is_measured(tmp_path: Path) -> None:
    need("torch", "transformers")
    status, document, said = run("serve", tmp_path / "out.json", "--rounds", "1", "--at-once", "2", hidden=["vllm"])
    assert status == 0, said
    assert [row["way"] for row in document["rows"]] == [serve.LOCAL]
    assert document["left_out"] == ['VLLMEngine and raw vLLM: vllm not installed. Fix: pip install "metaagent[vllm]"']


@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", ["vllm-colocated"])
def test_turns_are_taken(backend: str, tmp_path: Path) -> None:
    need("torch", "transformers", "deepspeed", "vllm")
    status, document, said = run("colocated", tmp_path / "out.json", "--rounds", "6")
    assert status == 0, said
    parts = {row["what"]: row for row in document["rows"]}
    assert {"rank comes back", "update", "weights", "probe", "completions"} <= set(parts)
    assert parts["probe's gap, nats"]["gap"][2] < 1e-3
    assert len(document["details"]["memory"]["host, all processes"]) == 6
    assert document["left_out"][0].startswith("sleeping, waking and CUDA IPC: they need a GPU")


def test_without_vllm_the_ranks_half_is_measured(tmp_path: Path) -> None:
    need("torch", "transformers", "deepspeed")
    status, document, said = run("colocated", tmp_path / "out.json", "--rounds", "4", hidden=["vllm"])
    assert status == 0, said
    assert [row["what"] for row in document["rows"]] == [
        "rank comes back",
        "update",
        "rank's optimizer leaves",
        "rank's weights leave",
        "host, all processes",
    ]
    assert document["left_out"][0].startswith("the engine's half")


@pytest.mark.parametrize(
    ("series", "more"),
    [([100] * 20, 0), (list(range(0, 2000, 100)), 1000), ([0, 900, *[1000] * 18], 0), ([5], 0), ([0, 1, 100], 100)],
)
def test_growth_is_what_the_last_rounds_have_more_than_the_first(series: list[int], more: int) -> None:
    assert colocated.grown(series) == more


def test_memory_that_grows_fails() -> None:
    steady, leaking = [1000 * MIB] * 20, [(1000 + 10 * number) * MIB for number in range(20)]
    for memory, failures in (({"GPU, after the round": steady}, 0), ({"GPU, after the round": leaking}, 1)):
        report = Report("colocated", {}, ())
        colocated.tell(colocated.Turns(memory=memory), report)
        assert len(report.failures) == failures
        assert report.end(None) == (1 if failures else 0)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", ["vllm-sync"])
def test_weights_go_into_vllm(backend: str, tmp_path: Path) -> None:
    need("torch", "transformers", "vllm")
    status, document, said = run(
        "sync", tmp_path / "out.json", "--rounds", "2", "--ways", "ipc", "nccl", "gloo", "file"
    )
    assert status == 0, said
    rows = {row["way"]: row for row in document["rows"]}
    assert set(rows) == {"gloo", "file"}
    assert rows["gloo"]["mb"] == rows["file"]["mb"] > 0
    assert all(row["gap"][2] < 1e-3 for row in rows.values())
    assert [each.partition(":")[0] for each in document["left_out"]] == ["ipc", "nccl"]


@pytest.mark.timeout(600)
def test_weights_go_through_rays_store(tmp_path: Path) -> None:
    need("torch", "transformers", "ray")
    status, document, said = run("sync", tmp_path / "out.json", "--rounds", "2", "--ways", "store")
    assert status == 0, said
    [row] = document["rows"]
    assert row["way"] == "store"
    assert row["mb"] > 0
    assert row["gap"][2] < 1e-3
