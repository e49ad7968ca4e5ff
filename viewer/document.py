"""The HTML document around pages: one file with all that it needs, which asks nobody for anything.

What may run in it is fixed by a Content-Security-Policy: the scripts of `viewer/assets`, by their hashes, and nothing
that came with a page. What pages say is not decided here.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from urllib.parse import unquote

from markupsafe import Markup, escape

from viewer.html import render
from viewer.sites import NoSuchPage, Page, Site

MOST_BYTES = 30_000_000
"""Of a file as a whole: pages that no longer fit are left out, and said to be."""
MOST_MISFITS = 20
"""Pages that are made in vain before a file counts as full."""
_CHART, _GRAPH = "data-chart", "data-graph"
_LINK = re.compile(r'href="#/([^"]*)"')


@cache
def asset(name: str) -> str:
    return resources.files("viewer").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


@cache
def _hash(script: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"


def scripts(charts: bool = True, graphs: bool = True) -> list[Markup]:
    """Scripts of a document, those of others first."""
    names = [*(["vendor/charts.min.js"] if charts else []), *(["vendor/dagre.min.js"] if graphs else []), "app.js"]
    return [Markup(asset(name)) for name in names]


def policy(used: list[Markup], connect: str = "'none'") -> str:
    """Of a document that runs these scripts and may ask `connect`."""
    return (
        f"default-src 'none'; script-src {' '.join(_hash(str(script)) for script in used)}; style-src 'unsafe-inline'; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def served(site: Site) -> str:
    """The document of a server, which asks it for its pages."""
    return _document(site, {}, scripts(), "'self'", live=True)


@dataclass(frozen=True, slots=True)
class Written:
    """What a file holds."""

    pages: int
    left_out: int
    """Pages that others lead to, and that are not there."""
    bytes: int


def write(site: Site, out: Path, most_bytes: int = MOST_BYTES) -> Written:
    """Write one file with the first page, then those that the site puts first, then what these lead to, as far as they
    fit. Raises what `Site.page` raises for the first, and OSError."""
    waiting = deque(dict.fromkeys([site.home, *site.routes()]))  # a site that is still reading has then read all
    seen, pages, left_out = set(waiting), dict[str, Page](), 0
    size = len(_document(site, {}, scripts(), "'none'", live=False).encode())
    while waiting:
        route = waiting.popleft()
        if left_out >= MOST_MISFITS:
            left_out += 1
            continue
        try:
            page = site.page(route)
        except (NoSuchPage, OSError):
            if not pages:
                raise
            continue  # gone meanwhile
        taken = len(_as_template(route, page).encode(errors="replace"))
        if pages and size + taken > most_bytes:
            left_out += 1
            continue
        pages[route] = page
        size += taken
        found = [each for each in leads_to(page) if each not in seen]
        waiting.extend(found)
        seen.update(found)
    bodies = [page.body for page in pages.values()]
    used = scripts(any(_CHART in body for body in bodies), any(_GRAPH in body for body in bodies))
    text = _document(site, pages, used, "'none'", live=False)
    out.write_text(text, encoding="utf-8")
    return Written(len(pages), left_out, len(text.encode()))


def _as_template(route: str, page: Page) -> str:
    """What a page takes in a file, about."""
    return f'<template data-route="{escape(route)}" data-title="{escape(page.title)}">{page.body}</template>\n'


def leads_to(page: Page) -> list[str]:
    """Routes of the links on a page, each once."""
    found = (unquote(html.unescape(address)) for address in _LINK.findall(page.body))
    return [route for route in dict.fromkeys(found) if route]


def _document(site: Site, pages: Mapping[str, Page], used: list[Markup], connect: str, *, live: bool) -> str:
    return render(
        "document.html",
        home=site.home,
        title=pages[site.home].title if pages else "metaagent",
        pages=pages,
        scripts=used,
        style=Markup(asset("style.css")),
        policy=policy(used, connect),
        live=live,
    )
