"""The modules that programs may import: read-only stand-ins that offer named, harmless contents.

No real module is reachable through them, nor any function that takes attribute names as text. Rules for reading
attributes live in `sandbox.guards`; replacements for unsafe originals live in `sandbox.stand_ins`.
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
import re
import statistics
import string
import sys
import textwrap
from collections.abc import Callable, Mapping
from types import ModuleType

from sandbox import classes, stand_ins
from sandbox.classes import Facade, named_tuple
from sandbox.code_calls import PYTHON, subprocess_values
from workflow.requests import CodeReply, CodeRun

HINTS = {
    "asyncio": "an EnsembleNode runs its members in parallel",
    "concurrent.futures": "an EnsembleNode runs its members in parallel",
    "threading": "an EnsembleNode runs its members in parallel",
    "multiprocessing": "an EnsembleNode runs its members in parallel",
    "logging": "use print",
    "os": "programs have no files and no environment; pass data through messages or context.state",
    "pathlib": "programs have no files; pass data through messages or context.state",
    "tempfile": 'hand the code itself to subprocess.run([sys.executable, "-c", code])',
    "io": "build text with str.join",
    "inspect": "programs cannot look inside functions or frames",
    "ast": "use json.loads to read data from text",
    "pickle": "use json",
    "numpy": "use math, statistics and lists",
    "sympy": "use math and fractions",
    "requests": "programs have no network; agents answer through workflow",
    "openai": "programs have no network; agents answer through workflow",
}
"""What to do instead of importing a module that programs do not have."""


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
    picked, clock = stand_ins.picked, stand_ins.Clock()
    abstract = facade("collections.abc", stand_ins.abstract_values())
    exceptions = " ".join(
        name for name, value in vars(decimal).items() if isinstance(value, type) and issubclass(value, Exception)
    )
    contents: dict[str, Mapping[str, object]] = {
        "abc": {"ABC": abc.ABC, "abstractmethod": stand_ins.abstractmethod},
        "bisect": picked(bisect, "bisect bisect_left bisect_right insort insort_left insort_right"),
        "collections": {
            **picked(collections, "ChainMap Counter OrderedDict defaultdict deque"),
            "namedtuple": named_tuple,
            "abc": abstract,
        },
        "copy": {"copy": stand_ins.shallow_copy, "deepcopy": stand_ins.deep_copy, "Error": copy.Error},
        "dataclasses": {
            **picked(dataclasses, "FrozenInstanceError InitVar KW_ONLY MISSING"),
            **picked(dataclasses, "asdict astuple field fields is_dataclass replace"),
            "dataclass": stand_ins.dataclass,
        },
        "datetime": stand_ins.datetime_values(clock),
        "decimal": {
            **picked(decimal, f"Decimal Context getcontext setcontext localcontext {exceptions}"),
            **{name: value for name, value in vars(decimal).items() if name.startswith("ROUND_")},
        },
        "enum": {**picked(classes, "Enum Flag IntEnum IntFlag StrEnum"), "auto": enum.auto, "unique": enum.unique},
        "fractions": {"Fraction": fractions.Fraction},
        "functools": {
            **picked(functools, "cache cmp_to_key lru_cache partial reduce"),
            "total_ordering": stand_ins.total_ordering,
            "wraps": stand_ins.wraps,
        },
        "heapq": picked(heapq, "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest"),
        "itertools": {name: value for name, value in vars(itertools).items() if not name.startswith("_")},
        "json": picked(json, "JSONDecodeError JSONDecoder JSONEncoder dumps loads"),
        "math": {name: value for name, value in vars(math).items() if not name.startswith("_")},
        "operator": picked(
            operator,
            "abs add and_ concat contains countOf eq floordiv ge getitem gt index indexOf inv invert is_ is_not "
            "itemgetter le lshift lt matmul mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor",
        ),
        "random": stand_ins.random_values(seed),
        "re": picked(
            re,
            "A ASCII DOTALL I IGNORECASE M MULTILINE Match NOFLAG Pattern S U UNICODE VERBOSE X compile error escape "
            "findall finditer fullmatch match search split sub subn",
        ),
        "statistics": picked(
            statistics,
            "NormalDist StatisticsError correlation covariance fmean geometric_mean harmonic_mean linear_regression "
            "mean median median_grouped median_high median_low mode multimode pstdev pvariance quantiles stdev "
            "variance",
        ),
        "string": picked(
            string,
            "ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits printable punctuation "
            "whitespace",
        ),
        "subprocess": subprocess_values(run_code, write),
        "sys": {
            **picked(sys, "maxsize version version_info"),
            "executable": PYTHON,
            "exit": stand_ins.exit_program,
            "argv": ["program.py"],
            "stdout": stand_ins.Stream(write),
            "stderr": stand_ins.Stream(write),
        },
        "textwrap": picked(textwrap, "dedent fill indent shorten wrap"),
        "time": stand_ins.time_values(clock),
        "typing": stand_ins.typing_values(),
    }
    return {"collections.abc": abstract, **{name: facade(name, values) for name, values in contents.items()}}
