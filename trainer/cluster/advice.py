"""What a run that cannot be placed is told to do: only what was tried, and found to be placed.

Not here: placing (`trainer.cluster.layout`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MOST_NODES = 4096
"""That are tried."""


class Unplaceable(ValueError):
    """A run that these nodes cannot hold. The message says what lacks, by how much, and what to do."""


@dataclass(frozen=True, slots=True)
class Option:
    """A way out. Without changes it is said untried."""

    said: str
    cluster: Mapping[str, Any] = field(default_factory=dict)
    """Changed keys of `[cluster]`."""
    policies: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Changed keys, by policy and section."""
    otherwise: str = ""
    """Said where it alone does not help."""


class Refused(Exception):
    """What cannot be, and the ways out, which are yet to be tried."""

    def __init__(self, what: str, *options: Option) -> None:
        super().__init__(what)
        self.what, self.options = what, options

    def advised(self, accepts: Callable[[Option], bool]) -> Unplaceable:
        """With those options that `accepts` finds to help, at least on more nodes."""
        said = [found for option in self.options if (found := _said(option, accepts))]
        fix = ", or ".join(said) or "fewer ranks and engines, or more nodes"
        return Unplaceable(f"{self.what}. Fix: {fix}")


def _said(option: Option, accepts: Callable[[Option], bool]) -> str:
    if not option.cluster and not option.policies:
        return option.said
    if accepts(option):
        return option.said
    if not {"nodes", "gpus_per_node"} & option.cluster.keys() and (nodes := _on_more_nodes(option, accepts)):
        return f"{option.said} with cluster.nodes = {nodes}"
    return option.otherwise


def _on_more_nodes(option: Option, accepts: Callable[[Option], bool]) -> int:
    """The fewest with which it helps, found by halving; 0 if it does with none."""

    def helps(nodes: int) -> bool:
        return accepts(replace(option, cluster={**option.cluster, "nodes": nodes}))

    least, most = 0, 1
    while not helps(most):
        least, most = most, 2 * most
        if most > MOST_NODES:
            return 0
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if helps(middle) else (middle, most)
    return most


def all_of(sections: Sequence[tuple[str, str, Mapping[str, Any]]]) -> Option:
    """Changes of several policies at once: (policy, section, keys)."""
    policies: dict[str, dict[str, dict[str, Any]]] = {}
    for name, section, keys in sections:
        policies.setdefault(name, {}).setdefault(section, {}).update(keys)
    said = [
        f"policies.{name}.{section}.{key} = " + (f'"{value}"' if isinstance(value, str) else str(value))
        for name, section, keys in sections
        for key, value in keys.items()
    ]
    return Option(" and ".join(said), policies=policies)
