"""Failures cross process boundaries as they are: type, message and fields."""

import pickle

import pytest

from trainer.samples import NoTokens
from workflow.failures import EngineFailed, Finding, LimitExceeded, ProgramFailed, ProgramRejected, SandboxUnavailable


@pytest.mark.parametrize(
    "error",
    [
        EngineFailed("vllm:x", "it is gone", 3, status=503),
        LimitExceeded("tokens", 10, 12),
        ProgramFailed("ValueError", "no", 7),
        ProgramRejected([Finding(line=1, code="x", message="m", fix="f")]),
        SandboxUnavailable("no jails"),
        NoTokens("Solver", "token ids"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_is_the_same_after_pickling(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
