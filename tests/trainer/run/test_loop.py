"""Whole training runs on a tiny policy: roles and stages, exact resume after kills and breakdowns, honest refusals."""

import asyncio
import multiprocessing
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from training import configured, final_weights, metrics, optimizer_state, run, teach, write_problems

from engine import retries
from engine.local.transformers import TransformersEngine
from sandbox import ProcessSandbox
from sandbox.conformance import backends
from trainer.config import PolicyConfig, TrainConfig
from trainer.config.toml_file import read_config
from trainer.disk.checkpoint import CheckpointError
from trainer.disk.written_files import Written
from trainer.run.one_process import OneProcess
from trainer.run.run_folder import RunChanged
from trainer.run.runtime import Phase, StepsLost
from trainer.run.step_report import StepReport
from trainer.update import torch_backend
from trainer.update.backend import LoraSettings, UpdateFailed
from trainer.update.snapshot import PolicySnapshot
from workflow.completion import Completion, CompletionRequest
from workflow.failures import EngineFailed, SandboxUnavailable
from workflow.trace import Rewarded, Trace

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
KILLS = 20


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teach(tmp_path_factory.mktemp("policy"), right=0.6)


@pytest.fixture(scope="session")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_problems(tmp_path_factory.mktemp("problems") / "problems.jsonl")


@pytest.fixture(scope="session")
def config(policy: Path, problems: Path) -> TrainConfig:
    return configured(policy, problems)


