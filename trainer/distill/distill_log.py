"""The record of a distillation: one question per line of `attempts.jsonl`, with its designs, runs and rows, and the
report that sums it up.

A question's line is written when all of it is done, and survives a kill (`trainer.disk.records`). `rows.jsonl` is made
from these lines, in the order of the problems and each row once, so that what was killed and resumed ends with the same
rows as what was not. Making designs and runs is `trainer.distill.distillation`'s business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from tasks.problems import Problem
from trainer.disk import agree, check_same, has_lines, line_of, only_writer, plain_files, problem_digest, read_records
from trainer.distill.distill_rows import Dropped, Row, digest
from workflow.answers import Domain
from workflow.graph import Structure
from workflow.usage import PolicyRole, Tally

SETTINGS, ATTEMPTS, ROWS = "distillation.json", "attempts.jsonl", "rows.jsonl"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class RunRecord(_Frozen):
    """One execution of a design."""

    execution: int
    correct: bool
    verdict: str
    """Why it is correct or not, in a few words."""
    format: float
    """R_format of Eq. 10, in [0, 1]."""
    dropped: Dropped | None = None
    message: str | None = None
    """Of a failure."""
    usage: Tally
    duration_s: float


class DesignRecord(_Frozen):
    """One design and its executions; there are none where it may not run."""

    design: int
    designer: Literal["teacher", "bank"]
    template: str | None = None
    """The one that is the design; None for a teacher's."""
    program: str | None = None
    """A teacher's."""
    structure: Structure | None = None
    repaired: bool = False
    dropped: Dropped | None = None
    message: str | None = None
    usage: Tally = Tally()
    """Of the teacher's replies."""
    runs: list[RunRecord] = []

    @property
    def kept(self) -> bool:
        return self.dropped is None and any(run.dropped is None for run in self.runs)


class QuestionRecord(_Frozen):
    """All that was done for one question, and the rows that came of it."""

    question: str
    """The problem's id."""
    problem_digest: str
    task: str | None = None
    domain: Domain
    designs: list[DesignRecord]
    rows: list[Row]
    duration_s: float


class StructureCount(_Frozen):
    designs: int = 0
    kept: int = 0


class DistillReport(_Frozen):
    """Sums over questions."""

    questions: int = 0
    solved: int = 0
    """Questions with a design that is kept."""
    designs: int = 0
    designs_kept: int = 0
    """Designs with a run that is kept."""
    runs: int = 0
    runs_correct: int = 0
    runs_kept: int = 0
    rows: dict[PolicyRole, int] = {}
    duplicates: int = 0
    """Rows that taught what another row does, counted at the end; `rows` is then without them."""
    designs_dropped: dict[Dropped, int] = {}
    """Designs that were not run, or are `surplus`."""
    runs_dropped: dict[Dropped, int] = {}
    structures: dict[Structure, StructureCount] = {}
    """Of the designs that may run."""
    usage: Tally = Tally()
    usage_by_role: dict[PolicyRole, Tally] = {}


def added(report: DistillReport, record: QuestionRecord) -> DistillReport:
    """The report with one more question."""
    runs = [run for design in record.designs for run in design.runs]
    kept = sum(design.kept for design in record.designs)
    usage: dict[PolicyRole, Tally] = {
        "designer": Tally.total(design.usage for design in record.designs),
        "executor": Tally.total(run.usage for run in runs),
    }
    structures = dict(report.structures)
    for design in record.designs:
        if design.structure is not None:
            before = structures.get(design.structure, StructureCount())
            structures[design.structure] = StructureCount(
                designs=before.designs + 1, kept=before.kept + int(design.kept)
            )
    return DistillReport(
        questions=report.questions + 1,
        solved=report.solved + (kept > 0),
        designs=report.designs + len(record.designs),
        designs_kept=report.designs_kept + kept,
        runs=report.runs + len(runs),
        runs_correct=report.runs_correct + sum(run.correct for run in runs),
        runs_kept=report.runs_kept + sum(run.dropped is None for d in record.designs if d.kept for run in d.runs),
        rows=_counted(report.rows, (row.role for row in record.rows)),
        designs_dropped=_counted(report.designs_dropped, (d.dropped for d in record.designs if d.dropped)),
        runs_dropped=_counted(report.runs_dropped, (run.dropped for run in runs if run.dropped)),
        structures=structures,
        usage=Tally.total([report.usage, *usage.values()]),
        usage_by_role={
            role: Tally.total([report.usage_by_role.get(role, Tally()), tally])
            for role, tally in usage.items()
            if role in report.usage_by_role or tally.calls
        },
    )


def _counted(counts: Mapping[Any, int], more: Iterable[Any]) -> dict[Any, int]:
    return dict(Counter(counts) + Counter(more))


class DistillLog:
    """The record in `folder`, which is made if need be.

    `made_by` says how attempts are made. Raises ValueError for a folder whose attempts were made in another way or from
    other problems, that has any without `resume`, or that another process writes, and OSError for one that cannot be
    written.
    """

    def __init__(self, folder: Path, problems: Sequence[Problem], made_by: Mapping[str, Any], *, resume: bool) -> None:
        self.folder = folder
        self._places: dict[str, int | None] = dict.fromkeys(problem.id for problem in problems)
        """Where in the file the line of each problem begins; None for those to be done."""
        self._digests = {problem.id: problem_digest(problem) for problem in problems}
        self.report = DistillReport()
        with ExitStack() as opened:
            opened.enter_context(only_writer(folder))
            attempts = folder / ATTEMPTS
            begun = has_lines(attempts)
            if begun and not resume:
                raise ValueError(f"{folder} holds a distillation. Fix: go on with it (--resume), or use another folder")
            if has_lines(folder / ROWS) and not (folder / SETTINGS).exists():
                raise ValueError(f"{folder / ROWS} is of no distillation here. Fix: use another folder")
            agree(folder / SETTINGS, made_by, begun=begun)
            for place, record in read_records(attempts, QuestionRecord) if begun else ():
                check_same(record.question, record.problem_digest, self._digests.get(record.question), folder)
                if record.question in self._places:
                    self._places[record.question] = place
                    self.report = added(self.report, record)
            self._file = opened.enter_context(plain_files.appended(attempts))
            self._open = opened.pop_all()

    def missing(self) -> set[str]:
        """Ids of the problems that are not done."""
        return {name for name, place in self._places.items() if place is None}

    def add(self, record: QuestionRecord) -> None:
        place = self._file.tell()
        self._file.write(line_of(record).encode())
        self._file.flush()
        self._places[record.question] = place
        self.report = added(self.report, record)

    def write_rows(self) -> DistillReport:
        """Make `rows.jsonl` of what is done, whole or not at all; the report says what is in it."""
        seen: set[bytes] = set()
        counts: Counter[PolicyRole] = Counter()
        duplicates = 0
        with plain_files.replacing(self.folder / ROWS) as file:
            for row in self._rows():
                known = len(seen)
                seen.add(digest(row))
                if len(seen) == known:
                    duplicates += 1
                    continue
                counts[row.role] += 1
                file.write(line_of(row).encode())
        return self.report.model_copy(update={"rows": dict(sorted(counts.items())), "duplicates": duplicates})

    def _rows(self) -> Iterator[Row]:
        """All rows, in the order of the problems."""
        with open(plain_files.opened(self.folder / ATTEMPTS), "rb") as file:
            for place in self._places.values():
                if place is not None:
                    file.seek(place)
                    yield from QuestionRecord.model_validate_json(file.readline()).rows

    def __enter__(self) -> DistillLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()
