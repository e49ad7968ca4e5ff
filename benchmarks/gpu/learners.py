"""The ways in which `benchmarks.gpu.update` has the same samples learnt from: ours in plain torch and with DeepSpeed,
plain transformers with AdamW, and TRL's GRPOTrainer. It times one, in a process for nothing else, and compares none.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.common import Alone, Shape, prepare
from trainer.samples import Sample

LEARNING_RATE = 1e-6
WARM_UPS = 2
Step = Callable[[], float]
"""One optimizer step; returns the gradient's norm before clipping."""


@dataclass(frozen=True)
class Load:
    """What is learnt from."""

    prompts: int = 8
    completions: int = 8
    prompt_tokens: int = 256
    completion_tokens: tuple[int, int] = (64, 512)

    def samples(self, vocabulary: int) -> list[Sample]:
        """The same for everybody. Half of the advantages are negative; lengths are spread evenly, in random order."""
        dice = random.Random(0)
        count, (least, most) = self.prompts * self.completions, self.completion_tokens
        lengths = [least + (most - least) * number // max(1, count - 1) for number in range(count)]
        dice.shuffle(lengths)
        made = []
        for prompt in range(self.prompts):
            ids = [dice.randrange(vocabulary - 3) for _ in range(self.prompt_tokens)]
            for completion in range(self.completions):
                said = [dice.randrange(vocabulary - 3) for _ in range(lengths[len(made)])]
                made.append(
                    Sample(
                        policy="p0",
                        token_ids=ids + said,
                        loss_mask=[0] * len(ids) + [1] * len(said),
                        behaviour_logprobs=[0.0] * self.prompt_tokens + [-math.log(vocabulary)] * len(said),
                        advantage=1.0 if completion % 2 else -1.0,
                        group=str(prompt),
                    )
                )
        return made


@dataclass(frozen=True)
class Setting:
    """One way's work, as its process is told of it."""

    folder: Path
    shape: Shape
    load: Load
    device: str
    dtype: str
    budget: int
    """Tokens in one micro-batch, at most."""
    checkpointing: bool
    repeats: int
    zero_stage: int = 3


@dataclass(frozen=True)
class Measured:
    seconds: list[float]
    norm: float
    """Of the first step's gradient."""
    peak_bytes: int
    """Of the GPU's memory that torch held at most; 0 on a CPU."""


def measured(way: str, setting: Setting) -> Measured:
    """In a process of its own: steps of one way, timed."""
    prepare()
    import torch

    def wait() -> None:
        if setting.device == "cuda":
            torch.cuda.synchronize()

    step = WAYS[way](setting, setting.load.samples(setting.shape.vocabulary))
    norms, seconds = [], []
    for number in range(WARM_UPS + setting.repeats):
        wait()
        began = time.perf_counter()
        norms.append(step())
        wait()
        if number >= WARM_UPS:
            seconds.append(time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() if setting.device == "cuda" else 0
    return Measured(seconds, norms[0], peak)


# The ways


def our_torch(setting: Setting, samples: Sequence[Sample]) -> Step:
    from trainer.update import PolicyObjective, TorchBackend

    backend = TorchBackend(
        setting.folder,
        learning_rate=LEARNING_RATE,
        device=setting.device,
        dtype=setting.dtype,  # pyright: ignore[reportArgumentType]
        gradient_checkpointing=setting.checkpointing,
        max_tokens_per_micro_batch=setting.budget,
    )
    # Without the engine's log-probabilities in the loss, which the others do not have.
    return lambda: backend.update(samples, PolicyObjective(truncation=None)).gradient_norm


def our_deepspeed(setting: Setting, samples: Sequence[Sample]) -> Step:
    from trainer.update import DeepSpeedBackend, PolicyObjective

    settings = {
        "model": str(setting.folder),
        "learning_rate": LEARNING_RATE,
        "zero_stage": setting.zero_stage,
        "dtype": setting.dtype,
        "gradient_checkpointing": setting.checkpointing,
        "max_tokens_per_micro_batch": setting.budget,
    }
    backend = DeepSpeedBackend(Alone(settings, setting.device))
    return lambda: backend.update(samples, PolicyObjective(truncation=None)).gradient_norm


@dataclass(frozen=True)
class Padded:
    """A micro-batch as plain code has it: [rows, tokens], completions after prompts of one length."""

    prompt_ids: Any
    completion_ids: Any
    completion_mask: Any
    advantages: Any


def padded(setting: Setting, samples: Sequence[Sample]) -> list[Padded]:
    """Micro-batches of equally many samples, of like length, as many as fit the budget."""
    import torch

    prompt = setting.load.prompt_tokens
    ordered = sorted(samples, key=lambda sample: len(sample.token_ids))
    fit = max(1, setting.budget // len(ordered[-1].token_ids))
    rows = max(count for count in range(1, fit + 1) if len(ordered) % count == 0)
    made = []
    for start in range(0, len(ordered), rows):
        some = ordered[start : start + rows]
        said = [torch.tensor(list(sample.token_ids[prompt:])) for sample in some]
        ids = torch.nn.utils.rnn.pad_sequence(said, batch_first=True)
        lengths = torch.tensor([len(each) for each in said])
        made.append(
            Padded(
                torch.tensor([list(sample.token_ids[:prompt]) for sample in some]).to(setting.device),
                ids.to(setting.device),
                (torch.arange(ids.shape[1])[None] < lengths[:, None]).long().to(setting.device),
                torch.tensor([sample.advantage for sample in some]).to(setting.device),
            )
        )
    return made


def plain(setting: Setting, samples: Sequence[Sample]) -> Step:
    import torch
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(
        setting.folder, dtype="float32", trust_remote_code=False
    )
    model.to(setting.device).train()
    if setting.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True)
    batches = padded(setting, samples)

    def step() -> float:
        for batch in batches:
            ids = torch.cat([batch.prompt_ids, batch.completion_ids], 1)
            said, mask = batch.completion_ids, batch.completion_mask
            with torch.autocast(setting.device, torch.bfloat16, enabled=setting.dtype == "bfloat16"):
                # Padding stands to the right, where no chosen token sees it.
                logits = model(input_ids=ids, use_cache=False, logits_to_keep=said.shape[1] + 1).logits[:, :-1]
            costs = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), said.flatten(), reduction="none")
            logprobs = -costs.view(said.shape)
            ratio = (logprobs - logprobs.detach()).exp()
            clipped = ratio.clamp(0.8, 1.2)
            value = torch.minimum(ratio * batch.advantages[:, None], clipped * batch.advantages[:, None]) * mask
            (-(value.sum(-1) / mask.sum(-1)).mean() / len(batches)).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(norm)

    return step


