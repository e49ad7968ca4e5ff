"""Which folders a run's own landlock domain opens: few, around all that code reads, and none around others' work."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.jail.walls import _around

PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(lambda parts: "/nowhere/" + "/".join(parts))


def holds(folder: str, path: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


@given(st.lists(PATHS), PATHS)
def test_all_paths_are_held_and_work_is_not(paths: list[str], work: str) -> None:
    if any(holds(path, work) for path in paths):
        with pytest.raises(OSError, match="set TMPDIR"):
            _around(paths, work)
        return
    found = _around(paths, work)
    assert all(any(holds(folder, path) for folder in found) for path in paths)
    assert not any(holds(folder, work) for folder in found)
    assert not any(holds(one, other) for one in found for other in found if one != other)
    parents = [str(Path(folder).parent) for folder in found]
    assert all(parent == "/" or holds(parent, work) for parent in parents)


def test_work_behind_a_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "real" / "work").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    real = str(tmp_path / "real")
    assert _around([f"{real}/lib/python"], str(tmp_path / "link" / "work")) == [f"{real}/lib"]
