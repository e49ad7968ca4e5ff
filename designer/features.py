"""What the text of a problem tells about it: domain, topics, difficulty, form of the answer.

Pure functions over the text alone, by plain word and symbol patterns: no model, no data set, no randomness. They
are heuristics for choosing a template; nothing here chooses one (see `designer.bank`) and nothing is graded.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict

Domain = Literal["math", "code", "unclear"]
Difficulty = Literal["easy", "medium", "hard"]
AnswerForm = Literal["value", "integer", "choice", "proof", "function", "program"]

LONGEST = 10_000
"""Characters of a problem that are looked at; what follows is ignored."""

_FIGURE = re.compile(r"\[asy\].*?(?:\[/asy\]|\Z)", re.DOTALL)
_CONTROL = re.compile(r"[^\S\n\t ]|[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")

_CODE = re.compile(
    r"^[ \t]*(?:async )?def \w+[ \t]*\(|^[ \t]*class \w.*:[ \t]*$|>>> |^[ \t]*assert \w|```|"
    r"\b(?:write|implement|complete|create|code|develop|design)\b[^.?!]{0,40}"
    r"\b(?:function|program|method|script|algorithm|code|class|regex|sql query)\b|"
    r"\bstandard (?:input|output)\b|\bstd(?:in|out)\b|\bpython\b|\btest cases?\b|\btime limit\b|"
    r"\byour (?:function|program|code)\b|\b(?:function|program|method) (?:should|must) (?:return|print|output|take)\b|"
    r"^[^\w\n]*(?:sample |example )?(?:input|output)(?: format)?[^\w\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
FORMULA = (
    r"\$\$[^$]{1,1000}+\$\$|\$(?!\d[\d,.]*+\s++[a-zA-Z]{2})[^$]{1,1000}+\$|"
    r"\\\[(?:[^\\]|\\(?![\[\]])){1,1000}+\\\]|\\\((?:[^\\]|\\(?![()])){1,1000}+\\\)|"
    r"\\begin\{(?P<environment>\w{1,40}+\*?)\}(?:[^\\]|\\(?!(?:begin|end)\{(?P=environment)\})){1,1000}+"
    r"\\end\{(?P=environment)\}"
)
"""A LaTeX formula. A dollar sign before an amount, as in `$5 each and $2 per box`, opens none."""
_NOTATION = re.compile(FORMULA + r"|\\(?:frac|sqrt|sum|int|log|sin|cos|tan|cdot|le|ge)\b", re.DOTALL)
_QUANTITY = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|dozen|half|twice|double|thirds?|"
    r"sum|product|total|average|numbers?|reciprocal|integers?|degrees?|area|probability|ways)\b",
    re.IGNORECASE,
)
_ASKS_QUANTITY = re.compile(
    r"\b(?:find|compute|calculate|determine|evaluate|simplify|solve|express|convert|factor|expand|"
    r"how (?:many|much|long|old|far|fast|tall|high|big|deep|wide|heavy|often|likely)|"
    r"what(?:'s|’s| is| are| was| were| will| would| percent\w*| fraction| number| value| speed| size| time)|"
    r"which (?:\w+ ){1,3}(?:is|has|had|are|gives|greatest|least|largest|smallest))\b",
    re.IGNORECASE,
)

# Wording of how an answer is to be written, which says nothing about the topic.
_FORM = re.compile(
    r"(?:where|such that|with)\b[^.]{0,80}\b(?:relatively prime|coprime|not divisible by the square of any prime)"
    r"[^.]*|express your answer[^.]*|enter your answer[^.]*|(?:written|expressed) (?:as|in the form)[^.,]*",
    re.IGNORECASE,
)
_CONTEST = re.compile(
    r"relatively prime|coprime|not divisible by the square|remainder when .{0,80} is divided by \$?1000|"
    r"(?:find|what is)\s+\$?\\?\(?[a-z](?:\s*\+\s*[a-z])+",
    re.IGNORECASE | re.DOTALL,
)

MATH_TOPICS = {
    "counting": r"\bhow many (?:different |distinct |possible )?(?:ways|paths|subsets|arrangements|sequences|colorings|"
    r"triples|pairs|committees|words|integers|numbers|such)|number of (?:\w+ ){0,3}(?:ways|paths|subsets|arrangements|"
    r"sequences|colorings|triples|pairs|functions|rectangles|triangles|integers|solutions)|\bpermutations?\b|"
    r"\barrange|\bcommittees?\b|\bsubsets?\b|\bseated\b|\bgrid\b",
    "probability": r"\bprobabilit|\bexpected (?:value|number)|\bat random\b|\brandomly\b|\bfair (?:coin|die|dice)",
    "number theory": r"\bdivisib|\bdivisors?\b|\bremainder\b|\bprimes?\b|\bprime (?:number|factor)|\\?p?mod\b|\bmodul|"
    r"\\equiv|\bcongruent to\b.{0,500}\bmod|"
    r"\bgcd\b|\blcm\b|greatest common|least common|\bdigits?\b|\bin base\b|\bbase[- ]|"
    r"\bperfect (?:square|cube|power)|\bmultiples? of\b|\b(?:positive|nonnegative) integers?\b",
    "geometry": r"\btriangles?\b|\bcircles?\b|\bpolygon|\brectang|\bparallelogram|\brhombus|\btrapezoid|\bradius\b|"
    r"\barea\b|\bperimeter\b|\btangent (?:to|line|circle|at)|\b(?:hexa|penta|octa|deca|dodeca)gon|\bspheres?\b|"
    r"\bcones?\b|\bcylinder|\bvolume\b|\bperpendicular\b|\binscribed\b|\bvertices\b|\bdiagonals?\b|\bchord\b|"
    r"\\triangle|\\angle|\\overline|\btetrahedron|\bpyramid|\bellipse|\bhyperbola|\bparabola|\bcoordinate",
    "trigonometry": r"\\(?:sin|cos|tan|cot|sec|csc)\b|\b(?:sine|cosine)\b|\\circ\b|\bpolar\b",
    "complex numbers": r"\bcomplex (?:number|plane)|\bimaginary\b|\broots? of unity\b|\breal part\b|\d\s*+i\b",
    "linear algebra": r"\bmatri(?:x|ces)\b|\bvectors?\b|pmatrix|bmatrix|\bdeterminant\b|\\mathbf",
    "sequences": r"\bsequences?\b|\bseries\b|\\sum\b|\\prod\b|\b(?:arithmetic|geometric) progression|\brecurs|"
    r"\\c?dots|\bsum of the first\b",
    "functions": r"\bf\s*\(|\bg\s*\(|\bfunctions?\b|\binverse\b|\bdomain\b|\brange of\b|\\log\b|\blogarithm",
    "calculus": r"\bderivative|\bintegral\b|\\int\b|\\lim\b|\blimit of\b|\bdifferentia",
    "equations": r"\bequations?\b|\bpolynomials?\b|\broots?\b|\bsolutions?\b|\bsolve\b|\bsystem of\b|\binequalit|"
    r"\bquadratic|\breal numbers?\b",
    "extremum": r"\b(?:maximum|minimum|maximi[sz]e|minimi[sz]e|largest|smallest|greatest|(?<!at )least)\b(?! common)",
    "rates and money": r"\bper (?:hour|day|week|month|year|minute|gallon|mile)|\bpercent|\d%|\\\$\s?\d|\bspeed\b|"
    r"\$\d[\d.,]*(?= )(?![^$\n]{0,60}\$)|\bcosts?\b|\bprice|\btimes as (?:many|much|old)|\byears? old\b|"
    r"\bhalf (?:as|of)\b|\btwice\b",
}
CODE_TOPICS = {
    "strings": r"\bstrings?\b|\bcharacters?\b|\bletters?\b|\bwords?\b|\bsubstring|\bpalindrom|\bregex\b|\bstr\b",
    "sequences": r"\blists?\b|\barrays?\b|\btuples?\b|\bsequence\b|\bsublist|\bsubarray",
    "sorting": r"\bsort(?:ed|ing)?\b|\bascending\b|\bdescending\b|\border(?:ed)? by\b|\brank\b",
    "floating point": r"\bfloat|\bdecimals?\b|\bround(?:ed|ing)?\b|\bprecision\b|\b10\^?\{?-\d|\b1e-\d",
    "number theory": r"\bprimes?\b|\bdivisor|\bdivisible\b|\bgcd\b|\blcm\b|\bfactorial|\bfibonacci|\bmodulo\b|"
    r"10\^9 ?\+ ?7",
    "graphs and trees": r"\bgraphs?\b|\btrees?\b|\bvert(?:ex|ices)\b|\bedges?\b|\bshortest path|\bconnected\b|"
    r"\broads?\b|\bbinary search tree|\bdirected\b|\bcycles?\b",
    "optimisation": r"\b(?:minimum|maximum|minimal|maximal|minimi[sz]e|maximi[sz]e|fewest|longest|shortest|optimal)\b",
    "dynamic programming": r"\bsubsequence|\bknapsack|\bnumber of ways|\bhow many ways|\bcoins?\b.{0,200}\bchange\b|"
    r"\bedit distance|\bpartition",
    "matrices": r"\bmatri(?:x|ces)\b|\bgrid\b|\brows?\b.{0,200}\bcolumns?\b",
    "parsing": r"\bpars(?:e|ing)\b|\bparenthes|\bbrackets?\b|\bexpression\b|\bdate\b|\bformat\b",
}
_ADVANCED = re.compile(
    r"\bcircum(?:center|radius|circle)|\bin(?:center|radius|circle)\b|\binscribed\b|\btangent to\b|\bhyperbola|"
    r"\bellipse|\btetrahedron|\btorus\b|\bconvex\b|\bequilateral\b|\bunity\b|\bcomplex number|\breal numbers?\b|"
    r"\\log_|\\prod\b|\bpolynomials?\b|\bfunctional\b|\bstrategy\b|\bpropert(?:y|ies)\b|\bthere (?:is|exists?)\b|"
    r"\bfor (?:all|every|which)\b|\bordered (?:pairs?|triples?|quadruples?)\b|\bnonempty\b|\bintersections? of\b",
    re.IGNORECASE,
)
_ENUMERABLE = {"counting", "probability", "number theory"}
_CONDITION = re.compile(
    r"\b(?:if|such that|given that|suppose|where|let|when|unless|except|otherwise|must|only|exactly|at (?:least|most)|"
    r"no two|each|every)\b",
    re.IGNORECASE,
)
_OPTIONS = [re.compile(rf"(?:^|[\s(]){letter}[).:]\s{{0,3}}\S", re.MULTILINE) for letter in "ABC"]
_PROOF = re.compile(r"\b(?:prove|show that|proof|disprove)\b", re.IGNORECASE)
_HEAVY = re.compile(
    r"\^\s*+(?:\d{2}|\{\s*+\d{2,}+\s*+\})|\d{2}\s*+!|\\sum_\{[^}]{0,200}+\}\^\{?\d{2}|\bsum of the first \$?\d{2}|"
    r"\d{3}\s*+(?:\\cdot|\\times|\*|×)\s*+\d{2}|\d!\s*+(?:\\cdot|\\times|\*|\+|-)",
    re.IGNORECASE,
)
_LONG_NUMBER = re.compile(r"(?<![\d.])\d{5,}|\d{1,3}(?:,(?:\\!)?\d{3})+(?!\d)")
_LIMIT = re.compile(r"10\s*+(?:\^|\*\*)\s*+\{?\s*+(\d{1,2})|\b1e(\d{1,2})\b|\b(\d{1,3}(?:[,_ ]\d{3}){1,6}|\d{4,9})\b")
_STDIN = re.compile(
    r"\bstandard input\b|\bstdin\b|^[^\w\n]*(?:sample |example )?input(?: format)?[^\w\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
_BOUND = re.compile(r"<=?|≤|\\leq?\b|\bat most\b|\bup to\b|\bno more than\b|\bnot exceed", re.IGNORECASE)


class Features(BaseModel):
    """What was found in a problem's text."""

    model_config = ConfigDict(frozen=True)

    domain: Domain
    difficulty: Difficulty
    topics: tuple[str, ...] = ()
    """Keys of `MATH_TOPICS` or `CODE_TOPICS`, in their order."""
    answer: AnswerForm
    words: int
    conditions: int
    """Words that introduce a condition, such as `if`, `such that`, `exactly`."""
    notation: bool = False
    """Whether it is written with mathematical notation, not in everyday words alone."""
    heavy_arithmetic: bool = False
    """Long operands, high powers or long sums: better computed than reasoned."""
    examples: int = 0
    """Worked examples that can be run as tests (code)."""
    limit_exponent: int = 0
    """Largest stated input size, as a power of ten; 0 if none is stated (code)."""

    @property
    def enumerable(self) -> bool:
        """Whether the answer can probably be tested by enumeration or direct computation."""
        return bool(_ENUMERABLE & set(self.topics)) and "geometry" not in self.topics


