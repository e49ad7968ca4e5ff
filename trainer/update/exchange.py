"""A process's place among the ranks, and the small agreements that they make beside DeepSpeed's own exchanges.

`join` is called once in each process. Every exchange has a time limit, and one that fails names the ranks that did not
come: they count what they came to in the group's store. Replaces nobody; knows no model.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from trainer.update.deepspeed_group import GroupLost

_NAMING_S = 2.0
"""For the store to say who is missing; it is in rank 0's process, which may be the one."""
_joined: dict[str, Any] = {}


class Exchange:
    """Made by `join`. All ranks make the same calls in the same order."""

    def __init__(self, rank: int, ranks: int, device: torch.device, timeout_s: float, store: Any, group: Any) -> None:
        self.rank, self.ranks, self.device, self.timeout_s = rank, ranks, device, timeout_s
        self._store, self._group = store, group
        self._came = 0
        self._lost = ""

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        """For exchanges within, DeepSpeed's included: all ranks come here first, and a failure of an exchange is
        `GroupLost`, now and from then on."""
        if self._lost:
            raise GroupLost(self._lost)
        began = time.monotonic()
        try:
            self.gathered([0.0])
            yield
        except (RuntimeError, AssertionError) as error:
            if isinstance(error, GroupLost) or not _is_of_an_exchange(error):
                raise
            self._lost = (
                f"rank {self.rank} of {self.ranks} lost the others {time.monotonic() - began:.1f} s into {what!r} "
                f"(collective_timeout_s is {self.timeout_s:g}): {self._missing()}; {_first_line(error)}. Fix: make all "
                "ranks anew; a higher collective_timeout_s if one was only slow"
            )
            raise GroupLost(self._lost) from error

    def gathered(self, values: Sequence[float]) -> list[list[float]]:
        """The values of each rank, as many from each, in the order of ranks; exact up to 2**53."""
        self._came += 1
        self._store.set(_key(self.rank), str(self._came))
        mine = torch.tensor(values, dtype=torch.float64)
        found = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(found, mine, group=self._group)
        return [each.tolist() for each in found]

    def lose(self, why: str) -> GroupLost:
        """What ends this rank's part in the group, for good; to be raised."""
        self._lost = f"rank {self.rank} of {self.ranks} {why}. Fix: make all ranks anew"
        return GroupLost(self._lost)

    def limit_all(self) -> None:
        """The time limit for all process groups that there are; DeepSpeed makes one with torch's own half hour."""
        for group in list(dist.distributed_c10d._world.pg_map):
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=self.timeout_s), group)

    def _missing(self) -> str:
        """Which ranks have come less far than this one, as the store knows it."""
        counts: list[int] = []

        def ask() -> None:
            with contextlib.suppress(Exception):
                counts.extend([int(self._store.get(_key(rank))) for rank in range(self.ranks)])

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(_NAMING_S)
        if len(counts) < self.ranks:
            return "rank 0, which keeps the store, does not answer"
        late = [str(rank) for rank, count in enumerate(counts) if count < self._came]
        return f"late or gone: rank {', '.join(late)}" if late else "all had come to its last agreement"


def join(
    rank: int,
    ranks: int,
    host: str,
    port: int,
    timeout_s: float,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> Exchange:
    """This process becomes rank `rank` of `ranks`, which meet at rank 0's `host` and `port`: over gloo on CPUs, over
    NCCL on the process's first visible GPU. `timeout_s` is for this and for every exchange after it.

    Called again with the same arguments it does nothing; all policies of a process share its place. Raises `GroupLost`
    where the others do not come in time, and RuntimeError where the process has another place already.
    """
    wanted = (rank, ranks, host, port, timeout_s, device)
    if _joined:
        if _joined["as"] != wanted:
            raise RuntimeError(f"the process is a rank already, as {_joined['as']}, not {wanted}. Fix: a new process")
        return _joined["exchange"]
    on_cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    where = torch.device("cuda", 0) if on_cuda else torch.device("cpu")
    if on_cuda:
        torch.cuda.set_device(where)
    else:
        os.environ["DS_ACCELERATOR"] = "cpu"
    # DeepSpeed reads these, whoever has made the process group.
    place = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": 0, "MASTER_ADDR": host, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    limit = timedelta(seconds=timeout_s)
    try:
        store = dist.TCPStore(host, port, ranks, is_master=rank == 0, timeout=limit)
        store.set(_key(rank), "0")
        dist.init_process_group(
            "nccl" if on_cuda else "gloo",
            store=dist.PrefixStore("ranks", store),
            rank=rank,
            world_size=ranks,
            timeout=limit,
        )
        exchange = Exchange(rank, ranks, where, timeout_s, store, dist.new_group(backend="gloo", timeout=limit))
        exchange.gathered([0.0])
    except (RuntimeError, OSError) as error:
        raise GroupLost(
            f"rank {rank} of {ranks} did not meet the others at {host}:{port} within {timeout_s:g} s: "
            f"{_first_line(error)}. Fix: see that all ranks run and that rank 0 can be reached there"
        ) from error
    _quiet()
    _joined.update({"as": wanted, "exchange": exchange})
    return exchange


def joined() -> Exchange:
    """What `join` made in this process."""
    if not _joined:
        raise RuntimeError("this process is no rank. Fix: call join(...) in it first")
    return _joined["exchange"]


def deepspeed() -> Any:
    """The package, told not to compile its kernel for shared memory, which needs a compiler and most of a minute, and
    to speak of errors alone: it warns of every optimizer that is not its own."""
    package = importlib.import_module("deepspeed")
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)  # it sets its own when it is imported
    package.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return package


def _quiet() -> None:
    """What DeepSpeed and transformers tell of their insides: names of torch's that DeepSpeed still uses, and bars."""
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is (deprecated|a private function)", FutureWarning)
    importlib.import_module("transformers").utils.logging.disable_progress_bar()


def _key(rank: int) -> str:
    return f"came/{rank}"


def _is_of_an_exchange(error: Exception) -> bool:
    return isinstance(error, dist.DistError) or any(word in str(error) for word in ("gloo/", "NCCL", "ProcessGroup"))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
