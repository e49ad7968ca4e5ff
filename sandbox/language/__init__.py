"""What a program may say: the compiler of the restricted language, its guards, the modules it may import.

A first line of defence with good messages. Not here: the walls that hold when all of this is passed (`sandbox.jail`).
"""

from sandbox.language.branches import Job, run_started
from sandbox.language.classes import facade_values
from sandbox.language.compiler import CompileResult, compile_program
from sandbox.language.contract_modules import contract_facades
from sandbox.language.guards import begin, program_globals
from sandbox.language.hiding import unused_imports
from sandbox.language.stdlib import HINTS, facade, standard_facades
from sandbox.language.vocabulary import SYNTAX_FIXES, UNAVAILABLE, shown

__all__ = [
    "HINTS",
    "SYNTAX_FIXES",
    "UNAVAILABLE",
    "CompileResult",
    "Job",
    "begin",
    "compile_program",
    "contract_facades",
    "facade",
    "facade_values",
    "program_globals",
    "run_started",
    "shown",
    "standard_facades",
    "unused_imports",
]
