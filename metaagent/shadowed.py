"""Whether a module of somebody else would be imported in the place of one of our rooms, whose names are common words.

Needs nothing but the standard library, since it is asked before any room is imported.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

ROOMS = ("workflow", "engine", "sandbox", "tasks", "search", "templates", "designer", "trainer", "viewer", "recipes")
OURS = Path(__file__).resolve().parents[1]


def in_the_way() -> str:
    """What stands in the way and what to do, or an empty string."""
    for room in ROOMS:
        try:
            spec = importlib.util.find_spec(room)
        except (ImportError, ValueError):  # a finder of somebody else's, or a module without a spec
            spec = None
        if spec is None:
            return f"metaagent's package {room!r} is not installed. Fix: reinstall metaagent"
        found = spec.origin or next(iter(spec.submodule_search_locations or []), "")
        if os.path.realpath(found) != str(OURS / room / "__init__.py"):
            path = os.path.abspath(found)
            path = os.path.dirname(path) if path.endswith("__init__.py") else path
            return (
                f"{path} is imported in the place of metaagent's own package {room!r}. Fix: rename it, or run "
                "metaagent where it is in neither the current folder nor PYTHONPATH"
            )
    return ""
