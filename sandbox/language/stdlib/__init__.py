"""The standard library of programs: what each module offers, as itself or as a stand-in of ours.

Not here: the rules by which programs read and write on what they have got (`sandbox.language.access`).
"""

from sandbox.language.stdlib.importable import HINTS, facade, standard_facades
from sandbox.language.stdlib.safe_stdlib import Output, exit_program, reseed

__all__ = ["HINTS", "Output", "exit_program", "facade", "reseed", "standard_facades"]
