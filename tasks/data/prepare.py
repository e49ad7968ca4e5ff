"""Prepares the training sets of MetaAgent-X (section 4.1) from how they were published: selects, normalises, writes.

What is written is what the recipes name and `tasks.data.training_sets` reads. A row stays if it is of use
(`tasks.data.published_sets`) and if a math answer grades as right against itself; others are counted by reason. With
`references` code problems get a solution that passes their tests, and those without one are left out. The
file appears whole or not at all. Not here: downloads (`tasks.data.hub`), formats (`tasks.data.sources`), and whether
known solutions grade as right (`tasks.data.known_answers`).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel

from tasks.data.published_sets import TRAINING_SETS, NotUsable, TrainingSet, short, usable, with_reference
from tasks.data.references import python_solutions, reference_of
from tasks.data.rows import DatasetError
from tasks.data.sources import SourceRow, sha256, source_rows, train_files
from tasks.data.whole_files import replacing
from tasks.grading import asks_for_percent
from tasks.math import MathPair, grade_math_batch
from tasks.problems import Problem
from workflow.answers import final_answer

if TYPE_CHECKING:
    from sandbox.protocol import Sandbox

AT_ONCE = 256
"""Rows whose answers are graded together."""
SOLVED_AT_ONCE = 8
"""Code problems whose solutions are tried side by side."""
MOST_REASONS = 40
"""Different reasons that are counted apart."""
OTHER = "other reasons"


class LeftOut(BaseModel):
    reason: str
    rows: int
    first: str
    """Where the first of them stands, and what exactly is wrong."""


class SourceFile(BaseModel):
    path: str
    """Inside `Prepared.source`."""
    bytes: int
    sha256: str


class Prepared(BaseModel):
    """What was made of what: stands beside the file (`manifest_of`)."""

    name: str
    file: str
    rows: int
    bytes: int
    sha256: str
    read: int
    """Rows of the source that were looked at."""
    left_out: list[LeftOut]
    limit: int | None
    references: bool = False
    repository: str
    source: str
    files: list[SourceFile]


@dataclass(frozen=True, slots=True)
class Progress:
    file: str
    share: float
    """Of the bytes of all source files, 0 to 1."""
    read: int
    """Rows."""
    kept: int


class _Candidate(NamedTuple):
    place: str
    line: bytes
    problem: Problem
    solutions: Sequence[str] = ()


def manifest_of(file: Path) -> Path:
    """Where it is written what a prepared file was made of."""
    return file.with_suffix(".source.json")


async def prepare_training_set(
    name: str,
    source: Path,
    folder: Path,
    sandbox: Sandbox,
    *,
    limit: int | None = None,
    references: bool = False,
    watch: Callable[[Progress], None] = lambda progress: None,
) -> Prepared:
    """Write the set `name` of `TRAINING_SETS` into `folder` (made if need be), from the file or folder `source`; the
    first `limit` usable rows, if given. With `references` only code problems on stdin to which a right solution was
    published, which stands beside each.

    The same source gives the same bytes, as far as solutions always do the same. Memory holds `AT_ONCE` rows of it.
    Raises ValueError where a set has no solutions; `DatasetError` for a source that cannot be read or of which no row
    can be used, and for a file in the place of the new one that was not prepared; OSError where nothing can be written;
    `SandboxUnavailable` where nothing can be graded.
    """
    wanted = TRAINING_SETS[name]
    if references and not wanted.solutions:
        raise ValueError(f"{name} was published without solutions to keep. Fix: leave references out")
    files = train_files(source)
    target = folder / wanted.file
    folder.mkdir(parents=True, exist_ok=True)
    if target.exists() and not manifest_of(target).exists():
        raise DatasetError(f"{target} is there and was not prepared here. Fix: another folder, or remove it")
    run = _Run(wanted, source, limit, references)
    digest = hashlib.sha256()
    with replacing(target) as file:

        def write(line: bytes) -> None:
            file.write(line)
            digest.update(line)

        await run.write(files, sandbox, write, watch)
        if not run.kept:
            raise DatasetError(_nothing(wanted, source, run))
        prepared = Prepared(
            name=name,
            file=wanted.file,
            rows=run.kept,
            bytes=file.tell(),
            sha256=digest.hexdigest(),
            read=run.read,
            left_out=sorted(run.left_out.values(), key=lambda each: -each.rows),
            limit=limit,
            references=references,
            repository=wanted.published.repository,
            source=str(source),
            files=run.sources,
        )
        with replacing(manifest_of(target)) as manifest:
            manifest.write(prepared.model_dump_json(indent=2).encode() + b"\n")
    return prepared


class _Run:
    """One pass over the source, and what is counted on the way."""

    def __init__(self, wanted: TrainingSet, source: Path, limit: int | None, references: bool) -> None:
        self.kept = self.read = 0
        self.left_out: dict[str, LeftOut] = {}
        self.sources: list[SourceFile] = []
        self._wanted, self._source, self._limit, self._references = wanted, source, limit, references
        self._seen: set[bytes] = set()

    async def write(
        self,
        files: Sequence[Path],
        sandbox: Sandbox,
        write: Callable[[bytes], object],
        watch: Callable[[Progress], None],
    ) -> None:
        """Write the lines. A Ctrl-C has its turn after each row."""
        waiting: list[_Candidate] = []
        for progress, candidate in self._candidates(files):
            await asyncio.sleep(0)
            watch(progress)
            if candidate is not None:
                waiting.append(candidate)
                if len(waiting) >= min(self._at_once(candidate), self._missing):
                    await self._keep(waiting, sandbox, write)
                    waiting = []
            if not self._missing:
                return
        await self._keep(waiting, sandbox, write)

    @property
    def _missing(self) -> int:
        return AT_ONCE if self._limit is None else self._limit - self.kept

    def _at_once(self, candidate: _Candidate) -> int:
        if self._references:
            return SOLVED_AT_ONCE
        return AT_ONCE if candidate.problem.gold else 1

    async def _keep(self, candidates: Sequence[_Candidate], sandbox: Sandbox, write: Callable[[bytes], object]) -> None:
        """Write those of which a math answer, if they have one, grades as right against itself."""
        if self._references:
            lines = await asyncio.gather(*(_with_reference(candidate, sandbox) for candidate in candidates))
        else:
            refused = await _refused([candidate.problem for candidate in candidates], sandbox)
            lines = [reason or candidate.line for candidate, reason in zip(candidates, refused, strict=True)]
        for candidate, line in zip(candidates, lines, strict=True):
            if isinstance(line, NotUsable):
                self._leave_out(candidate.place, line)
                continue
            if self._references and _identity(candidate.problem) in self._seen:
                self._leave_out(candidate.place, NotUsable("the same problem again", candidate.problem.id))
                continue
            self._seen.add(_identity(candidate.problem))
            write(line)
            self.kept += 1

    def _candidates(self, files: Sequence[Path]) -> Iterator[tuple[Progress, _Candidate | None]]:
        """Every row of the source; None for those that are left out."""
        sizes = [path.stat().st_size for path in files]
        for number, path in enumerate(files):
            name = path.name if path == self._source else path.relative_to(self._source).as_posix()
            self.sources.append(SourceFile(path=name, bytes=sizes[number], sha256=sha256(path)))
            more = [self._wanted.solutions] if self._references else []
            for row in source_rows(path, [*self._wanted.columns, *more]):
                self.read += 1
                candidate = self._candidate(row)
                share = (sum(sizes[:number]) + row.read * sizes[number]) / max(sum(sizes), 1)
                yield Progress(name, share, self.read, self.kept), candidate

    def _candidate(self, row: SourceRow) -> _Candidate | None:
        try:
            if row.fields is None:
                raise NotUsable(short(row.wrong), row.wrong)
            line, problem = usable(self._wanted, row.fields)
            self._first_time(problem)
            solutions = python_solutions(row.fields.get(self._wanted.solutions)) if self._references else ()
            return _Candidate(row.place, line, problem, solutions)
        except NotUsable as reason:
            self._leave_out(row.place, reason)
            return None

    def _first_time(self, problem: Problem) -> None:
        """Ids have to be unique. Where a problem may still be refused for its solutions, the next one like it has a try
        of its own."""
        if _identity(problem) in self._seen:
            raise NotUsable("the same problem again", problem.id)
        if not self._references:
            self._seen.add(_identity(problem))

    def _leave_out(self, place: str, why: NotUsable) -> None:
        reason = str(why)
        if reason not in self.left_out and len(self.left_out) >= MOST_REASONS:
            reason = OTHER
        first = f"{place}: {why.detail[:200]}" if why.detail else place
        known = self.left_out.setdefault(reason, LeftOut(reason=reason, rows=0, first=first))
        known.rows += 1


async def _refused(problems: Sequence[Problem], sandbox: Sandbox) -> list[NotUsable | None]:
    """Why each of them is not usable, if so: a math answer that cannot be read, or is not right against itself."""
    golds = {number: problem.gold for number, problem in enumerate(problems) if problem.gold is not None}
    pairs = [
        MathPair(
            gold=gold,
            answer=final_answer(f"\\boxed{{{gold}}}", "math"),
            percent=asks_for_percent(problems[number].question),
        )
        for number, gold in golds.items()
    ]
    refused: list[NotUsable | None] = [None] * len(problems)
    for number, graded in zip(golds, await grade_math_batch(sandbox, pairs), strict=True):
        if graded.verdict == "gold_unparseable":
            refused[number] = NotUsable("an answer that the grader cannot read", repr(golds[number]))
        elif not graded.correct:
            said = f"{graded.verdict}: {golds[number]!r}"
            refused[number] = NotUsable("an answer that is not right against itself", said)
    return refused


def _identity(problem: Problem) -> bytes:
    """Ids of math problems are line numbers, so these are told apart by what they say."""
    said = problem.id if problem.gold is None else f"{problem.question}\0{problem.gold}"
    return hashlib.blake2b(said.encode(), digest_size=16).digest()


async def _with_reference(candidate: _Candidate, sandbox: Sandbox) -> bytes | NotUsable:
    """The line with a right solution, or why there is none."""
    try:
        reference = await reference_of(candidate.problem, candidate.solutions, sandbox)
        return with_reference(candidate.line, reference)
    except NotUsable as reason:
        return reason


def _nothing(wanted: TrainingSet, source: Path, run: _Run) -> str:
    reasons = sorted(run.left_out.values(), key=lambda each: -each.rows)[:3]
    said = "; ".join(f"{each.reason} ({each.rows:,} rows, first {each.first})" for each in reasons)
    return (
        f"no row of {source} can be used: {said or 'it has none'}. Fix: is it {wanted.published.repository}? "
        f"`{wanted.published.command('FOLDER')}`"
    )