def clean(text: str) -> str:
    """The text without control characters and lone surrogates; other spaces than tab and newline become plain."""
    return _CONTROL.sub(lambda match: " " if match[0].isspace() else "", text.replace("\r\n", "\n"))


def without_figures(text: str) -> str:
    """The text without Asymptote drawings, which are code about a picture and not part of the problem's words."""
    return _FIGURE.sub(" ", text)


def domain_of(problem: str) -> Domain:
    """`code` if it asks for a program, `math` if it asks for a quantity or a proof, else `unclear`."""
    text = without_figures(problem[:LONGEST])
    if _CODE.search(text):
        return "code"
    if _NOTATION.search(text) or _PROOF.search(text) or (_QUANTITY.search(text) and _ASKS_QUANTITY.search(text)):
        return "math"
    return "unclear"


def features_of(problem: str) -> Features:
    """All features of a problem's text."""
    text = without_figures(clean(problem[:LONGEST]))
    domain = domain_of(text)
    return _code_features(text) if domain == "code" else _math_features(text, domain)


def _topics(text: str, patterns: dict[str, str]) -> tuple[str, ...]:
    return tuple(topic for topic, pattern in patterns.items() if re.search(pattern, text, re.IGNORECASE))


def _is_choice(text: str) -> bool:
    """Whether options A, B and C are listed in this order."""
    place = 0
    for option in _OPTIONS:
        found = option.search(text, place)
        if found is None:
            return False
        place = found.end()
    return True


