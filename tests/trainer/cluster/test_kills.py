"""Processes of a run are killed and stopped: the run ends as one that nobody disturbed, and nothing of it is left."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import training
from clusters import alone, clustered, gone, hit, run, seats, steps_of, traces_of

from trainer.run.runtime import Phase
from trainer.trees import Execution

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Blows:
    """What is done to which process, at the first event after a moment of the run."""

    def __init__(self, *blows: tuple[int, str, str, int, signal.Signals]) -> None:
        self._left = list(blows)
        self._step, self._phase = -1, ""
        self.hit: list[int] = []
        self.seen: set[int] = set()

    def __call__(self, runtime: Any, event: object) -> None:
        if isinstance(event, Phase):
            self._step, self._phase = event.step, event.name
        if not hasattr(runtime, "_watching"):
            return
        self.seen |= {seat.identity.pid for seat in runtime._assembly.seats.seated if seat.identity}
        for blow in list(self._left):
            step, phase, kind, number, how = blow
            now = isinstance(event, Execution) if phase == "rollout" else isinstance(event, Phase)
            if now and (self._step, self._phase) == (step, phase):
                seat = seats(runtime, kind)[number]
                if seat.identity is None:
                    continue
                self.hit.append(seat.identity.pid)
                hit(seat, how)
                self._left.remove(blow)


def test_workers_engines_and_ranks_are_killed_and_stopped(
    ray_address: str, model: Path, problems: Path, tmp_path: Path
) -> None:
    config = clustered(model, problems, ray_address, engines=2, steps=8)
    blows = Blows(
        (0, "rollout", "run_worker", 0, signal.SIGKILL),
        (1, "rollout", "engine", 1, signal.SIGKILL),
        (2, "rollout", "run_worker", 1, signal.SIGSTOP),
        (3, "rollout", "engine", 0, signal.SIGSTOP),
        (4, "updating p0", "rank", 0, signal.SIGKILL),
        (6, "updating p0", "rank", 0, signal.SIGSTOP),
    )
    phases = run(config, tmp_path / "run", disturb=blows)
    assert len(blows.hit) == 6
    assert len(set(blows.hit)) == 6
    assert len([name for name in phases if name.startswith("going back")]) == 2
    assert gone(sorted(blows.seen), 30)
    training.run(alone(config), tmp_path / "alone")
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "alone")
    assert training.final_weights(tmp_path / "run") == training.final_weights(tmp_path / "alone")
    assert training.optimizer_state(tmp_path / "run") == training.optimizer_state(tmp_path / "alone")
    assert traces_of(tmp_path / "run") == traces_of(tmp_path / "alone")
    assert os.getpid() not in blows.seen
