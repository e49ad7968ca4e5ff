from collections.abc import Iterator

import pytest
from two_ranks import Ranks, need


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[Ranks]:
    """One pair of processes for all DeepSpeed policies of a session."""
    need(2)
    ranks = Ranks(2)
    yield ranks
    ranks.close()
