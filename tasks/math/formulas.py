r"""Text of formulas in one form: signs, `$`, numbers with blanks, `6.02e23`, and where formulas may be split.

Pure functions over LaTeX. Nothing here knows what a formula means; that is for `tasks.math.values`.
"""

from __future__ import annotations

import re

from tasks.math.notation import rewritten

_SIGNS = str.maketrans(
    {"−": "-", "–": "-", "π": r"\pi ", "°": r"^\circ ", "∞": r"\infty ", "×": r"\times ", "·": r"\cdot ", "÷": "/"}
    | {"≤": r"\le ", "≥": r"\ge ", "√": r"\sqrt ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "±": r"\pm "}
    | {"≈": r"\approx ", "≠": r"\neq ", "∅": r"\emptyset ", "θ": r"\theta ", "⋅": r"\cdot ", "∖": r"\setminus "}
)
TEXT = re.compile(r"\\(?:text(?:bf|it|rm|tt|sf|normal)?|mbox|mathrm|mathbf|mathit|operatorname)\s*\{([^{}]*)\}")
_WRAPS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"))
_NOTHING = re.compile(r"\\(?:displaystyle|textstyle|limits|quad|qquad|big|Big)(?![A-Za-z])|\\[,;:>]|~")
_SPACED_DIGITS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:[ ~]|\\[,;:! ])+\d{3})+(?![\d.])")
_E_NOTATION = re.compile(
    r"(?<![\w.\\])(\d++(?:\.\d++)?|\.\d++)\s?[eE]\s?(?:\{([+-]?\d{1,4})\}|([+-]?\d{1,4}))(?![\w.(\\^{])"
)
_CARET_TEN = re.compile(r"(?<=\d)\s*(?:\*|(?<=\d )x|(?<=\d)x)\s*(?=10\s?\^)")
_PERCENT = re.compile(r"(?:\\(?:text|mathrm)\s*\{\s*(?:percent|per cent|\\?%)\s*\}|\bpercent\b)")
_QUANTITY_IN_TEXT = re.compile(r"\\text\s*\{\s*(-?\d[\d,.]*+)\s*([A-Za-z][^{}]*)\}")
_EMPHASIS = re.compile(r"\\(?:underline|bold|bm|boldsymbol|mathbf|pmb|text|textbf)\s*\{([^{}]*)\}")
_COLOR = re.compile(r"\\(?:text)?color\s*\{[a-z]*\}")
_REPEATING = re.compile(r"(?<!\d)(\d{1,20})?\.(\d{0,20})\\(?:overline|bar|dot)\s*\{?(\d{1,20})\}?")
_REALS = re.compile(r"\\text\s*\{\s*all real(?:s| numbers)\s*\}|all real(?:s| numbers)", re.IGNORECASE)
_INLINE = re.compile(r"(?<!\\)\$")
_DOLLAR = re.compile(r"\\(?:text|mathrm)\s*\{\s*\\?\$\s*\}")
_DEGREES = re.compile(r"(?<!\d)(\d++(?:\.\d++)?)\s*\^\s*(?:\\circ|\{\s*\\circ\s*\})")
_ANGLE_OF = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc|cis)(?![A-Za-z])")
_CIS = re.compile(
    r"\\cis\s*(\\[dt]?frac\s*\{[^{}]*\}\s*\{[^{}]*\}|(?:\\left)?\((?:[^()]|\([^()]*\))*?\)|\{[^{}]*\}|[\d.]*(?:\\pi)?)"
)
_SCALE = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALED = re.compile(
    rf"(?<=\d)\s*(?:\\(?:text|mathrm)\s*\{{\s*({'|'.join(_SCALE)})\s*\}}|\b({'|'.join(_SCALE)})\b)", re.IGNORECASE
)


