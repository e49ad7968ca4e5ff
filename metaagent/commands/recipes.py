"""`metaagent recipes`: lists the recipes that are installed, as tab-separated lines in a pipe; or prints one."""

from __future__ import annotations

from typing import Annotated

import typer

from metaagent.commands.options import AsJson
from metaagent.terminal import ExitCode, fields, print_json, raw, stdout, usage_error
from recipes import recipe_names, recipe_path, recipe_summary


def main(
    name: Annotated[str | None, typer.Argument(help="Print this recipe.", show_default=False)] = None,
    as_json: AsJson = False,
) -> ExitCode:
    """List the recipes that come along, or print one."""
    if name is None:
        listed = [(each, recipe_summary(each)) for each in recipe_names()]
        if as_json:
            print_json({"recipes": [{"name": each, "summary": summary} for each, summary in listed]})
        elif stdout().is_terminal:
            fields(stdout(), listed)
        else:
            raw(stdout(), "\n".join("\t".join(row) for row in listed))
        return ExitCode.OK
    try:
        path = recipe_path(name)
    except ValueError as error:
        usage_error(str(error))
    text = path.read_text(encoding="utf-8")
    if as_json:
        print_json({"name": name, "path": str(path), "text": text})
    else:
        raw(stdout(), text)
    return ExitCode.OK
