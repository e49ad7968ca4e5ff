"""A run that was searched for, and trees of labels: one problem each, with one program, in this process.

How a search goes is `search`'s business; attempts and folders are `trainer.evaluate.evaluation`'s, rows out of trees
`trainer.values`'.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from engine.known_engines import identity
from engine.protocol import Engine
from engine.session import Run
from sandbox.protocol import Sandbox
from search import Branching, OpenRuns, Program, jailed
from search.methods import MctsSettings, SearchRefused, Tree
from search.problem import (
    ORACLE,
    Grade,
    ProgramSpace,
    SearchReport,
    SearchSettings,
    TreeHeader,
    TreeWriter,
    grow_labels,
    guide_of,
    is_whole,
    label_header_settings,
    search,
)
from search.scoring import Scorer
from tasks.environments import begins
from tasks.problems import Problem
from trainer.credit import correctness
from trainer.disk import problem_digest
from trainer.rollout import TraceFile
from workflow.answers import Domain, final_answer
from workflow.completion import Sampling
from workflow.limits import Limits

MAX_OPEN = 64
"""Runs that wait at a call and are kept, of all searches together; others are made again by replay."""
ProgramOf = Callable[[Problem, str, Sampling, int], Program]
"""Of a problem, a program's text, sampling and seed: what is run."""


def _gives_logprobs(engine: Engine) -> bool:
    """Whether log-probabilities can be had in passing. Endpoints may refuse to say them, or say those of a distribution
    that was not sampled from: they are asked where psi guides, and otherwise not."""
    return bool(getattr(engine, "processed_logprobs", True))


