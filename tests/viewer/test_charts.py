"""Charts: specs that compile, data that stays data, gaps that stay gaps, colours that can be seen."""

from __future__ import annotations

import json
import math
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewer import document
from viewer.charts import (
    DESIGNER,
    EXECUTOR,
    SERIES,
    Bar,
    Dot,
    Level,
    Rate,
    Series,
    Spec,
    Stage,
    Steps,
    bars,
    beside,
    cost_scatter,
    dots,
    lines,
    png,
    rate_bars,
    scatter,
    stacked,
    stages_of,
    svg,
)
from viewer.charts.pictures import _packed
from viewer.document import asset
from viewer.html import data

HOSTILE = (
    "</script><script>alert(1)</script>",
    "a.b[0]['c']",
    '"]+alert(1)+["',
    "datum['y']",
    "{signal: 'width'}",
    "\u202e\x1b[31m\x00 \ud800",
    "x" * 100_000,
    "",
    "twice",
    "twice",
    "a\\nb\nc",
    "' || constructor.constructor('alert(1)')() || '",
)
STAGES = (Stage(first=0, last=1, roles=["executor"]), Stage(first=2, last=3, roles=["designer"]))
ROUTED = Steps(spans=[(n, n) for n in range(4)], routes=[f"step/{n:06}" if n else None for n in range(4)])


def named(values: list[float | None]) -> list[Series]:
    return [Series(name=name, values=values) for name in HOSTILE]


def rate(name: str, value: float = 0.5, **more: Any) -> Rate:
    return Rate(name=name, value=value, low=value - 0.1, high=value + 0.1, told=name, **more)


SPECS: dict[str, Spec] = {
    "lines": lines(
        ROUTED,
        named([0.1, None, math.nan, math.inf]),
        title=HOSTILE[0],
        value_title=HOSTILE[2],
        stages=STAGES,
        name_stages=True,
        levels=[Level(first=0, last=3, value=0.5)],
    ),
    "one line": lines(Steps.single(1), [Series(name=HOSTILE[2], values=[1.0])], bounds=(0, 1)),
    "many steps": lines(Steps.single(100), [Series(name="a", values=[1.0, None] * 50)]),
    "logarithmic": lines(Steps.single(4), [Series(name="gap", values=[1e-6, 0.0, -1.0, 1e-3])], log=True),
    "many lines": lines(Steps.single(2), [Series(name=f"{n}", values=[0.1, 0.2]) for n in range(25)]),
    "no steps": lines(Steps.single(0), []),
    "stacked": stacked(ROUTED, named([0.1, None, math.nan, 0.2]), bounds=(0, 1)),
    "bars": bars([Bar(group=name, series=name, value=0.5, low=0.4, high=0.6) for name in HOSTILE]),
    "bars across": bars([Bar(group=name, series="a", value=0.5) for name in HOSTILE], across=True, bounds=None),
    "dots": dots({name: [0.5, math.nan, 0.7] for name in HOSTILE} | {"none": []}, title=HOSTILE[0]),
    "scatter": scatter(
        [Dot(name=name, x=10.0, y=0.5, low=0.4, high=0.6, route="list") for name in HOSTILE],
        x_title=HOSTILE[2],
        log=True,
    ),
    "rates": rate_bars([rate(name, group=name) for name in HOSTILE], HOSTILE[2]),
    "differences": rate_bars([rate(name, -1.0) for name in HOSTILE], HOSTILE[2], differences=True),
    "no rates": rate_bars([], "right"),
    "costs": cost_scatter([rate(name, cost=10.0, group=name) for name in HOSTILE], HOSTILE[2], HOSTILE[3]),
    "no costs": cost_scatter([], "tokens", "right"),
}
OURS = {"x", "x2", "y", "y2", "low", "high", "name", "group", "role", "at", "said", "interval", "x_said", "y_said"}
OURS |= {"value", "cost", "told"}
"""Names of fields; and v0, v1 ... of the values that a tooltip tells."""


def parts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for below in value.values():
            yield from parts(below)
    elif isinstance(value, list):
        for below in value:
            yield from parts(below)


