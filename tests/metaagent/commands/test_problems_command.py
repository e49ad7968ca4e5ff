"""`metaagent problems` from its arguments to files, exit codes and what is shown."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from command_line import document, invoke

from metaagent.commands import problems as command
from tasks import read_task
from tasks.environments import KNOBS, PlanPathKnobs, SokobanKnobs, SudokuKnobs, generate, shared_grids, solution_grids


def test_a_file_of_levels_that_the_reader_reads(tmp_path: Path) -> None:
    result = invoke(
        "problems", "plan_path", "--count", "5", "--split", "test", "--seed", "3", "--size", "5x6", "--out", "p.jsonl"
    )
    assert result.exit_code == 0
    assert "Levels     5 of plan_path, split test, seed 3\n" in result.stdout
    assert "Knobs      size 5x6, density 0.22, least_distance 1, most_distance any, detour 1.0\n" in result.stdout
    assert "Turns      4\nOptimum    " in result.stdout
    assert "Kept in    p.jsonl\nRead with  problems:p.jsonl\n" in result.stdout
    drawn = generate(PlanPathKnobs(size=(5, 6)), 5, seed=3, split="test")
    assert read_task(f"problems:{tmp_path / 'p.jsonl'}") == drawn


def test_the_help_says_which_games_have_a_knob_and_by_what_default() -> None:
    said = " ".join(invoke("problems", "--help").stdout.split())
    for kind, knobs in KNOBS.items():
        for each in dataclasses.fields(knobs):
            option = said.partition(f"--{each.name.replace('_', '-')} <")[2].partition(" --")[0]
            assert kind in option or each.name == "size"
            value = "x".join(map(str, each.default)) if isinstance(each.default, tuple) else str(each.default)
            unset = "half of all" if each.name == "blanks" else "any"
            assert (unset if each.default is None else value) in option.partition("[default: ")[2]
    assert "[default: (0.22, 0.2)]" in said


@pytest.mark.parametrize("kind", ["plan_path", "sokoban", "sudoku"])
def test_a_training_set_whose_levels_end_their_last_line(tmp_path: Path, kind: str) -> None:
    invoke("problems", kind, "--count", "3", "--seed", "2", "--out", "train.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    for row in rows:
        row["environment"]["level"] += "\n"
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ("problems", kind, "--count", "3", "--seed", "2", "--training", "train.jsonl", "--json")
    assert document(invoke(*asked, "--out", "again.jsonl"))["in_training"]["levels"] == 3


@pytest.mark.parametrize(
    ("kind", "options", "knobs"),
    [
        ("sokoban", "--size 5x7 --least-pushes 2 --least-moves 4 --density 0", SokobanKnobs(
            size=(5, 7), least_pushes=2, least_moves=4, density=0.0)),
        ("sokoban", "--boxes 2 --size 6", SokobanKnobs(boxes=2)),
        ("sudoku", "--size 9 --blanks 20", SudokuKnobs(size=9, blanks=20)),
        ("plan_path", "--density 0.4 --least-distance 6 --most-distance 12 --detour 1.2", PlanPathKnobs(
            density=0.4, least_distance=6, most_distance=12, detour=1.2)),
    ],
)  # fmt: skip
def test_knobs(kind: str, options: str, knobs: SokobanKnobs | SudokuKnobs | PlanPathKnobs, tmp_path: Path) -> None:
    result = invoke("problems", kind, *options.split(), "--count", "2", "--turns", "6", "--out", "p.jsonl")
    assert result.exit_code == 0
    assert read_task(f"problems:{tmp_path / 'p.jsonl'}") == generate(knobs, 2, turns=6)


def test_a_document_of_it_and_what_of_it_is_in_training(tmp_path: Path) -> None:
    assert invoke("problems", "sudoku", "--count", "3", "-o", "train.jsonl").exit_code == 0
    arguments = (
        "problems",
        "sudoku",
        "--count",
        "4",
        "--split",
        "test",
        "-o",
        "test.jsonl",
        "--training",
        "train.jsonl",
    )
    told = document(invoke(*arguments, "--json"))
    training, test = (read_task(f"problems:{tmp_path / name}") for name in ("train.jsonl", "test.jsonl"))
    shared, grids = shared_grids(test, training)
    assert told == {
        "path": "test.jsonl",
        "kind": "sudoku",
        "count": 4,
        "split": "test",
        "seed": 0,
        "turns": 4,
        "knobs": {"size": 4, "blanks": 8},
        "moves": [],
        "solution_grids": len(solution_grids(test)),
        "in_training": {"levels": 0, "grids": shared},
    }
    shown = invoke(*arguments).stdout
    assert f"Grids        {grids}, up to renaming digits (there are 12)\n" in shown
    assert f"In training  0 of 4 levels, {shared} of {grids} grids\n" in shown
    arguments = ("problems", "sudoku", "--count", "3", "-o", "x.jsonl", "--training", "train.jsonl", "--json")
    assert document(invoke(*arguments))["in_training"] == {"levels": 3, "grids": len(solution_grids(training))}


def test_a_file_of_problems_is_written_anew_and_no_other(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        assert invoke("problems", "sokoban", "--count", "1", "--seed", seed, "-o", "p.jsonl").exit_code == 0
    assert read_task(f"problems:{tmp_path / 'p.jsonl'}") == generate(SokobanKnobs(), 1, seed=2)
    (tmp_path / "letter").write_text("Dear Ann")
    result = invoke("problems", "sokoban", "--count", "1", "-o", "letter")
    assert result.exit_code == 2
    assert "letter: it holds something that is no file of problems. Fix: choose another name" in result.stderr
    assert (tmp_path / "letter").read_text() == "Dear Ann"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("sudko", "there is no game 'sudko'. Fix: write sudoku"),
        ("chess", "there is no game 'chess'. Fix: write plan_path or sokoban or sudoku"),
        ("sudoku --boxes 2", "sudoku has no --boxes. Fix: it has --size, --blanks"),
        ("plan_path --blanks 2", "plan_path has no --blanks. Fix: it has --size, --density, --least-distance"),
        ("sudoku --blanks 13", "--blanks 13: from 1 to 12 leave one solution in size 4. Fix: take one of these"),
        ("sudoku --size 4x4", "--size 4x4: write a number"),
        ("sokoban --size big", "--size big: write a number, or ROWSxCOLUMNS such as 8x12"),
        ("sokoban --size 2", "--size 2x2: rows and columns from 3 to 20 are needed"),
        ("plan_path --least-distance 90", "--least-distance 90: a path in 78 free cells has at most 77 moves"),
        ("plan_path --density nan", "--density nan: a share from 0 to below 1 is needed"),
        ("sudoku --blanks 1 --count 1000", "levels of sudoku, split train, were found, 1000 are wanted"),
        ("sudoku --training none.jsonl", "cannot read none.jsonl"),
        ("sudoku --training math.jsonl", "math.jsonl holds no sudoku. Fix: name a file that metaagent problems sudoku"),
    ],
)
def test_what_cannot_be_is_a_usage_error_and_writes_nothing(arguments: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "math.jsonl").write_text('{"id": "m", "question": "1 + 1?", "domain": "math", "gold": "2"}\n')
    result = invoke("problems", *arguments.split(), "--out", "p.jsonl")
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "p.jsonl").exists()


def test_where_it_cannot_be_written_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "generate", lambda *_, **__: pytest.fail("levels were drawn"))
    result = invoke("problems", "sudoku", "--out", "no/such/p.jsonl")
    assert result.exit_code == 2
    assert "cannot write no/such/p.jsonl: there is no folder no/such" in result.stderr


def test_a_full_disk_is_told() -> None:
    result = invoke("problems", "sudoku", "--count", "1", "--out", "/dev/full")
    assert result.exit_code == 2
    assert "cannot write /dev/full: No space left on device" in result.stderr
