"""What is found of a run once, for all pages that show parts of it; and the runs that were looked at last.

Not here: pages, and what traces say (`viewer.reading`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from viewer.reading import Outcome, ReadRun, outcome_of, read_run, stamp
from viewer.run.run_agents import Cast, cast_of
from viewer.run.run_rows import row_groups
from viewer.run.turn_rows import TurnsOfRun, turns_of

MOST_KEPT = 64 << 20
"""Bytes of the files whose runs are kept, but for the last one."""


@dataclass(frozen=True, slots=True)
class KnownRun:
    read: ReadRun
    outcome: Outcome
    cast: Cast
    groups: list[list[int]]
    """Indices of events, a list for each row."""
    turns: TurnsOfRun
    behind_gap: int | None
    """Index of the first row behind what was left out of a very large file."""


def known_run(read: ReadRun) -> KnownRun:
    trace, gap, groups = read.trace, read.gap, row_groups(read.trace)
    behind_gap = next((group[0] for group in groups if group[0] >= gap), None) if gap is not None else None
    return KnownRun(read, outcome_of(read), cast_of(trace), groups, turns_of(trace), behind_gap)


class KeptRuns:
    """A file is read anew where it has changed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[str, KnownRun]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, file: Path) -> KnownRun:
        """Raises OSError."""
        with self._lock:
            stamp = stamp_of(file)
            before, known = self._kept.pop(file, ("", None))
            if known is None or before != stamp:
                known = known_run(read_run(file))
            self._kept[file] = stamp, known
            while len(self._kept) > 1 and sum(kept.read.bytes for _, kept in self._kept.values()) > MOST_KEPT:
                self._kept.popitem(last=False)
            return known


def stamp_of(file: Path) -> str:
    """Another text once the file is another one, or holds something else. Raises OSError."""
    return stamp(file.stat())
