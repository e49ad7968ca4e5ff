"""Label trees of many problems: the same bytes whatever ran beside them or was killed, and none over other labels."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from one_jail import in_jail
from small_problems import FOUR, SIX, SOMETIMES
from token_engine import TokenEngine

from engine import retries
from engine.replay import ReplayEngine, ReplayEntry
from sandbox import ProcessSandbox
from search.problem import TreeDamaged
from tasks import Problem
from trainer.evaluate import LabelledTree, LabelSettings, Searcher, label_problems, searched
from workflow.completion import CompletionRequest, Sampling
from workflow.failures import EngineFailed
from workflow.limits import Limits

TWO = """
from workflow import AgentNode, ReflectionNode, Workflow
solver = AgentNode("Solver", "Put it in \\\\boxed{}.", max_turns=1)
critic = AgentNode("Critic", "Verdict?", max_turns=1)
workflow = Workflow("two").add_node(ReflectionNode("Check", solver, num_iterations=1, critic_agent=critic))
"""
EIGHT = Problem(id="p/8", question="What is 4 + 4?", domain="math", gold="8")
PLAN = LabelSettings(simulations=5, children=2, retries=1, sampling=Sampling(temperature=0.7, max_tokens=64))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)


def numbers(request: CompletionRequest) -> str:
    dice = random.Random(repr((request.messages, request.sampling.seed)))
    said = f"\\boxed{{{dice.choice('468')}}}"
    return f"Verdict: {dice.choice(['CORRECT', 'INCORRECT'])}" if request.agent == "Critic" else said


class Shuffled(TokenEngine):
    """Replies come in any order."""

    def __init__(self, seed: int) -> None:
        super().__init__(numbers)
        self.dice = random.Random(seed)

    async def complete(self, request: CompletionRequest) -> Any:
        self._pause_s = self.dice.random() / 100
        return await super().complete(request)


def labels(
    folder: Path,
    problems: list[Problem],
    engine: TokenEngine | ReplayEngine | None = None,
    plan: LabelSettings = PLAN,
    program: str = TWO,
) -> list[LabelledTree]:
    async def go(sandbox: ProcessSandbox) -> list[LabelledTree]:
        searcher = Searcher(sandbox=sandbox, limits=plan.limits, sampling=plan.sampling, retries=plan.retries)
        return await label_problems(
            problems, program, engine=engine or TokenEngine(numbers), searcher=searcher, settings=plan, folder=folder
        )

    return in_jail(go)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "trees").iterdir())}


def test_trees_do_not_depend_on_what_ran_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [FOUR, SIX, EIGHT]
    made = labels(tmp_path / "plain", problems)
    plain = files(tmp_path / "plain")
    assert len(set(plain.values())) == 3
    assert [tree.problem for tree in made] == ["p/4", "p/6", "p/8"]
    assert all((tree.simulations, tree.kept) == (5, False) for tree in made)
    assert 0 < sum(tree.right for tree in made) < 15
    for number, most in enumerate((1, 64)):
        monkeypatch.setattr(searched, "MAX_OPEN", most)
        folder = tmp_path / f"shuffled {number}"
        plan = PLAN.model_copy(update={"max_concurrent": 1 + 2 * number})
        labels(folder, problems[:: -1 if number else 1], Shuffled(number), plan)
        assert files(folder) == plain
    alone = tmp_path / "alone"
    labels(alone, [SIX])
    assert files(alone).items() <= plain.items()


@pytest.mark.thorough
def test_what_was_cut_off_goes_on_and_what_is_whole_is_not_asked_again(tmp_path: Path) -> None:
    problems = [FOUR, SIX, EIGHT]
    labels(tmp_path, problems)
    plain = files(tmp_path)
    engine = TokenEngine(numbers)
    assert all(tree.kept for tree in labels(tmp_path, problems, engine))
    assert engine.requests == []
    names, dice = [*plain], random.Random(3)
    for _ in range(8):
        first, second, third = dice.sample(names, 3)
        (tmp_path / "trees" / first).write_bytes(plain[first][: dice.randrange(len(plain[first]))])
        (tmp_path / "trees" / second).unlink()
        again = labels(tmp_path, problems, Shuffled(1))
        assert files(tmp_path) == plain
        assert [tree.kept for tree in again] == [tree.file.name == third for tree in again]


def test_other_labels_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    labels(tmp_path, [FOUR])
    [name] = files(tmp_path)
    text = files(tmp_path)[name]
    other_engine = TokenEngine(numbers)
    other_engine.name = "another"
    refused: dict[str, Callable[[], object]] = {
        "simulations=5, not 6": lambda: labels(tmp_path, [FOUR], plan=PLAN.model_copy(update={"simulations": 6})),
        "seed=0, not 1": lambda: labels(tmp_path, [FOUR], plan=PLAN.model_copy(update={"seed": 1})),
        "program=": lambda: labels(tmp_path, [FOUR], program=TWO + "\n"),
        'engine="tokens", not "another"': lambda: labels(tmp_path, [FOUR], other_engine),
        "equal ids|two problems|p/4": lambda: labels(tmp_path, [FOUR, FOUR]),
    }
    for part in (text, text[: len(text) // 2]):
        (tmp_path / "trees" / name).write_bytes(part)
        for named, made in refused.items():
            with pytest.raises(ValueError, match=named):
                made()
        changed = FOUR.model_copy(update={"gold": "6"})
        with pytest.raises(ValueError, match=r"p_4.*was searched with problem_digest .*, now .*Fix: "):
            labels(tmp_path, [changed])
        assert files(tmp_path) == {name: part}
    lines = text.splitlines(keepends=True)
    (tmp_path / "trees" / name).write_bytes(b"".join([*lines[:3], b"{}\n", *lines[3:]]))
    with pytest.raises(TreeDamaged, match=r"p_4.*:4 is no line of a tree.*Fix: delete the file"):
        labels(tmp_path, [FOUR])


def known(name: str, digest: str) -> TokenEngine:
    engine = TokenEngine(numbers, digest=digest)
    engine.name = name
    return engine


def test_a_policy_is_known_by_what_it_is_and_not_by_its_path(tmp_path: Path) -> None:
    """A tree never holds the replies of two."""
    labels(tmp_path, [FOUR], known("t:policy", "1"))
    [(name, text)] = files(tmp_path).items()
    half = text[: len(text) // 2]
    settings = tmp_path / "labels.json"
    for engine in (known("t:policy", "2"), known("t:/elsewhere/policy", "2"), known("v:policy", "1")):
        (tmp_path / "trees" / name).write_bytes(half)
        with pytest.raises(ValueError, match=r"holds attempts with engine(_digest)?=.*, not .*Fix: use another folder"):
            labels(tmp_path, [FOUR], engine)
        kept = settings.read_bytes()
        settings.write_text(json.dumps(json.loads(kept) | {"engine": engine.name, "engine_digest": engine.digest}))
        with pytest.raises(ValueError, match=rf"{name} was searched with engine(_digest)? .*now .*Fix: "):
            labels(tmp_path, [FOUR], engine)
        settings.write_bytes(kept)
        assert files(tmp_path) == {name: half}
    for engine in (known("t:/elsewhere/policy", "1"), known("t:policy", "")):
        (tmp_path / "trees" / name).write_bytes(half)
        labels(tmp_path, [FOUR], engine)
        assert files(tmp_path) == {name: text}, "gone on with to the same bytes"


def test_a_problem_for_which_nobody_is_asked_is_left_out_once_and_for_all(tmp_path: Path) -> None:
    problems = [FOUR, SIX, EIGHT]
    first = labels(tmp_path, problems, program=SOMETIMES)
    assert [tree.simulations for tree in first] == [0, 0, 5]
    for tree, why in zip(first, ("its answer is '4'", "it ended with program_failed", None), strict=True):
        assert tree.left_out == "" if why is None else why in tree.left_out, tree.left_out
    plain, engine = files(tmp_path), TokenEngine(numbers)
    again = labels(tmp_path, problems, engine, program=SOMETIMES)
    assert all(tree.kept for tree in again)
    assert [tree.left_out for tree in again] == [tree.left_out for tree in first]
    assert (files(tmp_path), engine.requests) == (plain, [])


CODE = """
import subprocess, sys
from workflow import AgentNode, Message, MessageType, Workflow, WorkflowNode
solver = AgentNode("Solver", "Put it in \\\\boxed{}.", max_turns=1)
last = AgentNode("Last", "Put it in \\\\boxed{}.", max_turns=1)
class Runs(WorkflowNode):
    def process(self, context):
        solver(context)
        code = CODE if "2 + 2" in str(context) else "print(4)"
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
        context.add_message(Message(content=printed, message_type=MessageType.TOOL_RESULT, sender="Code"))
        return last(context)
