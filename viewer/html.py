"""HTML out of plain values: templates that escape all they are given, and text in which nothing is invisible.

Whatever a model or a program wrote comes through here, and leaves as text. Which pages there are, and what stands on
them, is not decided here.
"""

from __future__ import annotations

import functools
import json
import math
import unicodedata
from collections.abc import Mapping
from typing import Any

import jinja2
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from viewer.source_lines import with_newlines
from workflow.labels import visible

LONGEST = 4_000
"""Characters of a text that are shown before the rest is folded."""
MOST = 200_000
"""Characters of a text that are on a page at all."""
LONGEST_LINE = 300
"""Characters of a text that is shown as one line."""
LONGEST_PROGRAM = 200_000
"""Characters of a program that are coloured."""


def shown(text: str) -> str:
    r"""`text` with control and format characters, and halves of surrogate pairs, as `\u202e`-style escapes."""
    return visible(text)


def one_line(text: str, most: int = LONGEST_LINE) -> str:
    """A name or an excerpt as a part of one line."""
    text = " ".join(visible(text[: 4 * most]).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def folded(text: str) -> str:
    """What counts where words are looked for: neither case, nor accents, nor another form of the same characters."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(each for each in plain if not unicodedata.combining(each)).casefold()


def long_text(text: str, longest: int = LONGEST) -> Markup:
    """A block of text: what is beyond `longest` is folded, what is beyond `MOST` counted."""
    head, rest = visible(text[:longest]), visible(text[longest:MOST])
    left = len(text) - MOST
    parts = [Markup('<pre class="text">{}</pre>').format(head)]
    if rest:
        told = f"{len(text) - longest:,} characters more"
        parts.append(Markup('<details><summary>{}</summary><pre class="text">{}</pre></details>').format(told, rest))
    if left > 0:
        parts.append(Markup('<p class="note">{:,} further characters are in the file alone.</p>').format(left))
    return Markup("").join(parts)


def python(
    source: str,
    marked: frozenset[int] = frozenset(),
    prefix: str = "line",
    notes: Mapping[int, Markup] | None = None,
) -> Markup:
    """A program with syntax colours and its lines numbered as Python does, each with the id `line-N` or with another
    `prefix`, as a page may hold several; `marked` ones stand out, and `notes` stand behind theirs."""
    text = visible(with_newlines(source[:LONGEST_PROGRAM]))
    if len(text) > LONGEST_PROGRAM // 2:  # colours for so much would take seconds
        return long_text(source)
    formatter = HtmlFormatter(nowrap=True, classprefix="py-")
    lines = highlight(text, PythonLexer(stripnl=False), formatter).rstrip("\n").split("\n")
    rows = (
        Markup('<span class="line{}" id="{}-{}"><i>{}</i>{}{}\n</span>').format(
            " marked" if number in marked else "",
            prefix,
            number,
            number,
            Markup(line),  # what pygments made of it is escaped
            (notes or {}).get(number, ""),
        )
        for number, line in enumerate(lines, 1)
    )
    return Markup('<pre class="code">{}</pre>').format(Markup("").join(rows))


def data(value: Any) -> Markup:
    """Plain values for the page's script, as a JSON block. What could end the block is escaped."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup('<script type="application/json">{}</script>').format(Markup(text))


ABSURD = 10**18
"""Counts beyond it come from files that somebody made up."""


def count(number: float) -> str:
    if not -ABSURD < number < ABSURD:
        return "not a number" if number != number else "over 10^18" if number > 0 else "under -10^18"
    return f"{number:,.0f}"


def _float(number: float | None) -> float:
    """Not a number for none, infinite where a whole number has no float."""
    try:
        return math.nan if number is None else float(number)
    except OverflowError:
        return math.inf if number is not None and number > 0 else -math.inf


def figure(number: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, `–` for none."""
    number = _float(number)
    if number != number:
        return "–"
    told = f"{number:.{digits}g}"
    return count(number) if not abs(number) < 10**digits or "e+" in told else told  # 999.6 has four digits


def fixed(number: float | None, digits: int = 1) -> str:
    """With so many digits behind the point."""
    return f"{number:.{digits}f}" if math.isfinite(number := _float(number)) else "–"


def signed(number: float | None, digits: int = 3) -> str:
    """A difference."""
    return f"{number:+.{digits}f}" if math.isfinite(number := _float(number)) else "–"


def percent(share: float | None) -> str:
    return f"{100 * share:.1f} %" if math.isfinite(share := _float(share)) else "–"


def seconds(taken: float | None) -> str:
    if not math.isfinite(taken := _float(taken)):
        return "–"
    if taken < 120:
        return f"{taken:.2f} s" if taken < 10 else f"{taken:.0f} s"
    minutes, left = divmod(round(taken), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"


@functools.cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("viewer", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (shown, one_line, long_text, python, data, count, figure, fixed, signed, percent, seconds):
        made.filters[function.__name__] = function
    return made


def render(template: str, **values: Any) -> Markup:
    """A template of `viewer/templates` with these values, each of them escaped. A carriage return in them, such as in
    the name of a file, stays one: where it stood as it is, a browser would take it for a newline."""
    return Markup(_templates().get_template(template).render(**values).replace("\r", "&#13;"))


__all__ = ["Markup", "escape", "render"]
