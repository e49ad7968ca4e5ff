"""Conversations as samples: the tokens that an engine would have read and the model written, loss on replies alone.

Prompts and replies come from `engine.chat.ChatFormat`, turn by turn as at inference, so that what is learned is what
will be asked. Nothing here reads files or trains.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.chat import ChatFormat
from trainer.samples import Sample
from trainer.sft.chat_rows import ChatRow
from workflow.completion import ChatMessage, PreviousTurn


@dataclass(slots=True)
class ChatSamples:
    """The samples of each row that fits, in the rows' order, and where the others stand."""

    rows: list[list[Sample]] = field(default_factory=list)
    too_long: list[str] = field(default_factory=list)
    """Places of rows of which a sample has more tokens than allowed; the whole row is left out."""


def samples_of_rows(rows: Iterable[ChatRow], chat: ChatFormat, max_tokens: int | None = None) -> ChatSamples:
    """All rows as samples. A token takes nine bytes of memory.

    Raises ValueError, naming the row, for what the chat template or `ChatFormat.write` refuses.
    """
    found = ChatSamples()
    for row in rows:
        try:
            samples = samples_of(row, chat)
        except Exception as error:  # templates raise what they like
            raise ValueError(f"{row.place}: {error}") from error
        if max_tokens is not None and max(len(sample.token_ids) for sample in samples) > max_tokens:
            found.too_long.append(row.place)
        else:
            found.rows.append(samples)
    return found


def samples_of(row: ChatRow, chat: ChatFormat) -> list[Sample]:
    """One sample per unbroken sequence of tokens: a later reply goes on in the sample of the one before where its
    prompt extends those tokens exactly, as the engine would extend them; else it begins a sample.

    The mask is 1 on a reply's tokens and on the token that ends its turn, where the model has to stop; 0 on all else.
    A past reply is shown without its thought, as agents are shown theirs.
    """
    begun: list[tuple[list[int], list[int]]] = []
    messages: list[ChatMessage] = []
    previous: PreviousTurn | None = None
    for message in row.messages:
        if message["role"] != "assistant":
            messages.append(message)
            continue
        prompt = chat.prompt(messages, row.tools, previous)
        reply = chat.write(prompt, message["content"])
        if not begun or prompt[: len(begun[-1][0])] != begun[-1][0]:
            begun.append(([], []))
        token_ids, mask = begun[-1]
        between = prompt[len(token_ids) :]
        token_ids += [*between, *reply]
        mask += [0] * len(between) + [1] * len(reply)
        previous = PreviousTurn(messages=len(messages), prompt_token_ids=prompt, token_ids=reply)
        messages.append(ChatMessage(role="assistant", content=chat.read(prompt, reply).text))
    return [_sample(token_ids, mask) for token_ids, mask in begun]


def _sample(token_ids: list[int], mask: list[int]) -> Sample:
    return Sample(
        policy="",
        token_ids=array("i", token_ids),
        loss_mask=array("b", mask),
        behaviour_logprobs=array("f", bytes(4 * len(token_ids))),  # nobody sampled these
        advantage=1.0,
    )
