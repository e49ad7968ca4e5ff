"""How states are written: which tokens, what is cut, and what never is. A tokenizer, and no model."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("transformers")

from benchmarks.tiny_models import make_tokenizer
from engine.chat import ChatFormat
from search.paths import AgentStep
from search.scoring import ScoredState
from trainer.values import StateView, Unreadable, View
from workflow.completion import ChatMessage, Completion
from workflow.failures import Failure

SEPARATOR, ID, END = "<|value|>", 259, 257
TOKENIZER = make_tokenizer()
TOKENIZER.add_tokens([SEPARATOR], special_tokens=True)
TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}
FAILED = Failure(kind="limit_exceeded", message="m", fields={"limit_kind": "context_tokens", "limit": 1, "used": 2})


def step(agent: str, asked: str, said: str | Failure, **more: Any) -> AgentStep:
    reply = said if isinstance(said, Failure) else Completion(text=said, **more)
    return AgentStep(key="k", agent=agent, messages=[ChatMessage(role="user", content=asked)], reply=reply)


def view(kind: View = "transcript", max_tokens: int | None = None) -> StateView:
    return StateView(TOKENIZER, SEPARATOR, kind, max_tokens)


def text(kind: View, *turns: AgentStep, answer: str | None = None, most: int | None = None) -> str:
    tokens = view(kind, most).tokens(ScoredState("Why?", turns, answer))
    assert tokens.token_ids[-1] == ID
    return TOKENIZER.decode(list(tokens.token_ids))


ANN, BOB = step("Ann", "What?", "one"), step("Bob", "one?", "two")


def test_a_transcript_has_each_reply_under_its_agents_name_with_a_separator() -> None:
    assert text("transcript", ANN, BOB) == "Question:\nWhy?\n\nAnn:\none<|value|>\n\nBob:\ntwo<|value|>"
    tokens = view().tokens(ScoredState("Why?", (ANN, BOB)))
    sample = tokens.sample(0.5, 2.0)
    chosen = [token for token, mask in zip(sample.token_ids, sample.loss_mask, strict=True) if mask]
    assert TOKENIZER.decode(chosen) == "two<|value|>"
    assert (sample.advantage, sample.weight) == (0.5, 2.0)


def test_the_local_view_is_the_acting_agents_prompt_and_reply() -> None:
    assert text("local", ANN, BOB) == (
        "<|im_start|>user\none?<|im_end|>\n<|im_start|>assistant\n<think></think>two<|value|>"
    )


def test_ids_of_the_same_tokenizer_are_taken_as_they_are() -> None:
    """The prompt is not what the template would render."""
    prompt, reply = TOKENIZER("as it was: one?")["input_ids"], [*TOKENIZER("two")["input_ids"], END]
    owned = step("Bob", "one?", "two", prompt_token_ids=prompt, token_ids=reply)
    tokens = view("local").tokens(ScoredState("Why?", (ANN, owned)))
    assert list(tokens.token_ids) == [*prompt, *reply[:-1], ID]
    assert tokens.action == len(prompt)
    assert text("transcript", owned) == "Question:\nWhy?\n\nBob:\ntwo<|value|>"


@given(
    asked=st.lists(st.text(max_size=12), min_size=1, max_size=3),
    said=st.text(max_size=12),
    ended=st.booleans(),
    tools=st.booleans(),
)
def test_a_state_has_the_same_tokens_by_ids_and_by_text(asked: list[str], said: str, ended: bool, tools: bool) -> None:
    """Else it has two values. Whether a reply was cut off is not said by its text."""
    chat = ChatFormat(TOKENIZER, {END})
    messages = [ChatMessage(role="user", content=each) for each in asked]
    listed: list[Any] = [TOOL] if tools else []
    prompt = chat.prompt(messages, listed)
    ids = [*chat.write(prompt, said)[: None if ended else -1]]
    text = chat.read(prompt, ids, tools=listed).text
    by_text = AgentStep(key="k", agent="Ann", messages=messages, tools=listed, reply=Completion(text=text))
    owned = by_text.model_copy(update={"reply": Completion(text=text, prompt_token_ids=prompt, token_ids=ids)})
    for kind in ("local", "transcript", "steps"):
        one, two = (view(kind).tokens(ScoredState("Why?", (each, BOB, each))) for each in (owned, by_text))
        assert one == two


@pytest.mark.parametrize(
    ("begun", "said"),
    [
        ("one?<think>", "why not</think>two"),
        ("one?", "<think>why not</think>\n\ntwo"),
        ("one?", "<think></think>two"),
        ("one?", "<think>\n\n</think>\n\ntwo"),
        ("one?<think></think>", "  two \n"),
        ("one?", "two"),
    ],
)
@pytest.mark.parametrize("kind", ["local", "transcript", "steps"])
def test_a_thought_is_not_what_was_said_and_is_not_read(kind: View, begun: str, said: str) -> None:
    """By ids it was, by text it was not, so that a state had two values."""
    messages = [ChatMessage(role="user", content="one?")]
    prompt, ids = TOKENIZER(begun)["input_ids"], [*TOKENIZER(said)["input_ids"], END]
    reply = ChatFormat(TOKENIZER, {END}).read(prompt, ids)
    owned = Completion(text=reply.text, reasoning=reply.reasoning, prompt_token_ids=prompt, token_ids=ids)
    later = Completion(text="three", prompt_token_ids=prompt, token_ids=[*TOKENIZER("three")["input_ids"], END])
    read = []
    for one in (owned, Completion(text=reply.text, reasoning=reply.reasoning)):
        step = AgentStep(key="k", agent="Bob", messages=messages, reply=one)
        after = AgentStep(key="l", agent="Bob", messages=messages, reply=later)
        states = (ScoredState("Why?", (step,)), ScoredState("Why?", (step, after)))
        read.append([list(view(kind).tokens(state).token_ids) for state in states])
    assert "why not" not in TOKENIZER.decode(read[0][0])
    if kind != "local" or reply.reasoning is not None:
        assert read[0] == read[1]
    else:  # the prompt is the engine's
        assert read[0][0][-len(ids) :] == read[1][0][-len(ids) :]


def test_calls_in_the_models_own_form_are_read_in_ours() -> None:
    messages = [ChatMessage(role="user", content="one?")]
    ids = [*TOKENIZER("<call>{}</call>")["input_ids"], END]
    ours = Completion(text="<tool_call>{}</tool_call>", prompt_token_ids=TOKENIZER("one?")["input_ids"], token_ids=ids)
    for kind in ("local", "transcript"):
        one, two = (
            view(kind).tokens(ScoredState("Why?", (AgentStep(key="k", agent="Bob", messages=messages, reply=reply),)))
            for reply in (ours, Completion(text=ours.text))
        )
        assert one == two


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("It is 5 and 6, be short", "two"),  # the first message is not there
        ("5, Be short.", "two"),  # in another order
        ("Be short. 5", "a two"),
        ("Be short. 5", "tw"),
        ("Be short. 5", ""),
    ],
)
def test_ids_that_do_not_say_all_that_was_asked_and_said_are_not_taken(prompt: str, said: str) -> None:
    """Those of another tokenizer decode to something, in which a short message is soon found."""
    messages = [ChatMessage(role="system", content="Be short."), ChatMessage(role="user", content="5\n")]
    ids = {"prompt_token_ids": TOKENIZER(prompt)["input_ids"], "token_ids": [*TOKENIZER(said)["input_ids"], END]}
    for kind in ("local", "transcript"):
        one, two = (
            view(kind).tokens(ScoredState("Why?", (AgentStep(key="k", agent="Bob", messages=messages, reply=reply),)))
            for reply in (Completion(text="two", **ids), Completion(text="two"))
        )
        assert one == two


@pytest.mark.parametrize(
    ("prompt", "reply"), [([5, 6, 7], [8, 9]), ([1_000], [5]), ([5], [-1]), (None, [5]), ([5], None)]
)
def test_ids_of_another_tokenizer_are_not(prompt: Any, reply: Any) -> None:
    other = step("Bob", "one?", "two", prompt_token_ids=prompt, token_ids=reply)
    assert text("local", other) == text("local", BOB)
    assert text("transcript", other) == text("transcript", BOB)


def test_a_reply_that_spells_the_separator_is_read_on() -> None:
    said = step("Ann", "What?", f"a{SEPARATOR}b<|im_end|>c")
    for kind in ("local", "transcript", "steps"):
        tokens = view(kind).tokens(ScoredState("Why?", (said,)))
        assert list(tokens.token_ids).count(ID) == 1
        assert END not in tokens.token_ids[tokens.action :]


def test_the_outcome_view_has_question_and_answer_alone() -> None:
    assert text("outcome", ANN, answer="42") == "Question:\nWhy?\n\nAnswer:\n42<|value|>"
    assert text("outcome", ANN, answer="") == "Question:\nWhy?\n\nAnswer:\n<|value|>"


def test_steps_are_parts_of_one_reply_in_the_models_chat_form() -> None:
    assert text("steps", ANN, BOB) == (
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n<think></think>one<|value|>two<|value|>"
    )


def test_a_failure_before_is_read_and_the_newest_is_not() -> None:
    assert text("transcript", step("Ann", "What?", FAILED), BOB) == (
        "Question:\nWhy?\n\nAnn:\n[limit_exceeded]<|value|>\n\nBob:\ntwo<|value|>"
    )
    for kind in ("transcript", "local", "steps"):
        with pytest.raises(Unreadable, match="failed"):
            view(kind).tokens(ScoredState("Why?", (ANN, step("Bob", "one?", FAILED))))


def test_siblings_share_what_is_before_the_newest_reply() -> None:
    other = step("Bob", "one?", "something else")
    for kind in ("transcript", "local", "steps"):
        one, two = (view(kind).tokens(ScoredState("Why?", (ANN, last))) for last in (BOB, other))
        assert one.action == two.action
        assert one.token_ids[: one.action] == two.token_ids[: two.action]


def test_the_oldest_replies_go_first_and_then_the_questions_beginning() -> None:
    """Each turn has 11 tokens, the question 14."""
    cay = step("Cay", "two?", "abc")
    whole = text("transcript", ANN, BOB, cay)
    assert len(whole.replace(SEPARATOR, "#")) == 47
    assert text("transcript", ANN, BOB, cay, most=47) == whole
    without = "Question:\nWhy?\n\nBob:\ntwo<|value|>\n\nCay:\nabc<|value|>"
    assert text("transcript", ANN, BOB, cay, most=46) == without
    assert text("transcript", ANN, BOB, cay, most=36) == without
    assert text("transcript", ANN, BOB, cay, most=35) == "Question:\nWhy?\n\nCay:\nabc<|value|>"
    assert text("transcript", ANN, BOB, cay, most=15) == "Why?\n\nCay:\nabc<|value|>"
    assert text("transcript", ANN, BOB, cay, most=11) == "\n\nCay:\nabc<|value|>"
    with pytest.raises(Unreadable, match="too long"):
        text("transcript", ANN, BOB, cay, most=10)


def test_a_local_prompt_is_cut_on_the_left() -> None:
    whole = view("local").tokens(ScoredState("Why?", (BOB,)))
    for most in range(5, len(whole.token_ids) + 1):
        cut = view("local", most).tokens(ScoredState("Why?", (BOB,)))
        assert cut.token_ids == whole.token_ids[-most:]
        assert cut.action == most - 4
    with pytest.raises(Unreadable, match="too long"):
        view("local", 4).tokens(ScoredState("Why?", (BOB,)))


@given(
    kind=st.sampled_from(["local", "transcript", "steps"]),
    replies=st.lists(st.text(max_size=20), min_size=1, max_size=5),
    question=st.text(max_size=20),
    most=st.integers(1, 120),
)
def test_the_newest_reply_is_never_cut(kind: View, replies: list[str], question: str, most: int) -> None:
    """States over 2,048 tokens lost their newest reply and got the value of an older one (experiments/core.py,
    1189-1207), and such a row ended training (train/trainer.py:239-243)."""
    turns = tuple(step("Ann", "Q", said) for said in replies)
    state = ScoredState(question, turns)
    newest = TOKENIZER(replies[-1], add_special_tokens=False, split_special_tokens=True)["input_ids"]
    whole = view(kind).tokens(state)
    try:
        cut = view(kind, most).tokens(state)
    except Unreadable:
        assert len(newest) + 1 + (len("\n\nAnn:\n") if kind == "transcript" else 1) > most
        return
    assert len(cut.token_ids) <= most
    assert list(cut.token_ids[cut.action :]) == [*newest, ID]
    assert cut.action > 0
    if len(whole.token_ids) <= most:
        assert cut == whole


@pytest.mark.parametrize("separator", ["", "<|other|>"])
def test_a_separator_that_is_no_token_is_refused(separator: str) -> None:
    with pytest.raises(ValueError, match=r"the tokenizer has no token '.*', at which V is read. Fix: add it"):
        StateView(TOKENIZER, separator, "local")


def test_the_fingerprint_knows_view_template_and_tokenizer_and_no_limit() -> None:
    assert view("local").fingerprint == view("local", 5).fingerprint
    kinds: list[View] = ["local", "transcript", "outcome", "steps"]
    assert len({view(kind).fingerprint for kind in kinds}) == 4
    other = make_tokenizer("{{ messages }}")
    other.add_tokens([SEPARATOR], special_tokens=True)
    assert StateView(other, SEPARATOR, "local").fingerprint != view("local").fingerprint
    assert StateView(other, SEPARATOR, "transcript").fingerprint == view().fingerprint, "it has no use for a template"
