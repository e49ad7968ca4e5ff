"""The game of one run: takes what the run asks of it in turn, and says what becomes of it in the Trace.

Rules are the game's own (`tasks.environments`); counting requests is the `Session`'s.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.authorship import Authorship
from engine.protocol import SteppingEngine
from workflow.environment import Observation
from workflow.failures import ProgramFailed
from workflow.game import Game
from workflow.requests import Act, Observe
from workflow.trace import EnvironmentStepped


class PlayedGame:
    """`game` is where it begins, None where there is none."""

    def __init__(
        self,
        game: Game | None,
        authorship: Authorship,
        stepping: SteppingEngine | None,
        record: Callable[[EnvironmentStepped], None],
    ) -> None:
        self._game, self._authorship, self._stepping, self._record = game, authorship, stepping, record

    async def serve(self, key: str, path: str, request: Observe | Act) -> Observation:
        """Raises `ProgramFailed` where there is no game."""
        if self._game is None:
            reason = "the problem is no game. Fix: play only where `environment` is not None"
            raise ProgramFailed("NoEnvironment", reason)
        if self._stepping is not None:
            return await self._stepping.play(key, request, lambda: self._performed(path, request))
        return self._performed(path, request)[0]

    def _performed(self, path: str, request: Observe | Act) -> tuple[Observation, str | None]:
        """What is seen, and whose action it was."""
        before = self._game
        assert before is not None
        if isinstance(request, Observe):
            seen = before.observe(request.agent)
            self._authorship.seen(seen.text)
            return seen, None
        played = before.act(request.agent, request.text)
        author = self._authorship.of_action(request.text, commit=request.commit)
        if request.commit:
            self._game = played.after
        self._record(
            EnvironmentStepped(
                path=path,
                agent=request.agent,
                text=request.text,
                commit=request.commit,
                from_agent=author,
                action=played.action,
                legal=played.legal,
                wrong=played.wrong,
                before=before.digest,
                after=played.after.digest,
                done=played.seen.done,
                solved=played.after.solved,
            )
        )
        # What went wrong is told in the words of the action, which may be the program's.
        self._authorship.seen(played.after.observe(request.agent).text)
        return played.seen, author