workflow = Workflow("w").add_node(Runs("runs"))
"""


@pytest.mark.parametrize(
    "code", ["import random; print(random.random())", "import tempfile; print(tempfile.mkstemp()[1])"]
)
def test_a_tree_whose_code_says_something_else_is_begun_anew_alone(code: str, tmp_path: Path) -> None:
    program = CODE.replace("CODE if", f"{code!r} if")
    labels(tmp_path, [FOUR, SIX], program=program)
    whole = files(tmp_path)
    names = [*whole]
    for cut in (0.5, 0.9):
        for name, text in whole.items():
            (tmp_path / "trees" / name).write_bytes(text[: int(cut * len(text))])
        again = labels(tmp_path, [FOUR, SIX], program=program)
        assert [(tree.anew, tree.simulations) for tree in again] == [(True, 5), (False, 5)]
        assert files(tmp_path)[names[1]] == whole[names[1]], "the other one goes on"
        assert labels(tmp_path, [FOUR, SIX], program=program)[0].kept


def test_recorded_replies_that_trees_hold_are_not_given_again(tmp_path: Path) -> None:
    """A tree that was cut off anywhere goes on to the same bytes with a new process's engine, too."""
    plan = PLAN.model_copy(update={"max_concurrent": 1})

    def replaying() -> ReplayEngine:
        dice = random.Random(3)
        said = [(agent, dice.choice(ANSWERS[agent])) for agent in ANSWERS for _ in range(60)]
        return ReplayEngine([ReplayEntry(agent=agent, reply=reply) for agent, reply in said])

    labels(tmp_path, [FOUR, SIX], replaying(), plan)
    whole = files(tmp_path)
    [_, second] = whole
    lines = whole[second].splitlines(keepends=True)
    for cut in range(len(lines)):
        (tmp_path / "trees" / second).write_bytes(b"".join(lines[:cut]))
        assert [tree.kept for tree in labels(tmp_path, [FOUR, SIX], replaying(), plan)] == [True, False]
        assert files(tmp_path) == whole, cut


