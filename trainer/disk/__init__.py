"""What outlives a kill: checkpoints, locked folders, lines of metrics and of records.

Not here: what goes into them, and the layout of a training run's folder (`trainer.run`).
"""

from trainer.disk import checkpoint, metrics_file, plain_files
from trainer.disk.checkpoint import Checkpoint, CheckpointError
from trainer.disk.checkpoint_writer import CheckpointWriter, to_its_end
from trainer.disk.folder_lock import only_writer
from trainer.disk.records import (
    agree,
    agree_on_settings,
    check_ids,
    check_same,
    has_lines,
    line_of,
    made_by_engine,
    problem_digest,
    read_records,
)
from trainer.disk.written_files import Written, hashing, read_back, synced

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointWriter",
    "Written",
    "agree",
    "agree_on_settings",
    "check_ids",
    "check_same",
    "checkpoint",
    "has_lines",
    "hashing",
    "line_of",
    "made_by_engine",
    "metrics_file",
    "only_writer",
    "plain_files",
    "problem_digest",
    "read_back",
    "read_records",
    "synced",
    "to_its_end",
]
