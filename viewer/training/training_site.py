"""A training run's folder as pages: the run, its steps, their questions and all traces.

    training               the run                                      `viewer.training.training_page`
    step/000003            one step                                     `viewer.training.step_page`
    list, run/, compare, tree/   the traces, as those of any folder     `viewer.runs`

What is read of a finished step's traces is kept, for the last steps that were asked for.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainer.run import TRACES
from viewer.run import Words
from viewer.runs import RunsSite
from viewer.sites import NoSuchPage, Page
from viewer.training import step_traces, training_data
from viewer.training.step_page import question_route, run_route, step_page
from viewer.training.step_traces import QuestionSummary, step_folder
from viewer.training.training_data import TrainingRun
from viewer.training.training_page import failure_rows, training_page

OF_RUNS = ("list", "run", "compare", "tree")
"""How the routes begin that `viewer.runs` answers."""
KEPT = 32
"""Steps whose summaries are held."""
STEPS_IN_A_FILE, QUESTIONS_OF = 40, 3
"""The last steps whose pages are in one file, and those of them whose questions are."""
_STEP = re.compile(r"step/(\d{1,12})")


class TrainingSite:
    home = "training"

    def __init__(self, folder: Path, words: Words | None = None) -> None:
        """`words` gives the texts of tokens. Raises OSError where there is no such folder."""
        self.folder, self.traces = folder, folder / TRACES
        self._words, self._version = words, ""
        self._run: TrainingRun | None = None
        self._summaries: OrderedDict[int, tuple[str, list[QuestionSummary]]] = OrderedDict()
        self._tools: dict[int, tuple[str, float | None]] = {}
        """Tool calls per run by step, with what tells the files in which they were counted."""
        self._runs: RunsSite | None = None
        self._lock = threading.RLock()  # a server asks from several threads
        self.run()

    def run(self) -> TrainingRun:
        """As it is now. Raises OSError."""
        with self._lock:
            version = training_data.version(self.folder)
            if self._run is None or version != self._version:
                self._run, self._version = training_data.read_run(self.folder), version
            return self._run

    def page(self, route: str) -> Page:
        if route == self.home:
            with self._lock:
                return training_page(self.run(), self.questions, self._tool_calls)
        if match := _STEP.fullmatch(route):
            step = int(match[1])
            with self._lock:
                return step_page(self.run(), step, self._questions_if_kept(step))
        return self._of_runs(route).page(route)

    def version(self, route: str) -> str:
        if route == self.home:
            return training_data.version(self.folder)
        if match := _STEP.fullmatch(route):
            found = training_data.version(self.folder)
            with contextlib.suppress(OSError):
                found += "/" + step_traces.version(step_folder(self.traces, int(match[1])))
            return found
        return self._of_runs(route).version(route)

    def routes(self) -> Iterator[str]:
        yield self.home
        run = self.run()
        traced = list(reversed(run.traced))
        yield from (f"step/{step:06}" for step in traced[:STEPS_IN_A_FILE])
        for step in traced[:QUESTIONS_OF]:
            yield from (question_route(step, each.number) for each in self._questions_if_kept(step) or [])
        for row in failure_rows(run, self.questions):
            yield from (example.route for example in row.examples)
        for step in traced[:1]:
            for question in self._questions_if_kept(step) or []:
                ends = dict.fromkeys(run.name for run in (question.best, question.worst) if run is not None)
                yield from (run_route(step, question.number, name) for name in ends)

    def close(self) -> None:
        if self._runs is not None:
            self._runs.close()

    # What is read of traces

    def questions(self, step: int) -> Sequence[QuestionSummary]:
        """What a step's traces say. Raises OSError where there are none."""
        folder = step_folder(self.traces, step)
        with self._lock:
            version = step_traces.version(folder)
            known = self._summaries.pop(step, None)
            found = known if known is not None and known[0] == version else (version, step_traces.questions_of(folder))
            self._summaries[step] = found
            while len(self._summaries) > KEPT:
                self._summaries.popitem(last=False)
            return found[1]

    def _questions_if_kept(self, step: int) -> Sequence[QuestionSummary] | None:
        try:
            return self.questions(step)
        except OSError:
            return None

    def _tool_calls(self, step: int, runs: int) -> float | None:
        """Per run, of a step that is done."""
        try:
            paths = step_traces.sampled(step_folder(self.traces, step), runs)
            version = step_traces.version_of(paths)
        except OSError:
            return None
        known = self._tools.get(step)
        if known is None or known[0] != version:
            calls, counted = step_traces.tool_calls_in(paths)
            known = self._tools[step] = version, calls / counted if counted else None
        return known[1]

    def _of_runs(self, route: str) -> RunsSite:
        """Raises `NoSuchPage`."""
        if re.split(r"[/?]", route, maxsplit=1)[0] not in OF_RUNS:
            raise NoSuchPage(f"there is no page {route[:200]!r}")
        with self._lock:
            if self._runs is None:
                self._runs = RunsSite(self.traces, self._words)
            return self._runs