@pytest.fixture(scope="session")
def undisturbed(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    run(config, out)
    return out


def assert_equal_runs(one: Path, other: Path) -> None:
    assert metrics(one) == metrics(other)
    assert final_weights(one) == final_weights(other)
    assert optimizer_state(one) == optimizer_state(other)


def test_a_run_teaches_both_roles_in_stages_and_writes_everything_down(undisturbed: Path, policy: Path) -> None:
    lines = metrics(undisturbed)
    assert [line["active"] for line in lines] == [["executor"]] * 2 + [["designer"]] * 2 + [["executor"]] * 2
    assert [line["step"] for line in lines] == list(range(6))
    assert all(line["designs"] == 4 and line["executions"] == 8 for line in lines)
    assert any(line["updates"].get("p0", {}).get("steps") for line in lines if line["active"] == ["executor"])
    assert final_weights(undisturbed) != (policy / "model.safetensors").read_bytes()
    traces = sorted((undisturbed / "traces").rglob("*-execution-*.jsonl"))
    ready = sum(round(line["ready"] * line["designs"]) * 2 for line in lines)
    assert len(traces) == ready > 0
    trace = Trace.from_lines(traces[0].read_text(encoding="utf-8").splitlines(keepends=True))
    assert trace.reward is not None
    # What the engine says of its tokens is what the trainer says of them.
    assert max(update["gap_max"] for line in lines for update in line["updates"].values()) < 1e-4


def test_the_result_loads_in_plain_transformers(undisturbed: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = max((undisturbed / "checkpoints").glob("step-*")) / "p0" / "model"
    loaded: Any = AutoModelForCausalLM.from_pretrained(model)
    assert AutoTokenizer.from_pretrained(model).chat_template
    assert all(torch.isfinite(each).all() for each in loaded.parameters())


def test_two_undisturbed_runs_are_equal(undisturbed: Path, config: TrainConfig, tmp_path: Path) -> None:
    run(config, tmp_path / "run")
    assert_equal_runs(tmp_path / "run", undisturbed)


def test_an_engine_slowed_to_a_tenth_changes_no_reward_and_no_weight(
    undisturbed: Path, config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a wall clock that is shorter than one of its replies."""
    complete = TransformersEngine.complete
    slept: list[float] = []

    async def slowed(self: TransformersEngine, request: CompletionRequest) -> Completion:
        began = time.monotonic()
        completion = await complete(self, request)
        slept.append(max(2.0, 9 * (time.monotonic() - began)))
        await asyncio.sleep(slept[-1])
        return completion

    monkeypatch.setattr(TransformersEngine, "complete", slowed)
    limits = config.rollout.limits.model_copy(update={"wall_s": 1.9})
    run(config.model_copy(update={"rollout": config.rollout.model_copy(update={"limits": limits})}), tmp_path / "run")
    assert len(slept) > 50
    assert_equal_runs(tmp_path / "run", undisturbed)


def _train_in_child(config: TrainConfig, out: str) -> None:
    run(config, Path(out), resume=True)


def test_killed_at_random_moments_it_ends_as_if_it_never_was(
    config: TrainConfig, undisturbed: Path, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["training", "trainer.update.torch_backend", "engine.local.generation", "transformers"]
    )

    def ended(out: Path, within_s: float) -> bool:
        """Whether a run goes to its end in that time; else it is killed."""
        child = context.Process(target=_train_in_child, args=(config, str(out)))
        child.start()
        child.join(within_s)
        if child.is_alive():
            child.kill()
            child.join(60)
            return False
        assert child.exitcode == 0
        return True

    assert ended(tmp_path / "warm", 600)  # the server has imported everything now
    began = time.monotonic()
    assert ended(tmp_path / "run-0", 600)
    whole_s = time.monotonic() - began
    assert_equal_runs(tmp_path / "run-0", undisturbed)
    dice = random.Random(0)
    kills, runs = 0, 1
    while kills < KILLS:
        out = tmp_path / f"run-{runs}"
        while kills < KILLS and not ended(out, dice.uniform(0, 0.6 * whole_s)):
            kills += 1
        assert ended(out, 600)
        assert_equal_runs(out, undisturbed)
        runs += 1


def test_a_killed_run_that_has_no_checkpoint_yet_starts_over(
    config: TrainConfig, undisturbed: Path, tmp_path: Path
) -> None:
    class Killed(BaseException): ...

    def in_the_second_rollout(event: object) -> None:
        if isinstance(event, Phase) and (event.step, event.name) == (1, "rollout"):
            raise Killed

    late = config.model_copy(update={"checkpoint_every": 3})
    with pytest.raises(Killed):
        run(late, tmp_path / "run", watch=in_the_second_rollout)
    assert len(metrics(tmp_path / "run")) == 1
    run(late, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", undisturbed)


def test_split_policies_learn_in_their_own_stages_alone(policy: Path, problems: Path, tmp_path: Path) -> None:
    config = configured(policy, problems, roles={"designer": "p0", "executor": "p1"}, steps=2, stage_length=2)
    run(config, tmp_path / "run")
    assert final_weights(tmp_path / "run", "p0") == final_weights_of(policy)
    assert final_weights(tmp_path / "run", "p1") != final_weights_of(policy)
    last = metrics(tmp_path / "run")[-1]
    assert last["weights"]["p0"] == 0 < last["weights"]["p1"]
    # And on: a resumed run has every policy at its own version.
    run(config.model_copy(update={"steps": 4}), tmp_path / "run", resume=True)
    assert metrics(tmp_path / "run")[-1]["weights"]["p1"] == last["weights"]["p1"]


def test_a_step_that_teaches_nothing_has_no_update_in_its_metrics(policy: Path, problems: Path, tmp_path: Path) -> None:
    """All rewards are equal: no figure of an update was measured, and a curve must not show zeros."""

    async def equal(*_: object) -> Rewarded:
        return Rewarded(total=1.0, terms=[])

    run(configured(policy, problems, steps=2), tmp_path / "run", reward=equal)
    lines = metrics(tmp_path / "run")
    assert [(line["updates"], line["weights"]) for line in lines] == [({}, {"p0": 0})] * 2
    assert final_weights(tmp_path / "run") == final_weights_of(policy)


def final_weights_of(model: Path) -> bytes:
    return (model / "model.safetensors").read_bytes()


# Breakdowns


def test_an_engine_that_hangs_is_an_error_and_the_run_goes_on_from_there(
    config: TrainConfig, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)
    usual = TransformersEngine.complete

    async def hanging(self: TransformersEngine, request: Any) -> Any:
        if self.weights_version >= 2:
            async with asyncio.timeout(0.05):
                await asyncio.Event().wait()
        return await usual(self, request)

    with monkeypatch.context() as broken:
        broken.setattr(TransformersEngine, "complete", hanging)
        with pytest.raises(EngineFailed, match="TimeoutError"):
            run(config, tmp_path / "run")
    run(config, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", undisturbed)


def test_a_sandbox_that_is_gone_is_an_error_and_the_run_goes_on_from_there(
    config: TrainConfig, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)
    usual, calls = ProcessSandbox.run_program, [0]

    async def dying(self: ProcessSandbox, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] > 10:
            raise SandboxUnavailable("the jails are gone")
        return await usual(self, *arguments, **options)

    with monkeypatch.context() as broken:
        broken.setattr(ProcessSandbox, "run_program", dying)
        with pytest.raises(SandboxUnavailable, match="the jails are gone"):
            run(config, tmp_path / "run")
    run(config, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", undisturbed)


def test_jails_that_are_killed_under_way_change_nothing(
    config: TrainConfig, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL for what forks them, which ends every jail, while programs run in two of the steps."""
    usual, calls, died = ProcessSandbox.run_program, [0], []

    async def killed_at_times(self: ProcessSandbox, *arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        running = asyncio.ensure_future(usual(self, *arguments, **options))
        if calls[0] in (5, 25):
            while not backends._jails(self) and not running.done():
                await asyncio.sleep(0.001)
            await backends._kill_zygotes(self)
        ended = await running
        if ended.failure is not None and ended.failure.is_infrastructure:
            died.append(calls[0])
        return ended

    monkeypatch.setattr(retries, "RETRY_PAUSE_S", 0.001)
    monkeypatch.setattr(ProcessSandbox, "run_program", killed_at_times)
    run(config, tmp_path / "run")
    assert len(died) >= 2
    assert_equal_runs(tmp_path / "run", undisturbed)


def test_a_full_disk_is_an_error_and_the_run_goes_on_from_there(
    config: TrainConfig, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, saves = PolicySnapshot.write, [0]

    def full(self: PolicySnapshot, folder: Path) -> list[Written]:
        saves[0] += 1
        written = usual(self, folder)
        if saves[0] == 3:
            raise OSError(28, "No space left on device")
        return written

    with monkeypatch.context() as broken:
        broken.setattr(PolicySnapshot, "write", full)
        with pytest.raises(CheckpointError, match="No space left on device"):
            run(config, tmp_path / "run")
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoints").glob("step-*"))][-1] == "step-00000002"
    run(config, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", undisturbed)


def test_steps_go_on_while_a_checkpoint_is_written(
    config: TrainConfig, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is held up until the next step updates: it is of its own step all the same, and nothing else waits."""
    usual, updating, held_up = PolicySnapshot.write, threading.Event(), []

    def late(self: PolicySnapshot, folder: Path) -> list[Written]:
        if not held_up:
            assert updating.wait(60)
            held_up.append(folder)
        return usual(self, folder)

    def watch(told: object) -> None:
        if isinstance(told, Phase) and told.step == 1 and told.name.startswith("updating"):
            updating.set()

    with monkeypatch.context() as slow:
        slow.setattr(PolicySnapshot, "write", late)
        run(config.model_copy(update={"steps": 2}), tmp_path / "run", watch=watch)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000002")
    run(config, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", undisturbed)


def test_stopped_while_a_checkpoint_is_written_it_is_there_whole(
    config: TrainConfig, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, stopped = PolicySnapshot.write, threading.Event()

    def late(self: PolicySnapshot, folder: Path) -> list[Written]:
        assert stopped.wait(60)
        return usual(self, folder)

    def watch(told: object) -> None:
        if isinstance(told, Phase) and (told.step, told.name) == (1, "rollout"):
            stopped.set()
            raise KeyboardInterrupt

    with monkeypatch.context() as slow:
        slow.setattr(PolicySnapshot, "write", late)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "run", watch=watch)
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*")] == ["step-00000001"]
    run(config, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", undisturbed)


class Losing(OneProcess):
    """As a cluster whose ranks are lost while they write one of their checkpoints, and made anew."""

    lost_at = 0
    saved = 0

    async def snapshot(self) -> Any:
        write = await super().snapshot()
        self.saved += 1
        number = self.saved

        def losing(folder: Path) -> list[Written]:
            written = list(write(folder))
            if number == self.lost_at:
                raise StepsLost("rank 1 is gone")
            return written

        return losing

    async def recover(self, lost: StepsLost) -> None:
        pass


@pytest.mark.parametrize("of", [2, 6])
def test_steps_whose_checkpoint_was_lost_are_done_again(
    of: int, config: TrainConfig, undisturbed: Path, tmp_path: Path
) -> None:
    heard: list[str] = []
    assert config.steps == 6, "so that the last one is among them"
    losing = type("_", (Losing,), {"lost_at": of})
    run(
        config,
        tmp_path / "run",
        watch=lambda told: heard.append(told.name) if isinstance(told, Phase) else None,
        runtime=losing,
    )
    back = heard.index("going back to the last checkpoint: rank 1 is gone")
    assert heard[back + 1] == f"loading step-{of - 1:08}"
    assert_equal_runs(tmp_path / "run", undisturbed)


class AlwaysLosing(OneProcess):
    async def update(self, lessons: Any) -> Any:
        raise StepsLost("rank 0 takes longer than cluster.call_timeout_s")

    async def recover(self, lost: StepsLost) -> None:
        pass


def test_steps_that_are_lost_each_time_end_the_run_with_the_reason(config: TrainConfig, tmp_path: Path) -> None:
    told = r"after checkpoint 0 were lost 3 times in a row, more than cluster\.restarts_per_hour=2: rank 0 takes longer"
    twice = config.model_copy(update={"cluster": config.cluster.model_copy(update={"restarts_per_hour": 2})})
    with pytest.raises(EngineFailed, match=told):
        run(twice, tmp_path / "run", runtime=AlwaysLosing)


def test_a_full_disk_is_told_by_the_next_step_and_not_by_the_next_checkpoint(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: PolicySnapshot, folder: Path) -> list[Written]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PolicySnapshot, "write", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        run(config.model_copy(update={"checkpoint_every": 3}), tmp_path / "run")
    assert len(metrics(tmp_path / "run")) == 4
    monkeypatch.undo()
    run(config.model_copy(update={"checkpoint_every": 3}), tmp_path / "run", resume=True)
    assert len(metrics(tmp_path / "run")) == config.steps


def test_a_corrupt_newest_checkpoint_is_passed_over_and_said(
    config: TrainConfig, undisturbed: Path, tmp_path: Path
) -> None:
    run(config.model_copy(update={"steps": 4}), tmp_path / "run")
    newest = tmp_path / "run" / "checkpoints" / "step-00000004" / "p0" / "model" / "model.safetensors"
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    heard: list[Phase] = []
    run(config, tmp_path / "run", resume=True, watch=lambda it: heard.append(it) if isinstance(it, Phase) else None)
    assert (heard[0].step, heard[0].name) == (3, "loading step-00000003")
    assert list(heard[0].passed_over) == ["step-00000004"]
    assert_equal_runs(tmp_path / "run", undisturbed)


def test_a_loss_that_is_not_finite_stops_before_it_does_harm(
    config: TrainConfig, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, made = torch_backend.terms_of, [0]

    def poisoned(*given: Any) -> Any:
        made[0] += 1
        terms, factor = usual(*given), float("nan") if made[0] == 3 else 1.0
        return lambda batch, logprobs: terms(batch, logprobs * factor)

    with monkeypatch.context() as broken:
        broken.setattr(torch_backend, "terms_of", poisoned)
        with pytest.raises(UpdateFailed, match="nan"):
            run(config, tmp_path / "run")
    run(config, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", undisturbed)


def test_every_setting_of_a_policy_reaches_its_backend(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    class Made(Exception):
        pass

    def make(model: str, **settings: Any) -> None:
        given.update(settings, model=model)
        raise Made

    unusual = {
        "model": "elsewhere",
        "learning_rate": 0.5,
        "dtype": "float32",
        "device": "cuda",
        "lora": LoraSettings(rank=3),
        "gradient_checkpointing": False,
        "max_tokens_per_micro_batch": 77,
        "shared_prompts": False,
        "max_gradient_norm": 0.25,
        "weight_decay": 0.125,
    }
    others = {"designer_learning_rate", "engine", "update"}  # not the backend's
    assert set(unusual) == set(PolicyConfig.model_fields) - others
    assert not [name for name, value in unusual.items() if value == PolicyConfig.model_fields[name].default]
    monkeypatch.setattr(torch_backend, "TorchBackend", make)
    settings = PolicyConfig.model_validate(unusual)
    with pytest.raises(Made):
        run(config.model_copy(update={"policies": {"p0": settings}}), tmp_path / "run")
    assert {name: given[name] for name in unusual} == unusual
    assert given["keeps_reference"] is False


# Refusals


def test_another_run_in_the_same_folder_is_refused(config: TrainConfig, undisturbed: Path) -> None:
    with pytest.raises(RunChanged, match="continue it with --resume"):
        run(config, undisturbed)
    other = config.model_copy(update={"rollout": config.rollout.model_copy(update={"designs": 3})})
    with pytest.raises(RunChanged, match=r"rollout\.designs = 2, not 3"):
        run(other, undisturbed, resume=True)


def test_a_run_goes_on_with_less_memory_and_its_folder_says_so(policy: Path, problems: Path, tmp_path: Path) -> None:
    """Two steps from the checkpoint and one more, each with other settings than the run began with."""
    config = configured(policy, problems, steps=1)
    run(config, tmp_path / "run")
    for steps, budget in ((2, 64), (3, 128)):
        smaller = config.policies["p0"].model_copy(update={"max_tokens_per_micro_batch": budget})
        after = config.model_copy(update={"policies": {"p0": smaller}, "steps": steps})
        run(after, tmp_path / "run", resume=True)
        assert read_config(tmp_path / "run" / "config.toml") == after
    assert [line["step"] for line in metrics(tmp_path / "run")] == [0, 1, 2]


def test_a_run_without_its_checkpoints_keeps_its_metrics(policy: Path, problems: Path, tmp_path: Path) -> None:
    config = configured(policy, problems, steps=2)
    run(config, tmp_path / "run")
    before = metrics(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(CheckpointError, match=r"has 2 steps.* Fix: put"):
        run(config, tmp_path / "run", resume=True)
    assert metrics(tmp_path / "run") == before


def test_a_finished_run_that_is_resumed_changes_nothing(config: TrainConfig, undisturbed: Path) -> None:
    before = final_weights(undisturbed), metrics(undisturbed)
    heard: list[object] = []
    run(config, undisturbed, resume=True, watch=heard.append)
    assert (final_weights(undisturbed), metrics(undisturbed)) == before
    assert not [event for event in heard if isinstance(event, StepReport)]


def test_a_budget_of_generated_tokens_ends_a_run(undisturbed: Path, config: TrainConfig, tmp_path: Path) -> None:
    spent = [sum(line["usage"][role]["completion_tokens"] for role in line["active"]) for line in metrics(undisturbed)]
    for steps, budget in ((1, spent[0]), (3, sum(spent[:2]) + 1), (3, sum(spent[:3]))):
        budgeted = config.model_copy(update={"generated_tokens": budget, "checkpoint_every": 5})
        run(budgeted, tmp_path / "run", resume=True)
        assert metrics(tmp_path / "run") == metrics(undisturbed)[:steps], "what metrics say is counted"
        last = max((tmp_path / "run" / "checkpoints").glob("step-*"))
        assert int(last.name.removeprefix("step-")) == steps, "one is written at the end"


def test_two_processes_cannot_train_in_one_folder(config: TrainConfig, tmp_path: Path) -> None:
    hold = (
        "import pathlib, sys; from trainer.disk.checkpoint import writing\n"
        "with writing(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", hold, str(tmp_path / "run" / "checkpoints")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match="another process writes into"):
            run(config, tmp_path / "run")
        holder.communicate(timeout=60)
