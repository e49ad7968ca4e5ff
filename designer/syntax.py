"""Parses a program and turns what the parser says into findings that a model can act on."""

from __future__ import annotations

import ast
import warnings

from designer.extract import MAX_SOURCE_BYTES
from workflow.failures import Finding


def refused_unread(source: str) -> list[Finding]:
    """Why a text is not even parsed: its size, or characters that no Python file can hold."""
    if "\0" in source:
        line = source.count("\n", 0, source.index("\0")) + 1
        return [Finding(line=line, code="syntax", message="the program holds a null byte", fix="give it as plain text")]
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        line = source.count("\n", 0, error.start) + 1
        message = f"the character {source[error.start]!r} cannot be written in a Python file"
        return [Finding(line=line, code="syntax", message=message, fix="remove it")]
    if size > MAX_SOURCE_BYTES:
        message = f"the program has {size:,} bytes; the limit is {MAX_SOURCE_BYTES:,}"
        fix = "shorten it: build repeated agents in a loop and keep prompts short"
        return [Finding(line=0, code="too-large", message=message, fix=fix)]
    return []


def parse(source: str) -> tuple[ast.Module | None, list[Finding]]:
    """The program's syntax tree, or what keeps it from being one. Never raises for what the source says."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about style, such as an escape like "\d"
            tree = ast.parse(source)
            # Some errors, such as `return` outside a function, are found only when names are sorted out.
            compile(source, "<program>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return None, [_syntax_finding(source, error)]
    except (MemoryError, RecursionError, OverflowError, SystemError, ValueError) as error:
        return None, [too_complex(error)]
    return tree, []


def too_complex(error: Exception) -> Finding:
    message = f"the program nests too deeply to be checked ({type(error).__name__})"
    fix = "split long expressions, and join many strings with one triple-quoted string"
    return Finding(line=0, code="too-complex", message=message, fix=fix)


def _syntax_finding(source: str, error: SyntaxError) -> Finding:
    line = error.lineno or 0
    lines = source.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    shown = f": {text[:120]!r}" if text else ""
    return Finding(line=line, code="syntax", message=f"{error.msg}{shown}", fix=_syntax_fix(error, text))


def _syntax_fix(error: SyntaxError, text: str) -> str:
    said = error.msg.lower()
    if text.startswith(("```", "~~~")):
        return "remove the Markdown fence: the program must be plain Python"
    if text.lower().startswith(("<code", "</code", "<think", "</think")):
        return f"remove the tag {text.split('>')[0]}>: the program must be plain Python"
    if "triple-quoted" in said:
        return "close the string with the same three quotes with which it begins"
    if "string literal" in said:
        return "close the string on its line, or use triple quotes for text of several lines"
    if "was never closed" in said:
        return "close it; if the program was cut off here, write a shorter one"
    if "does not match" in said or "unmatched" in said:
        return "make every bracket match the one that opens it"
    if "invalid character" in said or "non-printable" in said:
        return "use plain ASCII quotes, operators and spaces outside of strings"
    if isinstance(error, IndentationError):
        return "indent with four spaces per level, and give every block at least one statement"
    if "perhaps you forgot a comma" in said:
        return "separate arguments and items with commas, and escape quotes inside strings"
    if "expected ':'" in said:
        return "end the line that opens a block with a colon"
    return "write this line as valid Python; explanations belong in comments that begin with #"
