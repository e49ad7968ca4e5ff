"""What a path holds: a trace, a folder of traces, a training run or an evaluation, and the site that shows it.

What the sites show is theirs. Nothing here is written or served.
"""

from __future__ import annotations

from pathlib import Path

from trainer.evaluate import RESULTS
from trainer.evaluate import SETTINGS as EVALUATION
from trainer.run import CONFIG, METRICS, TRACES
from viewer.evaluation import EvaluationSite
from viewer.run import RunSite
from viewer.runs import RunsSite
from viewer.sites import Site
from viewer.training import TrainingSite


class NothingToShow(ValueError):
    """A path that holds nothing that has a page; says what to do."""


def open_site(path: Path, before: Path | None = None) -> Site:
    """The site of what a path holds; `before` is an evaluation to compare another one with.

    Raises `NothingToShow`, and OSError where the path cannot be read.
    """
    if not path.exists():
        raise NothingToShow(f"{path} is not there. Fix: name a trace, a training run's or an evaluation's folder")
    if before is not None and not (_is_evaluation(path) and _is_evaluation(before)):
        which = path if not _is_evaluation(path) else before
        raise NothingToShow(f"{which} is no evaluation, and only those are compared. Fix: metaagent eval --out FOLDER")
    if path.is_file():
        return RunSite(path)
    if _is_evaluation(path):
        return EvaluationSite(path, before)
    if (path / METRICS).exists() or (path / CONFIG).exists():
        return TrainingSite(path)
    if next((path / TRACES if (path / TRACES).is_dir() else path).rglob("*.jsonl"), None) is not None:
        return RunsSite(path)
    raise NothingToShow(
        f"{path} holds no traces. Fix: name a folder that `metaagent train` or `eval` wrote with --out, or a trace "
        "that `metaagent run` wrote with --trace"
    )


def _is_evaluation(path: Path) -> bool:
    return (path / EVALUATION).is_file() and (path / RESULTS).exists()
