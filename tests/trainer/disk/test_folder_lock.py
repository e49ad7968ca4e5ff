"""Two processes that write into one folder: the second is told so at once, and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tasks import Problem
from trainer.disk.folder_lock import only_writer
from trainer.distill.distill_log import DistillLog
from trainer.evaluate.attempts import AttemptLog

WRITERS = {
    "evaluation": "from trainer.evaluate.attempts import AttemptLog\nAttemptLog(folder, {'seed': 0})",
    "distillation": (
        "from trainer.distill.distill_log import DistillLog\nDistillLog(folder, [], {'seed': 0}, resume=True)"
    ),
    "lock": "from trainer.disk.folder_lock import only_writer\nonly_writer(folder)",
}


def opened(folder: Path, what: str) -> AttemptLog | DistillLog:
    if what == "evaluation":
        return AttemptLog(folder, {"seed": 0})
    return DistillLog(folder, [Problem(id="0", question="1 + 1?", domain="math", gold="2")], {"seed": 0}, resume=True)


def other(folder: Path, what: str) -> subprocess.CompletedProcess[str]:
    """Another process that writes into the folder."""
    imports, opening = WRITERS[what].split("\n")
    code = f"import sys\nfrom pathlib import Path\n{imports}\nfolder = Path(sys.argv[1])\nwith {opening}: print('open')"
    return subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("what", ["evaluation", "distillation"])
def test_a_record_is_written_by_one_process_at_a_time(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with opened(folder, what):
        torn = next(folder.glob("*.jsonl"))
        torn.write_text('{"half of a li')  # as another process finds it between two writes
        refused = other(folder, what)
        assert f"FolderBusy: another process writes into {folder}. Fix:" in refused.stderr
        assert torn.read_text() == '{"half of a li'
    torn.unlink()
    assert other(folder, what).stdout == "open\n"


@pytest.mark.parametrize("what", ["evaluation", "distillation"])
def test_a_record_that_cannot_be_opened_is_not_held(what: str, tmp_path: Path) -> None:
    with opened(tmp_path, what):
        next(tmp_path.glob("*.jsonl")).write_text("{}\n")  # no such record
    with pytest.raises(ValueError, match=r"jsonl, line 1"):
        opened(tmp_path, what)
    assert other(tmp_path, "lock").stdout == "open\n"


def test_a_killed_writer_holds_nothing(tmp_path: Path) -> None:
    code = "import os, sys\nfrom pathlib import Path\nfrom trainer.disk.folder_lock import only_writer\n"
    code += "with only_writer(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60).returncode == -9
    with only_writer(tmp_path):
        assert "FolderBusy" in other(tmp_path, "lock").stderr
