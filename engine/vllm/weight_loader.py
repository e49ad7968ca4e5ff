"""What runs inside vLLM's own worker processes to give a serving model new weights (`worker_extension_cls`).

vLLM mixes the class below into its worker. The tensors come through a file, mostly in shared memory, so that every
tensor-parallel rank reads them itself and takes its part. Pausing, caches and versions are `engine.vllm.live_weights`'s
business.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from engine.weights import fingerprint

Told = tuple[str, str]
"""What a worker answers, and what went wrong; one of them is empty."""


def told(method: Callable[..., str]) -> Callable[..., Told]:
    """A call that answers where it would raise. vLLM stops reading the workers' answers at the first that failed, and
    would take those of the rest for answers to later calls."""

    @functools.wraps(method)
    def answering(*arguments: Any) -> Told:
        try:
            return method(*arguments), ""
        except Exception as error:
            return "", f"{type(error).__name__}: {error}"

    return answering


class WeightLoader:
    model_runner: Any
    vllm_config: Any
    device: Any

    @told
    def load_weights_from(self, path: str) -> str:
        """Replace all weights by those in a safetensors file; returns the fingerprint of what was read, which
        the model was given; its layers may hold it in layouts of their own."""
        from safetensors.torch import load_file
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        tensors = load_file(path)
        model = self.model_runner.get_model()
        with set_current_vllm_config(self.vllm_config):
            settle(model, self.model_runner.model_config)
            # Layer by layer into the kernels' own layouts: writing into packed weights directly gives wrong ones.
            initialize_layerwise_reload(model)
            model.load_weights(tensors.items())
            finalize_layerwise_reload(model, self.model_runner.model_config)
            repack_tied_head(model)
        self.model_runner.reset_lora_state()
        return fingerprint(tensors)

    @told
    def abandon(self) -> str:
        """Make the model one that can be run, whatever it holds. Amid a reload some of its layers have no memory, and a
        single token would end vLLM."""
        from vllm.config import set_current_vllm_config

        with set_current_vllm_config(self.vllm_config):
            settle(self.model_runner.get_model(), self.model_runner.model_config)
        return ""

    @told
    def device_uuid(self) -> str:
        """Of the GPU that it computes on, as CUDA and vLLM's `ipc` name it; empty on a CPU."""
        import torch

        return str(torch.cuda.get_device_properties(self.device).uuid) if self.device.type == "cuda" else ""


def settle(model: Any, config: Any) -> None:
    """End a reload that broke off, if one did. vLLM would go on with it: a layer that had got half of its old values
    would be taken for whole when half of the new ones had come."""
    from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

    finalize_layerwise_reload(model, config)


def repack_tied_head(model: Any) -> None:
    """On CPUs the output head holds a packed copy of its weight; a tied one is no layer of its own to the reload,
    which would leave the old copy in it."""
    from vllm.platforms import current_platform

    head = getattr(model, "lm_head", None)
    if head is None or not current_platform.is_cpu() or not getattr(model.config, "tie_word_embeddings", False):
        return
    inner = getattr(model, "model", model)
    head.weight = inner.embed_tokens.weight
    head.quant_method.process_weights_after_loading(head)
