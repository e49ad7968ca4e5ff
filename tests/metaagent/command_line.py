"""The command line as tests call it, in their own process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from metaagent.cli import app

MISSPELT = """\
from workflow import AgentNode, Workflow
solver = AgentNode(name="Solver", sytem_prompt="x")
workflow = Workflow(name="w").add_node(solver)
"""


def invoke(*arguments: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, arguments, input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Traceback" not in result.output
    assert "\x1b" not in result.output
    return result


def document(result: Result) -> dict[str, Any]:
    """The one JSON document on stdout."""
    return json.loads(result.stdout)
