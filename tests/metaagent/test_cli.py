"""Every command from its arguments to its exit code, in a real jail, with replayed replies."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import MISSPELT, document, invoke

from sandbox import ProcessSandbox
from templates import load_templates
from workflow.failures import SandboxUnavailable
from workflow.trace import Trace

Replay = Callable[..., str]

TWO_STEPS = r"""
from workflow import AgentNode, EnsembleNode, Workflow

solvers = [AgentNode(name=name, system_prompt="Put it in \\boxed{}.", max_turns=1) for name in ("Left", "Right")]
judge = AgentNode(name="Judge", system_prompt="Put it in \\boxed{}.", max_turns=1)
spare = AgentNode(name="Spare", system_prompt="Put it in \\boxed{}.", max_turns=1)
workflow = Workflow(name="two")
workflow.add_node(EnsembleNode(name="Pair", agents=solvers, strategy="consensus", consensus_agent=judge))
"""

# run


def test_run_shows_answer_origin_and_grade(one: str, replay: Replay) -> None:
    result = invoke("run", one, "What is 6 * 7?", "-e", replay(("Solver", r"It is \boxed{42}.")), "--gold", "42")
    assert result.exit_code == 0
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines() if line]
    told = {line[0]: line[1] for line in lines if len(line) == 2}
    assert told["Answer"] == "42"
    assert told["From"] == "Solver"
    assert told["Graded"] == "correct (gold 42)"
    assert told["Usage"].startswith("1 agent call")
    assert told["Jail"].startswith("process/j")
    assert told["Time"].endswith(" s")
    assert result.stderr == ""


def test_run_json_and_trace(one: str, replay: Replay, tmp_path: Path) -> None:
    engine = replay(("Solver", r"It is \boxed{\frac{1}{2}}."))
    result = invoke("run", one, "-", "-e", engine, "--gold", "0.5", "--trace", "t.jsonl", "--json", stdin="1/2?\n")
    assert result.exit_code == 0
    report = document(result)
    assert report["answer"] == r"\frac{1}{2}"
    assert report["message"] == r"It is \boxed{\frac{1}{2}}."
    assert (report["answer_from"], report["verdict"], report["agent_calls"]) == ("Solver", "correct", 1)
    assert report["failure"] is None
    trace = Trace.from_lines((tmp_path / "t.jsonl").read_text().splitlines(keepends=True))
    assert trace.started is not None
    assert trace.started.question == "1/2?"
    assert trace.ended is not None


def test_a_trace_is_an_engine(one: str, replay: Replay) -> None:
    invoke("run", one, "6 * 7?", "-e", replay(("Solver", r"\boxed{42}")), "--trace", "t.jsonl")
    again = invoke("run", one, "6 * 7?", "-e", "replay:t.jsonl", "--json")
    assert document(again)["answer"] == "42"
    other = invoke("run", one, "6 * 8?", "-e", "replay:t.jsonl", "--json")
    assert other.exit_code == 4
    assert document(other)["failure"]["kind"] == "engine_failed"


def test_a_wrong_answer_is_exit_code_1(one: str, replay: Replay) -> None:
    result = invoke("run", one, "?", "-e", replay(("Solver", r"\boxed{41}")), "--gold", "42")
    assert result.exit_code == 1
    assert "wrong (gold 42)" in result.stdout


def test_a_gold_that_cannot_be_read_is_refused_before_the_run(one: str, replay: Replay, tmp_path: Path) -> None:
    arguments = ("run", one, "?", "-e", replay(("Solver", "x")), "--trace", "t.jsonl", "--gold", r"\frac{")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert r"'\\frac{'" in result.stderr
    assert not (tmp_path / "t.jsonl").exists()


def test_a_limit_is_named_with_its_option(one: str, replay: Replay) -> None:
    result = invoke("run", one, "?", "-e", replay(("Solver", "x")), "--agent-calls", "0")
    assert result.exit_code == 3
    assert "limit agent_calls exceeded: 1 of 0 used" in result.stdout
    assert "--agent-calls" in result.stdout


@pytest.mark.parametrize(("option", "value"), [("--wall-s", "-1"), ("--memory-mb", "1"), ("--temperature", "-0.5")])
def test_a_limit_that_makes_no_sense_is_a_usage_error(one: str, replay: Replay, option: str, value: str) -> None:
    result = invoke("run", one, "?", "-e", replay(("Solver", "x")), option, value)
    assert result.exit_code == 2
    assert option in result.stderr


def test_a_program_that_raises_is_exit_code_3(one: str, replay: Replay, tmp_path: Path) -> None:
    source = (
        tmp_path / one
    ).read_text() + "result = workflow.run(question)\nnumbers = [1]\nprint(numbers[len(result.content)])\n"
    (tmp_path / "raises.py").write_text(source)
    result = invoke("run", "raises.py", "?", "-e", replay(("Solver", "x")))
    assert result.exit_code == 3
    assert "IndexError" in result.stdout
    assert "mend raises.py, line 7" in result.stdout


def test_a_rejected_program_is_not_run(replay: Replay, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(MISSPELT)
    result = invoke("run", "bad.py", "?", "-e", replay(("Solver", "x")))
    assert result.exit_code == 1
    assert "bad.py:2: error unknown-argument: " in result.stdout
    report = document(invoke("run", "bad.py", "?", "-e", replay(("Solver", "x")), "--json"))
    assert report["failure"]["kind"] == "program_rejected"
    assert report["agent_calls"] == 0


def test_an_answer_of_the_program_itself_is_marked(one: str, replay: Replay, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text((tmp_path / one).read_text() + "workflow.run(question)\nanswer = '42'\n")
    result = invoke("run", "own.py", "?", "-e", replay(("Solver", "no idea")))
    assert result.exit_code == 0
    assert "no agent produced this answer" in result.stderr
    report = document(invoke("run", "own.py", "?", "-e", replay(("Solver", "no idea")), "--json"))
    assert report["answer_from"] is None
    assert report["notes"]


def completion(tmp_path: Path, **fields: str) -> str:
    """An engine that gives one reply of `Solver`."""
    (tmp_path / "reply.jsonl").write_text(json.dumps({"agent": "Solver", "completion": fields}))
    return "replay:reply.jsonl"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("reply", "why", "fix"),
    [
        ({"text": "", "finish_reason": "abort"}, "the server filtered it", "use another model"),
        ({"text": "", "reasoning": "hm"}, "nothing but reasoning", "turn the model's thinking off"),
        ({"text": " ", "reasoning": "hm", "finish_reason": "length"}, "nothing but reasoning before", "--max-tokens"),
        ({"text": "", "finish_reason": "length"}, "cut off by max_tokens", "--max-tokens"),
        ({"text": ""}, "said nothing at all", "ask for an answer"),
    ],
)
def test_an_empty_reply_is_explained(one: str, tmp_path: Path, reply: dict[str, str], why: str, fix: str) -> None:
    result = invoke("run", one, "6 * 7?", "-e", completion(tmp_path, **reply))
    told = " ".join(result.stderr.split())
    assert result.exit_code == 1
    assert "Answer  (empty: see the note)" in result.stdout
    assert "Solver: a reply said nothing" in told
    assert why in told
    assert f"{fix}" in told.partition("Fix: ")[2]
    assert "made it itself" not in told


def test_a_reply_that_was_cut_off_is_told(one: str, tmp_path: Path) -> None:
    engine = completion(tmp_path, text=r"\boxed{42} and then", finish_reason="length")
    result = invoke("run", one, "6 * 7?", "-e", engine)
    assert result.exit_code == 0
    assert "Solver: a reply was cut off by max_tokens. Fix: raise it with --max-tokens" in " ".join(
        result.stderr.split()
    )


def test_a_wrong_engine_is_answered_with_all_of_them(one: str) -> None:
    told = " ".join(invoke("run", one, "?", "-e", "junk").stderr.split())
    assert all(name in told for name in ("openai:MODEL", "transformers:", "vllm:", "replay:FILE", "embedded"))
    assert "write embedded" in " ".join(invoke("run", one, "?", "-e", "embeded").stderr.split())


def test_a_program_with_a_question_of_its_own_is_noted(one: str, replay: Replay, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text((tmp_path / one).read_text() + "workflow.run('What is 2 + 2?')\n")
    result = invoke("run", "own.py", "What is 6 * 7?", "-e", replay(("Solver", "4"), ("Solver", "unused")))
    assert "no agent was shown the problem as given" in result.stderr
    assert "1 recorded replies were not asked for" in result.stderr


def test_an_engine_that_fails_is_exit_code_4(one: str, replay: Replay) -> None:
    result = invoke("run", one, "?", "-e", replay(("Somebody", "x")))
    assert result.exit_code == 4
    assert "'Solver'" in result.stdout
    assert invoke("run", one, "?", "-e", "replay:missing.jsonl").exit_code == 4


def test_run_transcript(one: str, replay: Replay) -> None:
    result = invoke("run", one, "6 * 7?", "-e", replay(("Solver", r"\boxed{42}")), "--transcript")
    assert "1. Solver  one/Solver · turn 0" in result.stdout
    assert result.stdout.index("1. Solver") < result.stdout.index("Result")


USAGE_ERRORS = [
    (("run", "one.py", "?"), "needs an engine"),
    (("run", "one.py", "?", "-e", "fooo:bar"), "unknown engine 'fooo:bar'"),
    (("run", "one.py", "-e", "replay:x"), "give the problem"),
    (("run", "one.py", " ", "-e", "replay:x"), "the problem is empty"),
    (("run", "missing.py", "?", "-e", "replay:x"), "missing.py"),
    (("run", "one.py", "?", "-e", "replay:x", "--trace", "no/such/folder/t"), "no/such/folder/t"),
    (("run", "one.py", "?", "--temprature", "1"), "--temprature"),
    (("design", "x", "--run"), "--run needs an engine"),
    (("design", "x", "--style", "long"), "long"),
    (("design", "x", "--save", "no/such/folder/p.py"), "no/such/folder"),
    (("design", "x", "--file", "one.py"), "one of them"),
    (("check", "latin.py"), "not UTF-8"),
    (("check",), "PROGRAM.py"),
    (("show", "."), "directory"),
    (("templates", "math_singel"), "math_single"),
    (("trace", "missing.jsonl"), "missing.jsonl"),
    (("unknown",), "unknown"),
]


@pytest.mark.parametrize(("arguments", "said"), USAGE_ERRORS, ids=[" ".join(case[0]) for case in USAGE_ERRORS])
def test_usage_errors(one: str, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "latin.py").write_bytes("x = 'é'".encode("latin-1"))
    (tmp_path / "x").write_text("")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


# design


def test_the_bank_designs_without_an_engine(tmp_path: Path) -> None:
    result = invoke("design", "What is the sum of the first 10 primes?", "--save", "made.py")
    assert result.exit_code == 0
    for piece in ("Template  ", "Why       ", "Check     passed", "from workflow import", "Graph\nWorkflow "):
        assert piece in result.stdout
    plug_in = [line for line in result.stderr.splitlines() if "--engine" in line]
    assert len(plug_in) == 1
    assert "METAAGENT_ENGINE" in plug_in[0]
    assert invoke("check", "made.py").exit_code == 0
    assert (tmp_path / "made.py").read_text().strip() in result.stdout


def test_design_json_is_the_same_for_the_same_problem(tmp_path: Path) -> None:
    (tmp_path / "problem.txt").write_text("Write a function that reverses a string.\n")
    first, second = (invoke("design", "--file", "problem.txt", "--json").stdout for _ in range(2))
    assert first == second
    report = json.loads(first)
    assert report["engine"] is None
    assert report["chosen"] == 0
    design = report["designs"][0]
    assert design["ok"]
    assert design["reason"]
    assert design["graph"]["kind"] == "Workflow"


def reply(program: str, said: str = "") -> str:
    return f"{said}<code>\n{program}</code>"


def test_samples_of_an_engine_with_repair_and_failures_named(one: str, replay: Replay, tmp_path: Path) -> None:
    good = (tmp_path / one).read_text()
    engine = replay(
        ("designer", "no program", "designer/0/0"),
        ("designer", reply("import socket\nsocket\n"), "designer/0/1"),
        ("designer", reply(MISSPELT, "Workflow Pattern: single agent. Reason: easy.\n"), "designer/1/0"),
        ("designer", reply(good), "designer/1/1"),
        ("designer", reply(good), "designer/2/0"),
        ("Solver", r"\boxed{42}"),
    )
    arguments = ("design", "6 * 7?", "-e", engine, "--samples", "3", "--run", "--save", "made.py")
    result = invoke(*arguments)
    assert result.exit_code == 0
    first, second, third = result.stdout.split("Design ")[1:]
    assert "failed, after one repair round" in first
    assert "program.py:1: error unknown-import" in first
    assert "chosen" in second
    assert "passed, after one repair round" in second
    assert "single agent. Reason: easy." in second
    assert good.strip() in second
    assert "Check     passed\n" in third
    assert "Answer  42" in third
    assert (tmp_path / "made.py").read_text().strip() == good.strip()

    report = document(invoke(*arguments, "--json"))
    assert [design["ok"] for design in report["designs"]] == [False, True, True]
    assert [design["repaired"] for design in report["designs"]] == [True, True, False]
    assert report["chosen"] == 1
    assert report["run"]["answer"] == "42"


def test_no_good_design_is_exit_code_1(replay: Replay, tmp_path: Path) -> None:
    engine = replay(("designer", "no"), ("designer", reply(MISSPELT)))
    result = invoke("design", "6 * 7?", "-e", engine, "--save", "made.py", "--run")
    assert result.exit_code == 1
    assert "unknown-argument" in result.stdout
    assert not (tmp_path / "made.py").exists()


def test_a_designer_that_cannot_be_asked_is_exit_code_4(replay: Replay) -> None:
    result = invoke("design", "6 * 7?", "-e", replay(("Somebody", "x")), "--json")
    assert result.exit_code == 4
    assert document(result)["error"]["kind"] == "engine_failed"


def test_the_engine_may_come_from_the_environment(replay: Replay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAAGENT_ENGINE", replay(("designer", "no"), ("designer", "no")))
    assert document(invoke("design", "6 * 7?", "--json"))["engine"] == "replay:replies.jsonl"


# check, show, templates


def test_check_prints_one_finding_per_line(one: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(MISSPELT + "import socket; socket\n")
    result = invoke("check", one, "bad.py")
    assert result.exit_code == 1
    errors = [line for line in result.stdout.splitlines() if " error " in line]
    assert [line.split(" ")[0] for line in errors] == ["bad.py:2:", "bad.py:4:"]
    assert "Fix: did you mean 'system_prompt'?" in errors[0]
    assert "2 programs checked: 1 may not run" in result.stderr
    assert invoke("check", one).exit_code == 0
    report = document(invoke("check", one, "bad.py", "--json"))
    assert not report["ok"]
    assert report["programs"][one]["graph"]["name"] == "one"
    assert {finding["line"] for finding in report["programs"]["bad.py"]["findings"]} >= {2, 4}


def test_check_goes_on_after_a_file_that_cannot_be_read(one: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(MISSPELT)
    (tmp_path / "latin1.py").write_bytes(b"x = '\xe9'")
    result = invoke("check", "none.py", "bad.py", "latin1.py", one)
    assert result.exit_code == 2
    assert "bad.py:2: error" in result.stdout
    assert "2 programs checked: 1 may not run" in result.stderr
    assert "error: cannot read none.py: No such file or directory" in result.stderr
    assert "error: latin1.py is not UTF-8 text (byte 5)" in result.stderr
    told = document(invoke("check", "none.py", one, "--json"))
    assert (told["ok"], list(told["programs"]), list(told["unreadable"])) == (False, [one], ["none.py"])


def test_show_draws_tree_and_mermaid(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(TWO_STEPS)
    result = invoke("show", "two.py")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Workflow two",
        "├── EnsembleNode Pair · consensus",
        "│   ├── member AgentNode Left",
        "│   ├── member AgentNode Right",
        "│   └── judge AgentNode Judge",
        "└── not part of the workflow: Spare",
    ]
    lines = invoke("show", "two.py", "--mermaid").stdout.splitlines()
    assert lines[0] == "flowchart TD"
    assert sum("-->" in line for line in lines) == 5
    assert document(invoke("show", "two.py", "--json"))["unreachable"] == ["Spare"]


def test_show_of_a_program_that_builds_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(MISSPELT)
    result = invoke("show", "bad.py")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("bad.py:")
    assert "system_prompt" in result.stderr


def test_templates() -> None:
    bank = load_templates()
    lines = invoke("templates").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == [template.name for template in bank]
    assert all(len(line.split("\t")) == 5 for line in lines)
    assert invoke("templates", "math_single").stdout == next(t.source for t in bank if t.name == "math_single")
    assert len(document(invoke("templates", "--json"))["templates"]) == len(bank)
    assert document(invoke("templates", "math_single", "--json"))["domain"] == "math"


# trace, demo


def test_trace_of_a_run(one: str, replay: Replay, tmp_path: Path) -> None:
    invoke("run", one, "6 * 7?", "-e", replay(("Solver", r"\boxed{42}")), "--trace", "t.jsonl")
    result = invoke("trace", "t.jsonl")
    assert result.exit_code == 0
    assert "Answer  from Solver" in result.stdout
    assert result.stderr == ""
    assert document(invoke("trace", "t.jsonl", "--json"))["complete"]

    whole = (tmp_path / "t.jsonl").read_bytes()
    (tmp_path / "t.jsonl").write_bytes(whole[:-20])
    torn = invoke("trace", "t.jsonl")
    assert torn.exit_code == 0
    assert "cut short" in torn.stderr
    assert "has no end" in torn.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"agent": "Solver", "reply": "42"}\n', "replies for an engine (`metaagent run -e replay:other`)"),
        ('{"agent": "Solver", "reply": "42"}', "replies for an engine"),
        ('{"question": "6 * 7?", "answer": "42"}\n', "problems"),
        ("from workflow import AgentNode\n", "text that begins with 'from workflow import AgentNode'"),
        ('{"type": "other"}\n', "there is no type 'other'"),
        ("[]\n", "no JSON object"),
        ("3\n", "no JSON object"),
        ("", "it is empty"),
    ],
)
def test_a_file_that_is_no_trace_is_told_in_plain_words(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "other").write_text(text)
    result = invoke("trace", "other")
    told = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert said in told
    assert "Fix: name a file that `metaagent run --trace FILE` wrote" in told
    assert "discriminator" not in told


def test_demo_from_design_to_grade() -> None:
    result = invoke("demo")
    assert result.exit_code == 0
    for piece in ("Template  ", "Workflow lottery_solver", "1. MathSolver", "Answer  116", "correct (gold 116)"):
        assert piece in result.stdout
    assert result.stderr == ""


@pytest.mark.thorough
def test_demo_takes_another_program(tmp_path: Path) -> None:
    """Like the published one: own question, a registry without tools, its own run, everything printed."""
    (tmp_path / "published.py").write_text(
        "from workflow import AgentNode, Workflow, ToolRegistry\n"
        "tools = ToolRegistry()\n"
        'agent = AgentNode(name="MathSolver", system_prompt="Use \\\\boxed{}.", tool_registry=tools, max_turns=1)\n'
        'workflow = Workflow(name="published")\n'
        "workflow.add_node(agent)\n"
        'question = "Find m+n."\n'
        "result = workflow.run(question)\n"
        "print(result.content)\n"
    )
    result = invoke("demo", "--program", "published.py")
    assert result.exit_code == 0
    assert "Workflow published" in result.stdout
    assert "correct (gold 116)" in result.stdout
    (tmp_path / "bad.py").write_text(MISSPELT)
    assert invoke("demo", "--program", "bad.py").exit_code == 1


@pytest.mark.parametrize("arguments", [("design", "6 * 7?"), ("check", "one.py"), ("show", "one.py"), ("demo",)])
def test_no_sandbox_is_exit_code_4(one: str, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    async def refuse(self: ProcessSandbox, kind: str) -> None:
        raise SandboxUnavailable("seccomp is missing", "use a kernel with seccomp")

    monkeypatch.setattr(ProcessSandbox, "_zygote", refuse)
    result = invoke(*arguments)
    assert result.exit_code == 4
    assert "seccomp is missing. Fix: use a kernel with seccomp" in result.stderr.replace("missing Fix", "missing. Fix")