def rows(spec: Spec, layer: int) -> list[dict[str, Any]]:
    return spec["layer"][layer]["data"]["values"]


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_holds_all_that_it_needs_and_no_expression(name: str) -> None:
    spec = SPECS[name]
    json.dumps(spec, allow_nan=False)
    data(spec)
    for part in parts(spec):
        assert not {"url", "signal", "expr", "calculate", "transform", "$schema", "href", "filter"} & part.keys()
        if "field" in part:
            assert part["field"] in OURS or re.fullmatch(r"v\d+", part["field"])
    for layer in spec["layer"]:
        for channel in layer["encoding"].values():
            if isinstance(channel, dict) and "field" in channel and layer["data"]["values"]:
                assert any(channel["field"] in row for row in layer["data"]["values"])


@pytest.mark.parametrize("name", SPECS)
def test_names_are_short_visible_and_apart(name: str) -> None:
    for part in parts(SPECS[name]):
        domain = part.get("scale", {}).get("domain") if isinstance(part.get("scale"), dict) else None
        if domain and isinstance(domain[0], str):
            assert len(set(domain)) == len(domain)
            assert all(0 < len(each) <= 48 and each.isprintable() for each in domain)


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_compiles(name: str) -> None:
    converter = pytest.importorskip("vl_convert")
    made = converter.vegalite_to_vega(SPECS[name], vl_version="6.4")
    signals = " ".join(part["signal"] for part in parts(made) if isinstance(part.get("signal"), str))
    without_strings = re.sub(r'"(\\.|[^"\\])*"', '""', signals)
    assert "alert" not in without_strings
    assert "constructor" not in without_strings
    drawn = converter.vega_to_svg(made)
    assert "<script" not in drawn
    assert "onerror" not in re.sub(r">[^<]*<", "><", drawn)


@given(values=st.lists(st.floats() | st.none(), max_size=80), log=st.booleans())
def test_whatever_the_numbers_are_a_spec_is_json(values: list[float | None], log: bool) -> None:
    steps, series = Steps.single(len(values)), [Series(name="a", values=values)]
    costs = [Rate(name="a", value=0.5, low=0.4, high=0.6, told="", cost=value or 0) for value in values]
    specs = lines(steps, series, log=log), stacked(steps, series), dots({"a": values}), cost_scatter(costs, "x", "y")
    for spec in specs:
        text = json.dumps(spec, allow_nan=False)
        assert json.loads(text) == spec


# What is drawn


def test_what_is_not_finite_is_a_gap_and_told_as_one() -> None:
    spec = lines(Steps.single(4), [Series(name="a", values=[1.0, None, math.nan, math.inf])])
    line, strips = spec["layer"]
    assert [row["y"] for row in line["data"]["values"]] == [1.0, None, None, None]
    assert line["mark"]["invalid"] == "break-paths-filter-domains"
    assert [row["v0"] for row in strips["data"]["values"]] == ["1", "–", "–", "–"]


def test_lines_may_go_on_over_gaps() -> None:
    spec = lines(Steps.single(4), [Series(name="a", values=[1.0, None, None, 2.0])], joined=True)
    assert [(row["x"], row["y"]) for row in rows(spec, 0)] == [(0, 1.0), (3, 2.0)]


def test_a_logarithmic_axis_has_powers_of_ten_and_no_zero() -> None:
    spec = SPECS["logarithmic"]
    assert [row["y"] for row in rows(spec, 0)] == [1e-6, None, None, 1e-3]
    assert spec["layer"][0]["encoding"]["y"]["axis"]["values"] == [1e-6, 1e-5, 1e-4, 1e-3]


def test_values_between_gaps_are_seen_where_a_line_has_no_points() -> None:
    spec = SPECS["many steps"]
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["line", "point", "rect"]
    assert len(rows(spec, 1)) == 50
    joined = lines(Steps.single(100), [Series(name="a", values=[1.0] * 100), Series(name="b", values=[2.0] * 100)])
    assert [layer["mark"]["type"] for layer in joined["layer"]] == ["line", "rect"]


def test_equal_values_are_in_the_middle() -> None:
    for value, domain in ((2.0, [1.0, 3.0]), (0.0, [-1.0, 1.0]), (-4.0, [-6.0, -2.0])):
        spec = lines(Steps.single(3), [Series(name="a", values=[value] * 3)])
        assert spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == domain


