"""The program that a reply holds comes out exactly, whatever surrounds it; hostile replies cost linear time."""

from collections.abc import Callable

import pytest
from growth import check_linear
from hypothesis import given, settings
from hypothesis import strategies as st

from designer.extract import MAX_SOURCE_BYTES, Extraction, extract_program

PROGRAM = """\
from workflow import AgentNode, Workflow

workflow = Workflow(name="w")
workflow.add_node(AgentNode(name="A", system_prompt="Answer in \\\\boxed{}."))
"""
OTHER = PROGRAM.replace('"A"', '"Draft"')
TAGGED = f"<code>\n{PROGRAM}</code>"
FENCED = f"```python\n{PROGRAM}```"
TRICKY = '''\
from workflow import AgentNode, Workflow

PROMPT = """Think inside <think>...</think> first; mention <code> never.
Write the solution as
<code>
print(1)
</code>
or in a fence:
```python
print(2)
```
Then stop. </think>
"""
workflow = Workflow(name="w").add_node(AgentNode("A", PROMPT))
'''


def indented(text: str, by: str = "    ") -> str:
    return "".join(by + line for line in text.splitlines(keepends=True))


# fmt: off
FOUND = {
    "code tag": (f"Analysis.\n\n{TAGGED}\nDone.", "code_tag"),
    "code tag on one line with the code": (f"<code>{PROGRAM}</code>", "code_tag"),
    "upper case and attributes": (f'<CODE lang="python">\n{PROGRAM}</Code>', "code_tag"),
    "fence inside the tag": (f"<code>\n```python\n{PROGRAM}```\n</code>", "code_tag"),
    "fence inside the tag, left open": (f"<code>\n```python\n{PROGRAM}</code>", "code_tag"),
    "tag inside a fence": (f"```\n<code>\n{PROGRAM}</code>\n```", "code_tag"),
    "the last of two": (f"<code>\n{OTHER}</code>\nBetter:\n{TAGGED}", "code_tag"),
    "mentioned in the prose before": (f"I put it in <code> tags.\n{TAGGED}", "code_tag"),
    "mentioned in the prose after": (f"{TAGGED}\nThe <code>...</code> block is complete.", "code_tag"),
    "tag before a fence": (f"{TAGGED}\nRun it:\n```bash\npython x.py\n```", "code_tag"),
    "tag after a draft in a fence": (f"```python\n{OTHER}```\n{TAGGED}", "code_tag"),
    "Windows lines": (TAGGED.replace("\n", "\r\n"), "code_tag"),
    "old Mac lines": (TAGGED.replace("\n", "\r"), "code_tag"),
    "indented": (f"1. Program:\n\n    <code>\n{indented(PROGRAM)}    </code>", "code_tag"),
    "indented by tabs": (f"<code>\n\n{indented(PROGRAM, chr(9))}</code>", "code_tag"),
    "escaped": ("<code>\n" + PROGRAM.replace('"', "&quot;") + "</code>", "code_tag"),
    "after a thought": (f"<think>\nMaybe <code>\n{OTHER}</code>\n</think>\n{TAGGED}", "code_tag"),
    "after a thought that mentions a tag": (f"<think>I will use <code> tags.</think>\n{TAGGED}", "code_tag"),
    "after a thought without beginning": (f"Maybe\n```python\n{OTHER}```\n</think>\n{TAGGED}", "code_tag"),
    "after two thoughts": (f"<think>a</think>\nText\n<thinking>{OTHER}</thinking>\n{TAGGED}", "code_tag"),
    "before a thought": (f"{TAGGED}\n<think>Was it right? <code>\n{OTHER}</code></think>", "code_tag"),
    "bare, after prose": (f"Here is the program:\n\n{PROGRAM}", "bare"),
    "bare, between prose": (f"Sure: from here on.\n\n{PROGRAM}\nThis asks one agent.\nDone.\n", "bare"),
    "bare, after a thought": (f"<think>\n{OTHER}</think>\nI take this:\n{PROGRAM}", "bare"),
    "fence": (f"Here:\n\n{FENCED}\n\nDone.", "fence"),
    "fence without a language": (f"```\n{PROGRAM}```", "fence"),
    "tilde fence": (f"~~~py\n{PROGRAM}~~~", "fence"),
    "indented fence": (f"- Program:\n\n  ```python\n{indented(PROGRAM, '  ')}  ```\n", "fence"),
    "fence among others": (f"```bash\npip install x\n```\n{FENCED}\n```python\nprint('how to run it')\n```", "fence"),
    "the last of two fences": (f"```python\n{OTHER}```\n{FENCED}", "fence"),
    "fence after a draft in the thought": (f"<think>\n```python\n{OTHER}```\n</think>\n{FENCED}", "fence"),
    "bare": (PROGRAM, "bare"),
    "bare with Windows lines": (PROGRAM.replace("\n", "\r\n"), "bare"),
    "bare after a thought": (f"<think>Hm.</think>\n\n{PROGRAM}", "bare"),
}
# fmt: on


@pytest.mark.parametrize("name", FOUND)
def test_program_is_found(name: str) -> None:
    reply, how = FOUND[name]
    assert extract_program(reply) == Extraction(PROGRAM, how)  # type: ignore[arg-type]  # one of the literals


