"""Traces on disk: every event at once, whatever is killed or full, with a bounded number of open files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.rollout import TraceFile, trace_file
from trainer.rollout.trace_file import OpenFiles
from workflow.trace import Printed, event_to_json


def said(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def held(folder: Path) -> list[str]:
    """Names of the files below `folder` that this process holds open."""
    found = []
    for place in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(place)
        except OSError:  # the descriptor of the listing itself
            continue
        if target.startswith(str(folder)):
            found.append(Path(target).name)
    return sorted(found)


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_every_event_is_there_at_once_and_in_order(most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "_FILES", OpenFiles(most))
    dice = random.Random(most)
    traces = [TraceFile(tmp_path / f"{number}") for number in range(20)]
    expected: dict[int, list[str]] = {number: [] for number in range(20)}
    for count in range(400):
        number = dice.randrange(20)
        event = Printed(t=count, text="ä\n" * dice.randrange(3))
        traces[number](event)
        expected[number].append(event_to_json(event))
        assert said(tmp_path / f"{number}") == expected[number]
        assert len(held(tmp_path)) <= most
    assert len(held(tmp_path)) == min(most, 20), "what is used stays open"


def test_what_was_used_last_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "_FILES", OpenFiles(2))
    traces = {name: TraceFile(tmp_path / name) for name in "abc"}
    for name in "abac":
        traces[name](Printed(text=name))
    assert held(tmp_path) == ["a", "c"]


def test_a_trace_that_nobody_uses_any_more_is_closed(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "trace")
    trace(Printed(text="x"))
    assert held(tmp_path) == ["trace"]
    del trace
    assert held(tmp_path) == []
    TraceFile(None)(Printed(text="x"))


def test_an_attempt_begins_anew(tmp_path: Path) -> None:
    first = TraceFile(tmp_path / "trace")
    first(Printed(text="failed"))
    second = TraceFile(tmp_path / "trace")
    second(Printed(text="again"))
    del first
    second(Printed(text="again"))
    assert said(tmp_path / "trace") == [event_to_json(Printed(text="again"))] * 2


LOOP = """
import sys
from pathlib import Path
from trainer.rollout import TraceFile
from workflow.trace import Printed

traces = [TraceFile(Path(sys.argv[1]) / str(number)) for number in range(50)]
for count in range(1_000_000):
    traces[count % 50](Printed(text=str(count)))
    print(count, flush=True)
"""


def test_a_killed_run_keeps_what_has_happened(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", LOOP, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(500):
        told = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.communicate(timeout=30)[0].splitlines()
    told = max([told, *(int(line) for line in rest if line)])
    texts = {line for number in range(50) for line in said(tmp_path / str(number))}
    assert texts >= {event_to_json(Printed(text=str(count))) for count in range(told + 1)}


FULL = """
import os, resource, sys
from pathlib import Path
from trainer.rollout import TraceFile
from workflow.trace import Printed

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
traces = [TraceFile(Path(sys.argv[1]) / str(number)) for number in range(100)]
traces[0](Printed(text="x"))
others = []
try:
    while True:
        others.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for _ in range(2):
    for trace in traces:
        trace(Printed(text="x"))
"""


def test_where_no_more_files_may_be_open_others_are_closed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True, timeout=60)
    assert [len(said(tmp_path / str(number))) for number in range(100)] == [3] + [2] * 99


def test_an_error_names_the_file(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "trace")
    (tmp_path / "trace").symlink_to("/dev/full")
    with pytest.raises(OSError, match=rf"No space left on device \(Fix: make room.*{tmp_path}/trace"):
        trace(Printed(text="x"))
    with pytest.raises(OSError, match=rf"No such file.*{tmp_path}/none/trace"):
        TraceFile(tmp_path / "none" / "trace")(Printed(text="x"))
