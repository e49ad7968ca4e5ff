"""The pages in docs/results are what the kept runs give, by today's code, to the letter."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from speedrun import compare as comparing
from speedrun.number_sets import number_sets
from speedrun.settings import SpeedrunSettings

pytest.importorskip("numpy")

RESULTS = Path(__file__).parents[2] / "docs" / "results"
COMMAND = re.compile(r"`python -m speedrun\.compare (?P<name>[\w-]+) --seeds 3(?: --first-seed (?P<first>\d+))?`")
PAGES = sorted(
    path.name
    for path in RESULTS.glob("*.md")
    if COMMAND.search(path.read_text()) and path.name not in ("README.md", "gate-from-3.md")  # whose runs are gone
)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_kept_runs_give(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = (RESULTS / page).read_text()
    said = COMMAND.search(written)
    assert said is not None
    first = int(said["first"] or 0)
    (tmp_path / "runs").symlink_to(RESULTS / "runs")
    shutil.copy(RESULTS / "gate.json", tmp_path)
    monkeypatch.setattr(comparing, "draw", lambda *_: None)
    monkeypatch.setattr("subprocess.run", partial(pytest.fail, "something is made again"))
    made = comparing.compare(
        said["name"],
        range(first, first + 3),
        SpeedrunSettings(),
        tmp_path / "out",
        tmp_path,
        1,
        lambda name: said[0].strip("`").replace(said["name"], name),
    )
    assert made.name == page
    assert made.read_text() == written
    assert (tmp_path / "gate.json").read_text() == (RESULTS / "gate.json").read_text(), "it is no other try"


def test_problems_of_the_same_numbers_are_one_set_whatever_the_seed() -> None:
    settings = SpeedrunSettings(cold_problems=4, train_problems=4, validation_problems=400, test_problems=400)
    found = number_sets(settings, (1, 2))
    chains = {problem: name for problem, name in found.items() if problem.startswith("chain-")}
    assert len(chains) > 2 * len(set(chains.values())), "a chain has 24 orders"
    assert all(re.fullmatch(r"chain \[\d(, \d){3}\]", name) for name in chains.values())
    assert number_sets(settings, (1,)).items() <= found.items()
    assert {name.split()[0] for name in found.values()} == {"sum", "chain", "product", "pair"}
