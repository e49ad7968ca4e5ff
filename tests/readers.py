"""All functions that read hostile text in the host's process, each as a call on one text, with what it covers.

`tests/test_readers.py` holds each to linear time and memory, and fails when a function of these modules is missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from designer.bank import design_from_bank, string_literal
from designer.extract import extract_program
from designer.features import clean, count_examples, domain_of, features_of, limit_exponent, without_figures
from designer.guidance import (
    checks_for,
    examples_of,
    guidance_for,
    limits_of,
    sentences,
    shortened,
    signature_of,
)
from engine.authorship import Authorship
from engine.authorship_of_actions import Actions
from engine.chat import split_reasoning
from engine.tool_form import ToolForm, in_our_form, native_messages
from tasks.code.asserts import read_reply
from tasks.code.equality import same_output, same_value
from tasks.code.grades import raised, short
from tasks.code.written_tests import written_tests
from tasks.environments.actions import check_length, json_in, moves_in, shown
from tasks.environments.playing import act, state_of
from tasks.grading import asks_for_percent
from tasks.math.math_grader import equal_integers
from tasks.problems import PlanPathLevel, SudokuLevel
from workflow.agent import content_after
from workflow.answers import code_answer, code_answers, final_answer, game_answer, math_answer, math_answers
from workflow.completion import ChatMessage
from workflow.labels import label_problem, visible
from workflow.nesting import depth_of
from workflow.text import (
    blocks,
    boxes,
    delivery,
    echoed_lines,
    fences,
    last_boxed,
    marked_lines,
    solution_block,
    stands_in,
    strip_echo,
    verdict,
    without_blocks,
    without_lines,
)
from workflow.tools import parse_tool_calls
from workflow.voting import vote_key, winning_vote

ANSWER = 256 << 10
"""Characters of a reply, and of a run's answer."""
PROMPT = 1 << 20
PRINTED = 4 << 20
REPLY = 1 << 20
"""Of a solution, to one call."""
PROBLEM = 256 << 10
ADVICE = 20_000
LOCAL = 64 << 10
"""Of a reply from a model on this machine."""


@dataclass(frozen=True)
class Reader:
    read: Callable[[str], object]
    longest: int
    """Characters that it is given at most."""
    covers: tuple[str, ...]
    """As `module:function`, or `module:Class`."""


def reader(longest: int, read: Callable[[str], object], *functions: Callable[..., object]) -> Reader:
    return Reader(read, longest, tuple(f"{function.__module__}:{function.__qualname__}" for function in functions))


def heard(text: str) -> str | None:
    authorship = Authorship(text[:1000])
    turns = [ChatMessage(role="system", content=text), ChatMessage(role="user", content="q")]
    authorship.heard("a", turns, text[1:])
    authorship.ran(text, text)
    return authorship.of(text[2:])


def prompted(text: str) -> None:
    """A short reply to a prompt as long as there can be."""
    told = [ChatMessage(role="user", content=text)]
    Authorship().heard(
        "a", told, f"So it is \\boxed{{1}}\n<solution>x</solution>\n{text[:40]}", [{"description": text}]
    )


def acted(text: str) -> list[str | None]:
    """Actions in a game, with prompts as long as there can be."""
    authorship, told = Authorship(text[:1000], plays=True), [ChatMessage(role="user", content=text)]
    authorship.seen(text[:5000])
    for reply in (text[:300], text[1:], "[U, R]", text[-ANSWER:]):
        authorship.heard("a", told, reply)
    authorship.ran(text, text)
    return [authorship.of_action(text), authorship.of(text[:300])]


