"""`metaagent prm`: label trees and a model in, a model of values out.

What is learned and how is `trainer.values`'; here it gets its backend, and people see how it goes.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import importlib
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel

from metaagent.commands.inputs import WithoutMath500, need, refuse_math500
from metaagent.commands.options import AsJson, Seed, validated
from metaagent.commands.recipe_option import Recipe
from metaagent.terminal import (
    EpochProgress,
    ExitCode,
    Stop,
    fields,
    note,
    print_json,
    print_table,
    stdout,
    usage_error,
)
from trainer.values import Accuracy, ValueMetrics


class PrmReport(BaseModel):
    """What `--json` prints."""

    model: Path
    """Folder of the result."""
    trees: int
    problems: int
    """Learned from."""
    held_out_problems: int
    rows: int
    held_out_rows: int
    dropped: dict[str, int]
    """Rows and trees that were left out, by why."""
    torn: list[str]
    """Trees whose last line was cut off by a kill: they are read without it."""
    steps: int
    resumed_from: int | None
    held_out_before: ValueMetrics | None
    """On the held-out problems, before the first step of the run."""
    held_out_after: ValueMetrics | None
    loss: float | None
    """Of the last step."""
    duration_s: float


def main(
    model: Annotated[str, typer.Option(metavar="FOLDER_OR_ID", help="The model to start from.")],
    data: Annotated[
        list[Path],
        typer.Option(
            metavar="FOLDER",
            help="Label trees: a folder of metaagent label, or a file. May be given several times.",
            exists=True,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Result, metrics and checkpoints go here.", file_okay=False)],
    outcome: Annotated[
        bool, typer.Option("--outcome", help="Learn the worth of final answers instead of replies on the way.")
    ] = False,
    view: Annotated[
        Literal["local", "transcript"],
        typer.Option(help="What is read of a state: the acting agent's prompt and reply, or all replies so far."),
    ] = "local",
    loss: Annotated[Literal["huber", "mse", "bce"], typer.Option(help="What is made small.")] = "huber",
    delta: Annotated[float, typer.Option(help="Where huber goes from a square to a line.")] = 1.0,
    epochs: Annotated[int, typer.Option(help="Times that every row is learned from.")] = 5,
    batch: Annotated[int, typer.Option(help="Rows per step.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 1e-5,
    warmup: Annotated[float, typer.Option(help="Share of steps over which it rises.")] = 0.03,
    decay: Annotated[Literal["cosine", "constant"], typer.Option(help="What it does then.")] = "cosine",
    weigh_visits: Annotated[bool, typer.Option("--weigh-visits", help="Rows count by their visits.")] = False,
    min_visits: Annotated[int, typer.Option(help="Leave out edges of fewer visits.", min=1)] = 1,
    root_window: Annotated[
        float | None, typer.Option(help="Leave out trees whose |Q| at the root is beyond this.", min=0, max=1)
    ] = None,
    without_math500: WithoutMath500 = False,
    max_tokens: Annotated[
        int | None, typer.Option(help="Cut states of more tokens; as many as the model takes if not given.", min=2)
    ] = None,
    separator: Annotated[
        str, typer.Option(help="The token that ends each reply, and that V is read at.")
    ] = "<|value|>",
    lora_rank: Annotated[int, typer.Option(help="Learn adapters of this rank; 0 learns all weights.", min=0)] = 256,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")] = "auto",
    dtype: Annotated[Literal["bfloat16", "float32"], typer.Option(help="What the model computes in.")] = "bfloat16",
    micro_batch_tokens: Annotated[
        int, typer.Option(help="Tokens that go through the model at once: less takes less memory.", min=1)
    ] = 16_384,
    held_out: Annotated[float, typer.Option(help="Share of problems to measure on instead.")] = 0.05,
    seed: Seed = 0,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 200,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder, if any.")] = False,
    recipe: Recipe = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Train a model of values on label trees: a process reward model, or an outcome model.

    The result is FOLDER/model. A run that was stopped, however that happened, goes on exactly with --resume.
    """
    from trainer.sft import METRICS
    from trainer.values import ValueSettings, ValueStep

    settings = validated(
        ValueSettings,
        epochs=epochs,
        batch=batch,
        learning_rate=learning_rate,
        warmup=warmup,
        decay=decay,
        seed=seed,
        held_out=held_out,
        loss=loss,
        delta=delta,
        weigh_visits=weigh_visits,
    )
    if outcome and (view != "local" or min_visits > 1):
        usage_error("--outcome reads the question and the answer of every end. Fix: no --view, and no --min-visits")
    if not separator.strip() or separator.encode(errors="replace").decode() != separator:
        usage_error(f"--separator {separator!r} is no token. Fix: text that no reply holds, such as '<|value|>'")
    need("torch", "transformers", "safetensors", *(["peft"] if lora_rank else []))
    from trainer.disk import CheckpointError
    from trainer.update import LoraSettings, TorchBackend, UpdateFailed
    from trainer.values import LORA_DROPOUT, WEIGHT_DECAY, ScorerFile, StateView, rows_of_trees, train_values

    began = time.monotonic()
    tokenizer, context = _load_tokenizer(model)
    _check_separator(tokenizer, separator)
    tokenizer.add_tokens([separator], special_tokens=True)  # as the backend does
    most = min(filter(None, (max_tokens, context)), default=None)
    try:
        reads = StateView(tokenizer, separator, "outcome" if outcome else view, most)
        read = rows_of_trees(data, reads, min_visits=min_visits, root_window=root_window)
        refuse_math500(read.math500, len(read.problems) + len(read.math500), without_math500)
        for why, count in read.dropped.items():
            note(f"{count} {'' if why.startswith('trees') else 'rows '}left out: {why}")
        if read.torn:
            note(f"{len(read.torn)} trees are half written, and read as far as they go; the first is {read.torn[0]}")
        backend = TorchBackend(
            model,
            learning_rate=learning_rate,
            device=device,
            dtype=dtype,
            lora=LoraSettings(rank=lora_rank, alpha=2 * lora_rank, dropout=LORA_DROPOUT) if lora_rank else None,
            gradient_checkpointing=True,
            max_tokens_per_micro_batch=micro_batch_tokens,
            weight_decay=WEIGHT_DECAY,
            separator=separator,
            seed=seed,
        )
        scorer = ScorerFile(
            view=reads.view,
            separator=separator,
            separator_id=reads.separator_id,
            template=reads.fingerprint,
            max_tokens=most,
            base=model,
            base_weights=backend.base,
        )
        with closing(backend), EpochProgress() as progress:
            result = train_values(
                backend,
                read,
                settings,
                scorer,
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
    metrics = [ValueStep.model_validate_json(line) for line in (out / METRICS).read_text().splitlines()]
    measured = [line.held_out for line in metrics if line.held_out is not None]
    report = PrmReport(
        **result.model_dump(),
        trees=read.trees,
        dropped=dict(read.dropped),
        torn=read.torn,
        held_out_before=next(iter(measured), None),
        held_out_after=next(reversed(measured), None),
        loss=metrics[-1].loss,
        duration_s=time.monotonic() - began,
    )
    if as_json:
        print_json(report)
    else:
        _print(report)
    return ExitCode.OK


def _load_tokenizer(model: str) -> tuple[Any, int | None]:
    """With the most tokens that the model takes."""
    from engine.pretrained import load_config, load_tokenizer

    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()  # one at every checkpoint, through ours
    try:
        config = load_config(model)
        return load_tokenizer(model), getattr(config.get_text_config(), "max_position_embeddings", None)
    except (OSError, ValueError) as error:
        usage_error(f"cannot load --model {model}: {error}")


def _check_separator(tokenizer: Any, separator: str) -> None:
    """A usage error for one that texts are made of."""
    number = tokenizer.get_vocab().get(separator)
    added = tokenizer.added_tokens_decoder.get(number)
    if number is not None and not (added is not None and added.special):
        usage_error(
            f"--separator {separator!r} is token {number} of the tokenizer, which texts are made of. Fix: a token of "
            "its own, such as '<|value|>'"
        )


def _print(report: PrmReport) -> None:
    console = stdout()
    left_out = sum(count for why, count in report.dropped.items() if not why.startswith("trees"))
    resumed = f", resumed after {report.resumed_from}" if report.resumed_from is not None else ""
    before, after = report.held_out_before, report.held_out_after
    fields(
        console,
        [
            ("Model", str(report.model)),
            ("Trees", f"{report.trees}, of {report.problems} problems and {report.held_out_problems} held out"),
            (
                "Rows",
                f"{report.rows} learned from, {report.held_out_rows} held out"
                + (f", {left_out} left out" if left_out else ""),
            ),
            ("Steps", f"{report.steps}{resumed}"),
            ("Loss", f"{report.loss:.4f} at the last step" if report.loss is not None else ""),
            ("RMSE", f"{before.rmse:.4f} to {after.rmse:.4f} held out" if before and after else ""),
            ("Time", f"{report.duration_s:.1f} s"),
        ],
    )
    if after is None:
        return
    parts = [("all", after), *after.by_agent.items(), *((f"depth {n}", each) for n, each in after.by_depth.items())]
    header = ["held out", "rows", "RMSE", "MAE", "R2", "Pearson", "bias", "sign"]
    print_table(console, header, [[name, *_figures(each)] for name, each in parts])
    bins = [
        [f"{each.low:.1f} to {each.high:.1f}", str(each.count), _shown(each.mean_value), _shown(each.mean_target)]
        for each in after.calibration
        if each.count
    ]
    print_table(console, ["predicted", "rows", "mean V", "mean target"], bins)


def _figures(each: Accuracy) -> list[str]:
    numbers = (each.rmse, each.mae, each.r2, each.pearson, each.bias, each.sign)
    return [str(each.count), *map(_shown, numbers)]


def _shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"
