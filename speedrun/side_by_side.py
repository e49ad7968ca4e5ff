"""Jobs in processes of their own, several at a time: what is done is not done again. Knows no job."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from metaagent.terminal import note

Job = TypeVar("Job")
LOG, DONE = "log", "done"
"""In a job's folder: what its process said, and that it is over."""
TIMEOUT_S = 4 * 3600


def run_in_process(folder: Path, title: str, command: Sequence[str]) -> None:
    """Run a command to its end, unless it has ended in this folder before. Raises RuntimeError where it fails."""
    if (folder / DONE).exists():
        return
    note(title)
    try:
        with (folder / LOG).open("a") as log:
            ended = subprocess.run(command, stdout=log, stderr=log, timeout=TIMEOUT_S).returncode
    except subprocess.TimeoutExpired:
        ended = f"not over after {TIMEOUT_S // 3600} hours"
    if ended != 0:
        raise RuntimeError(f"{title} failed ({ended}); see {folder / LOG}. The same command goes on")
    (folder / DONE).touch()


def each(jobs: Iterable[Job], do: Callable[[Job], None], workers: int) -> None:
    """Do all jobs, `workers` at a time. Raises what the first of them raises that fails."""
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(do, jobs))
