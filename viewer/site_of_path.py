"""What a path holds: a trace, a folder of traces, a training run or an evaluation, and the site that shows it.

What the sites show is theirs. Nothing here is written or served.
"""

from __future__ import annotations

from pathlib import Path

from trainer.evaluate import RESULTS
from trainer.evaluate import SETTINGS as EVALUATION
from trainer.run import CONFIG, METRICS
from viewer.evaluation import EvaluationSite
from viewer.reading import read_run
from viewer.run import Describe, RunSite, Words
from viewer.runs import RunsSite, Walk
from viewer.sites import Site
from viewer.training import TrainingSite

_BEGINS = b'{"t":'
"""How a trace does."""


class NothingToShow(ValueError):
    """A path that holds nothing that has a page; says what to do."""


def open_site(
    path: Path, before: Path | None = None, describe: Describe | None = None, words: Words | None = None
) -> Site:
    """The site of what a path holds; `before` is an evaluation to compare another one with. `describe` gives the graph
    of a program, which a trace alone does not have, `words` the texts of tokens.

    Raises `NothingToShow`, and OSError where the path cannot be read.
    """
    for each in (path, *([before] if before is not None else [])):
        if not each.exists():
            raise NothingToShow(f"{each} is not there. Fix: name a trace, a training run's or an evaluation's folder")
    if before is not None and not (_is_evaluation(path) and _is_evaluation(before)):
        which = path if not _is_evaluation(path) else before
        raise NothingToShow(f"{which} is no evaluation, and only those are compared. Fix: metaagent eval --out FOLDER")
    if path.is_file():
        return _of_file(path, describe, words)
    if not path.is_dir():
        raise NothingToShow(f"{path} is no plain file. Fix: name a trace, or a folder")
    if _is_evaluation(path):
        return EvaluationSite(path, before, words)
    if (path / METRICS).exists() or (path / CONFIG).exists():
        return TrainingSite(path, words)
    walk = Walk(path)
    if next(walk.batches(), None) is not None:
        return RunsSite(path, words)
    told = "links and folders whose names begin with a dot are not followed"
    passed_over = f" ({told}: {walk.passed_over:,})" if walk.passed_over else ""
    raise NothingToShow(
        f"{path} holds no traces{passed_over}. Fix: name a folder that `metaagent train` or `eval` wrote with --out, "
        "or a trace that `metaagent run` wrote with --trace"
    )


def _of_file(path: Path, describe: Describe | None, words: Words | None) -> Site:
    """A trace, also a broken one or one of which only the beginning of its first line is there."""
    if path.name in (METRICS, RESULTS):
        raise NothingToShow(f"{path} is a part of a folder. Fix: metaagent view {path.parent}")
    read = read_run(path)
    with path.open("rb") as file:
        head = file.read(len(_BEGINS))
    if not read.trace.events and head and not _BEGINS.startswith(head) and not head.startswith(_BEGINS):
        why = next((problem.reason for problem in read.problems if problem.line), "it holds no events")
        raise NothingToShow(f"{path} is no trace: {why}. Fix: name a file that `metaagent run --trace FILE` wrote")
    return RunSite(path, describe=describe, words=words)


def _is_evaluation(path: Path) -> bool:
    return (path / EVALUATION).is_file() and (path / RESULTS).exists()
