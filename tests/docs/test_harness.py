"""The checks of pages do see what is wrong on one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import Page, PageError, commands, dead_links, matches

FENCE = "```"


def page(tmp_path: Path, text: str) -> Page:
    path = tmp_path / "page.md"
    path.write_text(text.replace("'''", FENCE))
    folder = tmp_path / "folder"
    folder.mkdir()
    return Page(path, folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("'''python\n1 / 0\n'''", "page.md:1: ZeroDivisionError"),
        ("x\n\n'''console\n$ echo one\ntwo\n'''", "page.md:3: 'echo one' said"),
        ("'''console\n$ exit 3\n'''", "ended with 3, not 0"),
        ("'''console\n$ true  # exit 2\n'''", "ended with 0, not 2"),
        ("'''console\n$ metaagent show nothing.py\n'''", "ended with 2"),
        ("'''ruby\nputs 1\n'''", "language 'ruby'"),
        ("'''\nplain\n'''", "language ''"),
        ("'''sh\nmake test\n'''", "not run: REASON"),
        ("<!-- not run: x -->\n'''sh\nmetaagent run a.py --engin x\n'''", "run has no option --engin"),
        ("<!-- not run: x -->\n'''sh\nmetaagent desing x\n'''", "no command"),
        ("<!-- not run: x -->\n'''sh\nmetaagent design x \\\n  --style long\n'''", "--style takes full, short"),
        ("<!-- not run: x -->\n'''sh\nmake everything\n'''", "no target everything"),
        ("<!-- not run: x -->\n'''sh\npython -m benchmarks.nothing\n'''", "no module benchmarks.nothing"),
        ("'''toml\na = \n'''", "no toml"),
        ("'''jsonl\n{}\n{\n'''", "no jsonl"),
    ],
)
def test_what_is_wrong_is_seen(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(PageError) as wrong:
        page(tmp_path, text).run()
    assert said in str(wrong.value)


def test_what_is_right_passes_and_blocks_share_folder_and_names(tmp_path: Path) -> None:
    right = page(
        tmp_path,
        """'''python title="a/b.py"
x = 1 / 0  # written, not run
'''
'''python
import pathlib
text = pathlib.Path("a/b.py").read_text()
'''
'''python
assert text.startswith("x = 1")
'''
'''console
$ cat a/b.py; echo said >&2
x = 1 ...
said
$ ls templates | wc -l > count; false  # exit 1
'''
<!-- not run: it takes hours -->
'''sh
export X=1
METAAGENT_ENGINE=x metaagent run a.py "?" --engine=y --trace t.jsonl   # metaagent run --nothing
make speedrun OUT=runs/x
'''
""",
    )
    right.run()
    assert right.not_run == ["page.md:18: it takes hours"]


def test_a_reason_counts_for_the_next_block_only(tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"page\.md:7: an sh block"):
        page(tmp_path, "<!-- not run: x -->\n'''sh\nls\n'''\n\ntext\n'''sh\nls\n'''\n").run()


@pytest.mark.parametrize(
    ("expected", "seen", "same"),
    [
        ("a\n...\nd", "a\nb\nc\nd\n", True),
        ("a\n...\nd", "a\nd\n", True),
        ("a\n...\nd", "a\nb\nc\n", False),
        ("took ... s", "took 0.25 s", True),
        ("took ... s", "took\n1 s", False),
        ("a.b", "axb", False),
        ("a", "a\nb", False),
    ],
)
def test_three_points_stand_for_what_differs(expected: str, seen: str, same: bool) -> None:
    assert matches(expected, seen) is same


def test_commands_are_told_from_output() -> None:
    assert list(commands("$ one \\\n>  two  # exit 4\nsaid\n$ three\n")) == [("one  two", 4, "said"), ("three", 0, "")]


@pytest.mark.parametrize(
    ("link", "dead"),
    [
        ("[a](page.md)", False),
        ("[a](#one-two)", False),
        ("[a](#two-one)", True),
        ("[a](gone.md)", True),
        ("| x |\n|---|\n| [a](gone.md) |", True),
        ("![a](gone.png)", True),
        ("[a](https://example.org/x)", False),
        ("[a](http://example.org/x)", True),
        ("[a](https://nowhere)", True),
    ],
)
def test_dead_links_are_seen(tmp_path: Path, link: str, dead: bool) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"# One & two!\n\n{link}\n")
    assert bool(dead_links(path)) is dead
