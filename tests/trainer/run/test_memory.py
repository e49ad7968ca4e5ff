"""A share of a GPU that an engine is given, against figures worked out by hand."""

import pytest
from predicted import SIZE_8B, config

from trainer.run.memory import BadOption, engine_memory


def total(share: object) -> int:
    policy = config(policy={"engine": {"options": {"gpu_memory_utilization": share}}}).policies["p0"]
    return engine_memory(SIZE_8B, policy, 80 * 10**9, 4096).total


@pytest.mark.parametrize("share", ["abc", "nan", "", 0, -1, 1.5])
def test_what_is_no_share_of_a_gpu_is_told_with_its_key(share: object) -> None:
    with pytest.raises(BadOption) as told:
        total(share)
    key = f"engine.options.gpu_memory_utilization = {share!r}, of the policy with model = 'm', is no share of a GPU"
    assert str(told.value) == f"{key}. Fix: a number above 0, and 1 at most, such as 0.9"


@pytest.mark.parametrize("share", ["0.5", 0.5])
def test_a_share_of_a_gpu_may_be_written_as_text(share: object) -> None:
    assert total(share) == 40 * 10**9
