"""Jailed calls of trusted functions: results, failures and limits; nothing is shared between calls."""

import pytest

from workflow.failures import LimitExceeded, MetaAgentError


def call(jail, name, payload=None, **options):
    return jail.run(jail.sandbox.call(f"called_functions:{name}", payload, **options))


def test_a_call_returns_its_result(jail):
    assert call(jail, "double", [1, {"a": "\u00e9\U0001f600"}]) == {"doubled": [1, {"a": "\u00e9\U0001f600"}] * 2}
    assert call(jail, "warmed") == 1, "the preloaded module was warmed once, before the fork"


def test_calls_do_not_share_state(jail):
    assert [call(jail, "remember", n) for n in range(3)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("name", "payload", "options", "expected"),
    [
        ("fail", [1], {}, "ValueError: bad payload \\[1\\]"),
        ("leave", None, {}, "SystemExit: 3"),
        ("interrupt", None, {}, "KeyboardInterrupt"),
        ("unserialisable", None, {}, "TypeError: Object of type set is not JSON serializable"),
        ("huge", 17 << 20, {}, "FrameError: frame of"),
        ("deep", 100, {}, "FrameError: nested deeper"),
        ("die", 120, {}, "ended without an answer \\(exit status 120\\)"),
        ("die", 0, {}, "ended without an answer \\(exit status 0\\)"),
        ("no_such_function", None, {}, "AttributeError.*no_such_function"),
        ("sleep", 60, {"wall_s": 0.3}, "wall_s=0.3 exceeded"),
        ("spin", None, {"wall_s": 0.3}, "wall_s=0.3 exceeded"),
        ("fill", 500, {"memory_mb": 64}, "memory_mb=64 exceeded"),
    ],
)
def test_how_a_call_may_end(jail, name, payload, options, expected):
    with pytest.raises(MetaAgentError, match=expected) as caught:
        call(jail, name, payload, **options)
    assert not caught.value.record().is_infrastructure
    assert isinstance(caught.value, LimitExceeded) == ("exceeded" in expected)


def test_a_calls_payload_has_a_size(jail):
    with pytest.raises(Exception, match="over the cap"):
        call(jail, "double", "x" * (17 << 20))
    assert call(jail, "double", 1) == {"doubled": 2}


def test_a_call_reads_python_and_its_own_package_only(jail, tmp_path):
    (tmp_path / "canary").write_text("outside")
    with pytest.raises(Exception, match=r"FileNotFoundError|PermissionError"):
        call(jail, "read", str(tmp_path / "canary"))


def test_a_module_that_was_not_preloaded_cannot_be_called(jail):
    with pytest.raises(ValueError, match="preload"):
        jail.run(jail.sandbox.call("os:system", "true"))
