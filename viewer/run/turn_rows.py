"""What is said of one agent turn: its prompt, its reply, how likely that was, what else was drawn, what it earned.

Whole prompts repeat what stands above; they are folded, and only there while the page has room.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from viewer.graphs import turn_numbers
from viewer.html import Markup, count, figure, render, seconds
from viewer.run.bounded_text import BoundedTexts
from viewer.run.new_messages import prompt_of, turns_before
from viewer.run.token_heat import Words, heat_of, summary
from workflow.completion import ChatMessage, Completion, Sampling
from workflow.trace import AgentTurn, CandidateDrawn, Trace, TurnRewarded, Valued

MOST_TERMS = 40
"""Of one reward."""
MOST_CANDIDATES = 64
MOST_MESSAGES = 60
"""New ones of one turn; the first and the last are shown."""
_ROLES = {"system": 1_200, "user": 2_000, "assistant": 800, "tool": 300}
"""Characters of a message that are shown before the rest is folded."""


@dataclass(slots=True)
class Part:
    """A labelled piece of a row."""

    label: str
    body: Markup
    fold: str = ""
    """What stands above it where it is folded; empty where it is open."""
    id: str = ""
    """Of a fold: it stays open while the page changes."""
    css: str = ""


@dataclass(slots=True)
class TurnsOfRun:
    """What belongs to the turns of a run, by the index of their events or by their keys."""

    numbers: dict[int, int]
    before: dict[int, int]
    """The turn before, at the same path."""
    by_path: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    drawn: dict[str, list[CandidateDrawn]] = field(default_factory=lambda: defaultdict(list))
    earned: dict[str, list[TurnRewarded]] = field(default_factory=lambda: defaultdict(list))
    valued: dict[str, Valued] = field(default_factory=dict)


def turns_of(trace: Trace) -> TurnsOfRun:
    found = TurnsOfRun(turn_numbers(trace), turns_before(trace))
    for index, event in enumerate(trace.events):
        if isinstance(event, AgentTurn):
            found.by_path[event.path].append(index)
        elif isinstance(event, CandidateDrawn):
            found.drawn[event.key].append(event)
        elif isinstance(event, TurnRewarded):
            found.earned[event.key].append(event)
        elif isinstance(event, Valued):
            found.valued.setdefault(event.key, event)
    return found


class Turns:
    def __init__(
        self,
        trace: Trace,
        turns: TurnsOfRun,
        texts: BoundedTexts,
        words: Words | None,
        goto: Callable[[int], str | None],
    ) -> None:
        self._trace, self._of, self._texts, self._words, self._goto = trace, turns, texts, words, goto

    def number(self, index: int) -> int:
        return self._of.numbers[index]

    def reply_before(self, index: int, path: str) -> str | None:
        """What was last said at a path before an event."""
        turns = self._of.by_path.get(path, [])
        place = bisect_left(turns, index)
        turn = self._trace.events[turns[place - 1]] if place else None
        return turn.completion.text if isinstance(turn, AgentTurn) and turn.completion is not None else None

    def facts(self, event: AgentTurn) -> list[str]:
        done = event.completion
        told = [f"turn {count(event.turn + 1)} of this activation"] if event.turn else []
        told += [f"took {seconds(event.duration_s)}"]
        if done is None:
            return told
        usage = done.usage
        if usage.total_tokens:
            told.append(f"{count(usage.prompt_tokens)} + {count(usage.completion_tokens)} tokens")
        told += [f"${usage.cost_usd:.4f}"] if usage.cost_usd is not None else []
        told += [f"finished by {done.finish_reason}"] if done.finish_reason != "stop" else []
        return told + (["from the cache"] if done.cached else [])

    def parts(self, index: int, event: AgentTurn) -> list[Part]:
        parts = self._prompt(index, event)
        done = event.completion
        if done is None:
            parts.append(Part("no reply", self._texts.block(event.error or "no reply is on record"), css="bad"))
        else:
            if done.reasoning:
                folded = f"reasoning, {len(done.reasoning):,} characters"
                parts.append(Part("", self._texts.block(done.reasoning), folded, f"e{index}-thought"))
            parts.append(Part("reply", self._texts.block(done.text or "(nothing)"), css="reply"))
            parts += self._heat(index, done)
        if event.overruled:
            parts.append(Part("sampling", Markup("{}").format(_overruled(event)), css="warn"))
        parts += self._rewards(index, event.key)
        return [*parts, self._asked(index, event)]

    def _prompt(self, index: int, event: AgentTurn) -> list[Part]:
        before = self._of.before.get(index)
        earlier = self._trace.events[before] if before is not None else None
        prompt = prompt_of(event, earlier if isinstance(earlier, AgentTurn) else None, before)
        parts: list[Part] = []
        if prompt.earlier is not None:
            parts.append(Part("as before", self._as_before(prompt.before, prompt.earlier)))
        new, left = prompt.new, len(prompt.new) - MOST_MESSAGES
        if left > 0:
            new = [*new[: MOST_MESSAGES // 2], *new[-MOST_MESSAGES // 2 :]]
        parts += [self._message(message) for message in new]
        if left > 0:
            parts.append(Part("", Markup('<p class="note">{:,} messages between are left out.</p>').format(left)))
        size = sum(len(message["content"]) for message in event.messages)
        if prompt.before and self._texts.fits(4 * size):  # what repeats goes first where room is short
            told = f"the whole prompt, {len(event.messages):,} messages, {size:,} characters"
            body = Markup("").join(
                Markup("<h4>{}</h4>{}").format(message["role"], self._texts.block(message["content"]))
                for message in event.messages[: 4 * MOST_MESSAGES]
            )
            parts.append(Part("", body, told, f"e{index}-prompt"))
        elif prompt.before:
            told = f"The whole prompt ({size:,} characters) is in the file alone."
            parts.append(Part("", Markup('<p class="note">{}</p>').format(told)))
        return parts

    def _message(self, message: ChatMessage) -> Part:
        role = message["role"]
        return Part(role, self._texts.block(message["content"], _ROLES[role]), css=f"prompt {role}")

    def _as_before(self, messages: int, earlier: int) -> Markup:
        told = f"{messages:,} message{'s' * (messages != 1)} as at no. {self._of.numbers[earlier]:,}"
        target = self._goto(earlier)
        if target is None:
            return Markup("<p>{}</p>").format(told)
        return Markup('<p><button type="button" class="to" data-goto="{}">{}</button></p>').format(target, told)

    def _heat(self, index: int, done: Completion) -> list[Part]:
        if not done.logprobs:
            return []
        words = self._words if not self._texts.full else None
        heat = heat_of(done.logprobs, done.token_ids, words)
        if self._texts.full:
            return [Part("tokens", Markup("<p>{}</p>").format(summary(heat)))]
        strip = self._texts.spend(heat.strip)
        parts = [Part("tokens", Markup('{}<p class="less">{}</p>').format(strip, summary(heat)))]
        if heat.text is not None:
            told = "the reply by how likely its tokens were"
            left = f", without the last {heat.left_out:,} tokens" if heat.left_out else ""
            parts.append(Part("", self._texts.spend(heat.text), told + left, f"e{index}-tokens"))
        return parts

    def _rewards(self, index: int, key: str) -> list[Part]:
        parts = [
            Part(
                "earned",
                Markup("<p>{}</p>{}").format(
                    figure(each.reward), render("run_terms.html", terms=each.terms, most=MOST_TERMS)
                ),
            )
            for each in self._of.earned.get(key, [])[:1]
        ]
        if valued := self._of.valued.get(key):
            parts.append(Part("valued", Markup("<p>{}</p>").format(valued.said)))
        drawn = self._of.drawn.get(key, [])
        if not drawn:
            return parts
        best = ", ".join(f"{figure(each.reward)}{' (chosen)' * each.chosen}" for each in drawn[:12])
        told = f"{len(drawn):,} candidate{'s' * (len(drawn) != 1)}: {best}{', …' * (len(drawn) > 12)}"
        shown = [(each, self._texts.block(each.completion.text, 800)) for each in drawn[:MOST_CANDIDATES]]
        body = render("run_candidates.html", shown=shown, left=len(drawn) - len(shown), most=MOST_TERMS)
        return [*parts, Part("", body, told, f"e{index}-candidates")]

    def _asked(self, index: int, event: AgentTurn) -> Part:
        done = event.completion
        told: list[tuple[str, str]] = [("key", event.key), ("sampling", sampling_in_words(event.sampling))]
        if done is not None:
            told += [("model", done.model)] if done.model else []
            told += [("weights", f"version {count(done.weights_version)}")] if done.weights_version is not None else []
            told += [("finished by", done.finish_reason)]
            if done.usage.prefix_tokens is not None:
                told.append(("known prefix", f"{count(done.usage.prefix_tokens)} of the prompt's tokens"))
            if done.cached is not None:
                told.append(("reply cache", "the reply is from there" if done.cached else "asked in vain"))
        if event.continues is not None:
            told.append(("continues", f"the tokens of {event.continues}"))
        tools = json.dumps(event.tools, ensure_ascii=False, indent=1, default=str) if event.tools else ""
        body = render("run_asked.html", told=told, tools=self._texts.block(tools, 600) if tools else "")
        names = f", with {len(event.tools):,} tool{'s' * (len(event.tools) != 1)}" if event.tools else ""
        return Part("", body, f"how it was asked{names}", f"e{index}-asked")


def sampling_in_words(sampling: Sampling, seed: bool = True) -> str:
    told = [f"temperature {figure(sampling.temperature)}", f"top_p {figure(sampling.top_p)}"]
    told += [f"top_k {count(sampling.top_k)}"] if sampling.top_k else []
    told += [f"at most {count(sampling.max_tokens)} tokens"]
    told += [f"stops at {', '.join(map(repr, sampling.stop[:8]))}"] if sampling.stop else []
    told += [f"seed {sampling.seed}"] if seed and sampling.seed is not None else []
    return ", ".join(told)


def _overruled(event: AgentTurn) -> str:
    asked: dict[str, Any] = dict(event.overruled or {})
    told = [f"{name} {figure(value)}, got {figure(getattr(event.sampling, name))}" for name, value in asked.items()]
    return "The agent's node asked for " + "; ".join(told) + ": the sampling of the run held."


def same_sampling(turns: Sequence[AgentTurn]) -> str:
    """How all turns were sampled, seeds apart; empty where they differ."""
    told = {sampling_in_words(turn.sampling, seed=False) for turn in turns}
    return told.pop() if len(told) == 1 else ""
