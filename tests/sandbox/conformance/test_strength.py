"""The strength table claims what the suite sees, neither more nor less, for every configuration that runs here."""

import random
from pathlib import Path

import pytest
from bench import Bench, drawn

from sandbox.conformance.attacks import ATTACKS, FAMILIES
from sandbox.conformance.contain import Verdict
from sandbox.conformance.outside import Outside
from sandbox.conformance.probes import BY_FAMILIES, BY_QUESTION, walls_seen
from sandbox.conformance.sandbox_page import BEGIN, END, Seen, result_table, strength_table, written_into
from sandbox.strength import CONFIGURATIONS, WALLS

NETWORK = next(attack for attack in ATTACKS if attack.family == "network")


@pytest.mark.timeout(1800)
def test_the_table_claims_what_was_seen(bench: Bench, outside: Outside, verdicts: dict[str, list[Verdict]]) -> None:
    every = [verdict for one_family in verdicts.values() for verdict in one_family]
    seen = bench.run(walls_seen(bench.subject, every, outside))
    assert seen == {wall.name: wall.holds(bench.subject.backend.name) for wall in WALLS}


def test_the_page_has_the_table_of_today() -> None:
    page = Path(__file__).parents[3] / "docs" / "sandbox.md"
    assert strength_table() in page.read_text(encoding="utf-8"), "run make test-sandbox PAGE=docs/sandbox.md"


def test_every_wall_is_probed_and_every_probe_is_of_a_wall() -> None:
    assert {*BY_FAMILIES, *BY_QUESTION} == {wall.name for wall in WALLS}
    assert set().union(*BY_FAMILIES.values()) <= set(FAMILIES)
    assert all(set(wall.by) <= set(CONFIGURATIONS) for wall in WALLS)
    assert all(wall.otherwise for wall in WALLS if len(wall.by) < len(CONFIGURATIONS))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(20))
def test_a_sample_tries_every_wall(seed: int, share: float) -> None:
    sample = drawn(ATTACKS, random.Random(seed), lambda attack: share)
    tried = {attack.family for attack in sample}
    assert all(tried & families for families in BY_FAMILIES.values())
    assert len(sample) == len({attack.id for attack in sample})
    assert len(sample) <= len(BY_FAMILIES) if share == 0 else abs(len(sample) / len(ATTACKS) - share) < 0.1


def test_an_attack_that_gets_through_takes_its_wall_down(bench: Bench, outside: Outside) -> None:
    """The control: one escape is enough."""
    held, leaked = Verdict(NETWORK), Verdict(NETWORK, ("somebody connected",))
    assert bench.run(walls_seen(bench.subject, [held], outside))["network"] is True
    seen = bench.run(walls_seen(bench.subject, [held, leaked], outside))
    assert seen["network"] is False
    assert "signals" not in seen, "nothing was tried"


def test_the_page_names_what_did_not_run_and_what_got_through() -> None:
    results = [
        Seen("process/j", verdicts=[Verdict(NETWORK, ("it got out",))], passed=2, failed={"some_check": "no"}),
        Seen("docker/gvisor", why_not="no runsc"),
    ]
    text = result_table(results)
    assert "0 / 1" in text
    assert "2 / 3" in text
    assert "did not contain" in text
    assert f"`process/j` was put to 1 of the corpus's {len(ATTACKS)} attacks" in text
    assert "`docker/gvisor` did not run: no runsc" in text
    page = written_into(f"before\n{BEGIN}\nstale words\n{END}\nafter\n", results, "1a2b3c4")
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "stale words" not in page
    assert strength_table() in page
    assert "At commit `1a2b3c4`:" in page
    assert written_into(page, results, "1a2b3c4") == page
    with pytest.raises(ValueError, match="no marks"):
        written_into("nothing", results, "")
