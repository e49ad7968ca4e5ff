from collections.abc import Iterator
from pathlib import Path

import clusters  # before Ray, which reads its environment when it is imported
import pytest


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    pytest.importorskip("ray")
    with clusters.ray_of_its_own() as address:
        yield address


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from training import teach

    return teach(tmp_path_factory.mktemp("policy"), right=0.6)


@pytest.fixture(scope="session")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from training import write_problems

    return write_problems(tmp_path_factory.mktemp("problems") / "problems.jsonl")
