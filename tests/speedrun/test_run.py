"""The whole speedrun, as small as it can be: every step leaves what the next one needs, and is not done twice."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from speedrun.phases import programs
from speedrun.settings import SpeedrunSettings
from speedrun.tiny_policy import Architecture
from speedrun.variants import ALONE, COMPARISONS
from tasks.data.miniature import Difficulty
from trainer.sft.fine_tuning import SFTSettings

for needed in ("torch", "transformers", "vl_convert"):
    pytest.importorskip(needed)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SMALL = SpeedrunSettings(
    difficulty=Difficulty(chain_terms=3, product_digits=2, pair_numbers=3, pair_largest=18),
    architecture=Architecture(layers=1, width=32, inner=64, heads=2, key_value_heads=1, vocabulary=2048),
    cold_problems=24,
    cold_designs=4,
    train_problems=40,
    validation_problems=4,
    test_problems=8,
    sft=SFTSettings(epochs=1, batch=16, learning_rate=3e-3),
    overrides=("steps=2", "stage_length=1", "rollout.questions=2", "rollout.designs=2", "rollout.executions=2"),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    import torch

    from speedrun.__main__ import speedrun

    out, threads = tmp_path_factory.mktemp("speedrun"), torch.get_num_threads()
    asyncio.run(speedrun(SMALL, out))
    yield out
    torch.set_num_threads(threads)


def test_after_fine_tuning_torch_leaves_the_other_cores_to_the_jails(finished: Path) -> None:
    import torch

    with ThreadPoolExecutor(1) as own:  # as an engine starts one; a thread that has used torch keeps its number
        assert own.submit(torch.get_num_threads).result() == 1


def test_the_report_has_all_systems(finished: Path) -> None:
    report = json.loads((finished / "report.json").read_text())
    assert [system["name"] for system in report["systems"]] == [*ALONE, "SFT", "RL"]
    assert all(system["accuracy"]["attempts"] == 8 for system in report["systems"])
    assert len(report["correct"]) == 2
    assert report["active"] == [["executor"], ["designer"]]
    page = (finished / "report.md").read_text()
    for picture in ("accuracy.png", "training.png"):
        assert f"({picture})" in page
        assert (finished / picture).stat().st_size > 1000


def test_train_and_test_problems_are_disjoint(finished: Path) -> None:
    def questions(name: str) -> set[str]:
        lines = (finished / "problems" / f"{name}.jsonl").read_text().splitlines()
        return {json.loads(line)["question"] for line in lines}

    assert len(questions("cold")) == 24
    assert not questions("test") & (questions("train") | questions("cold"))


def test_a_finished_run_does_nothing_again(finished: Path) -> None:
    from speedrun.__main__ import speedrun

    def state() -> dict[str, str]:
        kept = (path for path in finished.rglob("*") if path.suffix in (".safetensors", ".jsonl"))
        return {str(path.relative_to(finished)): hashlib.sha256(path.read_bytes()).hexdigest() for path in kept}

    before = state()
    assert any(name.endswith("model.safetensors") for name in before)
    asyncio.run(speedrun(SMALL, finished))
    assert state() == before


def test_what_another_version_of_the_instrument_began_does_not_go_on(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cold start has other lessons: figures of such a run would be of no version."""
    from speedrun import __main__ as command

    monkeypatch.setattr(command, "code_of_instrument", lambda: "another")
    with pytest.raises(ValueError, match=r"holds attempts with code=.*, not \"another\". Fix: use another folder"):
        asyncio.run(command.speedrun(SMALL, finished))


def test_the_untrained_policy_is_the_same_each_time(finished: Path, tmp_path: Path) -> None:
    from speedrun.phases import lessons
    from speedrun.tiny_policy import make_policy

    rows = lessons(SMALL, finished / "cold" / "rows.jsonl")
    made = make_policy(tmp_path / "again", rows, SMALL.architecture, SMALL.seed)
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (finished / "untrained" / name).read_bytes()
    assert made == json.loads((finished / "report.json").read_text())["weights"]


def test_prompts_and_programs_take_few_tokens(finished: Path) -> None:
    from transformers import AutoTokenizer

    from designer.prompts import short_design_messages
    from engine.chat import ChatFormat

    tokenizer = AutoTokenizer.from_pretrained(finished / "untrained")
    chat = ChatFormat(tokenizer, [tokenizer.eos_token_id])
    question = "What is 12 + 34?"
    tokens = chat.prompt(short_design_messages(question), [])
    assert len(tokens) < 150
    assert tokenizer.decode(tokens).count(question) == 1
    assert [tokenizer.decode([token]) for token in tokenizer("1234")["input_ids"]] == ["1", "2", "3", "4"]


@pytest.mark.timeout(900)
def test_a_comparison_trains_tests_and_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seeds, each from its own start; runs are kept, and a folder holds comparisons of one size."""
    from speedrun.compare import main

    arms = {"before": "start", "one": "executor only", "other": "designer only, shuffled"}
    pairs = (("one", "before"), ("other", "before"))
    monkeypatch.setitem(COMPARISONS, "gate", replace(COMPARISONS["gate"], systems=arms, pairs=pairs))
    (tmp_path / "small.json").write_text(SMALL.model_dump_json())
    out = tmp_path / "out"
    arguments = ["gate", "--first-seed", "5", "--settings", str(tmp_path / "small.json"), "--out", str(out)]
    main(arguments)
    page = (out / "gate-from-5.md").read_text()
    assert all(f"\n| {system} | 0." in page for system in arms)
    assert "**The gate FAILS" in page  # two steps teach nobody anything
    assert "--seeds 3 --first-seed 5 --settings small.json" in page
    assert "\n| executor only | " in page
    assert "\n| designer only | " in page  # whose choice of learning rates the shuffled one takes
    results = {path: path.read_bytes() for path in out.glob("**/attempts/results.jsonl")}
    assert {(path.parts[-4], text.count(b"\n")) for path, text in results.items()} == {
        ("seed-5", 8),
        ("seed-6", 8),
        ("seed-7", 8),
        ("seed-1000", 4),
    }
    assert len(results) == 3 * 3 + 1 + 2 * 3, "of the tuning also what it starts from"
    drawn = [(out / f"seed-{seed}" / "start" / "problems" / "test.jsonl").read_bytes() for seed in (5, 6)]
    assert drawn[0] != drawn[1]
    assert len(list(out.glob("seed-*/start/fixed/*"))) == 3 * len(programs())
    # What is kept is not made again, and what is not kept is made of what its folder has.
    [kept] = (out / "runs" / "seed-6").glob("executor only*")
    (out / "seed-6" / "executor only" / "done").unlink()
    main(arguments)
    assert not (out / "seed-6" / "executor only" / "done").exists()
    kept.unlink()
    main(arguments)
    assert kept.exists()
    assert {path: path.read_bytes() for path in results} == results
    other = SMALL.model_copy(update={"cold_problems": 3000})
    (tmp_path / "other.json").write_text(other.model_dump_json())
    with pytest.raises(SystemExit, match=r"cold_problems=24, not 3000. Fix: use another folder"):
        main([*arguments[:-4], "--settings", str(tmp_path / "other.json"), "--out", str(out)])
    # A recipe that has changed since, or another factor, is not answered with what is there.
    path = out / "seed-6" / "executor only" / "made_by.json"
    path.write_text(path.read_text().replace('"factor": ', '"factor": 1'))
    kept.unlink()
    with pytest.raises(SystemExit, match=r"executor only holds attempts with job[.=]"):
        main(arguments)
