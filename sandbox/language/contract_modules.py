"""The modules of the published contract as programs see them: read-only stand-ins that offer its classes and functions.

Which there are is `workflow.published`'s; standard modules are `sandbox.language.stdlib.importable`'s.
"""

from __future__ import annotations

from collections.abc import Callable

from sandbox.language.classes import Facade
from sandbox.language.environments import math_env_values
from sandbox.language.stdlib import facade
from workflow.published import MODULES, contents
from workflow.requests import CodeReply, CodeRun


def contract_facades(run_code: Callable[[CodeRun], CodeReply]) -> dict[str, Facade]:
    """The modules by dotted name, for one program; `run_code` serves `utils.environments.math_env`."""
    modules = {name: facade(name, contents(name)) for name in MODULES}
    modules |= {name: facade(name, {}) for name in ("utils", "utils.environments")}
    modules["utils.environments.math_env"] = facade("utils.environments.math_env", math_env_values(run_code))
    return modules