def test_one_series_is_named_by_its_axis_several_by_a_legend() -> None:
    one = lines(Steps.single(2), [Series(name="tokens", values=[1, 2])])["layer"][0]["encoding"]
    assert (one["y"]["axis"]["title"], one["color"]["legend"]) == ("tokens", None)
    two = [Series(name="a", values=[1, 2]), Series(name="b", values=[1, 2])]
    several = lines(Steps.single(2), two)["layer"][0]["encoding"]
    assert several["y"]["axis"]["title"] is None
    assert several["color"]["legend"]["columns"] == 2


def test_more_lines_than_colours_are_told_apart_by_dashes() -> None:
    for count, dashed in ((2, 1), (len(SERIES), 1), (len(SERIES) + 2, 2), (3 * len(SERIES), 3)):
        series = [Series(name=f"arm {number}", values=[0.1, 0.2]) for number in range(count)]
        encoding = lines(Steps.single(2), series)["layer"][0]["encoding"]
        drawn = encoding.get("strokeDash", {"scale": {"range": [[1, 0]] * count}})["scale"]["range"]
        assert len({str(dash) for dash in drawn}) == dashed
        looks = zip(encoding["color"]["scale"]["range"], map(str, drawn), strict=True)
        assert len(set(looks)) == count


def test_the_background_says_which_role_learns() -> None:
    both = Stage(first=4, last=5, roles=["designer", "executor"])
    spec = lines(Steps.single(6), [Series(name="a", values=[1.0] * 6)], stages=[*STAGES, both])
    assert rows(spec, 0) == [
        {"x": -0.5, "x2": 1.5, "role": "executor learns"},
        {"x": 1.5, "x2": 3.5, "role": "designer learns"},
    ]
    scale = spec["layer"][0]["encoding"]["fill"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
        "designer learns": DESIGNER,
        "executor learns": EXECUTOR,
    }


def test_stages_are_steps_in_a_row_with_the_same_roles() -> None:
    assert stages_of([["executor"], ["executor"], ["designer"], ["executor"]]) == [
        Stage(first=0, last=1, roles=["executor"]),
        Stage(first=2, last=2, roles=["designer"]),
        Stage(first=3, last=3, roles=["executor"]),
    ]
    assert stages_of([]) == []


def test_a_stack_adds_up() -> None:
    parts = [
        Series(name="one", values=[0.25, None, -1.0]),
        Series(name="two", values=[0.5, 0.5, 0.5]),
    ]
    spec = stacked(Steps(spans=[(0, 4), (5, 9), (10, 14)]), parts)
    assert [(row["name"], row["y"], row["y2"]) for row in rows(spec, 0)] == [
        ("one", 0.0, 0.25),
        ("two", 0.25, 0.75),
        ("two", 0.0, 0.5),
        ("two", 0.0, 0.5),
    ]
    assert [row["at"] for row in rows(spec, 1)] == ["0 to 4", "5 to 9", "10 to 14"]
    assert rows(spec, 0)[-1]["x2"] == 14.5


def test_a_click_on_a_step_leads_to_its_route() -> None:
    strips = SPECS["lines"]["layer"][-1]
    assert [row.get("route") for row in strips["data"]["values"]] == [None, "step/000001", "step/000002", "step/000003"]
    assert strips["mark"]["cursor"] == "pointer"


def test_bars_have_rules_where_there_is_an_interval() -> None:
    found = [
        Bar(group="all", series="SFT", value=0.5, low=0.4, high=0.6),
        Bar(group="all", series="RL", value=0.75),
        Bar(group="sum", series="RL", value=None),
    ]
    spec = bars(found)
    assert [(row["group"], row["name"], row["y"], row["interval"]) for row in rows(spec, 0)] == [
        ("all", "SFT", 0.5, "0.4 to 0.6"),
        ("all", "RL", 0.75, "–"),
    ]
    assert [row["name"] for row in rows(spec, 1)] == ["SFT"]
    assert spec["layer"][1]["encoding"]["y2"] == {"field": "high"}
    lying = bars(found, across=True)
    assert lying["layer"][1]["encoding"]["x2"] == {"field": "high"}
    assert lying["height"]["step"] > 0


def test_dots_have_their_mean() -> None:
    spec = dots({"one": [0.25, 0.75, None], "none": []})
    assert [(row["name"], row["y"]) for row in rows(spec, 0)] == [("one", 0.5)]
    assert [row["y"] for row in rows(spec, 1)] == [0.25, 0.75]
    assert spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == ["one", "none"]


