"""Where problems come from: readers of public benchmarks and training sets, and the miniature family.

Not here: downloads, and grading (`tasks.math`, `tasks.code`).
"""

from tasks.data.benchmarks import READERS, read_as, read_task
from tasks.data.miniature import KINDS, Difficulty, Reading, Split, is_question, kind_of, mixed, read
from tasks.data.rows import DatasetError

__all__ = [
    "KINDS",
    "READERS",
    "DatasetError",
    "Difficulty",
    "Reading",
    "Split",
    "is_question",
    "kind_of",
    "mixed",
    "read",
    "read_as",
    "read_task",
]
