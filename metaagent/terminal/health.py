"""What `metaagent doctor` found, as a document and for people. Looks at nothing itself."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from metaagent.terminal.console import fields, heading

State = Literal["ok", "gap", "broken"]


class Item(BaseModel):
    """One thing looked at. `broken` stands in the way of the main job, a `gap` only of something optional."""

    area: str
    name: str
    state: State
    detail: str
    fix: str = ""


class Diagnosis(BaseModel):
    ok: bool
    """Whether the main job works: design, check and run a program."""
    items: list[Item]


def print_diagnosis(console: Console, diagnosis: Diagnosis) -> None:
    marks = {"ok": ("ok", "green"), "gap": ("gap", "yellow"), "broken": ("BROKEN", "bold red")}
    area = ""
    for item in diagnosis.items:
        if item.area != area:
            area = item.area
            heading(console, area)
        mark, style = marks[item.state]
        text = Text.assemble((f"{mark:<7}", style), item.detail)
        if item.fix:
            text.append(f"\nfix: {item.fix}", style="dim")
        fields(console, [(f"  {item.name:<13}", text)])
    console.print()
    if diagnosis.ok:
        console.print(Text("The main job works: design, check and run a program.", style="green"))
    else:
        console.print(Text("The main job does not work; see what is BROKEN above.", style="bold red"))
