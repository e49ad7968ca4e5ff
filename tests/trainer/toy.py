r"""A task small enough to learn in seconds on a CPU, and policies for it, made from nothing.

"Last digit of 4 7 2?" is answered by `\boxed{2}`. The policies are taught by a teacher who is right in a known share of
its replies, so that there is something left for RL to find; designers are taught to write either of two programs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import tiny_models
from designer.prompts import short_design_messages
from engine.chat import ChatFormat
from tasks import Problem
from trainer.samples import Sample
from workflow.completion import ChatMessage

ASK = "Reply with \\boxed{...}."
SINGLE = f"""from workflow import AgentNode, Workflow
workflow = Workflow("single").add_node(AgentNode("Solver", {ASK!r}))
"""
VOTE = f"""from workflow import AgentNode, EnsembleNode, Workflow
solvers = [AgentNode(name, {ASK!r}) for name in ("Ann", "Bob", "Cay", "Dan", "Eve")]
workflow = Workflow("vote").add_node(EnsembleNode("Vote", solvers))
"""


def problems() -> tuple[list[Problem], list[Problem]]:
    """700 problems to train on and 300 that are held out, in a fixed random order."""
    everything = [
        Problem(id=f"{a}{b}{c}", question=f"Last digit of {a} {b} {c}?", domain="math", gold=str(c))
        for a, b, c in product(range(10), repeat=3)
    ]
    random.Random(7).shuffle(everything)
    return everything[:700], everything[700:]


def executor_talk(problem: Problem, answer: str) -> list[ChatMessage]:
    return [
        ChatMessage(role="system", content=ASK),
        ChatMessage(role="user", content=problem.question),
        ChatMessage(role="assistant", content=f"\\boxed{{{answer}}}"),
    ]


def designer_talk(problem: Problem, program: str) -> list[ChatMessage]:
    reply = ChatMessage(role="assistant", content=f"<code>\n{program}</code>")
    return [*short_design_messages(problem.question), reply]


def taught(problem: Problem, right: float, dice: random.Random) -> str:
    """The teacher's answer: right in a share `right` of all cases, else one of the ten digits."""
    return problem.gold or "" if dice.random() < right else str(dice.randrange(10))


def make_model(folder: Path, *, designer: bool, seed: int = 0) -> None:
    """A random Qwen3 of about 0.2 million weights, with a tokenizer of its own."""
    tiny_models.make_model(
        folder, width=64, context=2048, tied=True, seed=seed, tokenizer=make_tokenizer(designer), spread=0.64
    )


def make_tokenizer(designer: bool) -> Any:
    """A BPE that was trained on the task's own texts, one token per digit."""
    from jinja2 import Template
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    first = problems()[0][0]
    talks = [executor_talk(first, "1")]
    talks += [designer_talk(first, SINGLE), designer_talk(first, VOTE)] if designer else []
    template = Template(tiny_models.CHATML)
    texts = [template.render(messages=talk, enable_thinking=False) for talk in talks]
    texts.append(template.render(messages=[], add_generation_prompt=True, enable_thinking=False))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=1200,
            max_token_length=32,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=tiny_models.SPECIAL,
            show_progress=False,
            min_frequency=1,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = tiny_models.CHATML
    return tokenizer


def chat_of(folder: Path) -> ChatFormat:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    return ChatFormat(tokenizer, [tokenizer.eos_token_id])


def lesson(chat: ChatFormat, talk: Sequence[ChatMessage]) -> Sample:
    """One conversation as a sample for imitation, with loss on its last reply."""
    prompt = chat.prompt(list(talk[:-1]), [])
    reply = chat.tokenizer(talk[-1]["content"], add_special_tokens=False)["input_ids"] + [chat.tokenizer.eos_token_id]
    size = len(prompt) + len(reply)
    return Sample(
        policy="",
        token_ids=[*prompt, *reply],
        loss_mask=[0] * len(prompt) + [1] * len(reply),
        behaviour_logprobs=[0.0] * size,
        advantage=1.0,
    )
