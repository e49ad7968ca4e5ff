"""Lists the template bank: a table on a terminal, tab-separated lines in a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from metaagent.console import raw
from templates import Template


def print_templates(console: Console, bank: Sequence[Template]) -> None:
    columns = ("name", "domain", "structure", "pattern", "use when")
    rows = [(t.name, t.domain, t.structure, t.pattern, t.use_when.removeprefix("Use when ")) for t in bank]
    if not console.is_terminal:
        raw(console, "\n".join("\t".join(row) for row in rows))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column in ("name", "domain", "structure"), overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