ANSWERS = {"Solver": ["\\boxed{4}", "\\boxed{6}", "7"], "Critic": ["Verdict: CORRECT", "Verdict: INCORRECT"]}


def test_a_folder_of_an_evaluation_takes_no_labels(tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text("{}")
    with pytest.raises(ValueError, match=r"holds an evaluation \(evaluation.json\). Fix: use another folder"):
        labels(tmp_path, [FOUR])
    assert not (tmp_path / "trees").exists()


def test_an_engine_that_fails_is_retried_then_raised_and_the_rest_is_kept(tmp_path: Path) -> None:
    left = [1] * 12

    def tired(request: CompletionRequest) -> str:
        if not left:
            raise EngineFailed("tokens", "gone")
        left.pop()
        return numbers(request)

    engine = TokenEngine(tired)
    with pytest.raises(EngineFailed, match="gone"):
        labels(tmp_path, [FOUR, SIX], engine)
    assert len({(request.key, request.sampling.seed) for request in engine.requests}) < len(engine.requests)
    labels(tmp_path, [FOUR, SIX])
    labels(tmp_path / "plain", [FOUR, SIX])
    assert files(tmp_path) == files(tmp_path / "plain")


def test_headers_say_of_what_and_how_they_are(tmp_path: Path) -> None:
    labels(tmp_path, [FOUR])
    [text] = files(tmp_path).values()
    header = json.loads(text.splitlines()[0])
    settings = header["settings"]
    assert (settings["method"], settings["simulations"], settings["children"], settings["c_uct"]) == (
        "label",
        5,
        2,
        4.0,
    )
    assert (settings["temperature"], settings["max_tokens"]) == (0.7, 64)
    assert (settings["tolerance"], settings["limit_tokens"]) == (None, PLAN.limits.tokens)
    labels(tmp_path / "near", [FOUR], plan=PLAN.model_copy(update={"tolerance": 1e-3, "limits": Limits(tokens=900)}))
    [text] = files(tmp_path / "near").values()
    settings = json.loads(text.splitlines()[0])["settings"]
    assert (settings["tolerance"], settings["limit_tokens"]) == (1e-3, 900)
    assert (header["problem"], header["question"], header["engine"]) == ("p/4", FOUR.question, "tokens")
