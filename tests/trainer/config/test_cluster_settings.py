"""Settings of a cluster that cannot be are refused with the key and a fix, and those that can be are not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainer.config import TrainConfig, is_address

VLLM = {"engine": {"kind": "vllm"}}
TRANSFORMERS = {"engine": {"kind": "transformers"}}
DEEPSPEED = {"update": {"backend": "deepspeed"}}


def made(cluster: dict[str, Any], policy: dict[str, Any]) -> TrainConfig:
    values = {
        "policies": {"p0": {"model": "m", **policy}},
        "data": [{"format": "aime", "path": "x.jsonl"}],
        "cluster": cluster,
    }
    return TrainConfig.model_validate(values)


@pytest.mark.parametrize(
    ("cluster", "policy", "told"),
    [
        ({"layout": "colocated", "transport": "store"}, VLLM | DEEPSPEED, "does not take turns with the GPU of"),
        ({"layout": "colocated", "transport": "nccl"}, VLLM | DEEPSPEED, "on GPUs apart"),
        ({"layout": "disaggregated", "transport": "ipc"}, VLLM | DEEPSPEED, "on one GPU"),
        ({"layout": "disaggregated", "transport": "nccl", "gpus_per_node": 0}, VLLM | DEEPSPEED, "needs GPUs"),
        ({"layout": "disaggregated", "transport": "gloo"}, TRANSFORMERS | DEEPSPEED, "needs vLLM"),
        ({"layout": "colocated", "staleness": 1}, VLLM | DEEPSPEED, "work while ranks do"),
        ({}, DEEPSPEED, "more than one process"),
        ({"layout": "disaggregated"}, {"update": {"ranks": 2}}, "plain torch has one"),
        ({"layout": "colocated"}, VLLM | DEEPSPEED | {"device": "cpu"}, "GPUs that its ranks are given"),
        ({"layout": "disaggregated", "gpus_per_node": 0}, DEEPSPEED | {"device": "cuda"}, "gives it none"),
        *(
            ({"address": each}, {}, "cluster.address")
            for each in ("", "foo", "1.2.3.4:99999", "a b:1", "host:", "host:0", "ray://host:10001")
        ),
    ],
)
def test_what_cannot_be_is_refused(cluster: dict[str, Any], policy: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=rf"{told}.* Fix: "):
        made(cluster, policy)


@pytest.mark.parametrize(
    ("cluster", "policy"),
    [
        ({"layout": "colocated", "transport": "ipc"}, VLLM | DEEPSPEED),
        ({"layout": "colocated", "transport": "store", "gpus_per_node": 0}, VLLM | DEEPSPEED),
        ({"layout": "colocated", "transport": "store"}, TRANSFORMERS | DEEPSPEED),
        ({"layout": "colocated", "transport": "store"}, VLLM),
        ({"layout": "disaggregated", "transport": "store", "staleness": 2}, VLLM | DEEPSPEED),
        ({"layout": "disaggregated", "transport": "gloo", "gpus_per_node": 0}, VLLM | DEEPSPEED),
        ({"layout": "disaggregated", "gpus_per_node": 0}, DEEPSPEED | {"device": "cpu"}),
        ({"layout": "disaggregated"}, DEEPSPEED | {"device": "cuda"}),
        ({"layout": "one-process"}, {"device": "cpu"}),
    ],
)
def test_what_can_be_is_not(cluster: dict[str, Any], policy: dict[str, Any]) -> None:
    assert made(cluster, policy).cluster.layout == cluster["layout"]


@pytest.mark.parametrize("text", ["local", "auto", "10.0.0.1:6379", "head-0.svc:65535"])
def test_addresses(text: str) -> None:
    assert is_address(text)
