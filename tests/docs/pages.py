"""The blocks of a Markdown page, each run or checked by what its language says. CONTRIBUTING.md lists the forms.

A page is read by markdown-it-py, as GitHub reads it. Its blocks share one folder and one Python namespace, in their
order.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from markdown_it import MarkdownIt

from metaagent.cli import COMMANDS, loaded

ROOT = Path(__file__).parents[2]
NOT_RUN: list[str] = []
"""Blocks of all pages that were only looked at; told at the end of the tests."""
LENT = ("recipes", "templates")
"""Folders of the repository that every page finds in its own."""
TIMEOUT_S = 60
LOCAL = re.compile(r"http://localhost:\d+(?=/v1)")


class PageError(AssertionError):
    """What is wrong on a page, with its file and line."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    title: str
    text: str
    remark: str
    """The HTML comment on the line before."""

    def wrong(self, what: str) -> PageError:
        return PageError(f"{self.page.name}:{self.line}: {what}")


@dataclass
class Page:
    """A page at work in a folder. `server` is the address that stands for every server on localhost."""

    path: Path
    folder: Path
    server: str = ""
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    not_run: list[str] = field(default_factory=list)
    """Blocks that were only looked at: where, and why."""

    def run(self) -> None:
        for name in LENT:
            (self.folder / name).symlink_to(ROOT / name)
        for block in blocks(self.path):
            self._run(block)

    def _run(self, block: Block) -> None:
        if block.title:
            place = self.folder / block.title
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(block.text, encoding="utf-8")
            return
        needed = re.fullmatch(r"needs: (\w+)", block.remark)
        if needed and importlib.util.find_spec(needed[1]) is None:
            self.not_run.append(f"{block.page.name}:{block.line}: {needed[1]} is not installed")
            return
        match block.language:
            case "python":
                self._python(block)
            case "console":
                self._console(block)
            case "sh":
                self._look_at(block)
            case "toml":
                _parsed(block, tomllib.loads)
            case "json":
                _parsed(block, json.loads)
            case "jsonl":
                _parsed(block, lambda text: [json.loads(line) for line in text.splitlines()])
            case "mermaid":
                if not block.text.startswith("flowchart"):
                    raise block.wrong("a picture that begins with no flowchart")
            case "text":
                pass
            case other:
                raise block.wrong(f"a block of language {other!r}; {__doc__}")

    def _python(self, block: Block) -> None:
        code = compile("\n" * block.line + block.text, str(block.page), "exec")
        with chdir(self.folder):
            try:
                exec(code, self.names)
            except Exception as error:
                raise block.wrong(f"{type(error).__name__}: {error}") from error

    def _console(self, block: Block) -> None:
        for command, status, expected in commands(block.text):
            seen_status, seen = self.shell(command)
            if seen_status != status:
                raise block.wrong(f"{command!r} ended with {seen_status}, not {status}, and said:\n{seen}")
            if expected and not matches(expected, seen):
                raise block.wrong(f"{command!r} said\n{seen}\nand not\n{expected}")

    def shell(self, command: str) -> tuple[int, str]:
        """Exit status and output, both streams together, of a command that a reader types."""
        ended = subprocess.run(
            ["bash", "-c", LOCAL.sub(self.server, command) if self.server else command],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return ended.returncode, ended.stdout.replace(self.server or "\0", "http://localhost:8000")

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "DOCKER_HOST") if name in os.environ}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        more = {"OPENAI_BASE_URL": f"{self.server}/v1"} if self.server else {}
        return {**kept, "PATH": path, "LANG": "C.UTF-8", "COLUMNS": "100", "NO_COLOR": "1", **more}

    def _look_at(self, block: Block) -> None:
        reason = re.fullmatch(r"not run: (\S.*)", block.remark)
        if reason is None:
            raise block.wrong("an sh block is not run: say why in a comment before it, '<!-- not run: REASON -->'")
        for line in block.text.replace("\\\n", " ").splitlines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError as error:
                raise block.wrong(f"{line!r}: {error}") from error
            look_at(block, words)
        self.not_run.append(f"{block.page.name}:{block.line}: {reason[1]}")


