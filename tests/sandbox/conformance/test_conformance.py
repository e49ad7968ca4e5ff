"""Every check of the conformance suite, made of every configuration that runs here."""

import pytest
from bench import EVERYTHING, Bench

from sandbox.conformance import CHECKS, TOPICS, Check


@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.topic}: {check.name}")
def test_the_backend_conforms(bench: Bench, check: Check) -> None:
    if reason := check.left_out(bench.subject):
        bench.seen.left_out[check.name] = reason
        pytest.skip(reason)
    if check.slow and not EVERYTHING:
        pytest.skip("it waits for a timeout; part of make test-sandbox")
    try:
        bench.run(check.run(bench.subject), 280)
    except BaseException as error:
        bench.seen.failed[check.name] = f"{type(error).__name__}: {error}"[:300]
        raise
    bench.seen.passed += 1


def test_every_topic_is_there() -> None:
    assert set(TOPICS) >= {
        "programs", "tools", "descriptions", "code", "conversations", "calls", "limits", "output caps", "workspaces",
        "concurrency", "cancellation", "deaths", "cleanup",
    }  # fmt: skip
    assert len({check.name for check in CHECKS}) == len(CHECKS)
