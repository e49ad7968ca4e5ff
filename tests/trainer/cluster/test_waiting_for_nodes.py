"""Nodes are waited for until as many as are asked for have the GPUs that are asked for, where any can join."""

import asyncio
import time
from typing import Any

import pytest

from trainer.cluster import ray_session
from trainer.cluster.places import Node
from trainer.cluster.ray_session import ClusterError, Session
from trainer.config import ClusterConfig


class Growing(Session):
    """A session of a Ray whose nodes have these GPUs at one look after another, and at last those."""

    def __init__(self, *looks: list[int], **cluster: Any) -> None:
        super().__init__(
            ClusterConfig(layout="disaggregated", **{"address": "auto", "start_timeout_s": 0.2, **cluster})
        )
        self._looks = list(looks)

    def nodes(self) -> list[Node]:
        gpus = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        return [Node(f"n{number}", "a", 8, each, 0) for number, each in enumerate(gpus)]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "POLL_S", 0.001)


def found(session: Session, gpus: int) -> tuple[int, list[str]]:
    told: list[str] = []
    return len(asyncio.run(session.enough_nodes(gpus, told.append))), told


def test_a_head_without_gpus_is_not_one_of_them() -> None:
    count, told = found(Growing([0], [0, 8], [0, 8], [0, 8, 8], nodes=2), 8)
    assert count == 3
    assert told == [
        "waiting for nodes: 0 of cluster.nodes=2 nodes with 8 GPUs are there",
        "waiting for nodes: 1 of cluster.nodes=2 nodes with 8 GPUs are there",
    ]


def test_where_gpus_are_taken_as_found_any_node_will_do() -> None:
    assert found(Growing([0], [0, 4], nodes=2), 0) == (2, ["waiting for nodes: 1 of cluster.nodes=2 nodes are there"])
    assert found(Growing([8], nodes=1), 8) == (1, [])


def test_too_few_nodes_are_told_after_the_limit() -> None:
    with pytest.raises(ClusterError, match=r"1 of cluster.nodes=2 nodes with 8 GPUs were there within .*=0\.2\. Fix: "):
        found(Growing([8], nodes=2), 8)


def test_too_few_gpus_on_nodes_enough_are_for_the_layout_to_tell() -> None:
    assert found(Growing([8, 4], nodes=2), 8)[0] == 2


def test_a_ray_of_the_run_itself_is_joined_by_nobody() -> None:
    began = time.monotonic()
    assert found(Growing([0], nodes=2, address="local", start_timeout_s=900), 8) == (1, [])
    assert time.monotonic() - began < 5
