"""Ranks that come late, or not at all: the others say so in time, and who it was."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from two_ranks import Ranks, need

from trainer.update import GroupLost

LIMIT_S = 4.0


@pytest.fixture
def ranks() -> Iterator[Callable[..., Ranks]]:
    made: list[Ranks] = []

    def some(count: int, **settings: Any) -> Ranks:
        made.append(Ranks(count, LIMIT_S, **settings))
        return made[-1]

    yield some
    for each in made:
        each.close()


PASSER = {"kind": "tested_rank:Passer", "imports": ()}


@pytest.mark.thorough
def test_ranks_hear_each_other(ranks: Callable[..., Ranks]) -> None:
    for _ in range(2):
        assert ranks(3, **PASSER).group(None).call("meet") == [[[0, 0.5], [1, 0.5], [2, 0.5]]] * 3


def test_a_late_rank_is_named_within_the_limit_and_the_group_stays_lost(ranks: Callable[..., Ranks]) -> None:
    group = ranks(3, **PASSER).group(None)
    group.call("meet")
    began = time.monotonic()
    with pytest.raises(GroupLost, match=r"rank [02] of 3 .*collective_timeout_s is 4\): late or gone: rank 1;.*Fix: "):
        group.call("wait", 1, LIMIT_S + 2)
    assert LIMIT_S < time.monotonic() - began < 3 * LIMIT_S
    began = time.monotonic()
    with pytest.raises(GroupLost, match=r"rank \d of 3 lost the others"):  # the late one has its own tale
        group.call("meet")
    assert time.monotonic() - began < 1


@pytest.mark.thorough
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("gone", [0, 1])
def test_a_dead_or_silent_rank_is_named(ranks: Callable[..., Ranks], sign: signal.Signals, gone: int) -> None:
    """The first rank keeps the store that would say who is missing."""
    both = ranks(2, **PASSER)
    group = both.group(None)
    pid = both.processes[gone].pid
    assert pid is not None
    os.kill(pid, sign)
    told = "rank 0, which keeps the store, does not answer" if gone == 0 else "late or gone: rank 1"
    with pytest.raises(GroupLost, match=f"rank {1 - gone} of 2 lost the others .*{told}.*Fix: "):
        both.ask_one(1 - gone, "call", group._number, "meet")
    if sign == signal.SIGSTOP:
        os.kill(pid, signal.SIGCONT)


def test_a_rank_that_does_not_come_to_the_start_is_missed(ranks: Callable[..., Ranks]) -> None:
    with pytest.raises(GroupLost, match=r"rank \d of 2 did not meet the others at 127.0.0.1:\d+ within 4 s.*Fix: "):
        ranks(1, of=2, **PASSER)


def test_a_process_has_one_place(ranks: Callable[..., Ranks]) -> None:
    group = ranks(1, **PASSER).group(None)
    group.call("join_again", 0)
    with pytest.raises(RuntimeError, match=r"is a rank already, as \(0, 1, .* not \(1, 1, .*Fix: a new process"):
        group.call("join_again", 1)


def test_memory_that_runs_out_where_ranks_exchange_gradients_ends_the_group(
    ranks: Callable[..., Ranks], tmp_path: Path
) -> None:
    """On one rank, in a backward pass at stage 2: the other one waits for its gradients."""
    need(2)
    from test_every_backend import POLICY, mixed

    from benchmarks.tiny_models import make_model
    from trainer.update import DeepSpeedBackend, DeepSpeedSettings

    make_model(tmp_path, context=256)
    settings = DeepSpeedSettings(model=str(tmp_path), learning_rate=1e-3, zero_stage=2)
    backend = DeepSpeedBackend(ranks(2).group(settings, "tested_rank:TestedRank"))
    backend._opened().call("run_out", [1], "backward", 1)
    with pytest.raises(GroupLost, match=r"rank 1 of 2 ran out of memory in a backward pass, with 16384 tokens.*Fix: "):
        backend.update(mixed(), POLICY)
    with pytest.raises(GroupLost):
        backend.logprobs(mixed())


def test_a_rank_that_is_held_up_amid_an_update_is_named(ranks: Callable[..., Ranks], tmp_path: Path) -> None:
    """In a forward pass, where the others wait for its part of the weights: DeepSpeed's exchange has the limit, too."""
    need(2)
    from test_every_backend import POLICY, mixed

    from benchmarks.tiny_models import make_model
    from trainer.update import DeepSpeedBackend, DeepSpeedSettings

    make_model(tmp_path, context=256)
    settings = DeepSpeedSettings(model=str(tmp_path), learning_rate=1e-3, persistence_threshold=0)
    backend = DeepSpeedBackend(ranks(2).group(settings, "tested_rank:TestedRank"))
    backend.update(mixed(), POLICY)
    backend._opened().call("sleep", 1, LIMIT_S + 2)
    began = time.monotonic()
    with pytest.raises(GroupLost, match=r"rank 0 of 2 lost .* into 'an update' \(collective_timeout_s is 4\).*Fix: "):
        backend.update(mixed(), POLICY)
    assert time.monotonic() - began < 4 * LIMIT_S
    with pytest.raises(GroupLost):
        backend.update(mixed(), POLICY)
