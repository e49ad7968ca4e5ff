"""Distillations in a jail: what is kept, both prompts, repair, duplicates, costs, bad ends, resuming after a kill."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from small_problems import CHECKED, FOUR, SINGLE, SIX
from token_engine import TokenEngine

from designer.extract import extract_program
from designer.prompts import short_design_messages
from engine import retries
from engine.protocol import Engine
from sandbox import ProcessSandbox
from tasks import Problem
from templates import Template, parse_template
from trainer.distill.distill_log import ATTEMPTS, ROWS, DistillReport, QuestionRecord, StructureCount
from trainer.distill.distillation import DistillSettings, distill
from trainer.sft.chat_rows import ChatRow, read_rows
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed
from workflow.limits import Limits

VOTE = """from workflow import AgentNode, EnsembleNode, Workflow
voters = [AgentNode(name, "Put the answer in \\\\boxed{}.") for name in ("V1", "V2")]
workflow = Workflow("vote").add_node(EnsembleNode("Vote", voters))
"""
TOOLS = """from workflow import AgentNode, ToolRegistry, Workflow

def add(a, b):
    return str(a + b)

tools = ToolRegistry()
number = {"type": "integer"}
schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
tools.register("add", add, "Adds.", schema)
workflow = Workflow("tools").add_node(AgentNode("Adder", "Put the answer in \\\\boxed{}.", tools))
"""
DIVIDES = """from workflow import AgentNode, Workflow, WorkflowNode

class Divide(WorkflowNode):
    def process(self, context):
        return 1 / 0

