"""`--recipe` fills what the command line does not give; MASPRM's recipes say what the paper says."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_line import document, invoke
from one_jail import in_jail

from designer.check import check_program
from metaagent.commands.recipe_option import recipe_options
from metaagent.terminal import Stop
from recipes import FOLDER
from trainer.evaluate import LabelSettings

PROGRAM = FOLDER / "programs" / "reader_planner_solver_verifier.py"
ROLES = ("Reader", "Planner", "Solver", "Verifier")
PAPER = {
    "program": str(PROGRAM),
    "engine": "transformers:Qwen/Qwen2.5-1.5B-Instruct",
    "temperature": 0.7,
    "top_p": 0.95,
    "max_tokens": 1024,
    "c_uct": 4.0,
    "children": 3,
}
"""Appendices B.3 to B.6 and C."""


@pytest.mark.parametrize(("name", "task"), [("masprm_gsm8k", "gsm8k"), ("masprm_math", "math")])
def test_masprms_recipes_say_what_the_paper_says(name: str, task: str) -> None:
    near = {"tolerance": 1e-3} if task == "gsm8k" else {}
    label, search = recipe_options(name, "label"), recipe_options(name, "search")
    [train], [test] = label.pop("tasks"), search.pop("problems")
    assert label == {**PAPER, **near, "simulations": 40}
    assert search == {**PAPER, **near, "method": "mcts", "simulations": 20, "mix": 0, "beam": 3, "samples": 5}
    assert train.startswith(f"{task}:{FOLDER.parent}/data/")
    assert test.startswith(f"{task}:{FOLDER.parent}/data/")
    assert recipe_options(name, "prm") == tomllib.loads(invoke("recipes", name).stdout)["prm"]
    assert recipe_options(name, "prm") == {
        "model": "Qwen/Qwen2.5-1.5B",
        "held_out": 0.05,
        "view": "local",
        "loss": "huber",
        "delta": 1.0,
        "learning_rate": 1e-5,
        "epochs": 5,
        "batch": 8 * 16,
        "lora_rank": 256,
    }


def test_the_program_asks_four_agents_along_the_papers_edges(tmp_path: Path) -> None:
    report = in_jail(lambda sandbox: check_program(PROGRAM.read_text(), sandbox))
    assert report.findings == []
    says = dict(zip(ROLES, ("the facts", "the plan", "the work", "Final Answer: \\boxed{42}"), strict=True))
    replies, trace = tmp_path / "replies.jsonl", tmp_path / "run.jsonl"
    replies.write_text("\n".join(json.dumps({"agent": agent, "reply": said}) for agent, said in says.items()))
    run = invoke("run", str(PROGRAM), "What is 6 * 7?", "--engine", f"replay:{replies}", "--trace", str(trace))
    assert "Answer  42" in run.stdout
    turns = [json.loads(line) for line in trace.read_text().splitlines()]
    asked = {turn["agent"]: turn["messages"][-1]["content"] for turn in turns if turn["type"] == "agent_call"}
    assert list(asked) == list(ROLES)
    seen = {agent: [part for part in ("6 * 7", *says.values()) if part in text] for agent, text in asked.items()}
    assert seen == {
        "Reader": ["6 * 7"],
        "Planner": ["6 * 7", "the facts"],
        "Solver": ["the plan"],
        "Verifier": ["6 * 7", "the work"],
    }


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A recipe beside its files."""
    (tmp_path / "program.py").write_text(
        'from workflow import AgentNode, Workflow\nworkflow = Workflow("w").add_node(AgentNode("A", "Answer."))\n'
    )
    (tmp_path / "two.jsonl").write_text('{"question": "6 * 7?", "answer": "#### 42"}\n')
    (tmp_path / "replies.jsonl").write_text('{"agent": "A", "reply": "\\\\boxed{42.01}"}\n' * 8)
    both = f'program = "program.py"\ntolerance = 0.1\nengine = "replay:{tmp_path / "replies.jsonl"}"\n'
    recipe = tmp_path / "small.toml"
    recipe.write_text(
        'commands = ["label", "search"]\n'
        f'[label]\n{both}tasks = ["gsm8k:two.jsonl"]\nsimulations = 2\nchildren = 1\n'
        f'[search]\n{both}problems = ["gsm8k:two.jsonl"]\nmethod = "greedy"\n'
    )
    return recipe


