"""The agents of a run: one for each place at which an agent was asked, with what it was asked and what it used.

Two agents may have one name, as members of an ensemble often do; their paths tell them apart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from workflow.trace import AgentTurn, Trace
from workflow.usage import Tally, usage_report


@dataclass(slots=True)
class Agent:
    number: int
    """From 1, in the order in which their first turns ended. 0 is the program itself."""
    path: str
    name: str
    label: str
    """The name, with the path where others have the same name."""
    turns: list[int] = field(default_factory=list)
    """Indices of its turns' events."""

    def tally(self, trace: Trace) -> Tally:
        """What it used."""
        turns = Trace.model_construct(events=[trace.events[index] for index in self.turns])
        return usage_report([turns]).total


@dataclass(slots=True)
class Cast:
    agents: list[Agent]
    by_path: dict[str, Agent]

    def number_of(self, path: str) -> int:
        agent = self.by_path.get(path)
        return agent.number if agent is not None else 0

    def label_of(self, path: str) -> str:
        """Of what works at a path; what no agent does, the program does."""
        agent = self.by_path.get(path)
        return agent.label if agent is not None else f"program ({path})" if path else "program"


def cast_of(trace: Trace) -> Cast:
    found: dict[str, Agent] = {}
    for index, event in enumerate(trace.events):
        if isinstance(event, AgentTurn):
            agent = found.get(event.path)
            if agent is None:
                agent = found[event.path] = Agent(len(found) + 1, event.path, event.agent, event.agent)
            agent.turns.append(index)
    several = Counter(agent.name for agent in found.values())
    for agent in found.values():
        if several[agent.name] > 1:
            agent.label = f"{agent.name} ({agent.path})"
    return Cast(list(found.values()), found)
