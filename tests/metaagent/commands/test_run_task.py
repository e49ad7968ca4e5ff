"""`metaagent run --task` takes a problem of a file, plays its game, and grades by what the file has."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from command_line import document, invoke

from sandbox import ProcessSandbox
from tasks import Problem
from tasks.environments import problem_of
from tasks.problems import CallTest, CallTests, PlanPathLevel, SokobanLevel
from trainer.config import RolloutConfig
from trainer.credit import paper_reward, turn_reward
from trainer.rollout import Rollout
from trainer.trees import QuestionTree
from workflow.completion import Completion, CompletionRequest
from workflow.trace import EnvironmentStepped, Trace

PLAYER = """\
from workflow import AgentNode, Workflow
planner = Workflow("Plan").add_node(AgentNode("Planner", "Play.", max_turns=1))
seen = environment.observe("Planner")
while not seen.done:
    seen = environment.act("Planner", planner.run(f"{question} {seen.text}"))
answer = seen.text
"""
ALONE = """\
from workflow import AgentNode, Workflow
workflow = Workflow("w").add_node(AgentNode("Solver", "Answer.", max_turns=1))
"""
GAME = problem_of(PlanPathLevel(level="@..\n.#.\n..G"))
HALF = Problem(id="half", question="What is 1/2?", domain="math", gold="0.5")
CODE = Problem(
    id="twice", question="Write f.", domain="code", tests=CallTests(fn_name="f", tests=[CallTest(args=[2], expected=4)])
)
SUCH = "Fix: --id with one of its ids, such as"
BOX = "#####\n#@$.#\n#####"
WHOLE, RIGHT, DOWN = '["R", "R", "D", "D"]', '#### ["R", "R"]', '#### ["D", "D"]'


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    Path("player.py").write_text(PLAYER)
    Path("alone.py").write_text(ALONE)
    Path("all.jsonl").write_text("".join(each.model_dump_json() + "\n" for each in (GAME, HALF, CODE)))
    Path("one.jsonl").write_text(HALF.model_dump_json() + "\n")


def said(*replies: str, agent: str = "Solver") -> str:
    lines = (json.dumps({"agent": agent, "reply": reply}) for reply in replies)
    Path("replies.jsonl").write_text("\n".join(lines) + "\n")
    return "replay:replies.jsonl"


@pytest.mark.parametrize(
    ("replies", "code", "verdict"),
    [
        ((RIGHT, DOWN), 0, "correct"),
        ((RIGHT, RIGHT, RIGHT, RIGHT), 1, "not solved, 4 actions"),
        (("none",) * 4, 1, "not solved, 4 actions"),
    ],
)
def test_a_level_is_played_and_its_trace_again(replies: tuple[str, ...], code: int, verdict: str) -> None:
    game = ("run", "player.py", "--task", "problems:all.jsonl", "--id", GAME.id, "--json")
    found = invoke(*game, "-e", said(*replies, agent="Planner"), "--trace", "t.jsonl")
    assert (found.exit_code, document(found)["verdict"], document(found)["gold"]) == (code, verdict, None)
    assert (document(found)["actions"], document(found)["notes"]) == (len(replies), []), (
        "whose answer it is, is no matter"
    )
    again = document(invoke(*game, "-e", "replay:t.jsonl"))
    assert (again["failure"], again["verdict"], again["answer"]) == (None, verdict, document(found)["answer"])


def test_a_level_is_solved_by_agents_and_no_program() -> None:
    Path("player.py").write_text(
        PLAYER.replace('"Planner", planner.run(f"{question} {seen.text}")', f'"Planner", {WHOLE!r}')
    )
    found = document(
        invoke(
            "run",
            "player.py",
            "--task",
            "problems:all.jsonl",
            "--id",
            GAME.id,
            "-e",
            said("x", agent="Planner"),
            "--json",
        )
    )
    assert (found["failure"], found["verdict"]) == (None, "action 1 of 1 stands in no agent's reply")
    assert document(
        invoke("run", "alone.py", "--task", "problems:all.jsonl", "--id", GAME.id, "-e", said(RIGHT), "--json")
    )["verdict"] == "not solved"  # fmt: skip


def test_answers_and_code_are_graded_by_what_the_file_has() -> None:
    shown = invoke("run", "alone.py", "--task", "problems:all.jsonl", "--id", "half", "-e", said(r"\boxed{1/2}"))
    assert (shown.exit_code, "correct (gold 0.5)" in shown.stdout) == (0, True)
    only = invoke("run", "alone.py", "--task", "problems:one.jsonl", "-e", said(r"\boxed{1/3}"))
    assert (only.exit_code, "wrong (gold 0.5)" in only.stdout) == (1, True)
    for code, told in (("2 * x", "correct"), ("x", "0 of 1 tests passed")):
        engine = said(f"<solution>\ndef f(x):\n    return {code}\n</solution>")
        shown = invoke("run", "alone.py", "--task", "problems:all.jsonl", "--id", "twice", "-e", engine)
        assert f"Graded  {told}\n" in shown.stdout, shown.stdout


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ("--task", "problems:all.jsonl"),
            f"all.jsonl has 3 problems. {SUCH} {GAME.id}",
        ),
        (
            ("--task", "problems:all.jsonl", "--id", "hal"),
            f"has no problem 'hal'. {SUCH} half",
        ),
        (
            ("--task", "problems:all.jsonl", "--id", "zzz"),
            f"has no problem 'zzz'. {SUCH} {GAME.id}",
        ),
        (("--task", "problems:one.jsonl", "1/2?"), "Fix: leave out problem, --file and --gold"),
        (("--task", "problems:one.jsonl", "--gold", "1"), "Fix: leave out problem, --file and --gold"),
        (("1/2?", "--id", "half"), "Fix: add --task FORMAT:FILE"),
        (("--task", "one.jsonl"), "one.jsonl"),
        (("--task", "problems:gone.jsonl"), "gone.jsonl"),
    ],
)
def test_what_does_not_go_together_is_told_before_anything_is_run(given: tuple[str, ...], told: str) -> None:
    found = invoke("run", "alone.py", *given, "-e", said("x"))
    assert found.exit_code == 2
    assert told in found.stderr


class Guessing:
    """Each candidate is another move."""

    name = "guessing"

    async def complete(self, request: CompletionRequest) -> Completion:
        number = request.sampling.seed or 0
        return Completion(
            text=f'#### ["{"URD"[number % 3]}"]', token_ids=[number % 3], prompt_token_ids=[3], logprobs=[-1.0]
        )

    async def close(self) -> None: ...


def test_a_training_run_with_candidates_is_played_again_as_it_went_on(tmp_path: Path) -> None:
    async def step() -> list[QuestionTree]:
        branching = {"candidates": 3, "turns": 4, "score": "turn"}
        config = RolloutConfig.model_validate({"designs": 1, "executions": 1, "branching": branching})
        async with ProcessSandbox() as sandbox:
            rollout = Rollout(
                config=config, designer=Guessing(), executor=Guessing(), sandbox=sandbox, reward=paper_reward,
                turn_reward=turn_reward, program=PLAYER,
            )  # fmt: skip
            return await rollout.step([GAME], 0, tmp_path / "traces")

    [tree] = asyncio.run(step())
    [run] = tree.executions
    assert len(run.candidates) > len([each for each in run.candidates if each.chosen]) > 1
    [path] = (tmp_path / "traces").rglob("*execution*.jsonl")
    game = ("run", "player.py", "--task", "problems:all.jsonl", "--id", GAME.id, "--json")
    again = document(invoke(*game, "-e", f"replay:{path}", "--trace", "again.jsonl"))
    assert (again["failure"], again["notes"]) == (None, [])
    assert again["agent_calls"] == len([each for each in run.candidates if each.chosen])

    def steps(file: Path) -> list[tuple[str, str, str]]:
        trace = Trace.from_lines(file.read_text().splitlines(True))
        return [(each.text, each.before, each.after) for each in trace.events if isinstance(each, EnvironmentStepped)]

    assert steps(Path("again.jsonl")) == steps(path) != []


def graded(problem: Problem, reply: str, program: str = "alone.py", agent: str = "Solver") -> dict[str, Any]:
    Path("own.jsonl").write_text(problem.model_dump_json() + "\n")
    task = ("run", program, "--task", "problems:own.jsonl", "-e", said(*[reply] * 4, agent=agent), "--json")
    return document(invoke(*task))


SOLUTION = "<solution>\ndef f(x):\n    return 2 * x\n</solution>"


@pytest.mark.parametrize(
    ("problem", "reply", "answer", "verdict"),
    [
        (CODE, r"So \boxed{f(x) = 2x}." + SOLUTION, "def f(x):\n    return 2 * x", "correct"),
        (CODE, "It is \\boxed{7}\n```python\ndef f(x):\n    return 4\n```", "def f(x):\n    return 4", "correct"),
        (GAME, '\\boxed{7}\n#### ["R"]', '["R"]', "not solved"),
        (HALF, "<solution>0.5</solution>", "<solution>0.5</solution>", "no_answer"),
        (HALF, "0.5", "0.5", "no_answer"),
    ],
)
def test_the_answer_is_what_is_graded(problem: Problem, reply: str, answer: str, verdict: str) -> None:
    found = graded(problem, reply)
    assert (found["answer"], found["verdict"], found["message"]) == (answer, verdict, reply)
    told = [note for note in found["notes"] if "can be graded. Fix: have it written in \\boxed{}" in note]
    assert len(told) == (verdict == "no_answer")


def test_two_problems_of_one_id_are_refused() -> None:
    line = {"problem": "What?", "answer": "7", "id": 3}
    Path("twice.jsonl").write_text(json.dumps(line) + "\n" + json.dumps({**line, "answer": "8"}) + "\n")
    for more in ((), ("--id", "aime/3")):
        found = invoke("run", "alone.py", "--task", "aime:twice.jsonl", *more, "-e", said(r"\boxed{7}"))
        assert (found.exit_code, "have the id 'aime/3'" in found.stderr) == (2, True), found.stderr


def test_what_a_game_came_to_counts_and_not_what_the_program_says_then() -> None:
    Path("player.py").write_text(PLAYER.replace("answer = seen.text", 'answer = ""'))
    Path("one.jsonl").write_text(GAME.model_dump_json() + "\n")
    found = invoke(
        "run", "player.py", "--task", "problems:one.jsonl", "-e", said(RIGHT, DOWN, agent="Planner"), "--json"
    )
    assert (found.exit_code, document(found)["verdict"], document(found)["notes"]) == (0, "correct", [])


def test_positions_of_walls_are_shown_whole() -> None:
    """A row of four walls looks like the mark before an action."""
    for level, moves in ((PlanPathLevel(level="@..G\n####"), '["R", "R", "R"]'), (SokobanLevel(level=BOX), '["R"]')):
        found = graded(problem_of(level), f"#### {moves}", "player.py", "Planner")
        assert (found["verdict"], found["actions"]) == ("correct", 1)
        assert found["answer"] == found["message"]
        assert "####" in found["answer"]


def test_agents_may_be_shown_positions_alone_and_what_is_played_after_the_end_is_no_action() -> None:
    Path("player.py").write_text(
        PLAYER.replace("{question} {seen.text}", "{seen.text}") + 'environment.act("A", "x")\n'
    )
    found = graded(GAME, WHOLE, "player.py", "Planner")
    assert (found["verdict"], found["actions"]) == ("correct", 1)
    assert not [note for note in found["notes"] if "as given" in note]


def test_an_id_is_named_as_a_shell_reads_it() -> None:
    Path("odd.jsonl").write_text(HALF.model_copy(update={"id": "one half"}).model_dump_json() + "\n")
    found = invoke("run", "alone.py", "--task", "problems:odd.jsonl", "--id", "one", "-e", said("x"))
    assert f"{SUCH} 'one half'" in found.stderr


def test_an_answer_that_no_agent_gave_is_not_correct() -> None:
    Path("own.py").write_text(ALONE.replace("workflow = ", "w = ") + 'w.run("1/2?")\nanswer = r"\\boxed{0.5}"\n')
    for asked in (("--task", "problems:one.jsonl"), ("What is 1/2?", "--gold", "0.5")):
        found = invoke("run", "own.py", *asked, "-e", said("It is 3."), "--json")
        assert (found.exit_code, document(found)["verdict"]) == (1, "the answer stands in no agent's reply")


def test_a_program_that_misses_its_game_is_told_how_to_get_one() -> None:
    found = document(invoke("run", "player.py", "Play.", "-e", said("x"), "--json"))
    assert found["failure"]["kind"] == "program_failed"
    assert "--task FORMAT:FILE" in found["fix"]
    Path("player.py").write_text(PLAYER + "nothing = None\nnothing.act()\n")
    assert graded(GAME, RIGHT, "player.py", "Planner")["fix"] == "mend player.py, line 8"
