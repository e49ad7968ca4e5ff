"""Seconds, tokens per second and MFU of one optimizer step: ours in plain torch and with DeepSpeed (one rank), beside
plain transformers with AdamW, and TRL's GRPOTrainer where it is installed.

All learn from the same 64 samples: 8 prompts of 256 tokens with 8 completions each, of 64 to 512 tokens, with the
clipped surrogate of GRPO. Each way has a process of its own, one after another, the plain one first and last, so that a
drift of the machine shows. Warm-ups are left out. The norm of the first step's gradient is shown, which says that all
do the same work: ours holds bfloat16 weights with float32 masters, plain transformers and TRL float32 weights under
autocast, as their users do. MFU counts what a step needs (`Shape.training_flops`), neither padding nor what is computed
twice, by the data sheet's dense bfloat16 peak; prompts count once for each sample, even if computed once for several.

Needs torch and transformers. The rest of this checkout that is loaded needs, as wheels: pydantic, pydantic-core,
annotated-types, typing-inspection, typing-extensions, greenlet, RestrictedPython, pyflakes. DeepSpeed's rows need
deepspeed==0.19.8 and hjson; TRL's row trl==1.16.0, accelerate and datasets<5.

    python -m benchmarks.gpu.update [--out FILE] [--shapes 0.6b 1.7b] [--repeats 8] [--checkpointing]
    python -m benchmarks.gpu.update --tiny
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu.common import (
    SHAPES,
    Report,
    first_line,
    make_model,
    median,
    missing,
    no_gpu,
    parser,
    peak_flops,
    prepare,
    spread,
)
from benchmarks.gpu.learners import NEEDS, Load, Measured, Setting, measured

ONE_WAY_S = 180.0
"""For one way's process, at most."""


def run(name: str, setting: Setting, stages: Sequence[int], report: Report, limit_s: float) -> None:
    """Every way on one shape; a row for each that could be measured."""
    samples = setting.load.samples(setting.shape.vocabulary)
    lengths = [len(sample.token_ids) for sample in samples]
    flops = setting.shape.training_flops(lengths, [sum(sample.loss_mask) for sample in samples])
    peak = peak_flops()
    asked = [("plain transformers", "plain transformers", setting), ("TRL", "TRL", setting)]
    asked += [("ours, torch", "ours, torch", setting)]
    asked += [(f"ours, DeepSpeed ZeRO-{each}", "ours, DeepSpeed", replace(setting, zero_stage=each)) for each in stages]
    asked += [("plain transformers, again", "plain transformers", setting)]
    took = 0.0
    for title, way, told in asked:
        if why := missing(*NEEDS.get(way, ())):
            report.leave_out(f"{title}, {name}", why)
            continue
        if not report.has_time(limit_s, f"{title}, {name}", took):
            continue
        began = time.monotonic()
        try:
            found = in_a_process(way, told)
        except Exception as error:
            report.leave_out(f"{title}, {name}", first_line(error))
            continue
        took = max(took, time.monotonic() - began)
        middle = median(found.seconds)
        report.row(
            way=title,
            shape=name,
            seconds=spread(found.seconds),
            tokens_per_s=round(sum(lengths) / middle),
            mfu=None if peak is None else float(f"{flops / middle / peak:.3g}"),
            gradient_norm=float(f"{found.norm:.6g}"),
            peak_gib=round(found.peak_bytes / 2**30, 1) if found.peak_bytes else None,
        )


def in_a_process(way: str, setting: Setting) -> Measured:
    """What `measured` returns there; whatever it held is gone afterwards. A process that takes too long is ended."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        work = pool.submit(measured, way, setting)
        try:
            return work.result(ONE_WAY_S)
        except TimeoutError:
            for process in list((pool._processes or {}).values()):
                process.kill()
            raise TimeoutError(f"it took more than {ONE_WAY_S:g} s") from None


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--shapes", nargs="+", choices=[name for name in SHAPES if name != "tiny"])
    options.add_argument("--repeats", type=int, default=8)
    options.add_argument("--budget", type=int, default=8192, help="tokens in one micro-batch, at most")
    options.add_argument("--zero-stages", type=int, nargs="+", default=[1, 3], choices=[0, 1, 2, 3])
    options.add_argument("--checkpointing", action="store_true", help="compute activations twice rather than keep them")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = arguments_of(argv)
    prepare()
    tiny = arguments.tiny
    shapes = ["tiny"] if tiny else arguments.shapes or ["0.6b", "1.7b"]
    load = Load(2, 4, 16, (8, 32)) if tiny else Load()
    settings = {
        "shapes": shapes,
        "samples": load.prompts * load.completions,
        "prompt_tokens": load.prompt_tokens,
        "completion_tokens": list(load.completion_tokens),
        "budget": arguments.budget,
        "checkpointing": arguments.checkpointing,
        "repeats": arguments.repeats,
        "dtype": "float32" if tiny else "bfloat16",
    }
    columns = ("way", "shape", "seconds", "tokens_per_s", "mfu", "gradient_norm", "peak_gib")
    report = Report("update", settings, columns)
    if why := missing("torch", "transformers") or no_gpu(tiny):
        report.leave_out("everything", why)
        return report.end(arguments.out)
    for name in shapes:
        with tempfile.TemporaryDirectory(prefix="metaagent-update-") as place:
            folder = Path(place) / "model"
            make_model(folder, SHAPES[name], "float32" if tiny else "bfloat16")
            setting = Setting(
                folder=folder,
                shape=SHAPES[name],
                load=load,
                device="cpu" if tiny else "cuda",
                dtype="float32" if tiny else "bfloat16",
                budget=128 if tiny else arguments.budget,
                checkpointing=arguments.checkpointing,
                repeats=arguments.repeats,
            )
            run(name, setting, arguments.zero_stages, report, arguments.limit_s)
    if not report.rows:
        report.fail("no way could be measured")
    return report.end(arguments.out)


if __name__ == "__main__":
    raise SystemExit(main())
