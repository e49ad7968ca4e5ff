"""The modules that programs may import: read-only stand-ins that offer named, harmless contents.

No real module is reachable through them, nor any function that takes attribute names as text. Rules for reading
attributes live in `sandbox.language.access`; replacements for unsafe originals in the modules beside this one.
"""

from __future__ import annotations

import abc
import bisect
import collections
import copy
import dataclasses
import decimal
import enum
import fractions
import functools
import heapq
import itertools
import json
import math
import operator
import statistics
import string
import textwrap
from collections.abc import Callable, Mapping
from types import ModuleType

from sandbox.language import classes
from sandbox.language.classes import Facade, named_tuple
from sandbox.language.stdlib import (
    asyncio_names,
    clock,
    concurrency,
    copying,
    data_classes,
    json_data,
    libraries,
    library_classes,
    logging_names,
    safe_stdlib,
    surroundings,
    warning_names,
)
from sandbox.language.stdlib.subprocess_calls import PYTHON, subprocess_values
from sandbox.language.texts import over_text
from workflow.requests import CodeReply, CodeRun

HINTS = {
    "multiprocessing": "use ThreadPoolExecutor from concurrent.futures",
    "signal": "the run has its own limits",
    "shutil": "programs have no files; pass data through messages or context.state",
    "socket": "programs have no network; agents answer through workflow",
    "urllib.request": "programs have no network; agents answer through workflow",
    "httpx": "programs have no network; agents answer through workflow",
    "aiohttp": "programs have no network; agents answer through workflow",
    "tempfile": 'hand the code itself to subprocess.run([sys.executable, "-c", code])',
    "inspect": "programs cannot look inside functions or frames",
    "pickle": "use json",
    "numpy": 'use math, statistics and lists, or a code tool: subprocess.run([sys.executable, "-c", code])',
    "sympy": 'use math and fractions, or a code tool: subprocess.run([sys.executable, "-c", code])',
    "requests": "programs have no network; agents answer through workflow",
    "openai": "programs have no network; agents answer through workflow",
    "utils.environments.search_env": "programs have no network; agents answer through workflow",
    "workflow.compat": "write AgentNode(name, system_prompt) and workflow.add_node(...)",
}
"""What to do instead of importing a module that programs do not have."""
_TEXTWRAP = "dedent fill indent shorten wrap"


def facade(name: str, values: Mapping[str, object]) -> Facade:
    """A read-only module stand-in. Raises ValueError for a private name and TypeError for a real module."""
    for key, value in values.items():
        if key.startswith("_"):
            raise ValueError(f"facade {name!r}: {key!r} is a private name")
        if isinstance(value, ModuleType):
            raise TypeError(f"facade {name!r}: {key!r} is a real module; wrap it in a facade of its own")
    return Facade(name, values)


