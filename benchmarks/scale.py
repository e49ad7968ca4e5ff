"""What a training step costs beside its arithmetic, before and after it was made to scale: fingerprints of weights,
merging of adapters, checkpoints, Traces.

"Before" is the old way, kept in `benchmarks.scale_parts`. Both are measured in the same run, each part in a process of
its own, on weights of about half a billion parameters that are made at random (bfloat16, the shapes of Qwen3). Memory
is the process's peak above what it held before. Checkpoints take a smaller model, so that everything fits 8 GB; they
are those of a real `TorchBackend` that has taken a step; of those at once the faster of two is shown.

    python -m benchmarks.scale [--write] [--only fingerprint] [--folder FOLDER]

Needs the extra `train`. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.scale_parts import PARTS

RESULTS = Path(__file__).parent / "results" / "scale.md"


def page(found: Mapping[str, float], command: str) -> str:
    def row(*cells: object) -> str:
        return f"| {' | '.join(map(str, cells))} |"

    def of(name: str, digits: int = 2) -> str:
        return f"{found[name]:,.{digits}f}"

    threads = len(os.sched_getaffinity(0))
    lines = [
        "# Beside the arithmetic of a step",
        "",
        f"`{command}`; Linux {platform.release().split('-')[0]}, Python {platform.python_version()}, {threads} cores. "
        "Before is the old way, run again beside the new one.",
        "",
        f"Fingerprint of {found['weights'] / 1e9:.2f}B bfloat16 weights on the CPU:",
        "",
        row("", "seconds", "CPU seconds", "CPU seconds for 8B", "peak memory, MB"),
        "|---|---|---|---|---|",
        *(
            row(
                way,
                of(f"{way}_s"),
                of(f"{way}_cpu_s"),
                f"{found[f'{way}_cpu_s'] * 8e9 / found['weights']:,.1f}",
                of(f"{way}_mb", 0),
            )
            for way in ("before", "after")
        ),
        "",
        f"Merging LoRA adapters of rank 16 on all linear layers, model of {found['model_mb']:,.0f} MB:",
        "",
        row("", "seconds", "peak memory, MB"),
        "|---|---|---|",
        *(row(way, of(f"merging_{way}_s"), of(f"merging_{way}_mb", 0)) for way in ("before", "after")),
        "",
        f"A checkpoint of {found['gigabytes']:.2f} GB (weights in bfloat16, optimizer in float32):",
        "",
        row("", "training waits, s", "until it is on disk, s", "memory, MB"),
        "|---|---|---|---|",
        row("before", of("checkpoint_before_s"), of("checkpoint_before_s"), of("checkpoint_before_mb", 0)),
        row("after, at once", of("at_once_s"), of("at_once_s"), of("at_once_mb", 0)),
        row("after, beside training", of("waits_s"), of("beside_s"), of("beside_mb", 0)),
        "",
        f"An update takes {of('update_alone_s')} s alone and {of('update_beside_s')} s while a checkpoint is written. "
        f"Checking every byte of it takes {of('checked_s')} s.",
        "",
        "Traces, events per second, where the next event is of one of so many runs; what a process holds open:",
        "",
        row("runs", "small, before", "small, after", "turns of 700 tokens, before", "turns, after", "open files"),
        "|---|---|---|---|---|---|",
        *(
            row(
                f"{runs:,}",
                *(of(f"{way}_{name}_{runs}", 0) for name in ("small", "turn") for way in ("before", "after")),
                of(f"open_{runs}", 0),
            )
            for runs in (64, 1024, 8192)
        ),
    ]
    return "\n".join(lines) + "\n"


def measured(part: str, folder: Path | None) -> dict[str, float]:
    """One part in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="scale-", dir=folder) as place:
        command = [sys.executable, "-m", "benchmarks.scale", "--part", part, "--folder", place]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(ended.stdout.splitlines()[-1])
    print(part, {name: round(value, 3) for name, value in found.items()}, file=sys.stderr)
    kind = part.split("-")[0]
    common = ("before_s", "after_s", "before_mb", "after_mb")
    return {
        f"{kind}_{name}" if name in common and kind != "fingerprint" else name: each for name, each in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted({name.split("-")[0] for name in PARTS}))
    parser.add_argument(
        "--folder", type=Path, help="where checkpoints and Traces are written; temporary files' unless given"
    )
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(PARTS[arguments.part](arguments.folder)))
        return
    found: dict[str, float] = {}
    for part in PARTS:
        if arguments.only in (None, part.split("-")[0]):
            found |= measured(part, arguments.folder)
    if arguments.only:
        return
    text = page(found, "python -m benchmarks.scale --write")
    print(text)
    if arguments.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
