"""What outlives a kill: checkpoints, locked folders, lines of metrics and of records.

Not here: what goes into them, and the layout of a training run's folder (`trainer.run`).
"""

from trainer.disk import checkpoint, metrics_file, plain_files
from trainer.disk.checkpoint import Checkpoint, CheckpointError, synced
from trainer.disk.folder_lock import only_writer
from trainer.disk.records import agree, check_ids, check_same, has_lines, line_of, problem_digest, read_records

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "agree",
    "check_ids",
    "check_same",
    "checkpoint",
    "has_lines",
    "line_of",
    "metrics_file",
    "only_writer",
    "plain_files",
    "problem_digest",
    "read_records",
    "synced",
]
