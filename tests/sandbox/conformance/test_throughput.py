"""What `benchmarks.sandbox` makes of its measurements, and that the bare mechanisms that it compares with still run."""

import asyncio

import pytest
from docker_engine import why_no
from rich.console import Console

from benchmarks.sandbox import BARE, Benchmark, Row, bare, row


def test_a_row_is_percentiles_and_the_runs_per_second_of_the_wall_clock():
    took = [each / 1000 for each in range(100, 0, -1)]
    assert row("x", 2, took, 4.0) == Row("x", 2, p50_ms=51.0, p99_ms=100.0, runs_per_s=25.0)


def test_of_several_rounds_each_figure_is_a_median():
    benchmark = Benchmark(1, Console())
    one, two, three = Row("a", 2, 1.0, 9.0, 30.0), Row("a", 2, 3.0, 2.0, 6.0), Row("a", 2, 2.0, 4.0, 3.0)
    other, crowded = Row("b", 2, 7.0, 8.0, 9.0), Row("a", 8, 5.0, 5.0, 5.0)
    benchmark.rows = [one, other, crowded, two, three]
    benchmark.take_medians()
    assert benchmark.rows == [Row("a", 2, 2.0, 4.0, 6.0), other, crowded]


def test_a_sandbox_is_held_against_its_own_mechanism():
    benchmark = Benchmark(1, Console())
    benchmark.rows = [
        Row(f"{BARE}process/j0", 2, 1, 1, 800.0),
        Row("process/j0, code", 2, 1, 1, 400.0),
        Row("process/j0, code", 8, 1, 1, 600.0),
        Row("process/j0, programs", 2, 1, 1, 100.0),
        Row("process/j, code", 2, 1, 1, 300.0),
        Row(f"{BARE}docker/warm", 2, 1, 1, 500.0),  # whose sandbox could not be measured
    ]
    (line,) = benchmark.of_bare()
    assert line == "process/j0 makes of its bare mechanism's runs per second: 50% with 2 clients, 75% with 8 clients"


def runs(name):
    measured = asyncio.run(bare(name, 2, 0.05))
    assert (measured.name, measured.clients) == (f"{BARE}{name}", 2)
    assert measured.runs_per_s > 0


@pytest.mark.timeout(200)
def test_the_bare_jail_runs(mode):
    runs(f"process/{mode}")


@pytest.mark.timeout(200)
@pytest.mark.skipif(bool(why_no("warm")), reason=why_no("warm"))
def test_the_bare_container_runs():
    runs("docker/warm")
