"""Every page is true: its blocks run, its links lead somewhere, and it can be read in one sitting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from pages import NOT_RUN, ROOT, Page, dead_links

sys.path.append(str(Path(__file__).parents[1] / "engine"))  # the server that speaks as it is told
from scripted_server import Server, chat

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
README_LINES = 150


@pytest.fixture
def server() -> Iterator[str]:
    """A model server on this machine that always says the same."""
    with Server() as server:
        server.script = [chat("2, 3, 5, 7, ... there are 25 of them: \\boxed{25}")]
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.url.removesuffix("/v1")
        server.over.set()
        server.shutdown()


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_blocks_of_a_page_do_what_it_says(page: Path, tmp_path: Path, server: str) -> None:
    at_work = Page(page, tmp_path, server)
    at_work.run()
    NOT_RUN.extend(at_work.not_run)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES
