"""A transcript says who was asked what and how it ended, and reads what a killed writer left."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from metaagent.terminal.console import ExitCode, Stop, stdout
from metaagent.terminal.transcript import print_transcript, read_trace, trace_document
from workflow.completion import ChatMessage, Completion, Usage
from workflow.failures import LimitExceeded, ProgramFailed, stopped
from workflow.trace import (
    AgentTurn,
    Answered,
    CandidateDrawn,
    CodeRan,
    Delivered,
    EnvironmentStepped,
    Event,
    LimitHit,
    Printed,
    Rewarded,
    RewardTerm,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    Trace,
    TurnRewarded,
    event_to_json,
)


def turn(number: int, messages: list[ChatMessage], reply: str | None, error: str | None = None) -> AgentTurn:
    completion = None
    if reply is not None:
        completion = Completion(text=reply, usage=Usage(prompt_tokens=1200, completion_tokens=34))
    return AgentTurn(
        key=f"w/Solver#{number}",
        path="w/Solver",
        agent="Solver",
        turn=number,
        messages=messages,
        completion=completion,
        error=error,
        duration_s=1.25,
    )


ASKED: list[ChatMessage] = [
    {"role": "system", "content": "You are a solver. " + "Be careful. " * 40},
    {"role": "user", "content": "What is 6 * 7?"},
]
CALLED: list[ChatMessage] = [*ASKED, {"role": "assistant", "content": "I compute."}, {"role": "tool", "content": "42"}]
EVENTS: list[Event] = [
    RunStarted(run_id="r", question="What is 6 * 7?", program="x = 1", engine="replay", jail="process/j"),
    turn(0, ASKED, "I compute."),
    ToolCalled(path="w/Solver", agent="Solver", name="run", arguments={"code": "print(6 * 7)\n"}),
    CodeRan(code="print(6 * 7)\n", exit_status=0, stdout="42\n", stderr="", duration_s=0.02),
    ToolReturned(path="w/Solver", agent="Solver", name="run", content="42"),
    turn(1, CALLED, r"So it is \boxed{42}."),
    Delivered(path="w/Solver", agent="Solver", text=r"\boxed{42}", source="delivery"),
    Printed(text="FINAL ANSWER:\n"),
    Answered(text=r"So it is \boxed{42}.", from_agent="Solver"),
    RunEnded(t=2.5, usage=Usage(prompt_tokens=2400, completion_tokens=68)),
]


def written(tmp_path: Path, events: list[Event], tail: str = "") -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(event_to_json(event) + "\n" for event in events) + tail, encoding="utf-8")
    return path


def transcript(events: list[Event], **how: bool) -> str:
    console = Console(file=StringIO(), soft_wrap=True)
    print_transcript(console, Trace(events=events), **how)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_transcript_tells_the_run_in_order() -> None:
    text = transcript(EVENTS)
    told = [
        "Question",
        "  What is 6 * 7?",
        "1. Solver  w/Solver · turn 0 · 1.25 s, 1,200 + 34 tokens",
        "  system       You are a solver. Be careful.",
        "… (498 characters)",
        "  user         What is 6 * 7?",
        "  reply        I compute.",
        "  tool         Solver calls run",
        "               print(6 * 7)",
        "  code run     exit status 0 after 0.02 s",
        "  stdout       42",
        "  tool result  42",
        "2. Solver  w/Solver · turn 1",
        r"  reply        So it is \boxed{42}.",
        r"  hands on     (delivery) \boxed{42}",
        "  printed      FINAL ANSWER:",
        "Answer  from Solver",
        "Done",
        "  2 agent calls, 2,400 prompt and 68 completion tokens, 2.50 s",
    ]
    place = -1
    for piece in told:
        place = text.find(piece, place + 1)
        assert place >= 0, f"{piece!r} is missing, or not in its place, in:\n{text}"
    assert text.count("You are a solver") == 1, "a later turn repeats no prompt"


def acted(text: str, **how: Any) -> EnvironmentStepped:
    plain = {"commit": True, "legal": True, "before": "a", "after": "b", "done": False, "solved": False}
    return EnvironmentStepped(agent="Planner", text=text, **{**plain, **how})


def test_what_was_done_in_a_game_is_told_with_who_wrote_it() -> None:
    events: list[Event] = [
        EVENTS[0],
        acted("x", commit=False, action=["U"], from_agent="Planner"),
        acted("x", action=["R", "U"], from_agent="Planner", legal=False, wrong="move 2 of 2, U, leads into a wall"),
        acted("x", action=["R"]),
        acted("x", legal=False, wrong="nothing is said"),
        acted("x", action=["D"], from_agent="Tool", done=True, solved=True),
        acted("x", action=["D"], from_agent="Planner", done=True),
        EVENTS[-1],
    ]
    told = [line.strip() for line in transcript(events).splitlines() if line.startswith("  game ")]
    assert [line.removeprefix("game").strip() for line in told] == [
        'Planner proposes ["U"]',
        'Planner acts ["R", "U"]; move 2 of 2, U, leads into a wall',
        'Planner acts ["R"]; said by no agent',
        "Planner acts no action; said by no agent; nothing is said",
        'Planner acts ["D"]; said by Tool; solved',
        'Planner acts ["D"]; not solved',
    ]


def test_full_transcript_cuts_nothing() -> None:
    reply = "\n".join(f"step {number}" for number in range(2000))
    events: list[Event] = [EVENTS[0], turn(0, ASKED, reply), EVENTS[-1]]
    short, full = transcript(events), transcript(events, full=True)
    assert "step 1000" not in short
    assert "characters left out" in short
    assert "step 0\n" in short
    assert "step 1999" in short
    assert all(f"step {number}\n" in full for number in range(2000))
    assert ASKED[0]["content"].strip() in full
    assert "x = 1" in full


def test_failures_are_told() -> None:
    failure = LimitExceeded("agent_calls", 2, 3).record()
    events: list[Event] = [
        EVENTS[0],
        turn(0, ASKED, None, "the run ended first"),
        ToolReturned(path="w", agent="Solver", name="run", content="bad arguments", is_error=True),
        CodeRan(code="while 1: 0", exit_status=-9, stdout="", stderr="", limit="wall_s"),
        LimitHit(limit_kind="agent_calls", limit=2, used=3),
        Answered(text="42", from_agent=None),
        RunEnded(failure=failure),
    ]
    text = transcript(events)
    for piece in (
        "  failed       the run ended first",
        "  tool error   bad arguments",
        "  code run     limit wall_s",
        "  agent_calls: used 3 of 2",
        "Answer  from no agent",
        "  limit_exceeded: limit agent_calls=2 exceeded",
    ):
        assert piece in text


def test_a_run_that_was_stopped_is_not_called_a_failure() -> None:
    start = RunStarted(run_id="r", question="Q?", engine="e")
    told = transcript([start, RunEnded(failure=stopped().record())])
    assert "Stopped" in told
    assert "which is not the program's doing" in told
    assert "Failed" not in told
    own = ProgramFailed("Cancelled", "the run was cancelled", 3).record()
    told = transcript([start, RunEnded(failure=own)])
    assert "Failed" in told
    assert "Stopped" not in told


def test_candidates_are_folded_under_their_call_unless_asked_for() -> None:
    said = [RewardTerm(name="correct", value=1.0, weight=1.0, reason="it is 42")]
    drawn = [
        CandidateDrawn(
            key="w/Solver#0",
            agent="Solver",
            number=number,
            chosen=number == 1,
            completion=Completion(text=f"reply no. {number}"),
            reward=number,
            terms=said,
        )
        for number in range(2)
    ]
    folded = transcript([*EVENTS, *drawn])
    assert folded.count("candidates   2, rewards 0, 1 (chosen)\n") == 1
    assert folded.index("candidates") < folded.index("Solver calls run")
    assert "reply no." not in folded
    unfolded = transcript([*EVENTS, *drawn], candidates=True)
    for line in ("reply no. 0\n", "reply no. 1\n", "correct 1 x 1: it is 42\n"):
        assert line in unfolded


def test_what_a_turn_earned_stands_under_its_reply() -> None:
    said = [
        RewardTerm(name="team", value=0.5, weight=1.0, reason="half way"),
        RewardTerm(name="format", value=1, weight=0.1, reason="an action"),
    ]
    text = transcript([*EVENTS, TurnRewarded(key="w/Solver#0", agent="Solver", reward=0.6, terms=said)])
    for line in ("earned       0.6\n", "team 0.5 x 1: half way\n", "format 1 x 0.1: an action\n"):
        assert text.count(line) == 1
    assert text.index("earned") < text.index("Solver calls run")


def test_a_reward_is_explained_term_by_term() -> None:
    terms = [
        RewardTerm(name="correct", value=1.0, weight=1.0, reason="correct"),
        RewardTerm(name="delivery format", value=2 / 3, weight=0.2, reason="2 of 3 messages"),
    ]
    text = transcript([*EVENTS, Rewarded(t=2.5, total=1.133333333333, terms=terms)])
    after_the_end = text.partition("2,400 prompt and 68 completion tokens")[2]
    for line in (
        "Reward  1.13333\n",
        "  correct          1 x 1: correct\n",
        "  delivery format  0.666667 x 0.2: 2 of 3 messages\n",
    ):
        assert line in after_the_end
    assert "Reward" not in transcript(EVENTS)


def test_terminal_escapes_of_an_agent_are_shown_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe \r\nnext\x9b31m \ud800"
    print_transcript(stdout(), Trace(events=[turn(0, [{"role": "user", "content": evil}], evil)]))
    text = capsys.readouterr().out
    assert not set(text) & set("\x1b\x07\x9b\u202e\r\ud800")
    assert r"\x1b[2J\u202egnp.exe" in text


@pytest.mark.parametrize("cut", [1, 12, 36])
def test_a_torn_last_line_is_left_out(tmp_path: Path, cut: int) -> None:
    last = event_to_json(Answered(text="π", from_agent=None)).encode()
    path = written(tmp_path, EVENTS[:3])
    path.write_bytes(path.read_bytes() + last[:cut])
    read = read_trace(path)
    assert cut < len(last)
    assert read.trace.events == EVENTS[:3]
    assert read.torn
    document = trace_document(read)
    assert document["torn"]
    assert not document["complete"]


def test_a_line_torn_inside_a_character(tmp_path: Path) -> None:
    path = written(tmp_path, EVENTS[:2])
    path.write_bytes(path.read_bytes() + b'{"type":"print","text":"\xcf')
    assert len(read_trace(path).trace.events) == 2


def test_separators_inside_texts_end_no_line(tmp_path: Path) -> None:
    events: list[Event] = [EVENTS[0], Printed(text="a\u2028b\x85c\x0bd"), EVENTS[-1]]
    read = read_trace(written(tmp_path, events))
    assert read.trace.events == events
    assert not read.torn


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("", ExitCode.USAGE, "no events"),
        ("hello\nworld\n", ExitCode.USAGE, "line 1"),
        ('{"type": "print", "text": "x"}\n{"type": "prin\n{"type": "print", "text": "x"}\n', ExitCode.USAGE, "line 2"),
        ('{"type": "unheard_of"}\n', ExitCode.USAGE, "line 1"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: str, code: ExitCode, said: str) -> None:
    path = tmp_path / "t"
    path.write_text(content)
    with pytest.raises(Stop, match=said) as stopped:
        read_trace(path)
    assert stopped.value.code == code


def test_document_holds_summary_and_events(tmp_path: Path) -> None:
    document = json.loads(json.dumps(trace_document(read_trace(written(tmp_path, EVENTS)))))
    assert document["question"] == "What is 6 * 7?"
    assert document["answer_from"] == "Solver"
    assert document["usage"]["prompt_tokens"] == 2400
    assert document["complete"]
    assert document["reward"] is None
    rewarded = trace_document(read_trace(written(tmp_path, [*EVENTS, Rewarded(total=1.4, terms=[])])))
    assert (rewarded["reward"], rewarded["complete"]) == (1.4, True)
    assert [event["type"] for event in document["events"]] == [event.type for event in EVENTS]
