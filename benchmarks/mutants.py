"""Which changes to the trainer its fast tests do not see: mutmut's mutants of `trainer/` and `engine/session.py`.

    make mutants    (python -m benchmarks.mutants [--modules 'trainer.credit*'] [--write])

Hours; what is done is not done again, unless --modules names it. mutmut works in the folder `mutants/`; what it changes
and with which tests is in `pyproject.toml`. With --write the survivors go into `docs/mutants.md`. Judges none of them:
some change nothing that can be seen.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mutants.md"
KILLED, SURVIVED, LEFT = "killed", "survived", "not run"
SEEN = {"killed", "timeout", "segfault", "caught by type check"}
"""What mutmut calls those that the tests saw. What is neither that nor `SURVIVED` was not tried to its end."""


def mutmut(*arguments: str) -> str:
    """What mutmut prints."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def outcomes(results: str) -> dict[str, str]:
    """What became of each mutant, by its name."""
    lines = (line.strip().rpartition(": ") for line in results.splitlines())
    return {name: outcome for name, _, outcome in lines if name}


def changed(diff: str) -> tuple[str, str]:
    """The lines that a mutant's diff takes out and puts in."""
    out, put = (
        " ".join(line[1:].strip() for line in diff.splitlines() if re.match(rf"{sign}(?!{sign})", line))
        for sign in (r"-", r"\+")
    )
    return out, put


def page_of(found: dict[str, str], diffs: dict[str, str], revision: str) -> str:
    """A table of modules, then each survivor with its change. `revision` is what was changed."""
    modules: dict[str, Counter[str]] = {}
    for name, outcome in found.items():
        seen = KILLED if outcome in SEEN else SURVIVED if outcome == SURVIVED else LEFT
        modules.setdefault(_module(name), Counter())[seen] += 1
    run = {name: counts for name, counts in sorted(modules.items()) if counts[KILLED] + counts[SURVIVED]}
    left = sorted(set(modules) - set(run))
    total = [sum(counts[seen] for counts in run.values()) for seen in (KILLED, SURVIVED, LEFT)]
    lines = [
        "# Mutants",
        "",
        "What the fast tests (no torch, no Ray) of the trainer do not see: `make mutants` changes one expression at a "
        "time with [mutmut](https://mutmut.readthedocs.io) and runs the tests that reach it. Not all survivors are "
        "gaps: some change nothing that can be seen. Not run: no fast test reaches them, or they were stopped. "
        f"Of revision {revision}: tests that came later may see more.",
        "",
        "| module | killed | survived | not run |",
        "|---|---|---|---|",
        *(f"| `{name}` | {of[KILLED]} | {of[SURVIVED]} | {of[LEFT]} |" for name, of in run.items()),
        f"| all | {' | '.join(map(str, total))} |",
        "",
    ]
    if left:
        lines += [f"Not run at all: {', '.join(f'`{name}`' for name in left)}.", ""]
    lines += ["## Survivors", ""]
    last = ""
    for name in sorted(diffs):
        if _module(name) != last:
            last = _module(name)
            lines += [f"### {last}", ""]
        out, put = (each.replace("`", "'") for each in changed(diffs[name]))
        lines.append(f"- `{name.rpartition('.')[2]}`: `{out}` became `{put}`")
        if name == max(each for each in diffs if _module(each) == last):
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", nargs="*", default=[], help="patterns of mutants, such as 'trainer.credit*'")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true", help="into docs/mutants.md")
    given = parser.parse_args()
    try:
        subprocess.run(
            [sys.executable, "-m", "mutmut", "run", "--max-children", str(given.jobs), *given.modules],
            cwd=ROOT,
            check=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(
            f'mutmut did not run: {error}. Fix: pip install "metaagent[dev,mutants]"; the tests must pass as they are'
        )
    found = outcomes(mutmut("results", "--all", "true"))
    diffs = {name: mutmut("show", name) for name, outcome in found.items() if outcome == SURVIVED}
    asked = ["git", "rev-parse", "--short", "HEAD"]
    revision = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    page = page_of(found, diffs, revision or "unknown")
    if given.write:
        PAGE.write_text(page, encoding="utf-8")
    else:
        print(page)


if __name__ == "__main__":
    main()
