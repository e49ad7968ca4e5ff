"""The view of a training run: what it counts, shows, estimates, and tells without a terminal."""

import json
from io import StringIO

import pytest
from rich.console import Console
from step_reports import reported

from metaagent.terminal import training_view
from metaagent.terminal.training_view import TrainingView
from trainer.config import TrainConfig
from trainer.rollout.rollout import not_run
from trainer.run.runtime import Phase
from trainer.trees import DesignResult, Execution
from workflow.completion import Usage
from workflow.failures import Failure
from workflow.trace import Rewarded, RewardTerm

CONFIG = TrainConfig.model_validate(
    {
        "policies": {"p0": {"model": "m"}},
        "data": [{"format": "problems", "path": "p.jsonl"}],
        "rollout": {"questions": 2, "designs": 3, "executions": 4},
        "stage_length": 10,
        "steps": 100,
    }
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def view(clock: Clock) -> TrainingView:
    return TrainingView(CONFIG, as_json=False, clock=clock)


def shown(view: TrainingView) -> list[str]:
    console = Console(file=StringIO(), width=100, color_system=None)
    with console.capture() as captured:
        console.print(view.render())
    return [line.rstrip() for line in captured.get().splitlines()]


def executed(reward: float, correct: bool, tokens: int) -> Execution:
    term = RewardTerm(name="correct", value=float(correct), weight=1.0, reason="")
    return Execution(index=0, reward=Rewarded(total=reward, terms=[term]), usage=Usage(completion_tokens=tokens))


def designed(executions: list[Execution], tokens: int, failed: bool = False) -> DesignResult:
    return DesignResult(
        index=0,
        program=None if failed else "x",
        graph=None,
        failure="program_rejected" if failed else None,
        trajectories=[],
        executions=executions,
        usage=Usage(completion_tokens=tokens),
    )


def take(view: TrainingView, clock: Clock, step: int, seconds: float, correct: float = 0.5) -> None:
    view(Phase(step, "rollout"))
    clock.now += seconds
    view(reported(step, correct))


def test_the_step_under_way_is_counted(view: TrainingView, clock: Clock) -> None:
    view(Phase(12, "rollout"))
    clock.now = 42.0
    runs = [executed(1.4, True, 30), executed(0.4, False, 10), executed(0.0, False, 5)]
    for run in runs:
        view(run)
    view(designed(runs, 200))  # they were told of
    assert shown(view)[0] == "Step 12  12 of 100 done  designer learns  rollout for 42 s"
    assert shown(view)[1] == "  designs 1/6  executions 3/24  reward 0.600  correct 33%  245 tokens"
    rejected = Failure(kind="program_rejected", message="no")
    view(designed([not_run(index, rejected) for index in range(4)], 100, failed=True))
    assert shown(view)[1] == "  designs 2/6  executions 7/24  reward 0.257  correct 14%  345 tokens"
    view(Phase(12, "updating p0"))
    assert shown(view)[0].endswith("updating p0 for 0.0 s")
    assert "executions 7/24" in shown(view)[1]
    view(Phase(13, "rollout"))
    assert shown(view)[1] == "  designs 0/6  executions 0/24  0 tokens"


def test_the_last_steps_and_an_estimate(view: TrainingView, clock: Clock) -> None:
    for step in range(10):
        take(view, clock, step, 60.0 if step < 2 else 20.0, correct=step / 10)
        view(Phase(step, "saving"))
        clock.now += 10.0
    lines = shown(view)
    # Eight steps of 20 s with seven savings of 10 s between them; 90 steps are left.
    assert lines[2] == "  29 s a step, about 43 min left"
    assert lines[3].split() == ["step", "learned", "reward", "correct", "solved", "tokens/s", "took"]
    assert [line.split()[0] for line in lines[4:]] == [str(step) for step in range(2, 10)]
    assert lines[-1].split() == ["9", "executor", "0.750", "90%", "100%", "1,234", "20", "s"]
    view(Phase(10, "rollout"))
    clock.now += 28.75 * 2  # goes on counting down while the next step is under way
    assert shown(view)[2] == "  29 s a step, about 42 min left"


def test_the_last_view_says_that_all_is_done(view: TrainingView, clock: Clock) -> None:
    with view:
        take(view, clock, 99, 20.0)
        view(Phase(99, "saving"))
    assert shown(view)[0] == "Step 99  100 of 100 done  done"
    assert shown(view)[2] == "  20 s a step"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(4.21, "4.2 s"), (45.2, "45 s"), (100, "2 min"), (3599, "1 h 0 min"), (12000, "3 h 20 min"), (187300, "2 d 4 h")],
)
def test_times_are_short(seconds: float, said: str) -> None:
    assert training_view._time(seconds) == said


def test_without_a_terminal_a_line_per_step(
    view: TrainingView, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with view:
        take(view, clock, 0, 2.0)
        take(view, clock, 1, 3.5)
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "step 0  reward 0.750  correct 50%  executor learns  2.0 s",
        "step 1  reward 0.750  correct 50%  executor learns  3.5 s",
    ]
    assert captured.err.splitlines() == [
        f"note: step {step}: the executor had no trajectory to learn from" for step in (0, 1)
    ]


def test_roles_that_learn_together() -> None:
    both = TrainingView(CONFIG.model_copy(update={"schedule": "coupled"}), as_json=False)
    assert "designer and executor learn  " in shown(both)[0]


def test_json_is_a_document_per_line(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingView(CONFIG, as_json=True, clock=clock) as view:
        take(view, clock, 0, 2.0)
        take(view, clock, 1, 3.5)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        reported(step).model_dump(mode="json") for step in (0, 1)
    ]


def test_a_terminal_gets_the_live_view_and_a_file_the_lines(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = StringIO()
    console = Console(file=terminal, force_terminal=True, width=100)
    monkeypatch.setattr(training_view, "stderr", lambda: console)
    with TrainingView(CONFIG, as_json=False, clock=clock) as view:
        take(view, clock, 0, 2.0)
    assert "1 of 100 done" in terminal.getvalue()
    assert capsys.readouterr().out.startswith("step 0  reward 0.750")  # stdout is no terminal here
    monkeypatch.setattr(training_view, "stdout", lambda: Console(force_terminal=True))
    with TrainingView(CONFIG, as_json=False, clock=clock) as view:
        take(view, clock, 1, 2.0)
    assert capsys.readouterr().out == ""


def test_damaged_checkpoints_are_told_once(view: TrainingView, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in ("p0", "p1"):
        view(Phase(4, "loading step-00000004", {"step-00000005": "manifest.json is missing"}))
    told = capsys.readouterr().err
    assert told == "note: checkpoint step-00000005 is damaged and was passed over: manifest.json is missing\n"


def test_a_run_that_was_done_says_so(view: TrainingView, capsys: pytest.CaptureFixture[str]) -> None:
    with view:
        view(Phase(100, "loading step-00000100"))
    assert "note: all 100 steps were done already" in capsys.readouterr().err


def test_its_place_in_words(view: TrainingView, clock: Clock) -> None:
    assert view.place == "step 0 (0 of 100 done), loading"
    take(view, clock, 6, 1.0)
    view(Phase(6, "saving"))
    assert view.place == "step 6 (7 of 100 done), saving"
    view(Phase(7, "updating p0"))
    assert view.place == "step 7 (7 of 100 done), updating p0"
