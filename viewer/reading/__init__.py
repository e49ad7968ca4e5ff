"""Traces as they are on disk: whole, whatever state a file is in, or its ends alone, and how a run came out.

Not here: pages, and files that are no traces.
"""

from viewer.reading.event_lines import kind_of, why_no_event
from viewer.reading.file_stamps import stamp
from viewer.reading.run_outcome import (
    FAILURES,
    STOPPED,
    Outcome,
    failure_in_words,
    kind_of_failure,
    limit_in_words,
    outcome_of,
)
from viewer.reading.trace_summary import (
    LOOKED_THROUGH,
    UNREADABLE,
    TraceSummary,
    beginning,
    summarise,
    unreadable,
)
from viewer.reading.traces import ReadRun, read_run, read_trace

__all__ = [
    "FAILURES",
    "LOOKED_THROUGH",
    "STOPPED",
    "UNREADABLE",
    "Outcome",
    "ReadRun",
    "TraceSummary",
    "beginning",
    "failure_in_words",
    "kind_of",
    "kind_of_failure",
    "limit_in_words",
    "outcome_of",
    "read_run",
    "read_trace",
    "stamp",
    "summarise",
    "unreadable",
    "why_no_event",
]
