"""Any events at all, for hypothesis: numbers that are none, texts that nobody would write."""

from __future__ import annotations

from hypothesis import strategies as st
from made_runs import HOSTILE

from viewer.reading.run_outcome import LIMITS
from workflow.completion import ChatMessage, Completion, Usage
from workflow.failures import Failure
from workflow.trace import (
    AgentTurn,
    Answered,
    CandidateDrawn,
    CodeRan,
    Delivered,
    EnvironmentStepped,
    LimitHit,
    Printed,
    Rewarded,
    RewardTerm,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    TurnRewarded,
    Valued,
)

numbers = st.floats()
texts = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=30))
paths = st.lists(st.sampled_from(["w", "A", "B[0]", "C[1]", "task[0]", "", "x[99999999999]", "[0]"]), max_size=5).map(
    "/".join
)
completions = st.builds(
    Completion,
    text=texts,
    reasoning=st.none() | texts,
    token_ids=st.none() | st.lists(st.integers(0, 9), max_size=5),
    logprobs=st.none() | st.lists(st.floats(), max_size=5),
    usage=st.builds(
        Usage, prompt_tokens=st.integers(), completion_tokens=st.integers(0, 10**400), cost_usd=st.none() | st.floats()
    ),
)
terms = st.lists(
    st.builds(RewardTerm, name=texts, value=st.floats(-9, 9), weight=st.floats(-9, 9), reason=texts), max_size=2
)
any_event = st.one_of(
    st.builds(
        AgentTurn,
        t=numbers,
        key=texts,
        path=paths,
        agent=texts,
        turn=st.integers(),
        duration_s=numbers,
        messages=st.lists(
            st.builds(ChatMessage, role=st.sampled_from(["system", "user", "assistant", "tool"]), content=texts),
            max_size=3,
        ),
        completion=st.none() | completions,
        error=st.none() | texts,
    ),
    st.builds(
        ToolCalled,
        t=numbers,
        path=paths,
        agent=texts,
        name=texts,
        arguments=st.dictionaries(texts, st.floats() | texts, max_size=2),
    ),
    st.builds(ToolReturned, t=numbers, path=paths, agent=texts, name=texts, content=texts, is_error=st.booleans()),
    st.builds(
        CodeRan,
        t=numbers,
        path=paths,
        code=texts,
        exit_status=st.integers(),
        stdout=texts,
        stderr=texts,
        limit=st.none() | texts,
        duration_s=numbers,
    ),
    st.builds(
        EnvironmentStepped,
        t=numbers,
        path=paths,
        agent=texts,
        text=texts,
        commit=st.booleans(),
        legal=st.booleans(),
        before=texts,
        after=texts,
        done=st.booleans(),
        solved=st.booleans(),
    ),
    st.builds(Delivered, t=numbers, path=paths, agent=texts, text=texts, source=st.just("excerpt")),
    st.builds(Printed, t=numbers, text=texts),
    st.builds(LimitHit, t=numbers, limit_kind=st.sampled_from([*LIMITS]), limit=numbers, used=numbers),
    st.builds(Answered, t=numbers, text=texts, from_agent=st.none() | texts),
    st.builds(RunStarted, t=numbers, run_id=texts, question=texts, program=texts, engine=texts, seed=st.integers()),
    st.builds(
        RunEnded, t=numbers, failure=st.none() | st.builds(Failure, kind=st.just("program_failed"), message=texts)
    ),
    st.builds(
        CandidateDrawn,
        key=texts,
        agent=texts,
        number=st.integers(),
        chosen=st.booleans(),
        completion=completions,
        reward=st.floats(),
        terms=terms,
    ),
    st.builds(
        Valued, key=texts, agent=texts, value=st.none() | st.floats(), q=st.none() | st.floats(), visits=st.integers()
    ),
    st.builds(TurnRewarded, key=texts, agent=texts, reward=st.floats(), terms=terms),
    st.builds(Rewarded, total=st.floats(-9, 9), terms=terms),
)
