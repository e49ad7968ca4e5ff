"""Jobs in processes of their own, several at a time: what is done is not done again. Knows no job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from metaagent.terminal import note
from sandbox.jail import kernel
from speedrun.versions import now_runs

Job = TypeVar("Job", bound=Hashable)
LOG, DONE = "log", "done"
"""In a job's folder: what its process said, and that it is over."""
TIMEOUT_S = 4 * 3600
PARENT = "METAAGENT_COMPARISON"
"""In the environment of a job: the process that waits for it."""


def run_in_process(folder: Path, title: str, command: Sequence[str]) -> None:
    """Run a command to its end, unless it has ended in this folder before. Raises RuntimeError where it fails."""
    if (folder / DONE).exists():
        return
    note(title)
    now_runs(folder)
    try:
        with (folder / LOG).open("a") as log:
            told = os.environ | {PARENT: str(os.getpid())}
            ended = subprocess.run(command, stdout=log, stderr=log, timeout=TIMEOUT_S, env=told).returncode
    except subprocess.TimeoutExpired:
        ended = f"not over after {TIMEOUT_S // 3600} hours"
    if ended != 0:
        raise RuntimeError(f"{title} failed ({ended}); see {folder / LOG}. The same command goes on")
    (folder / DONE).touch()


def end_with_parent() -> None:
    """From now on the kernel kills this process where the one that started it is gone, however that ended: it would go
    on alone, and hold the folder that the next one needs."""
    kernel.take([kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)])
    if int(os.environ.get(PARENT, os.getppid())) != os.getppid():
        sys.exit("whoever started this is gone")


def in_order(needs: Mapping[Job, Collection[Job]], do: Callable[[Job], None], workers: int) -> None:
    """Do each job once those that it needs are done, `workers` at a time. Raises what the first of them raises that
    fails, and ValueError where they need one another, or one that is not there."""
    waiting, running, done = dict(needs), dict[Future[None], Job](), set[Job]()
    with ThreadPoolExecutor(workers) as pool:
        while waiting or running:
            for job in [job for job, before in waiting.items() if done.issuperset(before)]:
                del waiting[job]
                running[pool.submit(do, job)] = job
            if not running:
                raise ValueError(f"{next(iter(waiting))} needs what is never done")
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                try:
                    ended.result()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
                done.add(running.pop(ended))
