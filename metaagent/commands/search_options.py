"""Options of searches, which `search`, `eval` and `label` have, and the models of values that they name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metaagent.commands.options import validated
from metaagent.terminal import note, usage_error
from search.problem import ORACLE, SearchSettings
from search.scoring import Scorer

if TYPE_CHECKING:
    from trainer.values import TorchScorer

DEFAULTS = SearchSettings()

Method = Annotated[
    str | None,
    typer.Option("--method", "-m", metavar="greedy|majority|beam|mcts", help="How to search.", show_default=False),
]
Prm = Annotated[
    str | None,
    typer.Option(
        metavar=f"FOLDER|{ORACLE}",
        help="What guides beam and mcts, and weighs votes: a model of values that `metaagent prm` made; "
        f"{ORACLE} is the grader. Without it they follow the policy's likelihood.",
    ),
]
Orm = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER", help="An outcome model, for --mix and --weights outcome.", exists=True, file_okay=False
    ),
]
Beam = Annotated[int, typer.Option(help="beam: states that stay (B1).")]
Samples = Annotated[int, typer.Option(help="beam: replies drawn at each (B2). majority: runs.")]
First = Annotated[bool, typer.Option("--first", help="beam: end with the first run that does.")]
Simulations = Annotated[int, typer.Option(help="mcts: simulations (N).")]
Children = Annotated[int, typer.Option(help="mcts: replies drawn at each state (C_max).")]
CUct = Annotated[float, typer.Option(help="mcts: weight of what was seldom visited (Eq. 2).")]
Mix = Annotated[float, typer.Option(help="mcts: share of an end's value that the outcome model says (lambda, Eq. 3).")]
StopAt = Annotated[
    str, typer.Option("--stop", metavar="ended|expanded", help="mcts: where a simulation ends; expanded is Alg. 2.")
]
Parallel = Annotated[int, typer.Option(help="mcts: simulations at a time, kept apart by virtual losses.")]
Weights = Annotated[str, typer.Option(metavar="none|values|outcome", help="majority: what votes weigh.")]
CallBudget = Annotated[int | None, typer.Option("--agent-calls", help="End with the best after so many replies.")]
TokenBudget = Annotated[int | None, typer.Option("--tokens", help="End with the best after so many generated tokens.")]
WallBudget = Annotated[float | None, typer.Option("--wall", help="End with the best after so many seconds.")]
Tolerance = Annotated[
    float | None, typer.Option(help="A number that is as near to the right one is right, too.", show_default=False)
]


def search_settings(method: str | None, option: str = "--method", **values: Any) -> SearchSettings:
    """Checked; a value that is none is a usage error that names its option. `option` is the method's."""
    options = {"method": option, "wall_s": "--wall"}
    return validated(SearchSettings, options, method=method or DEFAULTS.method, **values)


@asynccontextmanager
async def opened_models(
    prm: str | None, orm: Path | None, agents: Iterable[str] = ()
) -> AsyncIterator[tuple[Scorer | str | None, Scorer | None]]:
    """The models that the options name, closed in the end. `agents` are those of the program: a model that has never
    seen some of them may know little of their states, which is said."""
    async with AsyncExitStack() as stack:
        values: Scorer | str | None = prm
        if prm is not None and prm != ORACLE:
            scorer = values = await _opened(stack, "--prm", Path(prm), outcome=False)
            unseen = sorted(set(agents) - set(scorer.agents)) if scorer.agents else []
            if unseen:
                shown = ", ".join(unseen[:5]) + (", ..." if len(unseen) > 5 else "")
                note(f"--prm {prm} has never seen {shown}: it was trained on {', '.join(sorted(scorer.agents)[:5])}")
        yield values, None if orm is None else await _opened(stack, "--orm", orm, outcome=True)


async def _opened(stack: AsyncExitStack, option: str, folder: Path, *, outcome: bool) -> TorchScorer:
    from trainer.values import SCORER, ScorerRefused, read_scorer, scorer_folder

    own = scorer_folder(folder)
    try:
        if (own / SCORER).exists() and (read_scorer(own).view == "outcome") != outcome:
            other = "an outcome model" if not outcome else "a model of states"
            usage_error(f"{option} {folder} is {other}. Fix: {'--orm' if not outcome else '--prm'} is for those")
        from trainer.values import TorchScorer

        scorer = TorchScorer.load(folder) if outcome or (own / SCORER).exists() else _two_class(folder)
    except ScorerRefused as error:
        usage_error(f"{option}: {error}")
    except ImportError as error:
        usage_error(f'{option} needs {error.name}. Fix: pip install "metaagent[train]"')
    stack.push_async_callback(scorer.close)
    return scorer


def _two_class(folder: Path) -> TorchScorer:
    """A published model of steps. A folder of `metaagent prm` that has lost its scorer.json comes here, too."""
    from trainer.values import SCORER, ScorerRefused, TorchScorer

    try:
        if not (folder / "config.json").is_file():
            raise ScorerRefused(f"it has no {'config.json' if folder.is_dir() else 'files: there is no such folder'}")
        return TorchScorer.two_class(folder)
    except ScorerRefused as error:
        reason = str(error).partition(". Fix: ")[0]
        raise ScorerRefused(
            f"{folder} is neither a model of metaagent prm, as it has no {SCORER}, nor one of two classes: {reason}. "
            "Fix: the --out folder of metaagent prm, copied whole, or a model for token classification with two classes"
        ) from error