@pytest.mark.thorough
def test_what_is_not_given_is_the_recipes(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels"
    found = document(invoke("label", "--recipe", str(small), "--out", str(out), "--c-uct", "2", "--json"))
    settings = found["settings"]
    assert (settings["simulations"], settings["children"], settings["c_uct"], settings["tolerance"]) == (2, 1, 2.0, 0.1)
    assert settings["sampling"]["top_p"] == LabelSettings().sampling.top_p
    assert (found["problems"], found["right"]) == (1, 1.0)
    other = invoke("label", "--recipe", str(small), "--out", str(out), "--c-uct", "2", "--tolerance", "0.001")
    assert "holds attempts with tolerance=0.1, not 0.001. Fix: use another folder, or the same settings" in other.stderr
    searched = document(invoke("search", "--recipe", str(small), "--json"))
    assert searched["report"]["accuracy"]["estimate"] == 1.0


def test_one_question_goes_before_the_recipes_problems(small: Path) -> None:
    program = str(small.parent / "program.py")
    found = document(invoke("search", program, "6 * 7?", "--recipe", str(small), "--gold", "42", "--json"))
    assert (found["report"]["answer"], found["report"]["correct"]) == ("42.01", True)
    strict = document(
        invoke("search", program, "?", "--recipe", str(small), "--gold", "42", "--tolerance", "0", "--json")
    )
    assert strict["report"]["correct"] is False


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("children = 1", "childen = 1"), "unknown key label.childen; did you mean label.children?"),
        (("simulations = 2", "simulation = 2"), "unknown key label.simulation; did you mean label.simulations?"),
        (("method =", "methd ="), "unknown key search.methd; did you mean search.method?"),
        (("[label]", "[lable]"), "unknown key lable; did you mean label?"),
        (('["label", "search"]', '["search"]'), "it is for metaagent search, not for metaagent label"),
        (('commands = ["label", "search"]', ""), "it is a configuration of training. Fix: metaagent train"),
        (("children = 1", "children ="), "small.toml is not TOML: "),
        (('"search"]', '"search", "prm"]\nprm = 1'), "prm should be a table"),
        (('"search"]', '"search", "lable"]'), "it is for metaagent lable, which there is not"),
        (("simulations = 2", "simulations = 2.5"), "label.simulations = 2.5: Input should be a valid integer"),
        (("simulations = 2", "simulations = [2]"), "label.simulations = [2]: Input should be a valid integer"),
        (("tolerance = 0.1", 'tolerance = "near"'), "label.tolerance = 'near': Input should be a valid number"),
    ],
)
def test_a_recipe_that_cannot_be_used_says_why(small: Path, change: tuple[str, str], told: str) -> None:
    small.write_text(small.read_text().replace(*change))
    result = invoke("label", "--recipe", str(small), "--out", str(small.parent / "out"))
    assert result.exit_code == 2
    assert told in result.stderr
    assert "small.toml" in result.stderr


def test_other_kinds_of_recipes_say_whose_they_are(tmp_path: Path) -> None:
    trained = invoke("train", "masprm_gsm8k", "--dry-run")
    assert trained.exit_code == 2
    assert (
        "masprm_gsm8k is for metaagent label, prm, search. Fix: metaagent label --recipe masprm_gsm8k" in trained.stderr
    )
    labelled = invoke("label", "--recipe", "tiny", "--out", str(tmp_path))
    assert "--recipe tiny: it is a configuration of training. Fix: metaagent train tiny" in labelled.stderr
    with pytest.raises(Stop, match=r"there is no file masprm, and there is no recipe 'masprm'. Fix: one of "):
        recipe_options("masprm", "label")


def rows_of(tmp_path: Path, *questions: str) -> list[str]:
    rows: list[dict[str, Any]] = [{"problem": each, "solution": "\\boxed{9}"} for each in questions]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return ["label", f"math:{tmp_path / 'train.jsonl'}", "--out", str(tmp_path / "labels")]


def test_labels_refuse_what_stands_in_math500(small: Path, tmp_path: Path) -> None:
    tests = "How many positive whole-number divisors does 196 have?"
    command = [*rows_of(tmp_path, "Three times 3?", tests), "--recipe", str(small), "--simulations", "1"]
    refused = invoke(*command)
    assert refused.exit_code == 2
    assert "1 of 2 problems stand in MATH-500, which is for tests: math/2. Fix: --without-math500" in refused.stderr
    assert not (tmp_path / "labels").exists()
    left_out = invoke(*command, "--without-math500", "--json")
    assert document(left_out)["problems"] == 1
    assert "They are left out" in left_out.stderr
    (tmp_path / "alone").mkdir()
    nothing = invoke(*rows_of(tmp_path / "alone", tests), "--recipe", str(small), "--without-math500")
    assert nothing.exit_code == 2
    assert "no problem is left to label. Fix: name tasks with others" in nothing.stderr
