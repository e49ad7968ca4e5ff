"""What the nodes of a running Ray say of themselves, asked in a process of its own, as Ray is heavy and may hang.

    python -m metaagent.cluster_probe HOST:PORT [--shared DIR]

prints one `Probed` as JSON. It takes a GPU of two nodes for a moment, where there are some, and writes a file into DIR
that it removes. What is made of the answers is `metaagent.cluster_health`'s business.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import importlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

ANSWER_S = 45.0
"""For all nodes, which may have to start a process for the first time."""
NCCL_S = 60.0
PACKAGES = ("metaagent", "ray", "torch", "vllm", "deepspeed", "transformers")


class NodeFacts(BaseModel):
    """One node, as seen from within it."""

    address: str
    gpus: int = 0
    """As Ray counts them."""
    python: str = ""
    versions: dict[str, str] = {}
    shared: str = ""
    """What is wrong with the shared folder there; empty if nothing is, or none was named."""
    silent: str = ""
    """Why it gave no answer; nothing else is known then."""


class Probed(BaseModel):
    nodes: list[NodeFacts]
    nccl: str = ""
    """What two nodes reached; empty where it was not tried or failed."""
    nccl_left_out: str = ""
    nccl_failed: str = ""


def look(path: str, token: str, packages: Sequence[str]) -> dict[str, Any]:
    """On a node; it must not need this module, which may be another version there."""
    import importlib.metadata
    import os
    import platform

    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    wrong = ""
    if path:
        try:
            with open(path, encoding="utf-8") as file:
                wrong = "" if file.read() == token else f"{path} has other contents there"
            with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
                file.write(token)
            os.unlink(f"{path}.{os.getpid()}")
        except OSError as error:
            wrong = f"{error.strerror}: {error.filename}"
    return {"python": platform.python_version(), "versions": versions, "shared": wrong}


class Exchanger:
    """One of two GPUs that exchange something over NCCL."""

    def address(self) -> tuple[str, int]:
        import socket

        from ray.util import get_node_ip_address

        host = get_node_ip_address()
        with socket.socket() as probing:
            probing.bind((host, 0))
            return host, probing.getsockname()[1]

    def exchange(self, rank: int, host: str, port: int, timeout_s: float) -> float:
        """Bytes per second of an all-reduce of 64 MiB."""
        import time
        from datetime import timedelta

        import torch
        import torch.distributed as dist

        dist.init_process_group(
            "nccl", init_method=f"tcp://{host}:{port}", rank=rank, world_size=2, timeout=timedelta(seconds=timeout_s)
        )
        tensor = torch.ones(16 << 20, device="cuda")
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(5):
            dist.all_reduce(tensor)
        torch.cuda.synchronize()
        took = (time.perf_counter() - began) / 5
        dist.destroy_process_group()
        return tensor.nbytes / took


def probed(address: str, shared: Path | None) -> Probed:
    ray = importlib.import_module("ray")
    ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace="metaagent-doctor")
    nodes = [node for node in ray.nodes() if node["Alive"]]
    token, path = secrets.token_hex(8), None
    if shared is not None:
        path = shared / f".metaagent-doctor-{token}"
        path.write_text(token, encoding="utf-8")
    try:
        facts = _asked(ray, nodes, "" if path is None else str(path.absolute()), token)
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
    return Probed(nodes=facts, **_over_nccl(ray, nodes))


def _asked(ray: Any, nodes: Sequence[dict[str, Any]], path: str, token: str) -> list[NodeFacts]:
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    task = ray.remote(look)
    waiting = {}
    for number, node in enumerate(nodes):
        there = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        waiting[task.options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(path, token, PACKAGES)] = (
            number
        )
    found = [
        NodeFacts(
            address=node["NodeManagerAddress"],
            gpus=int(node["Resources"].get("GPU", 0)),
            silent=f"no answer within {ANSWER_S:g} s",
        )
        for node in nodes
    ]
    done, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=ANSWER_S)
    for reference in done:
        facts = found[waiting[reference]]
        try:
            found[waiting[reference]] = facts.model_copy(update={**ray.get(reference, timeout=5), "silent": ""})
        except Exception as error:
            facts.silent = _first_line(error)
    return found


def _over_nccl(ray: Any, nodes: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Fields of `Probed`."""
    with_gpus = [node for node in nodes if node["Resources"].get("GPU")]
    if len(with_gpus) < 2:
        count = len(with_gpus)
        return {"nccl_left_out": f"it needs GPUs on two nodes, and {count} of {len(nodes)} nodes have some"}
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    kind = ray.remote(Exchanger)
    pair = []
    for node in with_gpus[:2]:
        there = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        pair.append(kind.options(num_cpus=0, num_gpus=1, max_restarts=0, scheduling_strategy=there).remote())
    places = " and ".join(node["NodeManagerAddress"] for node in with_gpus[:2])
    try:
        found = [each.address.remote() for each in pair]
        ready, _ = ray.wait(found, num_returns=2, timeout=ANSWER_S)
        if len(ready) < 2:
            return {"nccl_left_out": f"no GPU was free on {places} within {ANSWER_S:g} s"}
        host, port = ray.get(found[0], timeout=5)
        speeds = ray.get(
            [each.exchange.remote(rank, host, port, NCCL_S) for rank, each in enumerate(pair)], timeout=2 * NCCL_S
        )
        return {"nccl": f"an all-reduce of 64 MiB between {places}: {min(speeds) / 1e9:.1f} GB/s"}
    except Exception as error:
        return {"nccl_failed": f"between {places}: {_first_line(error)}"}
    finally:
        for each in pair:
            ray.kill(each)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(getattr(error, "cause", None) or error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("address")
    options.add_argument("--shared", type=Path)
    arguments = options.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    print(probed(arguments.address, arguments.shared).model_dump_json(), flush=True)


if __name__ == "__main__":
    main()
