"""What was shown on pages and not run is told at the end."""

from __future__ import annotations

from typing import Any

import pytest
from pages import NOT_RUN


def pytest_sessionfinish(session: Any) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["not_run"] = NOT_RUN


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    NOT_RUN.extend(getattr(node, "workeroutput", {}).get("not_run", []))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if NOT_RUN:
        terminalreporter.write_line(f"{len(NOT_RUN)} blocks of pages were looked at and not run:")
        for each in sorted(set(NOT_RUN)):
            terminalreporter.write_line(f"  {each}")