def look_at(block: Block, words: list[str]) -> None:
    """Raise for what a command names and there is not: options, targets, modules."""
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words = words[1:]
    if not words or words[0] == "export":
        return
    program = Path(words[0]).name
    if program == "metaagent":
        if why := unknown_option(words[1:]):
            raise block.wrong(f"{shlex.join(words)}: {why}")
    elif program == "make":
        targets = re.findall(r"^([\w./-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        if gone := [word for word in words[1:] if not word.startswith("-") and "=" not in word and word not in targets]:
            raise block.wrong(f"the Makefile has no target {gone[0]}")
    elif (
        program.startswith("python")
        and words[1:2] == ["-m"]
        and words[2].split(".")[0] not in ("pip", "venv", "pytest")
    ):
        place = ROOT / words[2].replace(".", "/")
        if not (place.with_suffix(".py").exists() or (place / "__main__.py").exists()):
            raise block.wrong(f"there is no module {words[2]}")


def unknown_option(words: list[str]) -> str:
    """What the command line would not understand; empty where it would."""
    if not words or words[0] not in COMMANDS:
        return "" if words[:1] == ["--help"] or words[:1] == ["--version"] else f"there is no command {words[:1]}"
    parameters = typer.main.get_command(loaded(words[0])).params
    options = {name: each for each in parameters for name in [*each.opts, *each.secondary_opts]}
    for number, word in enumerate(words[1:], 1):
        name, _, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if not re.match(r"--?[a-zA-Z]", word):
            continue
        if name not in options and name not in ("--help", "-h"):
            return f"{words[0]} has no option {name}"
        described = getattr(getattr(options.get(name), "type_descriptor", None), "annotation", None)
        choices = get_args(described) if get_origin(described) is Literal else ()
        given = value or (words[number + 1] if number + 1 < len(words) else "")
        if choices and given not in choices:
            return f"{name} takes {', '.join(map(str, choices))}, not {given!r}"
    return ""


def commands(text: str) -> Iterator[tuple[str, int, str]]:
    """(command, exit status, expected output) of a console block. `$ command  # exit 3` expects a failure; a line that
    ends with a backslash goes on."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        command = lines.pop(0)
        while command.endswith("\\") and lines:
            command = command[:-1] + lines.pop(0).removeprefix("> ")
        said = re.search(r"\s+# exit (\d+)$", command)
        yield command[: said.start()] if said else command, int(said[1]) if said else 0, "\n".join(lines)


def matches(expected: str, seen: str) -> bool:
    """Whether output is as a page shows it: `...` is any text within a line, or alone on a line any lines."""
    pattern = ""
    for line in expected.strip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += r"[^\n]*".join(re.escape(part.rstrip()) for part in line.rstrip().split("...")) + r"[ ]*\n"
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in seen.strip().splitlines()) + "\n") is not None


def _parsed(block: Block, parse: Any) -> None:
    try:
        parse(block.text)
    except ValueError as error:
        raise block.wrong(f"no {block.language}: {error}") from error


def blocks(page: Path) -> Iterator[Block]:
    remark, until = "", 0
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        first, last = token.map or (0, 0)
        if token.type == "html_block" and (
            comment := re.fullmatch(r"<!--\s*(.*?)\s*-->", token.content.strip(), re.DOTALL)
        ):
            remark, until = comment[1], last
        elif token.type in ("fence", "code_block"):
            language, _, rest = token.info.strip().partition(" ")
            title = re.search(r'title="([^"]+)"', rest)
            near = remark if first - until <= 1 else ""
            yield Block(page, first + 1, language, title[1] if title else "", token.content, near)


# Links


def dead_links(page: Path) -> list[str]:
    """Links of a page that lead nowhere: files and headings that there are not, addresses that are none."""
    dead = []
    for line, target in links(page):
        if re.match(r"https?://", target):
            if not re.match(r"https://[\w.-]+\.\w+(/\S*)?$", target):
                dead.append(f"{page.name}:{line}: {target} is no address")
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            dead.append(f"{page.name}:{line}: there is no {target}")
        elif anchor and anchor not in anchors(file):
            dead.append(f"{page.name}:{line}: {file.name} has no heading #{anchor}")
    return dead


def links(page: Path) -> Iterator[tuple[int, str]]:
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or []:
            target = child.attrs.get("href") or child.attrs.get("src")
            if target:
                yield (token.map or [0])[0] + 1, str(target)


def anchors(page: Path) -> set[str]:
    """The headings of a page as the site spells their anchors."""
    tokens = MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}
