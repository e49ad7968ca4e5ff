"""The strength table claims what the suite sees, neither more nor less, for every configuration that runs here."""

from pathlib import Path

import pytest
from bench import Bench

from sandbox.conformance.attacks import ATTACKS, FAMILIES
from sandbox.conformance.contain import Verdict
from sandbox.conformance.outside import Outside
from sandbox.conformance.probes import BY_FAMILIES, BY_QUESTION, walls_seen
from sandbox.conformance.sandbox_page import BEGIN, END, Seen, result_table, strength_table, written_into
from sandbox.strength import CONFIGURATIONS, WALLS


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


def test_an_attack_that_gets_through_takes_its_wall_down(
    bench: Bench, outside: Outside, verdicts: dict[str, list[Verdict]]
) -> None:
    """The control: one escape is enough."""
    network = verdicts["network"][0]
    leaked = Verdict(network.attack, ("somebody connected",))
    seen = bench.run(walls_seen(bench.subject, [*verdicts["network"], leaked], outside))
    assert seen["network"] is False
    assert "signals" not in seen, "nothing was tried"


def test_the_page_names_what_did_not_run_and_what_got_through(verdicts: dict[str, list[Verdict]]) -> None:
    attack = verdicts["network"][0].attack
    results = [
        Seen("process/j", verdicts=[Verdict(attack, ("it got out",))], passed=2, failed={"some_check": "no"}),
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
