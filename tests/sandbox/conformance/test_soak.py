"""A second of the mix that `benchmarks.soak` runs for minutes, and proof that its verdict would notice a leak."""

import asyncio
import os
import subprocess
import sys

import pytest

from benchmarks.soak import CASES, PRELOADED, Report, Sample, remains, soak, verdict
from sandbox import ProcessSandbox


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_good_and_hostile_runs_leave_nothing_behind(mode):
    async def main() -> Report:
        async with ProcessSandbox(mode=mode, preload=PRELOADED) as sandbox:
            return await soak(sandbox, f"process/{mode}", 1)

    report = asyncio.run(main())
    assert not report.wrong
    assert not [leak for leak in report.leaks if not leak.startswith("memory")], "a second says nothing of memory"
    assert report.longest_stall_s < 2
    assert set(report.ran) == set(CASES)


class Leaking(ProcessSandbox):
    """Leaves something behind with each piece of code."""

    def __init__(self, kind: str, **options) -> None:
        super().__init__(**options)
        self.kind, self.left = kind, []

    async def run_code(self, code, **options):
        if self.kind == "descriptors":
            self.left.append(os.open(os.devnull, os.O_RDONLY))
        else:
            self.left.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"]))
        return await super().run_code(code, **options)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["descriptors", "processes"])
def test_a_leak_is_noticed(any_mode, kind, monkeypatch):
    monkeypatch.setattr("benchmarks.soak.CASES", {"good code": CASES["good code"]})

    async def main() -> Report:
        async with Leaking(kind, mode=any_mode, preload=PRELOADED) as sandbox:
            try:
                return await soak(sandbox, f"process/{any_mode}", 0.2, patience_s=1)
            finally:
                for each in sandbox.left:
                    if isinstance(each, subprocess.Popen):
                        each.kill()
                        each.wait(10)
                    else:
                        os.close(each)

    assert any(leak.startswith(kind) for leak in asyncio.run(main()).leaks)


def of_memory(*sizes: float) -> list[Sample]:
    return [Sample(at_s, 1, 1, 0, 0, {1: size}) for at_s, size in enumerate(sizes)]


def test_memory_that_grows_is_noticed_and_a_peak_is_not():
    growing = of_memory(*(50 + 2 * step for step in range(30)))
    assert "memory of process 1" in verdict(growing[0], growing[-1], growing)[0]
    peak = of_memory(*(90 if step == 15 else 50 for step in range(30)))
    assert verdict(peak[0], peak[-1], peak) == []


def test_a_pool_that_grew_is_no_leak_and_one_that_keeps_its_containers_is():
    warm, after = Sample(0, 1, 21, 0, 2, {}), Sample(1, 1, 31, 0, 3, {})
    assert verdict(warm, after, []) == []
    assert verdict(warm, Sample(1, 2, 31, 4, 3, {}), []) == ["processes: 1 before, 2 after", "files: 0 before, 4 after"]
    assert verdict(warm, Sample(1, 1, 31, 0, 2, {}), []) == [], "connections to the engine; closing tells"
    assert verdict(warm, Sample(1, 1, 90, 0, 2, {}), []) == ["descriptors: 21 before, 90 after"]
    alone = Sample(0, 4, 21, 0, 0, {})
    assert verdict(alone, Sample(1, 4, 31, 0, 0, {}), []) == ["descriptors: 21 before, 31 after"]
    cold = Sample(0, 1, 8, 0, 0, {})
    assert remains(cold, after) == ["descriptors: 8 before, 31 after", "containers: 0 before, 3 after"]
    assert remains(cold, cold) == []
