"""What training consumes: samples of tokens with the coordinates of where in the rollout tree they were made.

Samples are cut out of Traces and of the Designer's turns, token for token (docs/architecture.md, decision 6). Nothing
here knows rewards' meaning, advantages' rules or torch.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from workflow.completion import Completion, Sampling
from workflow.trace import AgentTurn
from workflow.usage import PolicyRole

if TYPE_CHECKING:
    Ids = array[int]
    Mask = array[int]
    Logprobs = array[float]
else:

    def _typed(code: str) -> Any:
        """An array of one type, a list in JSON."""
        return Annotated[array, PlainValidator(lambda values: array(code, values)), PlainSerializer(array.tolist)]

    Ids, Mask, Logprobs = _typed("i"), _typed("b"), _typed("f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinates:
    """Where a sample was made. Credit rules group by any of these.

    `execution` is None for the Designer's samples. Question, design, execution, path and turn name a sample, or
    with a `point` that and execution. `prompt` is a digest of the token ids that its first turn was drawn after.
    """

    question: str
    """The problem's id."""
    design: int
    """Which of the question's M designs, from 0."""
    execution: int | None = None
    """Which of the design's N executions, from 0."""
    agent: str = ""
    """Name in the program; `designer` for the Designer."""
    path: str = ""
    """Where in the program the agent stands (`AgentTurn.path`): several may have one name. Empty for the Designer."""
    turn: int = 0
    """How often the agent at this path had replied before this sample begins: over the whole run, and so over all
    rounds of a loop. For the Designer 0, and 1 for a repair."""
    prompt: str = ""
    point: str = ""
    """Of a candidate: a digest of the run and the replies before it, the hash(e, i, t) of Stronger-MAS, Alg. 1.
    `execution` is its number among the K of this point then, unless K is 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One unbroken sequence of tokens: a prompt, a completion, and further turns that extend exactly these ids.

    Arrays have one entry per token, nine bytes together, as thousands of runs wait for one update. `loss_mask` is 1
    where the policy chose the token; elsewhere (prompts, what tools returned) it is 0 and so is the behaviour
    log-probability.
    """

    role: PolicyRole
    coordinates: Coordinates
    token_ids: Ids
    loss_mask: Mask
    behaviour_logprobs: Logprobs
    """Natural logs under the sampling that drew the token, at `temperature`; float32, as engines and updates compute
    them."""
    temperature: float = 1.0
    weights_version: int | None = None
    """Of the last completion: the weights that drew its tokens."""

    @property
    def chosen(self) -> int:
        """How many tokens the policy chose."""
        return sum(self.loss_mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one update consumes (decision 8): it knows no paper and no problem."""

    policy: str
    token_ids: Sequence[int]
    loss_mask: Sequence[int]
    behaviour_logprobs: Sequence[float]
    advantage: float
    """For a model of values the target y in [-1, 1] of the state that the tokens are."""
    weight: float = 1.0
    """How much it counts for a model of values."""
    temperature: float = 1.0
    group: str = ""
    """Samples with equal `group` (a role and a question) count as one where the loss averages over groups."""
    held: bool = False
    """Whether only a KL term speaks of it, whose mean over such samples is one of its own: they change no weight of
    the others."""


class NoTokens(ValueError):
    """A completion without token ids or without a log-probability for each, from which nothing can be trained."""

    def __init__(self, agent: str, lacking: str) -> None:
        super().__init__(
            f"the completion of agent {agent!r} has no {lacking}. Fix: train with an engine that owns its tokens "
            "(transformers:FOLDER or vllm:FOLDER) and ask for log-probabilities (Sampling(logprobs=True))"
        )
        self.agent, self.lacking = agent, lacking

    def __reduce__(self) -> tuple[type[NoTokens], tuple[str, str]]:
        return NoTokens, (self.agent, self.lacking)


@dataclass(slots=True)
class _Growing:
    first: Completion
    key: str
    path: str
    agent: str
    turn: int
    sampling: Sampling
    token_ids: array[int] = field(default_factory=lambda: array("i"))
    loss_mask: array[int] = field(default_factory=lambda: array("b"))
    logprobs: array[float] = field(default_factory=lambda: array("f"))
    version: int | None = None

    def add(self, completion: Completion) -> None:
        """Append what this completion's prompt has beyond the tokens so far, then what was chosen."""
        prompt, chosen, logprobs = tokens_of(completion, self.agent)
        between = prompt[len(self.token_ids) :]
        self.token_ids.extend([*between, *chosen])
        self.loss_mask.extend([0] * len(between) + [1] * len(chosen))
        self.logprobs.extend([0.0] * len(between) + logprobs)
        self.version = completion.weights_version

    def trajectory(self, role: PolicyRole, question: str, design: int, execution: int | None) -> Trajectory:
        coordinates = Coordinates(
            question=question,
            design=design,
            execution=execution,
            agent=self.agent,
            path=self.path,
            turn=self.turn,
            prompt=digest(self.first.prompt_token_ids or []),
        )
        return Trajectory(
            role=role,
            coordinates=coordinates,
            token_ids=self.token_ids,
            loss_mask=self.loss_mask,
            behaviour_logprobs=self.logprobs,
            temperature=self.sampling.temperature,
            weights_version=self.version,
        )


def executor_trajectories(
    turns: Iterable[AgentTurn], *, question: str, design: int, execution: int, single_turns: bool = False
) -> list[Trajectory]:
    """The trajectories of one execution, from the agent turns of its Trace, ordered by their first turns' keys: the
    order in which concurrent replies arrived does not show.

    A turn that says which turn it `continues` is appended to that one's tokens, but for `single_turns`; any other
    begins a trajectory. Turns without a completion (the run ended first) are left out. Raises `NoTokens` for
    completions without ids.
    """
    begun: list[_Growing] = []
    ends_with: dict[str, _Growing] = {}
    replies: Counter[str] = Counter()
    for turn in turns:
        if turn.completion is None:
            continue
        before = None if single_turns else turn.continues
        growing = ends_with.pop(before, None) if before is not None else None
        if growing is None:
            growing = _Growing(turn.completion, turn.key, turn.path, turn.agent, replies[turn.path], turn.sampling)
            begun.append(growing)
        growing.add(turn.completion)
        replies[turn.path] += 1
        ends_with[turn.key] = growing
    return [
        each.trajectory("executor", question, design, execution) for each in sorted(begun, key=lambda each: each.key)
    ]


def candidate_trajectory(completion: Completion, sampling: Sampling, coordinates: Coordinates) -> Trajectory:
    """Of one turn: what it was drawn after, then what was chosen. Raises `NoTokens` for completions without ids."""
    prompt, chosen, logprobs = tokens_of(completion, coordinates.agent)
    return Trajectory(
        role="executor",
        coordinates=replace(coordinates, prompt=digest(prompt)),
        token_ids=array("i", [*prompt, *chosen]),
        loss_mask=array("b", [0] * len(prompt) + [1] * len(chosen)),
        behaviour_logprobs=array("f", [0.0] * len(prompt) + logprobs),
        temperature=sampling.temperature,
        weights_version=completion.weights_version,
    )


def designer_trajectories(
    turns: Iterable[tuple[Completion, Sampling]], *, question: str, design: int
) -> list[Trajectory]:
    """The Designer's trajectories for one design: one per reply, a repaired design having two, or one that goes on
    where the second prompt extends the first exactly. Raises `NoTokens` for completions without ids."""
    begun: list[_Growing] = []
    for number, (completion, sampling) in enumerate(turns):
        prompt, _, _ = tokens_of(completion, "designer")
        before = begun[-1] if begun else None
        if before is None or prompt[: len(before.token_ids)] != before.token_ids.tolist():
            before = _Growing(completion, "", "", "designer", number, sampling)
            begun.append(before)
        before.add(completion)
    return [each.trajectory("designer", question, design, None) for each in begun]


def tokens_of(completion: Completion, agent: str) -> tuple[list[int], list[int], list[float]]:
    """Prompt ids, completion ids and their log-probabilities; raises `NoTokens` where the engine gave no ids, or not a
    log-probability for each."""
    if completion.prompt_token_ids is None or completion.token_ids is None:
        raise NoTokens(agent, "token ids")
    if completion.logprobs is None or len(completion.logprobs) != len(completion.token_ids):
        given = len(completion.logprobs or [])
        raise NoTokens(agent, f"log-probability for each of its {len(completion.token_ids)} token ids ({given} given)")
    return completion.prompt_token_ids, completion.token_ids, completion.logprobs


def digest(token_ids: Sequence[int]) -> str:
    """A short name for a sequence of token ids."""
    return hashlib.blake2b(",".join(map(str, token_ids)).encode(), digest_size=8).hexdigest()