def _level(points: int, medium: int, hard: int) -> Difficulty:
    return "hard" if points >= hard else "medium" if points >= medium else "easy"


def _math_features(text: str, domain: Domain) -> Features:
    contest = _CONTEST.search(text) is not None
    plain = _FORM.sub(" ", text)
    topics = _topics(plain, MATH_TOPICS)
    words, conditions = len(text.split()), len(_CONDITION.findall(text))
    notation = _NOTATION.search(text) is not None
    answer: AnswerForm = "value"
    if _PROOF.search(text):
        answer = "proof"
    elif _is_choice(text):
        answer = "choice"
    elif contest or "counting" in topics:
        answer = "integer"
    demanding = set(topics) - {"rates and money", "equations", "functions"}
    if notation or demanding:
        points = min(len(demanding), 2) + 2 * contest + (_ADVANCED.search(plain) is not None)
        points += (words > 30) + (words > 60) + (conditions >= 2) + (conditions >= 5)
    else:  # a story in everyday words: many simple steps are the rule, so only length and density count
        points = 3 * (words > 90) + (conditions >= 5) + (words > 130)
    return Features(
        domain=domain,
        difficulty=_level(points, medium=2, hard=5),
        topics=topics,
        answer=answer,
        words=words,
        conditions=conditions,
        notation=notation,
        heavy_arithmetic=_HEAVY.search(text) is not None or (notation and len(_LONG_NUMBER.findall(text)) >= 2),
    )