def test_a_scatter_leaves_out_what_has_no_place() -> None:
    found = [Dot(name=name, x=x, y=0.5) for name, x in (("free", 0.0), ("dear", 10.0), ("unknown", math.nan))]
    assert [row["name"] for row in rows(scatter(found), 1)] == ["free", "dear"]
    assert [row["name"] for row in rows(scatter(found, log=True), 1)] == ["dear"]


# Colours


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_are_seen_on_light_and_on_dark_paper() -> None:
    papers = {"#ffffff" if paper == "#fff" else paper for paper in re.findall(r"--paper: (#\w+)", asset("style.css"))}
    assert len(papers) == 2
    for colour in SERIES:
        for paper in papers:
            low, high = sorted((luminance(colour), luminance(paper)))
            assert (high + 0.05) / (low + 0.05) >= 3, (colour, paper)
    assert len(set(SERIES)) == len(SERIES)


# Pictures


def test_pictures_are_written(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    for name, spec in SPECS.items():
        png(spec, tmp_path / "chart.png")
        assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG"), name
    svg(beside([SPECS["lines"], SPECS["stacked"]], "Both"), tmp_path / "chart.svg")
    assert "<svg" in (tmp_path / "chart.svg").read_text()


def test_a_picture_is_as_wide_as_it_is_told(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    for width in (400, 760):
        svg(SPECS["dots"], tmp_path / "chart.svg", width)
        found = re.search(r'<svg[^>]* width="(\d+)', (tmp_path / "chart.svg").read_text())
        assert found
        assert abs(int(found[1]) - width) <= 20


def test_packing_changes_no_pixel(tmp_path: Path) -> None:
    converter = pytest.importorskip("vl_convert")
    before = converter.vegalite_to_png(SPECS["dots"] | {"width": 300}, vl_version="6.4")
    after = _packed(before)
    assert len(after) < len(before)

    def pixels(picture: bytes) -> bytes:
        found, at = b"", 8
        while at < len(picture):
            size = int.from_bytes(picture[at : at + 4])
            if picture[at + 4 : at + 8] == b"IDAT":
                found += picture[at + 8 : at + 8 + size]
            crc = int.from_bytes(picture[at + 8 + size : at + 12 + size])
            assert crc == zlib.crc32(picture[at + 4 : at + 8 + size])
            at += 12 + size
        return zlib.decompress(found)

    assert pixels(after) == pixels(before)


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ImportError, match=r'Fix: pip install "metaagent\[speedrun\]"'):
        png(SPECS["dots"], tmp_path / "chart.png")


# Rates


def test_rates_of_two_groups_stand_below_each_other() -> None:
    spec = rate_bars([rate("t", group=group) for group in ("before", "after")], "right")
    bar = spec["layer"][0]["encoding"]
    assert bar["yOffset"]["sort"] == ["before", "after"]
    assert bar["color"]["scale"]["domain"] == ["before", "after"]
    assert "yOffset" not in rate_bars([rate("t")], "right")["layer"][0]["encoding"]


def test_differences_are_drawn_in_percentage_points() -> None:
    difference = Rate(name="t", value=-0.5, low=-0.6, high=0.1, told="t: -50", route="changed")
    for layer in (0, 1):
        (row,) = rows(rate_bars([difference], "points", differences=True), layer)
        assert (row["value"], row["low"], row["high"]) == (-50, -60, 10)
        assert (row["name"], row["told"], row["route"]) == ("t", "t: -50", "changed")


def test_costs_begin_at_nothing_where_one_is_near_it() -> None:
    def scale(*costs: float) -> dict[str, Any]:
        spec = cost_scatter([rate("p", cost=cost) for cost in costs], "cost", "right")
        return spec["layer"][1]["encoding"]["x"]["scale"]

    assert scale(0, 10)["domain"] == [0, pytest.approx(10.8)]
    assert "domain" not in scale(9, 10)
    assert (scale(0)["domain"], scale(3)["domain"]) == ([0, 1], [0, 6])


def test_charts_are_made_in_their_folder_alone() -> None:
    viewer = Path(document.__file__).parent
    found = [each for each in viewer.rglob("*.py") if re.search(r'"(mark|encoding)":', each.read_text())]
    assert {each.parent.name for each in found} == {"charts"}
