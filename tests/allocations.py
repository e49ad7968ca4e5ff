"""How much memory torch takes on the CPU while something runs, whatever threads ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass
class Allocations:
    peak: int = 0
    """Bytes above what was held before, at most."""
    kept: int = 0
    """Bytes at the end."""


@contextmanager
def allocations() -> Iterator[Allocations]:
    """Filled in when the context ends."""
    found = Allocations()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        yield found
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        found.kept += event.nbytes()
        found.peak = max(found.peak, found.kept)