def limit_exponent(text: str) -> int:
    """Power of ten of the largest stated input size; 0 if there is none.

    Bounds above 10^7 are taken for values, such as `a_i <= 10^9`: no input has so many items.
    """
    largest = 0
    for part in re.split(r"\n|(?<=[.;])\s", text):
        if _BOUND.search(part):
            for exponent, scientific, digits in _LIMIT.findall(part):
                power = int(exponent or scientific or 0) or len(re.sub(r"\D", "", digits)) - 1
                largest = max(largest, power if power <= 7 else 0)
    return largest


def count_examples(text: str) -> int:
    """How many worked examples the text shows: doctest prompts, equations of calls, assertions, sample inputs.

    Of several bare `Input` headings the first is taken for the description of the format.
    """
    doctests = len(re.findall(r"^[ \t]*>>> ", text, re.MULTILINE))
    asserts = len(re.findall(r"^[ \t]*assert ", text, re.MULTILINE))
    calls = len(re.findall(r"\b\w+\(.{0,300}\) ?(?:==|=>|->|➞|→|=|returns?|should return) ?\S", text))
    headings = re.findall(r"^[^\w\n]*(sample |example )?input(?: \d+)?[^\w\n]*$", text, re.IGNORECASE | re.MULTILINE)
    samples = sum(map(bool, headings)) or max(len(headings) - 1, 0)
    inline = len(
        re.findall(r"^[^\w\n]*(?:sample |example )?input(?: \d+)?[:=] ?\S", text, re.IGNORECASE | re.MULTILINE)
    )
    return max(doctests, asserts, calls, samples, inline)


def _code_features(text: str) -> Features:
    topics = _topics(text, CODE_TOPICS)
    words, conditions = len(text.split()), len(_CONDITION.findall(text))
    stdin = _STDIN.search(text) is not None
    limit = limit_exponent(text)
    hard_topics = {"graphs and trees", "dynamic programming", "optimisation", "parsing"} & set(topics)
    points = len(hard_topics) + (words > 60) + (words > 110) + (conditions >= 4) + 2 * (limit >= 5) + stdin
    return Features(
        domain="code",
        difficulty=_level(points, medium=2, hard=5),
        topics=topics,
        answer="program" if stdin else "function",
        words=words,
        conditions=conditions,
        notation=_NOTATION.search(text) is not None,
        examples=count_examples(text),
        limit_exponent=limit,
    )
