"""Weight transfer over gloo as a backend of vLLM's own, beside its `nccl` and `ipc`; the workers' side.

Registered on import, which is before the worker makes its model. The trainer's side (`engine.vllm.transfer`) is not
registered: it would load vLLM into every rank, for which gloo has no use.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from dataclasses import asdict, dataclass

from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from engine.vllm import gloo_group


@dataclass
class GlooInit(WeightTransferInitInfo):
    """`rank_offset`: of this engine's first worker in the group, whose rank 0 is the sender."""

    master_address: str
    master_port: int
    rank_offset: int
    world_size: int
    timeout_s: float


@dataclass
class GlooUpdate(WeightTransferUpdateInfo):
    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]


class GlooEngine(WeightTransferEngine[GlooInit, GlooUpdate]):
    init_info_cls = GlooInit
    update_info_cls = GlooUpdate
    _group: gloo_group.Group | None = None

    def init_transfer_engine(self, init_info: GlooInit) -> None:
        self.shutdown()
        place = self.parallel_config
        rank = init_info.rank_offset + place.data_parallel_index * place.world_size + place.rank
        address = init_info.master_address, init_info.master_port
        self._group = gloo_group.join(*address, rank, init_info.world_size, init_info.timeout_s)

    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: GlooUpdate) -> None:
        if self._group is None:
            raise RuntimeError("there is no group. Fix: join_transfer() first")
        try:
            self.model.load_weights(gloo_group.receive(self._group, asdict(update_info)))
        except Exception:
            self.shutdown()  # the others need not wait for their time-out
            raise

    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        if self._group is not None:
            self._group.leave()
            self._group = None


def register() -> None:
    if "gloo" not in WeightTransferEngineFactory._registry:  # vLLM refuses a name twice
        WeightTransferEngineFactory.register_engine("gloo", GlooEngine)


register()
