"""Distils a cold start out of engines (MetaAgent-X, Appendix A): designs are made, executed and graded, and the correct
runs become chat rows for both roles.

Designs come from a teacher, which is shown templates in its prompt, or are templates as they stand; the Designer's row
has the short prompt in either case. A bad run is data. What fails in an engine or the sandbox itself is tried again,
then stops the distillation; what is done is kept. What is kept and why is `trainer.distill.distill_rows`', the files
are `trainer.distill.distill_log`'s. Nothing here trains, and making questions in other processes is
`trainer.cluster.spread`'s business.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from designer.prompts import template_reply
from designer.sample import Design, sample_design
from engine.protocol import Engine
from engine.retries import retried
from sandbox.protocol import Sandbox
from tasks.environments import begins
from tasks.problems import Problem
from templates import Template, load_templates
from trainer.credit import paper_reward
from trainer.disk import check_ids, made_by_engine, problem_digest
from trainer.distill.bank_programs import TemplateProgram, bank_digest, checked_programs, drawn
from trainer.distill.distill_log import DesignRecord, DistillLog, DistillReport, QuestionRecord, RunRecord
from trainer.distill.distill_rows import (
    Dropped,
    Origin,
    Row,
    designer_row,
    executor_rows,
    format_of,
    preferred,
    why_dropped,
)
from trainer.rollout import derived_seed, first_failure
from workflow.completion import Sampling
from workflow.failures import raise_infrastructure
from workflow.graph import structure
from workflow.limits import DAY_S, Limits
from workflow.usage import usage_report


class DistillSettings(BaseModel):
    """How rows are made. Those of one folder agree in everything but `max_concurrent` and `retries`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    designs: int = Field(default=4, ge=1)
    """Per question; without a teacher at most as many as there are templates for it."""
    executions: int = Field(default=1, ge=1)
    """Of each design."""
    k: int = Field(default=3, ge=0)
    """Templates that the teacher is shown, another sample for each design."""
    seed: int = Field(default=0, ge=0)
    sampling: Sampling = Sampling()
    """Of the agents of the programs."""
    designer_sampling: Sampling = Sampling()
    repair: bool = True
    """Whether the teacher may mend a program that fails its check, once."""
    min_format: float = Field(default=1.0, ge=0, le=1)
    """The least R_format of Eq. 10 of a run that is kept; 1 is every agent's solution and delivery."""
    keep_wrong: bool = False
    """Whether runs with a wrong answer are kept like the others: for a policy that is to begin with its teacher's
    mistakes."""
    max_per_question: int | None = Field(default=None, ge=1)
    """The most designs that are kept of a question, different structures first."""
    limits: Limits = Limits()
    """Of each run; `reply_s` is for the Designer's replies, too."""
    max_concurrent: int = Field(default=16, ge=1)
    """Designs and runs under way at once."""
    retries: int = Field(default=3, ge=0)
    """How often a design or a run that failed for infrastructure is tried again."""

    def questions_at_once(self, designs: int) -> int:
        """Enough questions of so many designs for all turns, and no more: what is under way is lost when this is
        broken off."""
        return self.max_concurrent // designs + 1

    @property
    def longest_question_s(self) -> float:
        """If nothing of it were under way at the same time, and all of it were tried again as often as may be; a day at
        most."""
        return min(self.designs * (1 + self.executions) * (1 + self.retries) * self.limits.longest_s, DAY_S)

    def shared_among(self, workers: int) -> DistillSettings:
        """For each of so many processes, which together have as much under way as these settings say; what a question
        has under way is in one of them."""
        busy = min(workers, self.questions_at_once(self.designs))
        return self.model_copy(update={"max_concurrent": -(-self.max_concurrent // busy)})


MakeQuestion = Callable[[Problem, Sequence[TemplateProgram]], Awaitable[QuestionRecord]]
"""`await make(problem, chosen)` is all that is done for a question; `chosen` are its designs without a teacher."""


async def distill(
    problems: Sequence[Problem],
    *,
    executor: Engine,
    sandbox: Sandbox,
    folder: Path,
    designer: Engine | None = None,
    templates: Sequence[Template] | None = None,
    settings: DistillSettings | None = None,
    tasks: Mapping[str, str] | None = None,
    resume: bool = False,
    watch: Callable[[DistillReport], None] = lambda _: None,
    make: MakeQuestion | None = None,
) -> DistillReport:
    """`settings.designs` designs for each problem, each run `settings.executions` times with `executor` as its agents.

    `designer` is the teacher that designs, with some of `templates` in its prompt (by default of the whole bank);
    without one, templates of the problem's domain are drawn at random, none twice for a question. `folder` gets
    `rows.jsonl`, which `trainer.sft.chat_rows.read_rows` reads, and `attempts.jsonl`, a line per question with all that
    was done. With `resume`, questions that are done there are not done again. `tasks` names the task of a problem's id.
    `watch` is told the sums after each question, once at the beginning too. The sandbox needs the preloads
    `designer.check` and, for math, `tasks.MATH_WORKER`. `make` makes questions elsewhere as `Questions` would here;
    engines are then only asked for their names, and the sandbox checks templates.

    Raises `EngineFailed` or `SandboxUnavailable` when retries did not help, OSError when the folder cannot be written,
    and ValueError for problems with equal ids, for a problem without templates, for a template that may not run, and
    for a folder of another distillation, or of any without `resume`. What is done then is in the folder.
    """
    settings = settings or DistillSettings()
    check_ids(problems)
    bank = load_templates() if templates is None else list(templates)
    made_by = {
        **({"designer": "bank"} if designer is None else made_by_engine("designer", designer)),
        **made_by_engine("executor", executor),
        "templates": bank_digest(bank),
        **settings.model_dump(mode="json", exclude={"max_concurrent", "retries"}),
    }
    with DistillLog(folder, problems, made_by, resume=resume) as log:
        watch(log.report)
        missing = log.missing()
        wanted = [problem for problem in problems if problem.id in missing]
        programs = [] if designer is not None else await checked_programs(bank, wanted, sandbox)
        if make is None:
            make = Questions(
                executor=executor,
                sandbox=sandbox,
                designer=designer,
                templates=bank,
                settings=settings,
                tasks=tasks or {},
            ).make
        remaining = iter(wanted)
        at_once = settings.questions_at_once(min(settings.designs, len(programs) or settings.designs))

        async def work() -> None:
            for problem in remaining:  # shared by all workers
                seed = derived_seed(settings.seed, problem.id, "templates")
                log.add(await make(problem, drawn(programs, problem, settings.designs, seed)))
                watch(log.report)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(wanted), at_once)):
                    group.create_task(work())
        except ExceptionGroup as failures:
            raise first_failure(failures) from None
        finally:
            report = log.write_rows()
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Does what there is to do for a question in this process. Fields as `distill` has them."""

    executor: Engine
    sandbox: Sandbox
    settings: DistillSettings
    designer: Engine | None = None
    templates: Sequence[Template] = ()
    """That a teacher is shown some of."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    engine_of_run: Callable[[Engine, int], Engine] = lambda engine, seed: engine
    """What a design or a run with this seed asks, where several engines stand behind one name."""
    turns: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "turns", asyncio.Semaphore(self.settings.max_concurrent))

    async def make(self, problem: Problem, chosen: Sequence[TemplateProgram]) -> QuestionRecord:
        """See `MakeQuestion`."""
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            if self.designer is not None:
                designs = [self.sampled(problem, self.designer, number) for number in range(self.settings.designs)]
            else:
                designs = [self.taken(problem, each, number) for number, each in enumerate(chosen)]
            tasks = [group.create_task(design) for design in designs]
        records, rows = self._kept([task.result() for task in tasks])
        return QuestionRecord(
            question=problem.id,
            problem_digest=problem_digest(problem),
            task=self.tasks.get(problem.id),
            domain=problem.domain,
            designs=records,
            rows=rows,
            duration_s=round(time.monotonic() - started, 4),
        )

    def _kept(self, made: Sequence[tuple[DesignRecord, list[Row]]]) -> tuple[list[DesignRecord], list[Row]]:
        """All designs, those that are surplus marked so, and the rows of the others."""
        kept = [place for place, (record, _) in enumerate(made) if record.kept]
        most = self.settings.max_per_question or len(kept)
        chosen = {kept[place] for place in preferred([made[place][0].structure for place in kept], most)}
        records = [
            record.model_copy(update={"dropped": "surplus"}) if record.kept and place not in chosen else record
            for place, (record, _) in enumerate(made)
        ]
        return records, [row for place in sorted(chosen) for row in made[place][1]]

    async def taken(self, problem: Problem, design: TemplateProgram, number: int) -> tuple[DesignRecord, list[Row]]:
        """A template as a design."""
        name = design.template.name
        origin = Origin(question=problem.id, design=number, structure=design.structure, template=name)
        reply = template_reply(design.template, problem.domain)
        runs, rows = await self.runs(problem, design.program, reply, origin)
        record = DesignRecord(design=number, designer="bank", template=name, structure=design.structure, runs=runs)
        return record, rows

    async def sampled(self, problem: Problem, teacher: Engine, number: int) -> tuple[DesignRecord, list[Row]]:
        """A design by the teacher; what is wrong with it is data."""
        design = await retried(partial(self.asked, problem, teacher, number), self.settings.retries)
        dropped: Dropped | None = None if design.error is None else design.error.kind
        if dropped is None and design.turns[-1].completion.finish_reason != "stop":
            dropped = "cut_off"
        shape = None if dropped is not None or design.graph is None else structure(design.graph)
        runs: list[RunRecord] = []
        rows: list[Row] = []
        if design.source is not None and shape is not None:
            origin = Origin(question=problem.id, design=number, structure=shape)
            runs, rows = await self.runs(problem, design.source, design.replies[-1], origin)
        record = DesignRecord(
            design=number,
            designer="teacher",
            program=design.source,
            structure=shape,
            repaired=design.repaired,
            dropped=dropped,
            message=None if design.error is None else design.error.message,
            usage=usage_report(designer=[turn.completion for turn in design.turns]).total,
            runs=runs,
        )
        return record, rows

    async def asked(self, problem: Problem, teacher: Engine, number: int) -> Design:
        seed = derived_seed(self.settings.seed, problem.id, number)
        async with self.turns:
            return await sample_design(
                problem.question,
                self.engine_of_run(teacher, seed),
                self.sandbox,
                reply_s=self.settings.limits.reply_s,
                sampling=self.settings.designer_sampling,
                templates=self.templates,
                k=self.settings.k,
                repair=self.settings.repair,
                seed=seed,
            )

    async def runs(
        self, problem: Problem, program: str, reply: str, origin: Origin
    ) -> tuple[list[RunRecord], list[Row]]:
        """All executions of a design, and what is learned from those that are kept: `reply`, and what agents said."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(retried(partial(self.run, problem, program, number, origin), self.settings.retries))
                for number in range(self.settings.executions)
            ]
        runs = [task.result() for task in tasks]
        records = [record for record, _ in runs]
        if all(record.dropped is not None for record in records):
            return records, []
        right = any(record.correct for record in records)
        design = designer_row(problem.question, reply, origin, right=right)
        return records, [design, *(row for _, rows in runs for row in rows)]

    async def run(self, problem: Problem, program: str, number: int, origin: Origin) -> tuple[RunRecord, list[Row]]:
        """One execution; its rows if it is kept."""
        seed = derived_seed(self.settings.seed, problem.id, origin.design, number)
        async with self.turns:
            run = await self.sandbox.run_program(
                program,
                problem.question,
                engine=self.engine_of_run(self.executor, seed),
                limits=self.settings.limits,
                sampling=self.settings.sampling,
                seed=seed,
                game=begins(problem),
            )
            raise_infrastructure(run.failure)
            reward = await paper_reward(problem, run, self.sandbox)
        dropped = why_dropped(problem, run, reward, self.settings.min_format, self.settings.keep_wrong)
        correct = next(term for term in reward.terms if term.name == "correct")
        record = RunRecord(
            execution=number,
            correct=correct.value == 1,
            verdict=correct.reason,
            format=format_of(reward),
            dropped=dropped,
            message=None if run.failure is None else run.failure.message,
            usage=usage_report([run.trace]).total,
            duration_s=round(run.duration_s, 4),
        )
        return record, executor_rows(run, number, origin, right=record.correct) if dropped is None else []
