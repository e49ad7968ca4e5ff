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

from benchmarks.tiny_models import CHATML
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


def make_model(folder: Path, *, designer: bool, seed: int = 0, width: int = 64, layers: int = 2) -> None:
    """A random Qwen3 with a BPE tokenizer that was trained on the task's own texts, one token per digit."""
    import torch
    from jinja2 import Template
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    first = problems()[0][0]
    talks = [executor_talk(first, "1")]
    talks += [designer_talk(first, SINGLE), designer_talk(first, VOTE)] if designer else []
    texts = [Template(CHATML).render(messages=talk, enable_thinking=False) for talk in talks]
    texts.append(Template(CHATML).render(messages=[], add_generation_prompt=True, enable_thinking=False))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=1200,
            max_token_length=32,
            initial_alphabet=alphabet,
            special_tokens=special,
            show_progress=False,
            min_frequency=1,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.08,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)


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
