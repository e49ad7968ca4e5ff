"""What runs inside vLLM's workers to receive new weights from a trainer (`worker_extension_cls` of such engines).

The bytes come through vLLM's weight-transfer backend of the engine's configuration, of which this module brings in
`gloo`. Every tensor is noted on its way into the model. Pausing, caches and versions are `engine.vllm.live_weights`'s
business.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import pickle
from typing import Any

from vllm.config import set_current_vllm_config

from engine.vllm import gloo_backend
from engine.vllm.weight_loader import WeightLoader, repack_tied_head, settle, told
from engine.vllm.weight_stream import Tally

gloo_backend.register()


class WeightReceiver(WeightLoader):
    """Calls the backend itself, not the worker's methods of the same names, which know no way back from a transfer that
    broke off."""

    weight_transfer_engine: Any
    _tally: Tally | None = None

    @told
    def join_transfer(self, info: dict[str, Any]) -> str:
        backend = self.weight_transfer_engine
        backend.shutdown()
        backend.init_transfer_engine(backend.parse_init_info(info))
        return ""

    @told
    def begin_receiving(self) -> str:
        model = self.model_runner.get_model()
        model.__dict__.pop("load_weights", None)
        with set_current_vllm_config(self.vllm_config):
            settle(model, self.model_runner.model_config)
            self.weight_transfer_engine.start_weight_update()
        load, tally = model.load_weights, Tally()
        model.load_weights = lambda weights: load(tally.passing(weights))
        self._tally = tally
        return ""

    @told
    def receive(self, info: dict[str, Any]) -> str:
        if self._tally is None:
            raise RuntimeError("it was not told to begin. Fix: begin_receiving() first")
        if "ipc_handles" in info:
            info = {**info, "ipc_handles": pickle.loads(info["ipc_handles"])}
        with set_current_vllm_config(self.vllm_config):
            self.weight_transfer_engine.update_weights(info)
        return ""

    @told
    def finish_receiving(self) -> str:
        """The fingerprint of what was received, which the model was given."""
        tally, self._tally = self._tally, None
        if tally is None:
            raise RuntimeError("it was not told to begin. Fix: begin_receiving() first")
        model = self.model_runner.get_model()
        model.__dict__.pop("load_weights", None)
        with set_current_vllm_config(self.vllm_config):
            self.weight_transfer_engine.finish_weight_update()
            repack_tied_head(model)
        self.model_runner.reset_lora_state()
        return tally.fingerprint
