"""`metaagent templates`: lists the template bank, for people on a terminal, as tab-separated lines in a pipe; or prints
one template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from metaagent.commands.options import AsJson
from metaagent.terminal import ExitCode, block, code, print_json, raw, stdout, usage_error
from templates import Template, get_template, load_templates


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


def main(
    name: Annotated[str | None, typer.Argument(help="Print this template's source.", show_default=False)] = None,
    as_json: AsJson = False,
) -> ExitCode:
    """List the template bank, or print one template."""
    if name is None:
        bank = load_templates()
        if as_json:
            print_json({"templates": bank})
        else:
            print_templates(stdout(), bank)
        return ExitCode.OK
    try:
        template = get_template(name)
    except ValueError as error:
        usage_error(str(error))
    if as_json:
        print_json(template)
    else:
        code(stdout(), template.source)
    return ExitCode.OK