def standard_facades(
    *, seed: int, run_code: Callable[[CodeRun], CodeReply], write: Callable[[str], None]
) -> dict[str, Facade]:
    """The standard modules that programs may import, by dotted name, for one program.

    `seed` fixes `random`; `run_code` serves `subprocess.run([python, "-c", code])`; `write` is the print sink.
    """
    picked, time = safe_stdlib.picked, clock.Clock()
    output = write if isinstance(write, safe_stdlib.Output) else safe_stdlib.Output(write)
    random_values = safe_stdlib.random_values(seed)
    os_values = surroundings.os_values()
    tracebacks = surroundings.traceback_values(output)
    abstract = facade("collections.abc", safe_stdlib.abstract_values())
    futures = facade("concurrent.futures", concurrency.futures_values())
    exceptions = " ".join(
        name for name, value in vars(decimal).items() if isinstance(value, type) and issubclass(value, Exception)
    )
    contents: dict[str, Mapping[str, object]] = {
        **libraries.library_values(),
        **libraries.seeded_values(lambda: vars(random_values["Random"])["_run_seed"]),
        "abc": {
            "ABC": abc.ABC,
            "ABCMeta": safe_stdlib.TypingName("ABCMeta"),
            "abstractmethod": safe_stdlib.abstractmethod,
        },
        "asyncio": asyncio_names.asyncio_values(time),
        "bisect": picked(bisect, "bisect bisect_left bisect_right insort insort_left insort_right"),
        "collections": {
            **picked(collections, "ChainMap Counter OrderedDict defaultdict deque"),
            **library_classes.collections_values(),
            "namedtuple": named_tuple,
            "abc": abstract,
        },
        "concurrent": {"futures": futures},
        "contextlib": libraries.contextlib_values(output),
        "copy": {"copy": copying.shallow_copy, "deepcopy": copying.deep_copy, "Error": copy.Error},
        "dataclasses": {
            **picked(dataclasses, "FrozenInstanceError InitVar KW_ONLY MISSING"),
            **picked(dataclasses, "field"),
            **picked(data_classes, "asdict astuple dataclass fields is_dataclass replace"),
        },
        "datetime": clock.datetime_values(time),
        "decimal": {
            **picked(decimal, f"Decimal Context getcontext setcontext localcontext {exceptions}"),
            **{name: value for name, value in vars(decimal).items() if name.startswith("ROUND_")},
        },
        "enum": {**picked(classes, "Enum Flag IntEnum IntFlag StrEnum"), "auto": enum.auto, "unique": enum.unique},
        "errno": surroundings.errno_values(),
        "fractions": {"Fraction": fractions.Fraction},
        "functools": {
            **libraries.functools_values(),
            **picked(functools, "cmp_to_key partial reduce"),
            **picked(safe_stdlib, "cache lru_cache total_ordering wraps"),
        },
        "heapq": picked(heapq, "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest"),
        "itertools": {name: value for name, value in vars(itertools).items() if not name.startswith("_")},
        "json": {
            **picked(json, "JSONDecodeError"),
            **picked(json_data, "JSONDecoder JSONEncoder dump dumps load loads"),
        },
        "logging": logging_names.logging_values(output, time, tracebacks["format_exception"]),
        "math": {name: value for name, value in vars(math).items() if not name.startswith("_")},
        "gc": surroundings.gc_values(),
        "operator": {
            **libraries.operator_values(),
            **picked(
                operator,
                "abs add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert is_ is_not "
                "itemgetter le lshift lt matmul mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor",
            ),
        },
        "os": os_values,
        "pathlib": surroundings.pathlib_values(),
        "platform": surroundings.platform_values(),
        "pprint": libraries.pprint_values(output),
        "queue": concurrency.queue_values(),
        "random": random_values,
        "re": safe_stdlib.regex_values(),
        "statistics": picked(
            statistics,
            "NormalDist StatisticsError correlation covariance fmean geometric_mean harmonic_mean linear_regression "
            "mean median median_grouped median_high median_low mode multimode pstdev pvariance quantiles stdev "
            "variance",
        ),
        "string": {
            **picked(
                string,
                "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits printable "
                "punctuation whitespace",
            ),
            "Template": library_classes.Template,
            "capwords": over_text(string.capwords),
        },
        "subprocess": subprocess_values(run_code, output),
        "sys": {
            **surroundings.sys_values(),
            "executable": PYTHON,
            "exit": safe_stdlib.exit_program,
            "argv": ["program.py"],
            "stdout": safe_stdlib.Stream(output),
            "stderr": safe_stdlib.Stream(output),
        },
        "textwrap": {name: over_text(getattr(textwrap, name)) for name in _TEXTWRAP.split()},
        "threading": concurrency.threading_values(),
        "time": clock.time_values(time),
        "timeit": clock.timeit_values(time),
        "traceback": tracebacks,
        "typing": safe_stdlib.typing_values(),
        "warnings": warning_names.warnings_values(),
    }
    contents["urllib"] = {"parse": facade("urllib.parse", contents.pop("urllib.parse"))}
    inner = {"collections.abc": abstract, "concurrent.futures": futures, "os.path": os_values["path"]}
    inner["urllib.parse"] = contents["urllib"]["parse"]
    return {**inner, **{name: facade(name, values) for name, values in contents.items()}}
