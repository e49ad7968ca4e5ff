"""What people see: text on a terminal, progress, graphs, transcripts, the view of a training run, curves.

Not here: the work that is shown (`metaagent.commands` has it done). Names are loaded on first use: a command
that shows one thing does not load all others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metaagent.terminal.bars import DataProgress, DistillProgress, EpochProgress, EvalProgress
    from metaagent.terminal.console import (
        EXIT_CODES,
        FAILURE_CODES,
        ExitCode,
        Stop,
        block,
        code,
        command,
        fields,
        heading,
        note,
        one_line,
        print_json,
        print_table,
        raw,
        stderr,
        stdout,
        usage_error,
    )
    from metaagent.terminal.health import Diagnosis, Item, State, print_diagnosis
    from metaagent.terminal.progress import LiveProgress, counting_bar
    from metaagent.terminal.run_plan import prediction_fields, print_plan, shown_seconds
    from metaagent.terminal.run_report import RunReport, failure_line, finding_line, print_findings, print_run
    from metaagent.terminal.training_view import TrainingView
    from metaagent.terminal.training_writers import Writers
    from metaagent.terminal.transcript import (
        cache_line,
        print_shares,
        print_transcript,
        read_trace,
        totals,
        trace_document,
    )
    from metaagent.terminal.workflow_diagram import mermaid_text, tree

_HOMES = {
    "bars": (
        "DataProgress",
        "DistillProgress",
        "EvalProgress",
        "EpochProgress",
    ),
    "console": (
        "EXIT_CODES",
        "FAILURE_CODES",
        "ExitCode",
        "Stop",
        "block",
        "code",
        "command",
        "fields",
        "heading",
        "note",
        "one_line",
        "print_json",
        "print_table",
        "raw",
        "stderr",
        "stdout",
        "usage_error",
    ),
    "health": (
        "Diagnosis",
        "Item",
        "State",
        "print_diagnosis",
    ),
    "progress": (
        "LiveProgress",
        "counting_bar",
    ),
    "workflow_diagram": (
        "mermaid_text",
        "tree",
    ),
    "run_plan": (
        "prediction_fields",
        "print_plan",
        "shown_seconds",
    ),
    "run_report": (
        "RunReport",
        "failure_line",
        "finding_line",
        "print_findings",
        "print_run",
    ),
    "training_view": ("TrainingView",),
    "training_writers": ("Writers",),
    "transcript": (
        "cache_line",
        "print_shares",
        "print_transcript",
        "read_trace",
        "totals",
        "trace_document",
    ),
}

__all__ = [
    "EXIT_CODES",
    "FAILURE_CODES",
    "DataProgress",
    "Diagnosis",
    "DistillProgress",
    "EpochProgress",
    "EvalProgress",
    "ExitCode",
    "Item",
    "LiveProgress",
    "RunReport",
    "State",
    "Stop",
    "TrainingView",
    "Writers",
    "block",
    "cache_line",
    "code",
    "command",
    "counting_bar",
    "failure_line",
    "fields",
    "finding_line",
    "heading",
    "mermaid_text",
    "note",
    "one_line",
    "prediction_fields",
    "print_diagnosis",
    "print_findings",
    "print_json",
    "print_plan",
    "print_run",
    "print_shares",
    "print_table",
    "print_transcript",
    "raw",
    "read_trace",
    "shown_seconds",
    "stderr",
    "stdout",
    "totals",
    "trace_document",
    "tree",
    "usage_error",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"metaagent.terminal.{home}"), name)
    raise AttributeError(f"module 'metaagent.terminal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
