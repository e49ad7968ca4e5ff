"""Where problems come from: readers of public benchmarks and training sets, how training sets are prepared for these
readers from what was published, and the miniature family.

Not here: grading (`tasks.math`, `tasks.code`).
"""

from tasks.data.benchmarks import READERS, read_as, read_task
from tasks.data.hub import DownloadError, download
from tasks.data.known_answers import KnownAnswers, grade_known_answers
from tasks.data.math_files import asked_in_math500, in_math500, normal_form
from tasks.data.miniature import KINDS, Difficulty, Reading, Split, is_question, kind_of, mixed, read
from tasks.data.prepare import Prepared, Progress, manifest_of, prepare_training_set
from tasks.data.published_sets import TRAINING_SETS
from tasks.data.rows import DatasetError

__all__ = [
    "KINDS",
    "READERS",
    "TRAINING_SETS",
    "DatasetError",
    "Difficulty",
    "DownloadError",
    "KnownAnswers",
    "Prepared",
    "Progress",
    "Reading",
    "Split",
    "asked_in_math500",
    "download",
    "grade_known_answers",
    "in_math500",
    "is_question",
    "kind_of",
    "manifest_of",
    "mixed",
    "normal_form",
    "prepare_training_set",
    "read",
    "read_as",
    "read_task",
]
