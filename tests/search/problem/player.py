"""An engine that plays any agent, a scorer, and searches over programs with both."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.protocol import Sandbox
from search.problem import SearchReport, SearchSettings
from search.scoring import Score, ScoredState, Scorer
from tasks.problems import Problem
from trainer.evaluate import Searcher
from workflow.completion import Completion, CompletionRequest, Sampling, Usage
from workflow.limits import Limits

TOOL_CALL = '<tool_call>{"name": "execute_code", "arguments": {"code": "print(3 + 4)"}}</tool_call>'
SAMPLING = Sampling(temperature=0.7, top_p=0.95, max_tokens=1024)
FOUR = Problem(id="p/4", question="What is 2 + 2?", domain="math", gold="4")


def any_word(request: CompletionRequest) -> str:
    """What somebody may say who reads the question, drawn by the prompt and the seed: tools, verdicts, answers."""
    dice = random.Random(repr((request.messages, request.sampling.seed)))
    answer = dice.choice(["4", "4", "5", "6"])
    tests = f'<tests>[{{"call": "f()", "expected": "{answer}"}}]</tests>'
    code = f"def f():\n    return {answer}\n"
    lines = [
        f"It is {answer}.",
        tests if request.agent == "TestWriter" else f"<solution>\n{code}</solution>",
        f"\\boxed{{{answer}}}",
        f"Verdict: {dice.choice(['CORRECT', 'INCORRECT'])}",
        f"Confidence: {dice.choice(['HIGH', 'LOW'])}",
        f"Next: {dice.choice(['ACCEPT', 'PLANNER', 'SOLVER'])}",
        f"Type: {dice.choice(['CODE', 'OTHER', 'ALGEBRA'])}",
    ]
    said = [message["role"] for message in request.messages or []]
    if request.tools and "tool" not in said and dice.random() < 0.5:
        return TOOL_CALL
    return "\n".join(lines)


class Player:
    """Says what `reply` says, with as many tokens as words. Counts what it was asked and what it replied."""

    name = "player"

    def __init__(
        self,
        reply: Callable[[CompletionRequest], str] = any_word,
        *,
        dice: random.Random | None = None,
        logprobs: bool = True,
        cost_usd: float | None = None,
    ) -> None:
        self._reply, self._dice, self._logprobs, self._cost = reply, dice, logprobs, cost_usd
        self.asked: list[CompletionRequest] = []
        self.given: list[Completion] = []

    async def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append(request)
        if self._dice is not None:
            await asyncio.sleep(self._dice.random() / 300)
        text = self._reply(request)
        count = len(text.split())
        chance = random.Random(text)
        wants = request.sampling.logprobs and self._logprobs
        usage = Usage(
            prompt_tokens=sum(len(message["content"].split()) for message in request.messages or []),
            completion_tokens=count,
            cost_usd=self._cost,
        )
        done = Completion(
            text=text,
            token_ids=[chance.randrange(1000) for _ in range(count)],
            prompt_token_ids=[len(message["content"]) for message in request.messages or []],
            logprobs=[-chance.random() for _ in range(count)] if wants else None,
            usage=usage,
        )
        self.given.append(done)
        return done

    async def close(self) -> None: ...


class WordScorer:
    """V and Y by what the last reply or the answer says, the same for the same state; a token for each word."""

    name = "words"

    def __init__(self) -> None:
        self.scored: Counter[str] = Counter()

    async def score(self, states: Sequence[ScoredState]) -> list[Score]:
        return [self._score(state) for state in states]

    def _score(self, state: ScoredState) -> Score:
        said = state.answer
        if said is None:
            reply = state.turns[-1].reply
            assert isinstance(reply, Completion)
            assert state.turns[-1].messages
            said = reply.text
        self.scored[said] += 1
        return Score(random.Random(said).uniform(-1, 1), len(said.split()))

    async def close(self) -> None: ...


async def searched(
    sandbox: Sandbox,
    program: str,
    settings: SearchSettings,
    engine: Player,
    *,
    problem: Problem = FOUR,
    prm: Scorer | str | None = None,
    orm: Scorer | None = None,
    trace: Path | None = None,
    tree: Path | None = None,
    limits: Limits | None = None,
    sampling: Sampling = SAMPLING,
    graded: bool = True,
    seed: int = 3,
    retries: int = 0,
) -> SearchReport:
    searcher = Searcher(
        sandbox=sandbox,
        limits=limits or Limits(),
        sampling=sampling,
        retries=retries,
        prm=prm,
        orm=orm,
        graded=graded,
    )
    report, run = await searcher.search(problem, program, settings, engine=engine, seed=seed, trace=trace, tree=tree)
    assert (run is None) == (not report.path)
    return report
