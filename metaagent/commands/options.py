"""Options and arguments that several commands have, and the check of values that become a model's fields.

Says what they are called and mean; reading what they name is `metaagent.commands.inputs`' and the commands' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from metaagent.terminal import usage_error
from workflow.completion import Sampling
from workflow.limits import Limits

LIMITS, SAMPLING = Limits(), Sampling()
"""Whose values are the options' defaults."""

Checked = TypeVar("Checked", bound=BaseModel | Sampling)

ProgramFile = Annotated[
    Path, typer.Argument(metavar="PROGRAM.py", help="The program.", exists=True, dir_okay=False, readable=True)
]
ProblemText = Annotated[
    str | None, typer.Argument(metavar="PROBLEM", help="The problem's text; - reads it from stdin.", show_default=False)
]
ProblemFile = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Read the problem from a file.", exists=True, dir_okay=False, readable=True),
]
EngineSpec = Annotated[
    str | None,
    typer.Option(
        "--engine",
        "-e",
        metavar="SPEC",
        envvar="METAAGENT_ENGINE",
        help="Where replies come from: openai:MODEL@URL, transformers:PATH, replay:FILE or embedded.",
    ),
]
SandboxName = Annotated[
    str | None,
    typer.Option(
        "--sandbox",
        metavar="NAME",
        envvar="METAAGENT_SANDBOX",
        help="Where programs run: process (the default), docker, docker/strict or docker/gvisor. process/weak "
        "lets trusted code run where the kernel cannot keep it in.",
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="FOLDER",
        help="Keep the replies of an openai: endpoint here; what was asked before costs nothing.",
        file_okay=False,
    ),
]
View = Annotated[
    bool, typer.Option("--view", help="Show it in a browser while it goes on and, once it is done, until Ctrl-C.")
]
PageOut = Annotated[
    Path | None,
    typer.Option("--out", metavar="PAGE.html", help="Write what --view shows to this file at the end.", dir_okay=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Temperature = Annotated[float, typer.Option(help="Sampling temperature.")]
TopP = Annotated[float, typer.Option(help="Nucleus of the sampling.")]
MaxTokens = Annotated[int, typer.Option(help="Longest reply, in tokens.")]
ReplySeconds = Annotated[float, typer.Option("--reply-s", help="Limit: seconds for one reply.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", min=0)]


def validated(model: type[Checked], options: Mapping[str, str] | None = None, **values: Any) -> Checked:
    """The model with these values; one that does not fit is a usage error that names its option. `options` has those
    that are not called as the model's fields are."""
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors()[0]
        said = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:  # values that do not go together
            usage_error(said)
        name = str(first["loc"][0])
        option = (options or {}).get(name, "--" + name.replace("_", "-"))
        usage_error(f"{option} {first['input']}: {said}")
