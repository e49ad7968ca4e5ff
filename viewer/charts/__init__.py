"""Charts as Vega-Lite specs, made of plain data: for pages, which draw them, and for pictures in docs and reports.

Data stand in the spec under field names of ours, and names of series come in as values: nothing that a model or a
program wrote is taken for a field's path or an expression. Not here: what is charted, and where charts stand.
"""

from viewer.charts.compared import Bar, Dot, bars, dots, scatter
from viewer.charts.encodings import DESIGNER, EXECUTOR, SERIES, Spec
from viewer.charts.over_steps import Level, Series, Stage, Steps, lines, stacked, stages_of
from viewer.charts.pictures import beside, png, svg
from viewer.charts.rates import Rate, cost_scatter, rate_bars

__all__ = [
    "DESIGNER",
    "EXECUTOR",
    "SERIES",
    "Bar",
    "Dot",
    "Level",
    "Rate",
    "Series",
    "Spec",
    "Stage",
    "Steps",
    "bars",
    "beside",
    "cost_scatter",
    "dots",
    "lines",
    "png",
    "rate_bars",
    "scatter",
    "stacked",
    "stages_of",
    "svg",
]
