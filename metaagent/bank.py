"""Lists the template bank: for people on a terminal, as tab-separated lines in a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from metaagent.console import block, raw
from templates import Template


def print_templates(console: Console, bank: Sequence[Template]) -> None:
    """Name, domain, structure, pattern, when to use it."""
    if not console.is_terminal:
        rows = [(t.name, t.domain, t.structure, t.pattern, t.use_when) for t in bank]
        raw(console, "\n".join("\t".join(row) for row in rows))
        return
    width = max(len(template.name) for template in bank)
    for template in bank:
        facts = f"  {template.domain} · {template.structure} · {template.pattern}"
        console.print(Text.assemble((f"{template.name:<{width}}", "bold cyan"), (facts, "dim")))
        block(console, template.use_when)
