"""Reads a page as a browser would, and says what in it could do something."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

from workflow.labels import UNSEEN

HIDDEN = re.compile(f"(?!\n|\t)[{UNSEEN}]")
TAGS = {
    "a", "article", "b", "br", "button", "code", "dd", "details", "div", "dl", "dt", "figcaption", "figure",
    "form", "h1", "h2", "h3", "h4", "i", "input", "label", "li", "mark", "nav", "ol", "option", "p",
    "pre", "progress", "script", "section", "select", "small", "span", "strong", "summary", "table", "tbody",
    "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {
    "class", "id", "title", "style", "type", "href", "name", "value", "max", "min", "maxlength", "step", "open",
    "placeholder", "selected", "aria-label", "aria-current", "colspan", "scope", "role",
    "data-goto", "data-who", "data-graph", "data-chart", "data-filter", "data-by", "data-told",
    "data-route",
}  # fmt: skip
INLINE = {"a", "i", "mark", "span"}
"""What ends within a line of text."""


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.ids: Counter[str] = Counter()
        self.goes: set[str] = set()
        self.links: list[str] = []
        self.text: list[str] = []
        self._data = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self._data = tag == "script"
        self.text.append("" if tag in INLINE - {"a"} else " ")
        if tag not in TAGS:
            self.wrong.append(f"a tag {tag!r}")
        if tag == "script" and told != {"type": "application/json"}:
            self.wrong.append("a script")
        for name, value in attrs:
            if name not in ATTRIBUTES:
                self.wrong.append(f"an attribute {name!r} of {tag}")
            if name == "style" and not re.fullmatch(r"((left|width|max-width|flex):[\d.]+(%|px)?;?)+", value or ""):
                self.wrong.append(f"a style {value!r}")
            if name == "href":
                self.links.append(value or "")
                if not self.links[-1].startswith("#/"):
                    self.wrong.append(f"an address {value!r}")
            if HIDDEN.search(value or ""):
                self.wrong.append(f"hidden characters in {name} of {tag}")
        if told.get("id"):
            self.ids[told["id"] or ""] += 1
        if told.get("data-goto"):
            self.goes.add(told["data-goto"] or "")

    def handle_endtag(self, tag: str) -> None:
        self._data = False
        self.text.append("" if tag in INLINE else " ")

    def handle_data(self, data: str) -> None:
        self.text.append("" if self._data else data)
        if found := HIDDEN.search(data):
            self.wrong.append(f"a hidden character {found[0]!r}")

    def handle_decl(self, decl: str) -> None:
        self.wrong.append("a declaration")

    handle_comment = handle_decl


def read_page(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    page.close()
    twice = [name for name, count in page.ids.items() if count > 1]
    page.wrong += [f"the id {name!r} stands {page.ids[name]} times" for name in twice]
    page.wrong += [f"nothing has the id {name!r}" for name in page.goes - page.ids.keys()]
    return page


def text_and_links(html: str) -> tuple[str, list[str]]:
    """What a reader sees, and where links lead. Raises AssertionError for what could do something, and for buttons that
    lead nowhere."""
    page = read_page(html)
    assert page.wrong == [], page.wrong[:10]
    return " ".join("".join(page.text).split()), page.links


def text_of(html: str) -> str:
    return text_and_links(html)[0]