def answered(text: str) -> list[str | None]:
    """Answers that nobody can grade, after replies as long as there can be."""
    authorship = Authorship()
    for _ in range(2):
        authorship.heard("a", [], text)
    return [authorship.of(text[: len(text) // 2]), authorship.of(text[:1]), authorship.of(f"{text[:9]}\n{text[-9:]}")]


def wired(text: str) -> bool:
    line = json.dumps({"nonce": "a", "value": [text, {"tuple": [text]}]})
    reply = read_reply(line, "a")
    return reply is not None and same_value(reply["value"], [text, [f"{text}!"]])


FORM = ToolForm("<tool_call>")
PATH = state_of(PlanPathLevel(level="@.\n.G"))
GRID = state_of(SudokuLevel(level="1 2 3 .\n3 4 1 2\n2 1 4 3\n4 3 2 1"))

READERS: dict[str, Reader] = {
    "boxes": reader(ANSWER, boxes, boxes, last_boxed),
    "math answer": reader(ANSWER, math_answer, math_answer, final_answer),
    "math answers": reader(ANSWER, math_answers, math_answers),
    "code answer": reader(ANSWER, code_answer, code_answer, solution_block),
    "code in a solution": reader(ANSWER, lambda text: code_answer(f"<solution>{text}</solution>"), solution_block),
    "fence in a solution": reader(
        ANSWER, lambda text: solution_block(f"<solution>```\n{text}x</solution>"), solution_block
    ),
    "code answers": reader(ANSWER, code_answers, code_answers),
    "game answer": reader(ANSWER, game_answer, game_answer),
    "moves": reader(ANSWER, lambda text: act(PATH, "a", text), moves_in, check_length, shown),
    "bare moves": reader(ANSWER, lambda text: act(PATH, "a", f"#### [U{text}]"), moves_in),
    "a grid": reader(ANSWER, lambda text: act(GRID, "a", text), json_in, check_length, shown),
    "edits": reader(ANSWER, lambda text: act(GRID, "a", f"#### [[1, 4, {text}]]"), json_in),
    "fences": reader(ANSWER, fences, fences),
    "blocks": reader(ANSWER, lambda text: without_blocks("solution", text, blocks("solution", text)),
                     blocks, without_blocks),
    "delivery": reader(ANSWER, delivery, delivery),
    "an answer in a reply": reader(ANSWER, lambda text: stands_in(text[:50] or "5", text), stands_in),
    "verdict": reader(ANSWER, verdict, verdict),
    "marked lines": reader(ANSWER, marked_lines, marked_lines),
    "echo": reader(ANSWER, lambda text: strip_echo(text, [text[: len(text) // 2] + "\n\\boxed{}"]),
                   strip_echo, echoed_lines, without_lines),
    "content": reader(ANSWER, lambda text: content_after(text, text), content_after),
    "nesting": reader(ANSWER, depth_of, depth_of),
    "nesting in a string": reader(ANSWER, lambda text: depth_of(f'["{text}'), depth_of),
    "tool calls": reader(ANSWER, parse_tool_calls, parse_tool_calls),
    "a tool call": reader(ANSWER, lambda text: parse_tool_calls(f"<tool_call>{text}x</tool_call>"), parse_tool_calls),
    "a fenced call": reader(ANSWER, lambda text: parse_tool_calls(f"<tool_call>```{text}</tool_call>"),
                            parse_tool_calls),
    "a family's calls": reader(LOCAL, lambda text: in_our_form(text, [text, text], FORM, ()), in_our_form),
    "bare calls": reader(LOCAL, lambda text: in_our_form(text, [], ToolForm(""), ()), in_our_form),
    "native turns": reader(
        LOCAL, lambda text: native_messages([ChatMessage(role="assistant", content=text)]), native_messages
    ),
    "reasoning": reader(ANSWER, lambda text: split_reasoning(f"<think>{text}"), split_reasoning),
    "vote": reader(ANSWER, lambda text: winning_vote([text, f"{text}1"], [1, 1]), vote_key, winning_vote),
    "label": reader(ANSWER, label_problem, label_problem),
    "unseen": reader(ANSWER, visible, visible),
    "authorship": reader(ANSWER, heard, Authorship),
    "authorship of a long prompt": reader(PROMPT, prompted, Authorship),
    "authorship of an action": reader(PROMPT, acted, Actions),
    "authorship of a plain answer": reader(ANSWER, answered, Authorship),
    "program": reader(ANSWER, extract_program, extract_program),
    "features": reader(PROBLEM, features_of, features_of, domain_of, clean, without_figures, count_examples,
                       limit_exponent),
    "guidance": reader(PROBLEM, lambda text: guidance_for(text, features_of(text)), guidance_for, sentences, limits_of,
                       signature_of),
    "guidance for code": reader(PROBLEM, lambda text: guidance_for(text, features_of(f"def f(\n{text}")),
                                guidance_for, sentences, limits_of, signature_of),
    "checks": reader(PROBLEM, lambda text: checks_for(text, features_of(text)), checks_for, sentences),
    "checks for code": reader(PROBLEM, lambda text: checks_for(text, features_of(f"def f(\n{text}")),
                              checks_for, examples_of),
    "a shortened problem": reader(PROBLEM, shortened, shortened),
    "a design": reader(PROBLEM, design_from_bank, design_from_bank),
    "a literal": reader(ADVICE, string_literal, string_literal),
    "printed output": reader(PRINTED // 4, lambda text: same_output(text, f"{text}1.5"), same_output),
    "printed numbers": reader(PRINTED // 4, lambda text: same_output(f"{text} 1.0", f"{text} 1.00"), same_output),
    "a returned value": reader(REPLY // 4, wired, read_reply, same_value),
    "a reply's line": reader(REPLY, lambda text: read_reply(text, "a"), read_reply),
    "a value that is shown": reader(REPLY, lambda text: (short(text), raised(text, text)), short, raised),
    "written tests": reader(ANSWER, lambda text: written_tests(text, 10), written_tests),
    "integers": reader(ANSWER, lambda text: equal_integers(text, text), equal_integers),
    "a question": reader(PROBLEM, asks_for_percent, asks_for_percent),
}  # fmt: skip

MODULES = sorted({name.partition(":")[0] for each in READERS.values() for name in each.covers})

NO_READERS = {
    "designer.bank:choose": "reads features",
    "designer.bank:write_out": "reads a template of ours",
    "engine.chat:ends_of": "reads a model's configuration",
    "engine.tool_form:learned": "reads a chat template, once",
    "engine.tool_form:speaks_ours": "reads a chat template, once",
    "workflow.text:kept": "makes a reader remember",
    "workflow.agent:notes": "keeps what the program gave",
    "tasks.code.asserts:run_asserts": "reads lines with `read_reply`",
    "tasks.code.grades:ended": "takes the end of stderr",
    "tasks.grading:grade": "reads with `final_answer`",
    "tasks.math.math_grader:equal_numbers": "compares integers of 40 digits, and asks a jail for all else",
    "tasks.math.math_grader:gold_is_readable": "asks a jail",
    "tasks.math.math_grader:grade_math": "asks a jail",
    "tasks.math.math_grader:grade_math_batch": "asks a jail",
}
"""Functions of the same modules that read no hostile text, and why."""

ELSEWHERE = {
    "designer.syntax": "parses programs, in jails (`designer.check`)",
    "engine.chat_templates": "reads a model's own files; they are rendered in a process of their own",
    "engine.openai.refusal": "reads a server's words, cut by its client; grown in tests/engine",
    "engine.openai.streaming": "reads a server's words, bounded by its client",
    "engine.pretrained": "reads a model's own files",
    "engine.openai.reply": "reads a server's words, cut by its client; grown in tests/engine",
    "engine.replay": "reads a file that the user names",
    "engine.session": "JSON of a call that a frame has bounded",
    "engine.spec": "reads the name of an engine, which the user types",
    "tasks.code.harness": "runs in jails",
    "tasks.data.benchmarks": "reads data sets",
    "tasks.data.math_files": "reads data sets",
    "tasks.data.miniature": "writes problems",
    "tasks.data.published_sets": "reads data sets",
    "tasks.data.references": "reads data sets",
    "tasks.data.rows": "reads data sets",
    "tasks.data.sources": "reads data sets",
    "tasks.environments.position": "writes actions that are read as JSON again",
    "tasks.environments.sudoku": "reads levels; what agents write goes through `tasks.environments.actions`",
    "tasks.math.claims": "runs in jails",
    "tasks.math.equations": "runs in jails",
    "tasks.math.formulas": "runs in jails",
    "tasks.math.notation": "runs in jails",
    "tasks.math.remarks": "runs in jails",
    "tasks.math.units": "runs in jails",
    "tasks.math.values": "runs in jails",
    "tasks.math.worker": "runs in jails",
    "workflow.nodes.common": "fills prompts of the program's, in its jail",
}
"""Other modules of these rooms that hold patterns or parse text, and why no reader of theirs is listed."""
