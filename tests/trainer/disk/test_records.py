"""Records that are written as lines: whatever is left out of a line is read back as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from search.paths import AgentStep, CodeStep, GameStep
from search.problem import SearchReport
from trainer.disk import line_of, read_records
from trainer.distill.distill_log import QuestionRecord
from trainer.evaluate import Attempt
from trainer.run import StepReport
from workflow.environment import Observation


def lost(kind: type[BaseModel]) -> Iterator[str]:
    """Fields, those of its parts included, that may be None, and are not where a line lacks them."""
    schema = kind.model_json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        for name, field in part.get("properties", {}).items():
            may_be_none = {"type": "null"} in field.get("anyOf", [])
            if may_be_none and (name in part.get("required", []) or field.get("default") is not None):
                yield f"{part['title']}.{name}"


@pytest.mark.parametrize("kind", [Attempt, QuestionRecord, StepReport, AgentStep, CodeStep, GameStep])
def test_what_may_be_none_may_be_left_out(kind: type[BaseModel]) -> None:
    assert list(lost(kind)) == []


def test_a_search_without_an_answer_and_a_look_at_a_game_are_read_back(tmp_path: Path) -> None:
    counts = dict.fromkeys(("agent_calls", "scored", "generated_tokens", "prompt_tokens", "scored_tokens", "nodes"), 3)
    found = SearchReport(method="beam", guide="psi", path=[], depth=0, seconds=0.5, failure="agent_failed", **counts)
    looked = GameStep(key="k", agent="a", commit=False, reply=Observation(text="#", done=False))
    for kind, record in ((SearchReport, found), (GameStep, looked)):
        path = tmp_path / kind.__name__
        path.write_text(line_of(record))
        assert [each for _, each in read_records(path, kind)] == [record]