workflow = Workflow("w").add_nodes([AgentNode("A", "Put it in \\\\boxed{}."), Divide("d")])
"""
MISSPELT = SINGLE.replace('"Solver", ', '"Solver", sytem_prompt=')
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 2}}\n</tool_call>'
METADATA = '"""Does it.\n\nUse when it fits.\n"""\n\n# /// template\n# pattern = "{0} pattern"\n# domain = "{1}"\n'
METADATA += '# structure = "{0}"\n# agent_calls = [1, 3]\n# ///\n\n'


def template(name: str, structure: str, program: str, domain: str = "math") -> Template:
    return parse_template(name, METADATA.format(structure, domain) + program)


BANK = [
    template("one", "single", SINGLE),
    template("checked", "reflection", CHECKED),
    template("vote", "ensemble", VOTE, "any"),
]
CODE = template("code", "single", SINGLE.replace("one", "code"), "code")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)


class Distil(Protocol):
    def __call__(
        self,
        folder: Path,
        problems: list[Problem],
        executor: Engine,
        *,
        designer: Engine | None = None,
        templates: list[Template] | None = None,
        resume: bool = False,
        watched: list[DistillReport] | None = None,
        **settings: Any,
    ) -> DistillReport: ...


@contextmanager
def distillations() -> Iterator[Distil]:
    """Distils in one sandbox; with the three templates of `BANK` and one retry unless told otherwise."""

    async def start() -> ProcessSandbox:
        return ProcessSandbox(preload=("designer.check", "tasks.math.worker"))

    with asyncio.Runner() as runner:
        sandbox = runner.run(start())

        def run(
            folder: Path,
            problems: list[Problem],
            executor: Engine,
            *,
            designer: Engine | None = None,
            templates: list[Template] | None = None,
            resume: bool = False,
            watched: list[DistillReport] | None = None,
            **settings: Any,
        ) -> DistillReport:
            work = distill(
                problems,
                executor=executor,
                sandbox=sandbox,
                folder=folder,
                designer=designer,
                templates=BANK if templates is None else templates,
                settings=DistillSettings(**{"retries": 1, **settings}),
                resume=resume,
                watch=(watched if watched is not None else []).append,
            )
            return runner.run(asyncio.wait_for(work, 100))

        yield run
        runner.run(sandbox.close())


@pytest.fixture(scope="module")
def distil() -> Iterator[Distil]:
    with distillations() as distil:
        yield distil


def right(request: CompletionRequest) -> str:
    """The right answer, in every form that is asked for, and different for each call."""
    text = str(request.messages)
    answer = "\\boxed{4}" if FOUR.question in text else "\\boxed{6}"
    answer = "Verdict: CORRECT" if request.agent == "Critic" else f"Call {request.sampling.seed} says {answer}"
    return f"<delivery>{answer}</delivery>" if "inside <delivery>" in text else answer


def teacher(*programs: str) -> TokenEngine:
    """Writes the programs in turn, by the order in which it is asked."""
    asked: list[str] = []

    def reply(request: CompletionRequest) -> str:
        asked.append(request.key)
        return f"Workflow Pattern: mine\n<code>\n{programs[(len(asked) - 1) % len(programs)]}\n</code>"

    return TokenEngine(reply)


class Finishing(TokenEngine):
    """Ends replies that hold `cut` at their longest, and each reply costs a cent."""

    cut = "nothing"

    async def complete(self, request: CompletionRequest) -> Completion:
        done = await super().complete(request)
        finish = "length" if self.cut in done.text else "stop"
        return replace(done, finish_reason=finish, usage=replace(done.usage, cost_usd=0.01))


def rows_of(folder: Path, role: Any = None) -> list[ChatRow]:
    return list(read_rows(folder / ROWS, role=role))


def raw_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]


def records(folder: Path) -> list[QuestionRecord]:
    return [QuestionRecord.model_validate_json(line) for line in (folder / ATTEMPTS).read_text().splitlines()]


# Who designs


def test_templates_are_designs_without_any_teacher(distil: Distil, tmp_path: Path) -> None:
    executor, watched = TokenEngine(right), []
    report = distil(tmp_path, [FOUR, SIX], executor, watched=watched, templates=[*BANK, CODE])
    assert (report.questions, report.solved, report.designs, report.designs_kept) == (2, 2, 6, 6)
    assert (report.runs, report.runs_correct, report.runs_kept) == (6, 6, 6)
    assert report.rows == {"designer": 6, "executor": 2 * (1 + 2 + 2)}
    assert report.structures == {
        name: StructureCount(designs=2, kept=2) for name in ("single", "reflection", "ensemble")
    }
    assert (report.designs_dropped, report.runs_dropped, report.duplicates) == ({}, {}, 0)
    assert [each.questions for each in watched] == [0, 1, 2]
    programs = {each.name: each.program for each in BANK}
    designed = [row for row in raw_rows(tmp_path) if row["role"] == "designer"]
    assert sorted(row["template"] for row in designed) == sorted([*programs, *programs])
    for row in designed:
        problem = FOUR if row["question"] == "p/4" else SIX
        assert row["messages"][:-1] == short_design_messages(problem.question)
        reply = row["messages"][-1]["content"]
        assert reply.startswith(f"Problem Type: MATH\nWorkflow Pattern: {row['structure']} pattern\n<code>\n")
        assert extract_program(reply).source == programs[row["template"]].strip() + "\n"
    said = [row["messages"][-1]["content"] for row in raw_rows(tmp_path) if row["role"] == "executor"]
    assert len(said) == len(executor.requests)
    assert sum("says \\boxed" in text for text in said) == 8
    assert [design.template for design in records(tmp_path)[0].designs] != ["one", "checked", "vote"] or [
        design.template for design in records(tmp_path)[1].designs
    ] != ["one", "checked", "vote"], "the order is drawn"


def test_rows_of_wrong_answers_are_kept_on_demand_and_say_so(distil: Distil, tmp_path: Path) -> None:
    def four(request: CompletionRequest) -> str:
        return f"Call {request.sampling.seed} says \\boxed{{4}}"

    report = distil(tmp_path, [FOUR, SIX], TokenEngine(four), templates=BANK[:1], designs=1, keep_wrong=True)
    assert (report.runs, report.runs_correct, report.runs_kept, report.designs_kept) == (2, 1, 2, 2)
    found = sorted((row["question"], row["role"], row["right"]) for row in raw_rows(tmp_path))
    roles = ("designer", "executor")
    assert found == [(id, role, id == "p/4") for id in ("p/4", "p/6") for role in roles]


def test_fewer_designs_than_templates_are_drawn_at_random_without_repeats(distil: Distil, tmp_path: Path) -> None:
    problems = [FOUR.model_copy(update={"id": f"p/{number}"}) for number in range(8)]
    distil(tmp_path / "a", problems, TokenEngine(right), designs=2)
    drawn = [tuple(design.template for design in record.designs) for record in records(tmp_path / "a")]
    assert all(len(set(names)) == 2 for names in drawn)
    assert len(set(drawn)) > 2
    distil(tmp_path / "b", problems, TokenEngine(right), designs=2, max_concurrent=1)
    assert (tmp_path / "a" / ROWS).read_bytes() == (tmp_path / "b" / ROWS).read_bytes()
    distil(tmp_path / "c", problems, TokenEngine(right), designs=2, seed=1)
    assert (tmp_path / "a" / ROWS).read_bytes() != (tmp_path / "c" / ROWS).read_bytes()


def test_a_teacher_sees_templates_and_the_policy_learns_from_the_short_prompt(distil: Distil, tmp_path: Path) -> None:
    designer = teacher(SINGLE, CHECKED)
    report = distil(tmp_path, [FOUR], TokenEngine(right), designer=designer, designs=6, k=1, executions=2)
    assert report.rows == {"designer": 2, "executor": 18}, "the other designs are the same"
    assert report.duplicates == 4
    shown = [str(request.messages) for request in designer.requests]
    patterns = [[t.name for t in BANK if f"Pattern: {t.pattern}" in text] for text in shown]
    assert all(len(names) == 1 for names in patterns)
    assert len({names[0] for names in patterns}) > 1, "designs are shown different samples of the templates"
    assert len({request.sampling.seed for request in designer.requests}) == 6
    for row in rows_of(tmp_path, "designer"):
        assert row.messages[:-1] == short_design_messages(FOUR.question)
        assert row.messages[-1]["content"].startswith("Workflow Pattern: mine\n<code>\n")
    (record,) = records(tmp_path)
    assert {design.designer for design in record.designs} == {"teacher"}
    assert {design.program for design in record.designs} == {SINGLE, CHECKED}
    assert all(len(design.runs) == 2 for design in record.designs)


def test_of_a_repaired_design_the_good_reply_is_learned_to_the_short_prompt(distil: Distil, tmp_path: Path) -> None:
    designer = teacher(MISSPELT, SINGLE)
    report = distil(tmp_path, [FOUR], TokenEngine(right), designer=designer, designs=1)
    assert len(designer.requests) == 2
    assert "sytem_prompt" in str(designer.requests[1].messages)
    (row,) = rows_of(tmp_path, "designer")
    assert row.messages[:-1] == short_design_messages(FOUR.question)
    assert extract_program(row.messages[-1]["content"]).source == SINGLE
    assert records(tmp_path)[0].designs[0].repaired
    assert report.usage_by_role["designer"].calls == 2
    alone = distil(tmp_path / "not", [FOUR], TokenEngine(right), designer=teacher(MISSPELT), designs=1, repair=False)
    assert (alone.designs_dropped, alone.runs, alone.rows) == ({"program_rejected": 1}, 0, {})


# What is kept


def test_only_right_answers_are_kept_and_the_others_are_counted_by_reason(distil: Distil, tmp_path: Path) -> None:
    replies = {"a": "\\boxed{4}", "b": "\\boxed{5}", "c": "four", "d": "\\boxed{4} and then", "e": "\\boxed{4}"}
    problems = [FOUR.model_copy(update={"id": name, "question": f"{FOUR.question} ({name})"}) for name in replies]
    problems[4] = problems[4].model_copy(update={"gold": r"\frac{"})

    def reply(request: CompletionRequest) -> str:
        return replies[str(request.messages).partition(f"{FOUR.question} (")[2][0]]

    engine = Finishing(reply)
    engine.cut = "and then"
    report = distil(tmp_path, problems, engine, templates=BANK[:1])
    assert report.runs_dropped == {"wrong": 1, "no_answer": 1, "cut_off": 1, "gold_unparseable": 1}
    assert (report.runs_correct, report.runs_kept, report.solved) == (2, 1, 1)
    assert {row["question"] for row in raw_rows(tmp_path)} == {"a"}
    verdicts = {record.question: record.designs[0].runs[0].verdict for record in records(tmp_path)}
    assert verdicts == {"a": "correct", "b": "wrong", "c": "no_answer", "d": "correct", "e": "gold_unparseable"}


def test_runs_without_deliveries_are_kept_only_if_asked_for(distil: Distil, tmp_path: Path) -> None:
    engine = TokenEngine(lambda request: "Verdict: CORRECT" if request.agent == "Critic" else "\\boxed{4}")
    report = distil(tmp_path / "a", [FOUR], engine, templates=[BANK[1]])
    assert (report.runs_correct, report.runs_dropped, report.rows) == (1, {"format": 1}, {})
    report = distil(tmp_path / "b", [FOUR], engine, templates=[BANK[1]], min_format=0.5)
    assert report.rows == {"designer": 1, "executor": 2}


def test_bad_designs_and_bad_runs_are_data(distil: Distil, tmp_path: Path) -> None:
    designer = Finishing(teacher(DIVIDES, MISSPELT, SINGLE + "# too long")._reply)
    designer.cut = "# too long"
    report = distil(tmp_path, [FOUR], TokenEngine(right), designer=designer, designs=3, repair=False)
    assert report.designs_dropped == {"program_rejected": 1, "cut_off": 1}
    assert report.runs_dropped == {"program_failed": 1}
    assert (report.rows, rows_file(tmp_path)) == ({}, "")
    report = distil(tmp_path / "limit", [FOUR], TokenEngine(right), templates=BANK[:1], limits=Limits(agent_calls=0))
    assert report.runs_dropped == {"limit_exceeded": 1}


def rows_file(folder: Path) -> str:
    return (folder / ROWS).read_text()


def test_designs_of_one_question_can_be_limited_and_structures_are_spread(distil: Distil, tmp_path: Path) -> None:
    designer = teacher(SINGLE, SINGLE + "\n", SINGLE + "\n\n", CHECKED)
    report = distil(
        tmp_path, [FOUR], TokenEngine(right), designer=designer, designs=4, max_per_question=2, max_concurrent=1
    )
    assert (report.designs_kept, report.designs_dropped, report.runs_kept) == (2, {"surplus": 2}, 2)
    assert report.structures == {
        "single": StructureCount(designs=3, kept=1), "reflection": StructureCount(designs=1, kept=1),
    }  # fmt: skip
    assert [row["structure"] for row in raw_rows(tmp_path)] == ["single"] * 2 + ["reflection"] * 3


def test_rows_that_teach_the_same_are_written_once(distil: Distil, tmp_path: Path) -> None:
    same = FOUR.model_copy(update={"id": "again"})
    report = distil(tmp_path, [FOUR, same], TokenEngine("\\boxed{4}"), templates=[BANK[0], BANK[2]], executions=2)
    # Solver and both voters have one prompt, so one row; one designer row for each template.
    assert (report.rows, report.duplicates) == ({"designer": 2, "executor": 1}, 2 + 2 * (2 * 3) - 1)
    assert {row["question"] for row in raw_rows(tmp_path)} == {"p/4"}


def adder(request: CompletionRequest) -> str:
    answered = [message["content"] for message in request.messages or [] if message["role"] == "tool"]
    return f"It is \\boxed{{{answered[0]}}}." if answered else CALL


def test_a_conversation_with_tools_is_read_back_as_it_was(distil: Distil, tmp_path: Path) -> None:
    engine = TokenEngine(adder)
    distil(tmp_path, [FOUR], engine, templates=[template("tools", "single", TOOLS)])
    (row,) = rows_of(tmp_path, "executor")
    last = engine.requests[-1]
    assert row.messages[:-1] == last.messages
    assert [message["role"] for message in row.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert row.messages[-1]["content"] == "It is \\boxed{4}."
    assert row.tools == last.tools
    assert row.tools[0]["function"]["name"] == "add"


def test_rows_become_samples(distil: Distil, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from benchmarks.tiny_models import CHATML, make_tokenizer
    from engine.chat import ChatFormat
    from trainer.sft.chat_samples import samples_of_rows

    distil(tmp_path, [FOUR], TokenEngine(adder), templates=[template("tools", "single", TOOLS)])
    tokenizer = make_tokenizer(CHATML)
    chat = ChatFormat(tokenizer, [tokenizer.eos_token_id])
    (designed,), (played,) = samples_of_rows(rows_of(tmp_path), chat).rows
    program = rows_of(tmp_path, "designer")[0].messages[-1]["content"]
    for sample, learned in ((designed, [program]), (played, [CALL, "It is \\boxed{4}."])):
        chosen = [token for token, mask in zip(sample.token_ids, sample.loss_mask, strict=True) if mask]
        assert tokenizer.decode(chosen) == "".join(text + tokenizer.eos_token for text in learned)


def test_a_failed_tool_call_does_not_matter_where_the_answer_is_right(distil: Distil, tmp_path: Path) -> None:
    bad = CALL.replace('"b": 2', '"c": 2')
    engine = TokenEngine(lambda request: "\\boxed{4}" if "Error" in str(request.messages) else bad)
    report = distil(tmp_path, [FOUR], engine, templates=[template("tools", "single", TOOLS)])
    assert report.rows == {"designer": 1, "executor": 1}


# Costs, pace


def test_costs_are_counted_by_role_for_what_is_kept_and_what_is_not(distil: Distil, tmp_path: Path) -> None:
    designer = Finishing(teacher(SINGLE, CHECKED, MISSPELT)._reply)
    report = distil(tmp_path, [FOUR], Finishing("\\boxed{5}"), designer=designer, designs=3, repair=False)
    assert (report.runs, report.runs_kept) == (2, 0)
    assert {role: tally.calls for role, tally in report.usage_by_role.items()} == {"designer": 3, "executor": 4}
    assert report.usage_by_role["designer"].usage.cost_usd == pytest.approx(0.03)
    assert report.usage.calls == 7
    assert report.usage.usage.cost_usd == pytest.approx(0.07)
    prompts = sum(len(designer._prompt(request)) for request in designer.requests)
    assert report.usage_by_role["designer"].usage.prompt_tokens == prompts
    (record,) = records(tmp_path)
    assert sum(design.usage.calls for design in record.designs) == 3
    assert sum(run.usage.calls for design in record.designs for run in design.runs) == 4


def test_the_pace_is_kept(distil: Distil, tmp_path: Path) -> None:
    problems = [FOUR.model_copy(update={"id": f"p/{number}"}) for number in range(6)]
    engine = TokenEngine("\\boxed{4}", pause_s=0.1)
    report = distil(tmp_path, problems, engine, templates=BANK[:1], executions=2, max_concurrent=3)
    assert engine.most == 3
    assert report.runs == len(engine.requests) == 12


# Bad ends and going on


@pytest.mark.parametrize("who", ["executor", "designer"])
def test_a_broken_engine_stops_loudly_and_what_is_done_is_kept(distil: Distil, tmp_path: Path, who: str) -> None:
    def broken(request: CompletionRequest) -> str:
        if SIX.question in str(request.messages):
            raise EngineFailed("tokens", "gone")
        return right(request) if who == "executor" else f"<code>\n{SINGLE}</code>"

    failing = TokenEngine(broken)
    executor = failing if who == "executor" else TokenEngine(right)
    designer = failing if who == "designer" else teacher(SINGLE)
    settings: dict[str, Any] = {"designs": 1, "max_concurrent": 1}
    with pytest.raises(EngineFailed, match=r"^engine tokens failed: gone$"):
        distil(tmp_path, [FOUR, SIX], executor, designer=designer, retries=2, **settings)
    assert sum(SIX.question in str(request.messages) for request in failing.requests) == 3, "once, and two retries"
    assert {row["question"] for row in raw_rows(tmp_path)} == {"p/4"}
    mended, again = TokenEngine(right), teacher(SINGLE)
    report = distil(tmp_path, [FOUR, SIX], mended, designer=again, resume=True, **settings)
    assert (len(mended.requests), len(again.requests)) == (1, 1), "only what was missing"
    assert (report.questions, report.rows, report.usage.calls) == (2, {"designer": 2, "executor": 2}, 4)


def test_a_hiccup_is_retried(distil: Distil, tmp_path: Path) -> None:
    left = [EngineFailed("tokens", "hiccup")]

    def reply(request: CompletionRequest) -> str:
        if left:
            raise left.pop()
        return right(request)

    assert distil(tmp_path, [FOUR], TokenEngine(reply), templates=BANK[:1]).runs_kept == 1


TESTS = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
KILLED = """
import os, signal, sys
sys.path[:0] = {tests!r}
from pathlib import Path
from test_distillation import FOUR, TokenEngine, distillations, many, right
from trainer.distill import distill_log

