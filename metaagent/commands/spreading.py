"""The options that spread `eval` and `distill` over a cluster, and what is started for them.

Not here: what runs there (`trainer.cluster.spread`), and what is made (`trainer.evaluate`, `trainer.distill`). The
options mean what the keys of `trainer.config.ClusterConfig` and `EngineConfig` mean, and have their defaults.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine import Engine
from engine.local import TransformersEngine
from engine.replay import ReplayEngine
from engine.vllm import VLLMEngine
from metaagent.opening import made_engine, sandbox_name
from metaagent.terminal import ExitCode, Stop, note, usage_error
from trainer.config import ClusterConfig, EngineConfig, PolicyConfig, is_address

if TYPE_CHECKING:
    from trainer.cluster import Player

DEFAULTS = ClusterConfig()

ClusterAddress = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="local|auto|HOST:PORT",
        help="Spread the work with Ray: over processes of this machine, or over the nodes of the Ray that runs here or "
        "has its head there.",
        show_default=False,
    ),
]
Nodes = Annotated[
    int | None, typer.Option(help=f"Nodes of the cluster [default: {DEFAULTS.nodes}].", min=1, show_default=False)
]
RunWorkers = Annotated[
    int | None,
    typer.Option(
        help=f"Processes on each node that run programs [default: {DEFAULTS.run_workers_per_node}].",
        min=1,
        show_default=False,
    ),
]
Replicas = Annotated[
    int | None,
    typer.Option(
        help="Engines of each model on the cluster (transformers:, vllm:), which share its requests [default: 1].",
        min=1,
        show_default=False,
    ),
]
GpusPerNode = Annotated[
    int | None,
    typer.Option(
        help="GPUs of each node for these engines, one each; 0: they take CPUs [default: all].",
        min=0,
        max=1024,
        show_default=False,
    ),
]
KEYS = {
    "cluster.address": "--cluster",
    "cluster.nodes": "--nodes",
    "cluster.run_workers_per_node": "--run-workers",
    "cluster.gpus_per_node": "--gpus-per-node",
    "engine.replicas": "--replicas",
}
"""How what is configured elsewhere is called here."""
READ_BY_CLIENTS = ("OPENAI_API_KEY", "OPENAI_BASE_URL")


@dataclass(frozen=True)
class Spreading:
    """Where to, and how much. `find_gpus`: as many as the nodes have."""

    cluster: ClusterConfig
    replicas: int
    find_gpus: bool

    @property
    def workers(self) -> int:
        return self.cluster.nodes * self.cluster.run_workers_per_node

    @asynccontextmanager
    async def opened(
        self,
        maker: Callable[..., Any],
        executor: tuple[str, Engine],
        designer: tuple[str, Engine] | None,
        *,
        sandbox: str | None,
        cache: Path | None,
        folder: Path | None,
        at_once: int,
        piece_s: float,
    ) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
        """What makes pieces there: attempts, or questions. Engines are given by name and as they were opened here,
        where they are not asked."""
        from trainer.cluster import ClusterError, Crew, Job, Unplaceable

        if cache is not None and self.cluster.nodes > 1:
            usage_error("a cache needs one disk, and --nodes is more than one. Fix: leave --cache or --nodes out")
        plays = self._player(*executor, cache)
        job = Job(
            maker,
            executor=plays,
            designer=plays if designer == executor else designer and self._player(*designer, cache),
            sandbox=sandbox_name(sandbox),
            environment={name: os.environ[name] for name in READ_BY_CLIENTS if name in os.environ},
        )
        crew = Crew(
            self.cluster,
            job,
            at_once=at_once,
            piece_s=piece_s,
            folder=folder and folder.absolute(),
            find_gpus=self.find_gpus,
            told=note,
        )

        async def make(*piece: Any) -> Any:
            try:
                return await crew.make(*piece)
            except Unplaceable as error:
                usage_error(_in_options(error))
            except ClusterError as error:
                raise Stop(_in_options(error), ExitCode.INFRASTRUCTURE) from error

        async with crew:
            yield make

    def _player(self, spec: str, engine: Engine, cache: Path | None) -> Player:
        from trainer.cluster import Player

        kind, _, model = spec.partition(":")
        if isinstance(engine, ReplayEngine):
            usage_error(f"{spec} gives its replies in order, to one process. Fix: leave --cluster out")
        if isinstance(engine, TransformersEngine | VLLMEngine):
            here = Path(model).expanduser()
            config = EngineConfig.model_validate({"kind": kind, "replicas": self.replicas})
            model = str(here.absolute()) if here.is_dir() else model
            return Player(engine.name, PolicyConfig(model=model, engine=config))
        return Player(engine.name, partial(made_engine, spec, cache and cache.absolute()))


def spreading(
    address: str | None, nodes: int | None, run_workers: int | None, replicas: int | None, gpus_per_node: int | None
) -> Spreading | None:
    """As the options say; None where all is done in this process."""
    given = {"--nodes": nodes, "--run-workers": run_workers, "--replicas": replicas, "--gpus-per-node": gpus_per_node}
    if address is None:
        if said := [name for name, value in given.items() if value is not None]:
            usage_error(f"{said[0]} says how a cluster is used. Fix: add --cluster local|auto|HOST:PORT")
        return None
    if not is_address(address):
        usage_error(f"--cluster {address}: there is no such address. Fix: write local, auto or HOST:PORT")
    cluster = ClusterConfig(
        address=address,
        nodes=nodes or DEFAULTS.nodes,
        run_workers_per_node=run_workers or DEFAULTS.run_workers_per_node,
        gpus_per_node=gpus_per_node or 0,
    )
    return Spreading(cluster, replicas or 1, find_gpus=gpus_per_node is None)


def _in_options(error: Exception) -> str:
    text = str(error)
    for key, option in KEYS.items():
        text = text.replace(key, option)
    return text
