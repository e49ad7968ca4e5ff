"""The oracles of the channel's attacks notice: a broker that believes too much lets them through, and it shows.

Each test takes one check out of the host side and names the forgeries that only that check holds.
"""

import asyncio
from typing import Any

import pytest
from jails import why_not

from engine.session import Session
from sandbox.conformance.attacks import ATTACKS
from sandbox.conformance.backends import BACKENDS, unguarded_j0
from sandbox.conformance.contain import contain
from sandbox.conformance.outside import Outside
from sandbox.conformance.subject import Subject
from sandbox.host import broker
from workflow.failures import SandboxUnavailable

CHANNEL = [attack for attack in ATTACKS if attack.kind == "channel"]
J0 = next(backend for backend in BACKENDS if backend.name == "process/j0")
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(why_not("j0")), reason=why_not("j0")),
]


class Forgetful(set[str]):
    """Remembers no key."""

    def add(self, element: str) -> None:
        pass


def escapes(saying: str) -> set[str]:
    """The attacks of the channel that got through, with an oracle that said so."""

    async def attempt() -> set[str]:
        outside = Outside()
        try:
            async with J0.build() as sandbox, unguarded_j0() as unguarded:
                verdicts = await contain(Subject(J0, sandbox, unguarded), CHANNEL, outside)
        finally:
            outside.close()
        return {
            f"{verdict.attack.family}: {verdict.attack.name}"
            for verdict in verdicts
            if any(text.startswith("unguarded: ") and saying in text for text in verdict.escapes)
        }

    return asyncio.run(asyncio.wait_for(attempt(), 200))


def test_a_broker_that_blames_the_machinery_for_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    def blame(reason: str) -> Any:
        raise SandboxUnavailable(reason)

    monkeypatch.setattr(broker, "_protocol_failure", blame)
    assert escapes("made the machinery look broken") == {
        "forged frame: an event of the trace",
        "forged frame: a reply",
        "forged frame: a message of the zygote",
        "forged frame: the same request twice",
        "forged frame: raw text",
        "giant frame: a length of four gigabytes",
        "giant frame: many values",
        "giant frame: a giant number",
        "json bomb: no JSON",
        "json bomb: deep",
        "json bomb: deep in a request",
    }


def test_a_broker_that_forgets_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = broker.Broker.__init__

    def forgetful(self: broker.Broker, *args: Any) -> None:
        begin(self, *args)
        self._keys = Forgetful()

    monkeypatch.setattr(broker.Broker, "__init__", forgetful)
    assert escapes("some with the same key") == {"forged frame: the same request twice"}


def test_a_session_that_believes_where_an_answer_is_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.authorship.Authorship.of", lambda self, answer: "a")
    got = escapes("an answer is put down to a")
    assert {
        "forged frame: an answer",
        "forged frame: an answer that names an agent",
        "forged frame: an answer, then an agent that says it",
    } <= got, got


def test_a_session_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "admit", lambda self, path, request: None)
    assert escapes("beyond the limit") == {"output flood: of requests"}