left = [1] * {lines}
whole = distill_log.line_of

def torn(record):
    line = whole(record)
    if {stage!r} != type(record).__name__:
        return line
    if not left:
        name = {{"QuestionRecord": "attempts.jsonl", "Row": "rows.jsonl.tmp"}}[{stage!r}]
        with open(Path({folder!r}) / name, "a") as file:
            file.write(line[: len(line) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    left.pop()
    return line

distill_log.line_of = torn
with distillations() as distil:
    distil(Path({folder!r}), many(), TokenEngine(right))
"""


def many() -> list[Problem]:
    return [FOUR.model_copy(update={"id": f"p/{number}"}) for number in range(4)]


@pytest.mark.thorough
@pytest.mark.parametrize(("stage", "lines"), [("QuestionRecord", 0), ("QuestionRecord", 2), ("Row", 3)])
def test_what_was_killed_goes_on_and_ends_with_the_same_rows(
    distil: Distil, tmp_path: Path, stage: str, lines: int
) -> None:
    folder = tmp_path / "killed"
    script = KILLED.format(tests=TESTS, lines=lines, stage=stage, folder=str(folder))
    killed = subprocess.run([sys.executable, "-c", script], timeout=60, cwd=Path(__file__).parents[3], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / ROWS).exists()
    done = (folder / ATTEMPTS).read_text().count("\n")
    assert done == (lines if stage == "QuestionRecord" else 4)
    engine = TokenEngine(right)
    resumed = distil(folder, many(), engine, resume=True)
    assert len(engine.requests) == 5 * (4 - done)
    whole = distil(tmp_path / "whole", many(), TokenEngine(right))
    assert resumed == whole
    assert (folder / ROWS).read_bytes() == (tmp_path / "whole" / ROWS).read_bytes()
    assert sorted(record.question for record in records(folder)) == [problem.id for problem in many()]


def test_more_questions_can_be_added_later(distil: Distil, tmp_path: Path) -> None:
    distil(tmp_path, [SIX], TokenEngine(right))
    engine = TokenEngine(right)
    report = distil(tmp_path, [FOUR, SIX], engine, resume=True, max_concurrent=2, retries=0)
    assert (len(engine.requests), report.questions) == (5, 2)
    assert [row["question"] for row in raw_rows(tmp_path)] == ["p/4"] * 8 + ["p/6"] * 8
    report = distil(tmp_path, [FOUR], TokenEngine("never asked"), resume=True)
    assert {row["question"] for row in raw_rows(tmp_path)} == {"p/4"}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"resume": False}, "holds a distillation. Fix: go on with it"),
        ({"seed": 5}, "holds attempts with seed=0, not 5"),
        ({"designs": 2}, "designs=4, not 2"),
        ({"templates": BANK[:2]}, "templates="),
        ({"designer": teacher(SINGLE)}, 'designer="bank", not "tokens"'),
        ({"problems": [FOUR.model_copy(update={"gold": "5"})]}, "problem 'p/4' has changed"),
        ({"line": '{"question": "p/4"}\n'}, r"attempts.jsonl, line 2: Field required \(problem_digest\)"),
    ],
)
def test_a_folder_of_another_distillation_is_refused(
    distil: Distil, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    changed = dict(changed)
    distil(tmp_path, [FOUR], TokenEngine(right))
    before = rows_file(tmp_path)
    with (tmp_path / ATTEMPTS).open("a") as file:
        file.write(changed.pop("line", ""))
    with pytest.raises(ValueError, match=told):
        distil(tmp_path, changed.pop("problems", [FOUR]), TokenEngine("never asked"), **{"resume": True, **changed})
    assert rows_file(tmp_path) == before


def test_what_makes_no_sense_is_refused_before_anything_is_asked(distil: Distil, tmp_path: Path) -> None:
    engine = TokenEngine("never asked")
    with pytest.raises(ValueError, match="two problems have the id 'p/4'"):
        distil(tmp_path / "a", [FOUR, FOUR], engine)
    with pytest.raises(ValueError, match=r"no template fits problem 'p/4' \(math\)"):
        distil(tmp_path / "b", [FOUR], engine, templates=[CODE])
    with pytest.raises(ValueError, match=r"template 'bad' may not run: .*sytem_prompt"):
        distil(tmp_path / "c", [FOUR], engine, templates=[template("bad", "single", MISSPELT)])
    assert engine.requests == []
    assert distil(tmp_path / "c", [FOUR], TokenEngine(right)).runs_kept == 3, "nothing had begun"
