"""Whether all ranks call the modules of their model equally often and in the same order: a check for tests and for
looking into a group that hangs.

With partitioned weights (ZeRO-3) each call gathers the module's weights from all ranks, so that a rank which calls
another module, or one more, waits for what never comes. Changes nothing.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from trainer.update.exchange import Exchange

_NONE = -1


class ModuleCalls:
    """Counts calls of `model`'s modules, recomputed ones included, from when it is made."""

    def __init__(self, model: Any) -> None:
        self._names: list[str] = []
        self._seen: list[int] = []
        self._hooks = []
        for number, (name, module) in enumerate(model.named_modules()):
            self._names.append(name or type(model).__name__)
            self._hooks.append(module.register_forward_pre_hook(lambda *_, number=number: self._seen.append(number)))

    def compare(self, exchange: Exchange, where: str) -> None:
        """Forget the calls so far. Raises RuntimeError, on all ranks, where they were not the same on all."""
        mine, self._seen[:] = list(self._seen), []
        longest = max(int(count) for (count,) in exchange.gathered([len(mine)]))
        rows = [[int(each) for each in row] for row in exchange.gathered(mine + [_NONE] * (longest - len(mine)))]
        for number, calls in enumerate(zip(*rows, strict=True)):
            if len(set(calls)) > 1:
                told = ", ".join(f"{self._name(call)} on rank {rank}" for rank, call in enumerate(calls))
                raise RuntimeError(
                    f"{where}: ranks call different modules. Call {number} is of {told}. Fix: let no sample decide "
                    "which modules are called, and how often"
                )

    def forget(self) -> None:
        """The calls so far."""
        self._seen.clear()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _name(self, number: int) -> str:
        return "nothing" if number == _NONE else self._names[number]