@pytest.mark.parametrize(
    "reply",
    [
        f"<code>\n{TRICKY}</code>",
        f"<think>Let me think.</think>\nThe program:\n<code>\n{TRICKY}</code>\nDone.",
        f"Let me think.</think>\n<code>\n{TRICKY}</code>\n",
        f"<code>\n```python\n{TRICKY}```\n</code>",
        f"```python\n{TRICKY}```\n",
        TRICKY,
    ],
    ids=["tags", "thought", "thought without beginning", "tags and fence", "fence", "bare"],
)
def test_tags_and_fences_inside_a_prompt_belong_to_the_program(reply: str) -> None:
    assert extract_program(reply).source == TRICKY


def test_text_inside_strings_may_stand_left_of_indented_code() -> None:
    source = 'from workflow import AgentNode\nx = """first\n  second\nthird"""\n'
    shown = source.replace("from", "    from").replace("x =", "    x =")
    assert extract_program(f"<code>\n{shown}</code>").source == source


NOT_FOUND = {
    "nothing": ("I cannot do this.", "holds no program"),
    "empty": ("", "holds no program"),
    "python that is no program": ("x = 1\n", "holds no program"),
    "empty tag": ("<code>\n</code>", "holds no program"),
    "cut off in the tag": (f"Analysis\n<code>\n{PROGRAM[:-20]}", "<code> is never closed"),
    "cut off in a fence in the tag": (f"<code>\n```python\n{PROGRAM[:-20]}", "<code> is never closed"),
    "cut off after the tag": ("Analysis\n<code>\n", "<code> is never closed"),
    "cut off in a fence": (f"```python\n{PROGRAM[:-20]}", "fence is never closed"),
    "cut off in the thought": (f"<think>\nMaybe\n<code>\n{OTHER}</code>\n", "cut off while thinking"),
    "cut off in the thought, unmarked": (f"<think>\nMaybe\n{OTHER}", "cut off while thinking"),
    "cut off, unmarked": (f"Here:\n{PROGRAM[:-20]}", "holds no program"),
    "cut off in the second thought": (
        f"<think>a</think>\n<think>\n```python\n{OTHER}```\nNo",
        "cut off while thinking",
    ),
    "prose that mentions an import": (
        "I begin with\nfrom workflow import Workflow, as it says.\n",
        "no program",
    ),
    "only a thought": (f"<think>{TAGGED}</think>\nSorry.", "holds no program"),
}


@pytest.mark.parametrize("name", NOT_FOUND)
def test_what_is_missing_is_said(name: str) -> None:
    reply, problem = NOT_FOUND[name]
    extraction = extract_program(reply)
    assert (extraction.source, extraction.how) == (None, None)
    assert problem in (extraction.problem or "")


def test_a_whole_program_without_its_closing_tag_counts_with_a_remark() -> None:
    extraction = extract_program(f"Analysis\n<code>\n{PROGRAM}")
    assert (extraction.source, extraction.how) == (PROGRAM, "code_tag")
    assert "never closed" in (extraction.problem or "")


def test_a_marked_block_that_is_no_program_is_handed_on_to_the_check() -> None:
    broken = PROGRAM.replace("(name", "((name")
    assert extract_program(f"```python\n{OTHER}```\n<code>\n{broken}</code>").source == broken
    assert extract_program("```python\nprint(1)\n```").source == "print(1)\n"


PROSE = st.text(st.characters(codec="utf-8", exclude_characters="<>`~\r\0"), max_size=300)


@given(before=PROSE, after=PROSE, form=st.sampled_from(["<code>\n{}</code>", "```python\n{}```", "```\n{}\n```"]))
def test_a_program_in_any_prose_comes_out_exactly(before: str, after: str, form: str) -> None:
    reply = f"{before}\n{form.replace('{}', PROGRAM)}\n{after}"
    assert extract_program(reply).source == PROGRAM


PIECES = st.sampled_from(
    ["<code>", "</code>", "<think>", "</think>", "```", "```python", "\n", " ", "x", PROGRAM, "&lt;"]
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=25).map("".join)))
def test_never_raises_and_always_explains(reply: str) -> None:
    extraction = extract_program(reply)
    assert (extraction.source is None) == (extraction.how is None)
    assert extraction.source is not None or extraction.problem
    assert extraction.source is None or (extraction.source.endswith("\n") and extraction.source.strip())


HOSTILE = {
    "opening tags": "<code>",
    "opening tags on lines": "<code>\n",
    "closing tags": "</code>",
    "pairs": "<code></code>",
    "pairs with imports": "<code>\nimport workflow\n</code>\n",
    "thoughts": "<think>",
    "ends of thoughts": "</think>",
    "tags that never end": "<code " + "a" * 70,
    "fences": "```\n",
    "python fences": "```python\n",
    "fences with imports": "```python\nimport workflow\n```\n",
    "backquotes": "`",
    "tildes": "~",
    "blanks": " ",
    "blank lines": "\n",
    "indented lines": " \n",
    "fence and blanks": "```" + " " * 60,
    "entities": "&lt;",
    "import words": "import workflow\n",
    "nesting": "(",
    "imports in prose": "import workflow\nand so on\n",
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_replies_cost_linear_time(name: str) -> None:
    piece = HOSTILE[name]

    def extracting(size: int) -> Callable[[], object]:
        reply = piece * (size // len(piece)) + "x"
        return lambda: extract_program(reply)

    check_linear(name, extracting, 40_000)


def test_oversized_text_is_not_parsed() -> None:
    big = PROGRAM + "#" * MAX_SOURCE_BYTES
    assert extract_program(big).source is None
    assert extract_program(f"<code>\n{big}\n</code>").source == big + "\n", "the check says that it is too large"
