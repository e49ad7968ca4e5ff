"""`metaagent sft`: conversations and a model in, a model that has learned them out.

What is learned and how is `trainer.sft.fine_tuning`'s; here it gets its backend and its chat format, and people see how
it goes.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import importlib
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import BaseModel

from metaagent.commands.inputs import need
from metaagent.commands.options import AsJson, Seed, validated
from metaagent.terminal import EpochProgress, ExitCode, Stop, fields, note, print_json, stdout, usage_error
from workflow.usage import PolicyRole

if TYPE_CHECKING:
    from engine.chat import ChatFormat

NAMED = 3
"""Rows that were left out are named up to this number."""


class SFTReport(BaseModel):
    """What `--json` prints."""

    model: Path
    """Folder of the result; `transformers:FOLDER` is an engine with it."""
    rows: int
    held_out_rows: int
    rows_too_long: list[str]
    steps: int
    resumed_from: int | None
    held_out_before: float | None
    """Mean negative log-likelihood of a reply token in nats, before the first step of the run."""
    held_out_after: float | None
    loss: float | None
    """Of the last step."""
    duration_s: float


def main(
    model: Annotated[str, typer.Option(metavar="FOLDER_OR_ID", help="The model to start from.")],
    data: Annotated[
        list[Path],
        typer.Option(
            metavar="FILE",
            help="Conversations: JSON lines with messages or ShareGPT conversations. May be given several times.",
            exists=True,
            dir_okay=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Result, metrics and checkpoints go here.", file_okay=False)],
    role: Annotated[PolicyRole | None, typer.Option(help="Only rows of this role, and rows without one.")] = None,
    epochs: Annotated[int, typer.Option(help="Times that every row is learned from.")] = 1,
    batch: Annotated[int, typer.Option(help="Rows per step.")] = 16,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 1e-5,
    warmup: Annotated[float, typer.Option(help="Share of steps over which it rises.")] = 0.03,
    decay: Annotated[Literal["cosine", "constant"], typer.Option(help="What it does then.")] = "cosine",
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Leave out rows of more tokens; as many as the model takes if not given.", min=1),
    ] = None,
    thinking: Annotated[bool, typer.Option("--thinking", help="Replies hold thoughts, for models that think.")] = False,
    lora_rank: Annotated[int, typer.Option(help="Learn adapters of this rank; 0 learns all weights.", min=0)] = 0,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")] = "auto",
    dtype: Annotated[Literal["bfloat16", "float32"], typer.Option(help="What the model computes in.")] = "bfloat16",
    micro_batch_tokens: Annotated[
        int, typer.Option(help="Tokens that go through the model at once: less takes less memory.", min=1)
    ] = 16_384,
    held_out: Annotated[float, typer.Option(help="Share of rows to measure the loss on instead.")] = 0.05,
    seed: Seed = 0,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 200,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder, if any.")] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Fine-tune a model on conversations, with the loss on its replies alone.

    The result is FOLDER/model. A run that was stopped, however that happened, goes on exactly with --resume.
    """
    from trainer.sft import METRICS, SFTSettings, StepMetrics, train

    settings = validated(
        SFTSettings,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        warmup=warmup,
        decay=decay,
        seed=seed,
        held_out=held_out,
    )
    need("torch", "transformers", "safetensors", *(["peft"] if lora_rank else []))
    from trainer.disk import CheckpointError
    from trainer.sft import read_rows, samples_of_rows
    from trainer.update import LoraSettings, TorchBackend, UpdateFailed

    began = time.monotonic()
    chat, context = _load_chat(model, thinking)
    try:
        samples = samples_of_rows(read_rows(data, role), chat, min(filter(None, (max_tokens, context)), default=None))
        if samples.too_long:
            some = ", ".join(samples.too_long[:NAMED]) + (", ..." if len(samples.too_long) > NAMED else "")
            note(f"{len(samples.too_long)} rows have too many tokens and are left out: {some}")
        backend = TorchBackend(
            model,
            learning_rate=learning_rate,
            device=device,
            dtype=dtype,
            lora=LoraSettings(rank=lora_rank, alpha=2 * lora_rank) if lora_rank else None,
            gradient_checkpointing=True,
            max_tokens_per_micro_batch=micro_batch_tokens,
            seed=seed,
        )
        with closing(backend), EpochProgress() as progress:
            result = train(
                backend,
                samples.rows,
                settings,
                out,
                resume=resume,
                checkpoint_every=checkpoint_every,
                watch=progress,
                passed_over=lambda name, wrong: note(f"checkpoint {name} is damaged and passed over: {wrong}"),
            )
    except ValueError as error:
        usage_error(str(error))
    except UpdateFailed as error:
        raise Stop(str(error), ExitCode.FAILED) from error
    except (CheckpointError, OSError) as error:
        raise Stop(str(error), ExitCode.INFRASTRUCTURE) from error
    except KeyboardInterrupt:
        note("checkpoints stay as they are; --resume goes on from the newest")
        raise
    metrics = [StepMetrics.model_validate_json(line) for line in (out / METRICS).read_text().splitlines()]
    held_out_losses = [line.held_out_loss for line in metrics if line.held_out_loss is not None]
    report = SFTReport(
        model=result.model,
        rows=result.rows,
        held_out_rows=result.held_out_rows,
        rows_too_long=samples.too_long,
        steps=result.steps,
        resumed_from=result.resumed_from,
        held_out_before=next(iter(held_out_losses), None),
        held_out_after=next(reversed(held_out_losses), None),
        loss=metrics[-1].loss,
        duration_s=time.monotonic() - began,
    )
    if as_json:
        print_json(report)
    else:
        _print(report)
    return ExitCode.OK


def _load_chat(model: str, thinking: bool) -> tuple[ChatFormat, int | None]:
    """The model's chat format, and how many tokens it takes."""
    from engine.chat import ChatFormat, ends_of
    from engine.pretrained import load_config, load_generation_config, load_tokenizer

    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()  # one at every checkpoint, through ours
    try:
        tokenizer, config = load_tokenizer(model), load_config(model)
        try:
            generation = load_generation_config(model)
        except OSError:  # the file is optional
            generation = transformers.GenerationConfig.from_model_config(config)
    except (OSError, ValueError) as error:
        usage_error(f"cannot load --model {model}: {error}")
    chat = ChatFormat(tokenizer, ends_of(tokenizer, generation.eos_token_id), thinking=thinking)
    return chat, getattr(config.get_text_config(), "max_position_embeddings", None)


def _print(report: SFTReport) -> None:
    def losses() -> str:
        if report.held_out_before is None or report.held_out_after is None:
            return ""
        return f"{report.held_out_before:.4f} to {report.held_out_after:.4f} nats per reply token"

    left_out = f", {len(report.rows_too_long)} too long" if report.rows_too_long else ""
    resumed = f", resumed after {report.resumed_from}" if report.resumed_from is not None else ""
    fields(
        stdout(),
        [
            ("Model", str(report.model)),
            ("Rows", f"{report.rows} learned from, {report.held_out_rows} held out{left_out}"),
            ("Steps", f"{report.steps}{resumed}"),
            ("Loss", f"{report.loss:.4f} at the last step" if report.loss is not None else ""),
            ("Held-out", losses()),
            ("Time", f"{report.duration_s:.1f} s"),
        ],
    )