def tidy(formula: str) -> str:
    """The formula as `values`, `units` and `claims` want it, with the same meaning; blanks are single."""
    formula = rewritten(" ".join(formula.split())).translate(_SIGNS)
    formula = _DOLLAR.sub(r"\\$", " ".join(formula.split()))
    formula = re.sub(r"\\(?:text|mathrm)\s*\{\s*([-+=:,])\s*\}", r"\1", formula)
    for _ in range(4):  # a box in dollars in a box
        formula = _unwrapped(formula)
    if "," in formula and len(_INLINE.findall(formula)) % 2 == 0:  # `$(1,2)$, $(2,1)$`
        formula = _INLINE.sub("", formula)
    formula = re.sub(r"(?<=[\w})\]$])\s*(?:[.;,]|\\\\)$", "", formula)
    formula = _unwrapped(formula)
    formula = re.sub(r"^(-?\d+)\s+(\d+)\s*/\s*(\d+)$", r"\1\\frac{\2}{\3}", formula)
    formula = re.sub(r"(?<![\\A-Za-z])pi(?![A-Za-z])", r"\\pi", formula)
    formula = _QUANTITY_IN_TEXT.sub(r"\1 \\text{ \2}", formula)
    formula = _REPEATING.sub(_fraction, _REALS.sub(r"\\mathbb{R}", formula))
    formula = re.sub(r"\\varnothing(?![A-Za-z])", r"\\emptyset", formula)
    formula = re.sub(r"\\colon(?![A-Za-z])", ":", formula)
    formula = formula.replace(r"\!", "")
    formula = _SPACED_DIGITS.sub(lambda match: re.sub(r"\D", "", match[0]), formula)
    formula = _PERCENT.sub(r"\\%", formula)
    formula = _SCALED.sub(lambda match: rf" \times 10^{{{_SCALE[(match[1] or match[2]).lower()]}}}", formula)
    formula = _CARET_TEN.sub(r"\\times ", formula)
    formula = _E_NOTATION.sub(lambda match: rf"{match[1]} \times 10^{{{int(match[2] or match[3])}}}", formula)
    return " ".join(_polar(_NOTHING.sub(" ", formula)).split())


def _unwrapped(formula: str) -> str:
    """Without signs around the whole that say only that it is mathematics."""
    for opening, closing in _WRAPS:
        inner = formula[len(opening) : -len(closing)]
        if formula.startswith(opening) and formula.endswith(closing) and len(formula) > 2 and opening not in inner:
            formula = inner.strip()
    box = re.match(r"\\(?:boxed|fbox)\s*(?=\{)", formula)
    if box and is_balanced(formula[box.end() + 1 : -1]):
        formula = formula[box.end() :]
    formula = _COLOR.sub("", formula)
    emphasis = _EMPHASIS.fullmatch(formula)
    if emphasis and re.search(r"\d", emphasis[1]):
        formula = emphasis[1].strip()
    if formula.startswith("**") and formula.endswith("**") and len(formula) > 4:
        formula = formula[2:-2].strip()
    while formula.startswith("{") and formula.endswith("}") and is_balanced(formula[1:-1]):
        formula = formula[1:-1].strip()
    return formula


def _fraction(match: re.Match[str]) -> str:
    """A repeating decimal as a fraction."""
    whole, first, again = match[1] or "0", match[2], match[3]
    over = (10 ** len(again) - 1) * 10 ** len(first)
    return rf"\frac{{{int(whole + first + again) - int(whole + first)}}}{{{over}}}"


def _polar(formula: str) -> str:
    r"""Angles of trigonometric functions in radians, and `\cis t` as a power of e."""
    formula = re.sub(
        r"\\(?:operatorname|mathrm|text)\s*\{\s*cis\s*\}|(?<![\\A-Za-z])cis(?![A-Za-z])", r"\\cis ", formula
    )
    if _ANGLE_OF.search(formula):
        formula = _DEGREES.sub(r"{\\frac{\1\\pi}{180}}", formula)
        formula = re.sub(r"(\\cis\s*)\{(\\frac\{[^{}]*\}\{180\})\}", r"\1\2", formula)
    return _CIS.sub(lambda match: rf"e^{{i {match[1]}}}" if match[1] else match[0], formula)


def is_balanced(formula: str) -> bool:
    depth = 0
    for sign in re.findall(r"\\.|[{}]", formula, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth < 0:
            return False
    return depth == 0


def untext(formula: str) -> str:
    r"""Without `\text` commands, their content kept."""
    return " ".join(TEXT.sub(r" \1 ", formula).split())


_SPLIT = re.compile(r"\\[A-Za-z]+|\\.|.", re.DOTALL)
_OPENING = {"{", "(", "[", r"\{"}
_CLOSING = {"}", ")", "]", r"\}"}
_CHANGED_EQUAL = re.compile(r"(?:[<>!:]|\\(?:not|le|ge|lt|gt|neq?))\s*$")


def split_top(formula: str, at: tuple[str, ...]) -> list[str]:
    """The parts between the signs or commands `at` that stand outside all brackets; `<=` holds no `=`."""
    parts, depth, last = [], 0, 0
    in_environment = 0
    for match in _SPLIT.finditer(formula):
        token = match[0]
        if token in (r"\begin", r"\end"):
            in_environment += 1 if token == r"\begin" else -1
        depth += (token in _OPENING) - (token in _CLOSING)
        if token in at and depth == 0 and in_environment == 0:
            if token == "=" and _CHANGED_EQUAL.search(formula, max(0, match.start() - 6), match.start()):
                continue
            parts.append(formula[last : match.start()].strip())
            last = match.end()
    return [*parts, formula[last:].strip()]
