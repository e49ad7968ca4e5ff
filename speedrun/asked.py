"""What a comparison is asked for on the command line: its name, seeds, folders. Makes nothing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from speedrun.phases import SETTINGS
from speedrun.side_by_side import end_with_parent

TUNING_SEED = 1000
"""Of the runs that choose learning rates; comparisons have seeds from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    comparison: str
    seeds: range
    out: Path
    jobs: int
    write: bool
    """Whether pages go into the repository."""
    settings: Path | None
    one: str | None
    """A job, as JSON, that is to be done in this process; nothing else counts then."""
    module: str

    def command(self, name: str, other: bool = False) -> str:
        """What makes the page of a comparison as this one is asked for; `other`: with settings that are not the
        defaults, those of its folder where none are named."""
        said = f"python -m {self.module} {name} --seeds {len(self.seeds)}"
        said += f" --first-seed {self.seeds[0]}" if self.seeds[0] else ""
        return f"{said} --settings {(self.settings or Path(SETTINGS)).name}" if other else said

    def folder(self, pages: Path, other: bool = False) -> Path:
        """Of the page. Raises ValueError where that of other settings would stand for what the repository says."""
        if self.write and other:
            raise ValueError(
                f"--write: {self.settings or self.out / SETTINGS} has other settings than the defaults, and {pages} is "
                f"about those. Fix: leave out --write, and the page goes into {self.out}"
            )
        return pages if self.write else self.out


def asked(
    arguments: Sequence[str] | None, module: str, about: str | None, comparisons: Collection[str], out: Path, pages: str
) -> Asked:
    """`about` is the module's docstring, `out` the folder of runs unless another is named. Exits where it makes no
    sense."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("comparison", nargs="?", choices=comparisons)
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first-seed", type=int, default=0, help="others give other problems, weights and samples")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help=f"into {pages}, not OUT")
    parser.add_argument("--settings", type=Path, help="a settings.json, for other sizes; its seed is not used")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    if given.one is not None:
        end_with_parent()
    else:
        if given.comparison is None:
            parser.error(f"which comparison? Fix: name one of {', '.join(comparisons)}")
        if given.seeds < 3:
            parser.error(f"--seeds {given.seeds}: intervals over seeds need three at least")
        if given.first_seed < 0 or TUNING_SEED in seeds:
            parser.error(f"--first-seed {given.first_seed}: seeds are 0 or more, and {TUNING_SEED} is for tuning")
        if given.jobs < 1:
            parser.error(f"--jobs {given.jobs}: at least one runs at a time")
    return Asked(
        comparison=given.comparison or "",
        seeds=seeds,
        out=given.out,
        jobs=given.jobs,
        write=given.write,
        settings=given.settings,
        one=given.one,
        module=module,
    )