def trl(setting: Setting, samples: Sequence[Sample]) -> Step:
    """GRPOTrainer's own loss, with its model and optimizer as accelerate prepares them; it generates nothing here."""
    import datasets
    import torch
    import transformers
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    batches = padded(setting, samples)
    rows = len(batches[0].advantages)
    options = GRPOConfig(
        output_dir=str(setting.folder.parent / "trl"),
        use_cpu=setting.device == "cpu",
        bf16=setting.dtype == "bfloat16",
        gradient_checkpointing=setting.checkpointing,
        loss_type="grpo",
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=len(batches),
        num_generations=setting.load.completions,
        max_completion_length=setting.load.completion_tokens[1],
        dataloader_pin_memory=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer: Any = GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(
            setting.folder, dtype="float32", trust_remote_code=False
        ),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=options,
        train_dataset=datasets.Dataset.from_list([{"prompt": "?"}] * len(samples)),
        processing_class=transformers.AutoTokenizer.from_pretrained(setting.folder, trust_remote_code=False),
    )
    model, optimizer = trainer.accelerator.prepare(trainer.model, trainer.create_optimizer())
    model.train()
    trainer.current_gradient_accumulation_steps = len(batches)

    def step() -> float:
        for batch in batches:
            inputs = {
                "prompt_ids": batch.prompt_ids,
                "prompt_mask": torch.ones_like(batch.prompt_ids),
                "completion_ids": batch.completion_ids,
                "completion_mask": batch.completion_mask,
                "advantages": batch.advantages,
            }
            with trainer.compute_loss_context_manager():
                loss = trainer._compute_loss(model, inputs)
            loss.backward()
        norm = trainer.accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(norm)

    return step


WAYS: dict[str, Callable[[Setting, Sequence[Sample]], Step]] = {
    "plain transformers": plain,
    "TRL": trl,
    "ours, torch": our_torch,
    "ours, DeepSpeed": our_deepspeed,
}
NEEDS = {"TRL": ("trl", "datasets", "accelerate"), "ours, DeepSpeed": ("deepspeed",)}
