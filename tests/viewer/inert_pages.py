"""Whether a page is nothing but text, links within its document and data: for tests of hostile input."""

from __future__ import annotations

from html.parser import HTMLParser

from viewer.sites import Page

EVERYWHERE = {"class", "id", "style", "title", "open", "type", "value", "max", "name"}
ATTRIBUTES = EVERYWHERE | {"href", "aria-label", "placeholder", "role", "colspan", "scope", "tabindex", "hidden"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.text: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.text.append(" ")
        if tag in ("iframe", "object", "embed", "base", "meta", "link", "img", "svg", "style", "template"):
            self.wrong.append(f"<{tag}>")
        if tag == "script" and values != {"type": "application/json"}:
            self.wrong.append(f"<script {values}>")
        self._script = tag == "script"
        for name, value in values.items():
            if name not in ATTRIBUTES and not name.startswith("data-"):
                self.wrong.append(f"{name} on <{tag}>")
            if name == "href" and not value.startswith("#/"):
                self.wrong.append(f"href {value!r}")

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if not self._script:
            self.text.append(data)


def wrong_in(page: Page) -> list[str]:
    """What of a page could do anything, and characters in it that nobody sees; empty where there is nothing."""
    reader = _Reader()
    reader.feed(str(page.body))
    reader.close()
    unseen = {ascii(each) for each in str(page.body) if not each.isprintable() and each not in "\n\t"}
    return [*reader.wrong, *sorted(unseen)]


def text_of(page: Page) -> str:
    """What is read on it, in one line."""
    reader = _Reader()
    reader.feed(str(page.body))
    reader.close()
    return " ".join("".join(reader.text).split())
