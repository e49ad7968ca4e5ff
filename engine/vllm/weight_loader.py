"""What runs inside vLLM's own worker processes to give a serving model new weights (`worker_extension_cls`).

vLLM mixes the class below into its worker. The tensors come through a file, mostly in shared memory, so that every
tensor-parallel rank reads them itself and takes its part. Pausing, caches and versions are `engine.vllm.in_process`'s
business.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from engine.weights import fingerprint


class WeightLoader:
    model_runner: Any
    vllm_config: Any

    def load_weights_from(self, path: str) -> str:
        """Replace all weights by those in a safetensors file; returns the fingerprint of what was read, which
        the model was given; its layers may hold it in layouts of their own."""
        from safetensors.torch import load_file
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        tensors = load_file(path)
        model = self.model_runner.get_model()
        with set_current_vllm_config(self.vllm_config):
            # Layer by layer into the kernels' own layouts: writing into packed weights directly gives wrong ones.
            initialize_layerwise_reload(model)
            model.load_weights(tensors.items())
            finalize_layerwise_reload(model, self.model_runner.model_config)
            _repack_tied_head(model)
        self.model_runner.reset_lora_state()
        return fingerprint(tensors)


def _repack_tied_head(model: Any) -> None:
    """On CPUs the output head holds a packed copy of its weight; a tied one is no layer of its own to the reload,
    which would leave the old copy in it."""
    from vllm.platforms import current_platform

    head = getattr(model, "lm_head", None)
    if head is None or not current_platform.is_cpu() or not getattr(model.config, "tie_word_embeddings", False):
        return
    inner = getattr(model, "model", model)
    head.weight = inner.embed_tokens.weight
    head.quant_method.process_weights_after_loading(head)
