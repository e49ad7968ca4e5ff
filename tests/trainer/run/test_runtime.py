"""What runtimes have in common."""

from trainer.config.schema import EngineConfig
from trainer.run.runtime import vllm_options


def test_vllm_is_told_what_the_configuration_says() -> None:
    assert vllm_options(EngineConfig(kind="vllm", dtype="bfloat16"), None) == {"dtype": "bfloat16"}
    parallel = vllm_options(EngineConfig(kind="vllm", tensor_parallel=2, options={"dtype": "float16", "seed": 1}), 512)
    assert parallel == {
        "dtype": "float16",
        "max_model_len": 512,
        "tensor_parallel_size": 2,
        "distributed_executor_backend": "mp",
        "seed": 1,
    }
