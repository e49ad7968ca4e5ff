"""Processes of a run are killed and stopped: the run ends as one that nobody disturbed, and nothing of it is left."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("torch")
pytest.importorskip("transformers")

import training
from clusters import alone, clustered, gone, hit, run, seats, steps_of, traces_of

from trainer.cluster.ranks import on_ranks
from trainer.cluster.runtime import ClusterRuntime
from trainer.run.runtime import Lesson, Phase
from trainer.trees import Execution
from trainer.update.backend import UpdateFailed
from workflow.failures import EngineFailed

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


def test_workers_engines_ranks_and_a_keeper_are_killed_and_stopped(
    ray_address: str, model: Path, problems: Path, tmp_path: Path
) -> None:
    config = clustered(model, problems, ray_address, engines=2, steps=7)
    blows = Blows(
        (0, "rollout", "run_worker", 0, signal.SIGKILL),
        (1, "rollout", "engine", 1, signal.SIGKILL),
        (2, "rollout", "run_worker", 1, signal.SIGSTOP),  # both in one step
        (2, "rollout", "engine", 0, signal.SIGSTOP),
        (3, "updating p0", "rank", 0, signal.SIGKILL),
        (4, "rollout", "keeper", 0, signal.SIGKILL),  # without which nobody can be ended for good
        (5, "updating p0", "rank", 0, signal.SIGSTOP),
    )
    phases = run(config, tmp_path / "run", disturb=blows)
    assert len(blows.hit) == 7
    assert len(set(blows.hit)) == 7
    assert len([name for name in phases if name.startswith("going back")]) == 2
    assert gone(sorted(blows.seen), 30)
    training.run(alone(config), tmp_path / "alone")
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "alone")
    assert training.final_weights(tmp_path / "run") == training.final_weights(tmp_path / "alone")
    assert training.optimizer_state(tmp_path / "run") == training.optimizer_state(tmp_path / "alone")
    assert traces_of(tmp_path / "run") == traces_of(tmp_path / "alone")
    assert os.getpid() not in blows.seen


@pytest.fixture(scope="module")
def two_ranks(
    ray_address: str, model: Path, problems: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Path]:
    """A configuration with two ranks of ZeRO-3, and the folder of such a run that nobody disturbed."""
    pytest.importorskip("deepspeed")
    config = clustered(
        model, problems, ray_address, ranks=2, steps=4, cluster={"collective_timeout_s": 15.0}
    )  # what a rank waits for one that ran out of memory amid an exchange
    folder = tmp_path_factory.mktemp("two_ranks") / "undisturbed"
    run(config, folder)
    return config, folder


def test_one_rank_of_a_group_is_killed_and_one_is_stopped(two_ranks: tuple[Any, Path], tmp_path: Path) -> None:
    """The whole group is made anew, and goes on bit for bit."""
    config, undisturbed = two_ranks
    blows = Blows((1, "updating p0", "rank", 1, signal.SIGKILL), (2, "new weights for p0", "rank", 0, signal.SIGSTOP))
    phases = run(config, tmp_path / "run", disturb=blows)
    assert len(blows.hit) == 2
    back = [name for name in phases if name.startswith("going back")]
    assert len(back) == 2
    assert all("of p0" in name for name in back)  # which rank, and in what
    assert gone(sorted(blows.seen), 30)
    assert steps_of(tmp_path / "run") == steps_of(undisturbed)
    assert training.final_weights(tmp_path / "run") == training.final_weights(undisturbed)


class Struck(ClusterRuntime):
    """Before its `at`th update something happens to the ranks."""

    def __init__(self, config: Any, at: int, blow: Callable[..., None]) -> None:
        super().__init__(config)
        self._left, self._blow = at, blow

    async def update(self, lessons: Mapping[str, Lesson]) -> Any:
        self._left -= 1
        if self._left == 0:
            [(name, cast)] = self._assembly.casts.items()
            await on_ranks([seat.here for seat in cast.ranks], name)(self._blow, limit=self._limits.call)
        return await super().update(lessons)


def _runs_out(rank: Any, number: int) -> None:
    """Of memory, in the second rank alone."""
    import torch

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    if number == 1:
        rank._opened().causal.model.layers[1].mlp.register_forward_hook(full)


def _learns_nothing_finite(rank: Any, number: int) -> None:
    if number == 1:
        rank._opened().causal.model.norm.register_forward_hook(lambda *told: told[-1] * float("nan"))


def test_an_update_that_fails_ends_the_run_which_resumes_where_it_was(
    two_ranks: tuple[Any, Path], tmp_path: Path
) -> None:
    """Nothing is made anew for it: it would happen again."""
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    config, undisturbed = two_ranks
    told = (
        (_runs_out, 1, r"memory ran out after 0 steps of this update, .*Fix: "),
        (_learns_nothing_finite, 2, r"the loss of sample \d+ is nan .*Fix: "),
    )
    for blow, whole, says in told:
        blows = Blows()
        with pytest.raises(UpdateFailed, match=says):
            run(config, tmp_path / "run", resume=whole > 1, make=partial(Struck, at=2, blow=blow), disturb=blows)
        assert gone(sorted(blows.seen), 30)
        checkpoints = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
        assert checkpoints[-1] == f"step-{whole:08}"
        assert steps_of(tmp_path / "run") == steps_of(undisturbed)[:whole]


def _in_child(config: Any, out: Path, resume: bool) -> None:
    def tell(runtime: Any, event: object) -> None:
        if hasattr(runtime, "_watching"):
            pids = [seat.identity.pid for seat in runtime._assembly.seats.seated if seat.identity]
            (out.parent / "pids.new").write_text(" ".join(map(str, pids)))
            (out.parent / "pids.new").replace(out.parent / "pids")  # this process may be killed at any time

    run(config, out, resume=resume, disturb=tell)


def test_the_driver_is_killed_and_resumes(ray_address: str, model: Path, problems: Path, tmp_path: Path) -> None:
    config = clustered(model, problems, ray_address, steps=4)
    child = multiprocessing.get_context("spawn").Process(target=_in_child, args=(config, tmp_path / "run", False))
    child.start()
    metrics_file = tmp_path / "run" / "metrics.jsonl"
    ends = time.monotonic() + 240
    while not (metrics_file.exists() and metrics_file.read_text().count("\n") >= 2):
        assert time.monotonic() < ends
        assert child.is_alive()
        time.sleep(0.05)
    child.kill()
    child.join(30)
    pids = [int(each) for each in (tmp_path / "pids").read_text().split()]
    assert len(pids) >= 5
    assert gone(pids, 30)
    run(config, tmp_path / "run", resume=True)
    training.run(alone(config), tmp_path / "alone")
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "alone")
    assert training.final_weights(tmp_path / "run") == training.final_weights(tmp_path / "alone")


def test_a_process_that_is_lost_too_often_ends_the_run_with_all_that_was(
    ray_address: str, model: Path, problems: Path, tmp_path: Path
) -> None:
    config = clustered(model, problems, ray_address, steps=3, cluster={"restarts_per_hour": 1})
    blows = Blows((0, "rollout", "engine", 0, signal.SIGKILL), (1, "rollout", "engine", 0, signal.SIGKILL))
    with pytest.raises(EngineFailed, match=r"2 processes were lost within an hour, .*_per_hour=1: .*; "):
        run(config, tmp_path / "run", disturb=blows)
    assert gone(sorted(blows.seen), 30)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-00000001"]


def test_a_node_is_lost_and_another_one_comes(model: Path, problems: Path, tmp_path: Path) -> None:
    """Two nodes on this machine; the raylet of the second is killed, and a third takes its place."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False}, connect=False)
    try:
        other = cluster.add_node(num_cpus=3)
        config = clustered(
            model, problems, cluster.address, engines=2, steps=4, cluster={"nodes": 2, "run_workers_per_node": 1}
        )
        struck: list[int] = []

        def strike(runtime: Any, event: object) -> None:
            if isinstance(event, Phase) and (event.step, event.name) == (1, "new weights for p0") and not struck:
                struck.extend(
                    seat.identity.pid
                    for seat in runtime._assembly.seats.seated
                    if seat.identity and seat.process.node == other.node_id
                )
                cluster.remove_node(other, allow_graceful=False)
                cluster.add_node(num_cpus=3)

        phases = run(config, tmp_path / "run", disturb=strike)
        assert struck
        assert [name for name in phases if name.startswith("going back")]
        assert gone(struck, 30)
    finally:
        for each in cluster.list_all_nodes():
            cluster.remove_node(each, allow_graceful=False)  # which waits half a minute for each
        cluster.shutdown()
    training.run(alone(config), tmp_path / "alone")
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "alone")
