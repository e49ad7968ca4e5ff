"""The pages of one evaluation and of what changed between two: what they say, and that they do nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from evaluation_folders import ENSEMBLE, HOSTILE, attempt, folder_of, rejected
from hypothesis import given, settings
from hypothesis import strategies as st
from inert import text_and_links, text_of

from trainer.evaluate import Attempt, report_of
from viewer.evaluation.attempt_pages import attempt_page, attempts_page, chosen
from viewer.evaluation.changes import compare
from viewer.evaluation.changes_page import Both, changed_page, changes_page
from viewer.evaluation.evaluation_data import Evaluation, EvaluationReader
from viewer.evaluation.evaluation_page import Place, evaluation_page, groups_of
from viewer.evaluation.listing import holds, listed, split_route
from viewer.html import percent
from workflow.completion import Usage
from workflow.usage import Tally

PLACE = Place(name="RL")
SOME = [
    *(attempt(f"a{n}", k, k < n, task="sums", structure="single") for n in range(3) for k in range(2)),
    attempt("b", 0, True, task="chains", structure="ensemble", graph=ENSEMBLE),
    attempt("b", 1, False, task="chains", domain="code", answered=False, verdict="no_answer"),
    rejected("c", 0, task="chains"),
]


@pytest.fixture
def evaluation(tmp_path: Path) -> Evaluation:
    return EvaluationReader(folder_of(tmp_path, SOME)).read()


def specs(body: str) -> list[dict]:
    found = re.findall(r'<figure data-chart><script type="application/json">(.*?)</script>', body, re.DOTALL)
    return [json.loads(spec) for spec in found]


def test_the_figures_of_the_page_are_the_reports(evaluation: Evaluation) -> None:
    report, body = report_of(SOME), str(evaluation_page(evaluation, PLACE).body)
    text, links = text_and_links(body)
    assert report.accuracy is not None
    rate = report.accuracy
    assert f"Accuracy {percent(rate.estimate)} [{100 * rate.low:.1f}, {100 * rate.high:.1f}]" in text
    assert "Attempts 9 at 5 problems" in text
    assert f"Answered {percent(report.answered)}" in text
    assert "Failures program rejected 1" in text
    assert "Per attempt 90 tokens, 2 agent calls, 2.00 s" in text
    for task, each in report.by_task.items():
        assert f"{task} {percent(each.estimate)} [{100 * each.low:.1f}, {100 * each.high:.1f}]" in text
    for name, row in report.structures.items():
        assert f"{name} {percent(row.share)} {row.attempts} {percent(row.correct)}" in text
    assert "5 of 9 attempts are not right" in text
    assert "#/attempts?task=chains" in links
    assert "#/attempts?verdict=no_answer" in links
    assert "#/attempt/9" in links  # the example of a failure
    assert "line 2: unexpected indent" in text


def test_pass_at_k_is_said_where_it_says_something(tmp_path: Path) -> None:
    twice = [attempt(name, number, name == "a" and number == 0) for name in "ab" for number in range(2)]
    body = evaluation_page(EvaluationReader(folder_of(tmp_path, twice)).read(), PLACE).body
    assert "pass@1 25.0 %, pass@2 50.0 %" in text_of(str(body))


def test_its_charts_hold_the_same_numbers(evaluation: Evaluation) -> None:
    accuracy, structures, *costs = specs(str(evaluation_page(evaluation, PLACE).body))
    values = {datum["name"]: datum for datum in accuracy["layer"][0]["data"]["values"]}
    assert list(values) == ["all attempts", "sums", "chains", "domain math", "domain code"]
    rate = report_of(SOME).by_task["sums"]
    told = [values["sums"][name] for name in ("value", "low", "high")]
    assert told == pytest.approx([rate.estimate, rate.low, rate.high], rel=1e-5)
    assert values["sums"]["route"] == "attempts?task=sums"
    assert [datum["name"] for datum in structures["layer"][0]["data"]["values"]] == ["single", "ensemble", "none"]
    assert [chart["layer"][0]["encoding"]["x"]["title"] for chart in costs] == [
        "tokens per attempt",
        "tokens per attempt",
        "agent calls per attempt",
        "agent calls per attempt",
    ]


def test_every_group_has_a_bar_of_its_own(tmp_path: Path) -> None:
    """Whatever tasks are called: alike for long, as a domain, as the whole."""
    tasks = ["x" * 60 + "1", "x" * 60 + "2", "math", "code", "domain math", "all attempts", "", " "]
    found = [attempt(f"p{n}", 0, n % 2 == 0, task=task) for n, task in enumerate(tasks)]
    found.append(attempt("q", 0, True, task="math", domain="code"))
    page = evaluation_page(EvaluationReader(folder_of(tmp_path, found)).read(), PLACE)
    (accuracy, *_) = specs(str(page.body))
    names = [datum["name"] for datum in accuracy["layer"][0]["data"]["values"]]
    assert len(names) == 1 + 7 + 2
    assert len(set(names)) == len(names)


def test_money_is_shown_where_it_is_known(tmp_path: Path) -> None:
    paid = {"executor": Tally(calls=1, usage=Usage(prompt_tokens=5, completion_tokens=5, cost_usd=0.25))}
    found = EvaluationReader(folder_of(tmp_path, [attempt("a", usage=paid), attempt("b")])).read()
    body = str(evaluation_page(found, PLACE).body)
    assert "Cost $0.25 as far as prices are known" in text_of(body)
    assert any(spec["layer"][0]["encoding"]["x"]["title"] == "dollars per attempt" for spec in specs(body))
    assert groups_of(found.rows, lambda row: "all")["all"].cost_usd == 0.25
    assert "$0.25" in text_of(str(attempts_page(found, {}, PLACE).body))


def test_an_evaluation_without_attempts_has_a_page(tmp_path: Path) -> None:
    found = EvaluationReader(folder_of(tmp_path, [])).read()
    assert "no attempts yet" in text_of(str(evaluation_page(found, PLACE).body))
    assert "No attempt yet" in text_of(str(attempts_page(found, {}, PLACE).body))


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, SOME)
    with (folder / "results.jsonl").open("a") as file:
        file.write("<b>no</b> JSON\n" * 30 + '{"half')
    (folder / "evaluation.json").write_text("<i>")
    text = text_of(str(evaluation_page(EvaluationReader(folder).read(), PLACE).body))
    assert "30 broken lines of results.jsonl are left out" in text
    assert "line 10 Invalid JSON" in text
    assert "And 10 more." in text
    assert "the last line of results.jsonl has no end" in text
    assert "evaluation.json does not say how the attempts were made" in text


# Attempts


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ({"right": "yes"}, [3, 5, 6, 7]),
        ({"right": "no", "task": "chains"}, [8, 9]),
        ({"structure": "none"}, [9]),
        ({"structure": "ensemble", "right": "no"}, []),
        ({"verdict": "no_answer"}, [8]),
        ({"domain": "code"}, [8]),
        ({"problem": "a1"}, [3, 4]),
        ({"words": "CHAINS  single"}, [8]),
        ({"words": "a1"}, [3, 4]),
        ({"order": "problem", "task": "chains"}, [7, 8, 9]),
        ({"order": "no such order", "unknown": "x"}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_attempts_are_found(evaluation: Evaluation, asked: dict[str, str], lines: list[int]) -> None:
    assert [row.line for row in chosen(evaluation.rows, asked)] == lines
    _, links = text_and_links(str(attempts_page(evaluation, asked, PLACE).body))
    assert [link for link in links if link.startswith("#/attempt/")] == [f"#/attempt/{line}" for line in lines]


def test_a_long_table_is_cut_into_pages(tmp_path: Path) -> None:
    many = [attempt(f"p{number}", task="a & b = c") for number in range(450)]
    found = EvaluationReader(folder_of(tmp_path, many)).read()
    text, links = text_and_links(str(attempts_page(found, {"task": "a & b = c", "page": "2"}, PLACE).body))
    assert "201 to 400 of 450." in text
    assert sum(link.startswith("#/attempt/") for link in links) == 200
    (before, after) = [link for link in links if "page=" in link]
    assert before == "#/attempts?task=a%2B%2526%2Bb%2B%253D%2Bc&page=1"
    # A browser decodes the address once; what is left is asked for, and means what it meant.
    assert split_route("attempts?task=a+%26+b+%3D+c&page=3") == ("attempts", {"task": "a & b = c", "page": "3"})
    assert after.endswith("page=3")
    for page in ("99", "-1", "x", "", "9" * 400, "٣"):
        assert "of 450" in text_of(str(attempts_page(found, {"page": page}, PLACE).body))


def test_an_attempts_page_says_why_and_leads_on(tmp_path: Path) -> None:
    attempts = [
        attempt("p", 0, trace="traces/p-0.jsonl"),
        rejected("p", 1, program="a = 1\n  b = 2\n", message="line 2: unexpected indent"),
    ]
    found = EvaluationReader(folder_of(tmp_path, attempts)).read()
    text, links = text_and_links(str(attempt_page(attempts[0], found.rows[0], found, PLACE).body))
    assert "p, attempt 0: right Verdict correct" in text
    assert "#/run/traces/p-0.jsonl" in links
    assert "Further attempts at this problem: 1 wrong" in text
    assert "executor 2 0 40 8 – 3, 5" in text
    body = str(attempt_page(attempts[1], found.rows[1], found, PLACE).body)
    text, links = text_and_links(body)
    assert "Program rejected line 2: unexpected indent" in text
    assert 'class="line marked" id="line-2"' in body
    assert not any(link.startswith("#/run/") for link in links)


# What changed


def both(tmp_path: Path, before: list[Attempt], after: list[Attempt]) -> Both:
    return Both(
        before=EvaluationReader(folder_of(tmp_path / "before", before, executor="policy-0")).read(),
        after=EvaluationReader(folder_of(tmp_path / "after", after)).read(),
        before_place=Place(name="SFT", base="before/"),
        after_place=PLACE,
    )


def test_the_page_of_changes_says_which_role_brought_them(tmp_path: Path) -> None:
    flip = {"structure": "reflection", "program": "another"}
    before = [attempt(name, 0, name == "d", trace=f"traces/{name}.jsonl") for name in "abcde"]
    after = [
        attempt(name, 0, name in "abc", trace=f"traces/{name}.jsonl", **(flip if name == "c" else {}))
        for name in "abcde"
    ]
    sides = both(tmp_path, before, after)
    changes = compare(sides.before.rows, sides.after.rows)
    body = str(changes_page(changes, sides).body)
    text, links = text_and_links(body)
    assert "Compared 5 attempts at 5 problems." in text
    assert "Accuracy 20.0 % [3.6, 62.4], then 60.0 % [23.1, 88.2]" in text
    assert "Difference +40.0 [" in text
    assert "3 fixed, 1 broken, 0 right both times, 1 wrong both times" in text
    assert "McNemar's test 3 against 1: p = 0.625" in text
    assert "Of what was fixed, 66.7 %" in text
    assert "33.3 % [6.1, 79.2] was solved after the Designer flipped" in text
    assert "same program 4 2 1 0 1 +1" in text
    assert "designer flip to another structure 1 1 0 0 0 +1" in text
    assert "#/compare?left=traces%252Fa.jsonl&right=traces%252Fa.jsonl" in links
    assert "#/before/attempt/1" in links
    assert "executor policy-0 policy-1" in text
    (parts,) = [spec for spec in specs(body) if "adds" in json.dumps(spec)]
    assert {datum["name"]: datum["value"] for datum in parts["layer"][0]["data"]["values"]} == pytest.approx(
        {"same program": 20.0, "designer flip to another structure": 20.0}
    )


def test_several_attempts_are_compared_by_pass_rates(tmp_path: Path) -> None:
    before = [attempt(name, number, number < right) for name, right in (("a", 0), ("b", 2)) for number in range(2)]
    after = [attempt(name, number, number < right) for name, right in (("a", 2), ("b", 1)) for number in range(2)]
    sides = both(tmp_path, before, after)
    text, links = text_and_links(str(changes_page(compare(sides.before.rows, sides.after.rows), sides).body))
    assert "1 have a higher pass rate, 1 a lower one, 0 the same" in text
    assert "McNemar" not in text
    assert "before ↓ after → 0 1 2 0 0 0 1 1 0 0 0 2 0 1 0" in text
    assert "Problems that gained most problem task right before right after attempts a 0 2 2" in text
    assert "#/changed?problem=a" in links


def test_evaluations_with_nothing_in_common_are_said_to(tmp_path: Path) -> None:
    sides = both(tmp_path, [attempt("a")], [attempt("b")])
    changes = compare(sides.before.rows, sides.after.rows)
    text = text_of(str(changes_page(changes, sides).body))
    assert "No attempt is in both" in text
    assert "1 attempts are in SFT alone. 1 are in RL alone." in text
    assert "0 are compared" in text_of(str(changed_page(changes, {}, sides).body))


@pytest.mark.parametrize(
    ("asked", "problems"),
    [
        ({}, "abcd"),
        ({"outcome": "fixed"}, "ab"),
        ({"outcome": "fixed", "design": "designer flip"}, "b"),
        ({"from": "single", "to": "reflection"}, "b"),
        ({"words": "broken same program"}, "c"),
        ({"problem": "d"}, "d"),
        ({"task": "t"}, ""),
    ],
)
def test_attempts_that_changed_are_found(tmp_path: Path, asked: dict[str, str], problems: str) -> None:
    before = [attempt(name, 0, name in "cd") for name in "abcd"]
    after = [attempt(name, 0, name in "abd", structure="reflection" if name == "b" else "single") for name in "abcd"]
    sides = both(tmp_path, before, after)
    body = changed_page(compare(sides.before.rows, sides.after.rows), asked, sides).body
    _, links = text_and_links(str(body))
    assert [link[-1] for link in links if link.startswith("#/attempt/")] == [str("abcd".index(p) + 1) for p in problems]


# Whatever stands in the files


def test_hostile_texts_do_nothing(tmp_path: Path) -> None:
    more = dict.fromkeys(("task", "verdict", "message", "program"))
    before = [attempt(text, 0, False, **(more | dict.fromkeys(more, text)), trace=text) for text in HOSTILE]
    after = [rejected(text, 0, **dict.fromkeys(more, text), template=text, trace=text) for text in HOSTILE]
    after.append(attempt(HOSTILE[0], 1, True, task=HOSTILE[1], structure="debate"))
    before.append(attempt(HOSTILE[0], 1, False, task=HOSTILE[1]))
    sides = both(tmp_path, before, after)
    (tmp_path / "after" / "evaluation.json").write_text(json.dumps({text: {text: text} for text in HOSTILE}))
    after_reader = EvaluationReader(tmp_path / "after")
    found, place = after_reader.read(), Place(name=HOSTILE[0], links=((HOSTILE[0], "#/x", False),))
    changes = compare(sides.before.rows, found.rows)
    hostile = Both(
        before=sides.before, after=found, before_place=Place(name=HOSTILE[2], base="before/"), after_place=place
    )
    pages = [evaluation_page(found, place), changes_page(changes, hostile)]
    for text in HOSTILE:
        asked = dict.fromkeys(("words", "task", "verdict", "problem", "order", "outcome", "design", "from", text), text)
        pages += [attempts_page(found, {"task": text}, place), attempts_page(found, asked, place)]
        pages += [changed_page(changes, {"problem": text}, hostile), changed_page(changes, asked, hostile)]
    pages += [attempt_page(after_reader.attempt(row), row, found, place) for row in found.rows]
    for page in pages:
        text = text_of(str(page.body))
        assert len(page.body) < 200_000
        for spec in specs(str(page.body)):
            assert not {"calculate", "filter", "expr", "signal", "url"} & set(re.findall(r'"(\w+)":', json.dumps(spec)))


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@given(TEXTS, TEXTS, TEXTS)
@settings(max_examples=30)
def test_any_text_is_shown_as_text(tmp_path_factory, problem: str, verdict: str, task: str) -> None:
    folder = tmp_path_factory.mktemp("evaluation")
    reader = EvaluationReader(folder_of(folder, [rejected(problem, verdict=verdict, task=task, message=verdict)]))
    found = reader.read()
    text_of(str(evaluation_page(found, PLACE).body))
    text_of(str(attempts_page(found, {"words": verdict}, PLACE).body))
    text_of(str(attempt_page(reader.attempt(found.rows[0]), found.rows[0], found, PLACE).body))
    page, asked = split_route(PLACE.route("attempts", problem=problem, verdict=verdict, task=task))
    given = {"problem": problem, "verdict": verdict, "task": task}
    assert (page, asked) == ("attempts", {name: value for name, value in given.items() if value})


# Lists and charts


def test_pages_of_a_list() -> None:
    assert [listed(range(5), {"page": str(page)}, 2).items for page in range(5)] == [
        range(2),
        range(2),
        range(2, 4),
        range(4, 5),
        range(4, 5),
    ]
    last = listed(range(5), {"page": "3"}, 2)
    assert (last.first, last.last, last.total, last.page, last.pages) == (5, 5, 5, 3, 3)
    empty = listed([], {})
    assert (empty.first, empty.last, empty.pages) == (0, 0, 1)


def test_routes_are_taken_apart() -> None:
    assert split_route("attempts") == ("attempts", {})
    assert split_route("attempts?a=1&b=&a=2&c") == ("attempts", {"a": "2"})
    assert split_route("attempts?" + "&".join(f"f{n}=1" for n in range(1000))) == ("attempts", {})
    assert split_route("x?a=%ff%zz")[1] == {"a": "\ufffd%zz"}


def test_words_stand_in_any_order() -> None:
    assert holds("One two three", "THREE one")
    assert holds("anything", "  ")
    assert not holds("One two", "one four")