def _named(model: Scorer | str) -> str:
    return model if isinstance(model, str) else getattr(model, "digest", "") or model.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Searcher:
    """What all searches of a process share."""

    sandbox: Sandbox
    limits: Limits
    sampling: Sampling
    retries: int = 3
    prm: Scorer | str | None = None
    """V, or `search.problem.ORACLE`."""
    orm: Scorer | None = None
    """Y."""
    graded: bool = True
    """Whether problems say what is right."""
    spares: bool = False
    """Whether a search holds runs that it may need, for a single one that nothing else waits for (`Branching`)."""
    read_answer: Callable[[str, Domain], str | None] = final_answer
    program_of: ProgramOf | None = None
    """In place of jailed runs of the text: for who wrote it, and trusts it."""
    open_runs: OpenRuns = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "open_runs", OpenRuns(min(MAX_OPEN, self.sandbox.max_jails)))

    @property
    def names(self) -> dict[str, str]:
        """What an evaluation's folder says of the models: their digests, as any model may be put at a path, and names
        of those that have none."""
        models = {"prm": self.prm, "orm": self.orm}
        return {option: _named(model) for option, model in models.items() if model is not None}

    async def search(
        self,
        problem: Problem,
        program: str,
        settings: SearchSettings,
        *,
        engine: Engine,
        seed: int,
        trace: Path | None = None,
        tree: Path | None = None,
    ) -> tuple[SearchReport, Run | None]:
        """The answer to a problem by one method. The chosen run's Trace goes into `trace`, what the search thought of
        its turns behind it; the tree into `tree`. Raises `SearchRefused`, and what ends runs for infrastructure."""
        if self.prm == ORACLE and not self.graded:
            raise SearchRefused("the oracle grades, and nothing says what is right. Fix: a gold answer (--gold)")
        sampling = self.sampling if settings.method != "greedy" else replace(self.sampling, temperature=0.0)
        guided = settings.is_guided_by_psi(self.prm)
        changed = (sampling.temperature, sampling.top_p, sampling.top_k) != (1.0, 1.0, 0)
        if guided and changed and not _gives_logprobs(engine):
            raise SearchRefused(
                f"{engine.name} reports log-probabilities of the model's own distribution, and psi needs those of the "
                "one sampled from. Fix: --temperature 1 and --top-p 1, a model of values (--prm), or an engine that "
                "samples here (transformers:, vllm:)"
            )
        logprobs = guided or (settings.has_ties and _gives_logprobs(engine))
        sampling = replace(sampling, logprobs=logprobs)
        space = self._space(problem, program, engine, sampling, seed)
        writer = None
        try:
            guide, outcomes = guide_of(settings, self.prm, self.orm, problem.question, space)
            if tree is not None:
                said = settings.model_dump(mode="json") | {"guide": None if guide is None else guide.name}
                writer = TreeWriter(tree, self._header(problem, program, engine, said, sampling, seed))
            found = await search(space, settings, guide, outcomes, writer)
        finally:
            await space.close()
            if writer is not None:
                writer.close()
        file = TraceFile(trace if found.run is not None else None)
        for event in [*(found.run.trace.events if found.run is not None else ()), *found.report.path]:
            file(event)
        return found.report, found.run

    async def label(
        self, problem: Problem, program: str, settings: MctsSettings, *, engine: Engine, seed: int, tree: Path
    ) -> Tree:
        """Grow the label tree of one problem into a file; where one was broken off, go on with it (Alg. 1)."""
        sampling = replace(self.sampling, logprobs=_gives_logprobs(engine))
        header = self._label_header(problem, program, settings, engine, seed)
        writer = TreeWriter(tree, header, goes_on=True)
        try:
            space = self._space(problem, program, engine, sampling, seed, writer)
            try:
                return await grow_labels(space, settings, writer)
            finally:
                await space.close()
        finally:
            writer.close()

    def is_labelled(
        self, problem: Problem, program: str, settings: MctsSettings, *, engine: Engine, seed: int, tree: Path
    ) -> bool:
        """Whether the file holds all of what `label` makes. Raises `TreeDamaged`, and ValueError where it is of
        another problem or of other settings."""
        return is_whole(tree, self._label_header(problem, program, settings, engine, seed), settings.simulations)

    def _label_header(
        self, problem: Problem, program: str, settings: MctsSettings, engine: Engine, seed: int
    ) -> TreeHeader:
        return self._header(problem, program, engine, label_header_settings(settings), self.sampling, seed)

    def _space(
        self,
        problem: Problem,
        program: str,
        engine: Engine,
        sampling: Sampling,
        seed: int,
        writer: TreeWriter | None = None,
    ) -> ProgramSpace:
        branching = Branching(
            (self.program_of or self._jailed)(problem, program, sampling, seed),
            engine=engine.name,
            open_runs=self.open_runs,
            spares=self.spares,
        )
        recorded = None if writer is None else writer.recorded
        grade = self._grade(problem) if self.graded else None
        read = partial(self._read, problem.domain)
        return ProgramSpace(branching, engine, grade, retries=self.retries, recorded=recorded, read_answer=read)

    def _jailed(self, problem: Problem, program: str, sampling: Sampling, seed: int) -> Program:
        return jailed(
            self.sandbox,
            program,
            problem.question,
            limits=self.limits,
            sampling=sampling,
            seed=seed,
            game=begins(problem),
        )

    def _read(self, domain: Domain, message: str) -> str | None:
        return self.read_answer(message, domain)

    def _grade(self, problem: Problem) -> Grade:
        async def grade(run: Run) -> tuple[float, str, bool]:
            return await correctness(problem, run, self.sandbox)

        return grade

    def _header(
        self,
        problem: Problem,
        program: str,
        engine: Engine,
        settings: Mapping[str, object],
        sampling: Sampling,
        seed: int,
    ) -> TreeHeader:
        drawn = {name: getattr(sampling, name) for name in ("temperature", "top_p", "top_k", "max_tokens")}
        limits = {f"limit_{name}": value for name, value in self.limits.model_dump(mode="json").items()}
        version = getattr(engine, "weights_version", None)
        return TreeHeader(
            settings={**settings, "seed": seed, **drawn, "tolerance": problem.tolerance, **limits},
            problem=problem.id,
            problem_digest=problem_digest(problem),
            question=problem.question,
            domain=problem.domain,
            program=hashlib.blake2b(program.encode(errors="replace"), digest_size=16).hexdigest(),
            engine=engine.name,
            engine_digest=identity(engine).digest,
            weights_version=version if isinstance(version, int) else None,
        )
