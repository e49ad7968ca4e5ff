"""Pages in a real browser: they open, clicks and keys go where they should, hostile traces stay inert, what goes on is
followed, nothing is written to the console, and no request leaves the page.

Needs Selenium and Debian's chromium with chromium-driver; skipped where they are not installed.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from evaluation_folders import attempt, folder_of
from made_runs import made, turn
from made_traces import write as write_trace
from made_trees import SINGLE, by_seed, configured, designed, grown
from markupsafe import Markup
from training_folders import events as run_events
from training_folders import report, training_folder, write_run

from viewer import Designed, Site, WorkSite, open_site, serving, write
from viewer.server import Server
from viewer.sites import Page
from workflow.failures import Failure
from workflow.trace import Answered, Event, Printed, RunEnded, RunStarted, Trace

pytest.importorskip("selenium")
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="chromium and chromium-driver are not installed"),
]
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1200,900",
)  # fmt: skip
COUNTED = """
const real = window.fetch;
window.asking = 0;
window.fetch = (...what) => { window.asking += 1; return real(...what).finally(() => { window.asking -= 1; }); };
"""
"""Counts what a page has asked and not been answered."""
HOSTILE = (
    "</script></template><script>window.hit = 1</script><img src=x onerror='window.hit = 2'>"
    "<svg onload='window.hit = 3'><a href='javascript:window.hit = 4'>a</a>{{ 7 * 7 }}\u202e\x1b[31m\x00\ud800"
    "<iframe src='http://example.com/'></iframe><style>body { display: none }</style><base href='http://example.com/'>"
)
PROGRAM = f'''from workflow import AgentNode, Workflow
solver = AgentNode("Solver", """{HOSTILE}""")
workflow = Workflow("w").add_node(solver)
'''


class Browser:
    """One page at a time, and all that it asked for and complained about."""

    def __init__(self, profile: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(BROWSER)
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": COUNTED})
        self.driver.set_page_load_timeout(60)

    def open(self, address: str) -> None:
        self.driver.get("about:blank")
        self.driver.get_log("performance")
        self.driver.get_log("browser")
        self.driver.get(address)
        self.until(lambda: self.text("#page").strip(), "the page stays empty")

    def until(self, so: Callable[[], Any], otherwise: str) -> Any:
        return WebDriverWait(self.driver, 20, 0.05).until(lambda _: so(), otherwise)

    def see(self, text: str) -> None:
        self.until(lambda: text in self.text("#page"), f"no {text!r} is seen")

    def text(self, selector: str) -> str:
        return self.driver.execute_script("return document.querySelector(arguments[0])?.innerText || ''", selector)

    def count(self, selector: str) -> int:
        return self.driver.execute_script("return document.querySelectorAll(arguments[0]).length", selector)

    def click(self, selector: str) -> None:
        self.driver.execute_script("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        self.driver.find_element(By.CSS_SELECTOR, selector).click()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def ask_no_more(self) -> None:
        """Before its server ends: what is asked then would be complained of."""
        self.driver.execute_script("window.fetch = () => new Promise(() => {})")
        self.until(lambda: not self.driver.execute_script("return window.asking || 0"), "the page still asks")

    def route(self) -> str:
        return self.driver.execute_script("return decodeURIComponent(location.hash)")

    def complaints(self) -> list[str]:
        """What the console says, and requests that go elsewhere than to where the page came from."""
        origin = self.driver.execute_script("return location.protocol + '//' + location.host")
        told = [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if not url.startswith((origin, "data:", "about:", "chrome")):
                    told.append(f"asks {url}")
        return told


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(opened: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield opened
    assert opened.complaints() == []


@contextmanager
def served(browser: Browser, site: Site) -> Iterator[Server]:
    with serving(site) as server:
        yield server
        browser.ask_no_more()


def trace_file(path: Path, trace: Trace) -> Path:
    path.write_text("".join(trace.lines()), encoding="utf-8", errors="replace")
    return path


def shown_as_file(browser: Browser, path: Path, tmp_path: Path, **more: Any) -> Site:
    site = open_site(path, **more)
    write(site, tmp_path / "page.html")
    browser.open((tmp_path / "page.html").as_uri())
    return site


def test_a_run_opens_from_its_file_with_graph_and_links(browser: Browser, tmp_path: Path) -> None:
    run = made(
        turn("w/Solver", text="2"),
        turn("w/Critic", 1.0, 2.0, text="Verdict: CORRECT"),
        Answered(text="2", from_agent="Solver"),
    )
    shown_as_file(browser, trace_file(tmp_path / "run.jsonl", run.trace), tmp_path)
    browser.see("Solver")
    assert browser.count(".graph svg .node") >= 4
    before = browser.driver.execute_script("return scrollY")
    browser.driver.execute_script(
        "const nodes = [...document.querySelectorAll('.graph .node.goes')];"
        "nodes.at(-1).dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    browser.until(lambda: browser.count(".here") == 1, "no part is marked")
    assert "Critic" in browser.text(".here")
    assert browser.driver.execute_script("return scrollY") >= before


def test_hostile_traces_do_nothing(browser: Browser, tmp_path: Path) -> None:
    ended = RunEnded(failure=Failure(kind="program_failed", message=HOSTILE))
    answered = Answered(text=HOSTILE, from_agent=HOSTILE[:40])
    said = turn("w/Solver", text=HOSTILE), Printed(text=HOSTILE * 200)
    run = made(*said, answered, ended, program=PROGRAM, question=HOSTILE, ended=False)
    path = trace_file(tmp_path / "run.jsonl", run.trace)
    shown_as_file(browser, path, tmp_path)
    browser.driver.execute_script("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert browser.driver.execute_script("return window.hit") is None
    assert browser.count("#page iframe, #page script:not([type='application/json']), #page img, #page style, base") == 0
    assert browser.driver.find_element(By.ID, "page").is_displayed()
    assert "{{ 7 * 7 }}" in browser.text("#page")
    assert "\\u202e\\x1b[31m\\x00" in browser.text("#page")
    with served(browser, open_site(path)) as server:
        browser.open(server.address)
        assert browser.driver.execute_script("return window.hit") is None
        assert browser.count("#page iframe, #page img") == 0


def test_a_training_run_draws_its_charts_and_leads_to_its_runs(browser: Browser, tmp_path: Path) -> None:
    folder = training_folder(tmp_path / "run", [report(step) for step in range(4)])
    for question in (0, 1):
        write_run(folder, 3, question, 0, 0, run_events(f"What is {question}?", 1.4))
    shown_as_file(browser, folder, tmp_path)
    browser.until(lambda: browser.count("figure svg") == browser.count("figure[data-chart]") > 5, "charts are missing")
    assert "cannot be drawn" not in browser.text("#page")
    colour = browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.press("t")
    assert browser.driver.execute_script("return getComputedStyle(document.body).backgroundColor") != colour
    browser.until(lambda: browser.count("figure svg") == browser.count("figure[data-chart]"), "charts are gone")
    browser.driver.execute_script("location.hash = '#/step/000003'")
    browser.see("What is 1?")
    browser.press("j", "j")
    assert browser.count(".here") == 1
    browser.press(Keys.ENTER)
    browser.until(lambda: browser.route().startswith(("#/run/", "#/tree/")), "Enter opens nothing")
    browser.press("u")
    browser.see("What is 1?")
    browser.press("?")
    assert browser.driver.find_element(By.ID, "keys").is_displayed()
    browser.press(Keys.ESCAPE)
    browser.press("g")
    browser.until(lambda: browser.count("figure[data-chart]") > 5, "g does not lead to the first page")


def test_a_tree_leads_to_its_runs_and_to_two_side_by_side(browser: Browser, tmp_path: Path) -> None:
    config = configured(tmp_path / "run")
    grown(tmp_path / "run", config, designed(SINGLE), by_seed("It is \\boxed{4}.", "It is \\boxed{5}."))
    with served(browser, open_site(tmp_path / "run")) as server:
        browser.open(server.address + "#/tree/step-000003/question-0000")
        browser.see("Question 0 of step 3")
        runs = ".matrix td.cell a.item"
        assert browser.count(runs) == config.rollout.designs * config.rollout.executions
        browser.click(runs)
        browser.until(lambda: browser.route().startswith("#/run/"), "a cell leads nowhere")
        browser.see("Solver")
        browser.press("u")
        browser.see("Question 0 of step 3")
        left, right = [f"step-000003/question-0000/design-00-execution-0{number}.jsonl" for number in (0, 1)]
        browser.driver.execute_script(f"location.hash = '#/compare?left={left}&right={right}'")
        browser.see("execution-01")


def test_evaluations_are_narrowed_and_compared(browser: Browser, tmp_path: Path) -> None:
    problems = [f"p{number}" for number in range(30)]
    before = folder_of(tmp_path / "SFT", [attempt(each, correct=each in problems[:10]) for each in problems])
    after = folder_of(tmp_path / "RL", [attempt(each, correct=each in problems[5:25]) for each in problems])
    with served(browser, open_site(after, before)) as server:
        browser.open(server.address)
        browser.see("15 fixed")
        browser.see("5 broken")
        browser.driver.execute_script("location.hash = '#/attempts'")
        browser.see("p29")
    shown_as_file(browser, after, tmp_path)
    browser.see("66.7 %")
    browser.until(lambda: browser.count("figure svg") >= 1, "there is no chart")


def test_a_search_over_many_traces(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for number in range(60):
        said = "the needle" if number == 41 else "hay"
        trace_file(folder / f"{number}.jsonl", made(Answered(text=said), question=f"question {number}").trace)
    (folder / "broken.jsonl").write_text('{"type": "run_st', encoding="utf-8")
    site = open_site(folder)
    with served(browser, site) as server:
        browser.open(server.address)
        browser.see("61 traces")
        field = browser.driver.find_element(By.CSS_SELECTOR, "form input[type=search]")
        field.send_keys("needle", Keys.ENTER)
        browser.until(lambda: "q=needle" in browser.route(), "the search leads nowhere")
        browser.until(lambda: browser.count(".runs > .item") == 1, "the search finds another number")
        browser.click(".runs > .item a")
        browser.see("the needle")
        trace_file(folder / "new.jsonl", made(Answered(text="fresh"), question="a new one").trace)
        browser.driver.execute_script("location.hash = '#/list'")
        browser.see("62 traces")
    site.close()


def test_a_run_that_goes_on_is_followed(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    trace = Trace(events=[RunStarted(run_id="r", question="Q?", engine="e"), turn("w/Solver", text="first words")])
    lines = list(trace.lines())
    path.write_text("".join(lines) + '{"t":1.0,"type":"prin', encoding="utf-8")
    with serving(open_site(path)) as server:
        browser.open(server.address)
        browser.see("first words")
        browser.driver.execute_script("window.kept = 1")
        rest = Trace(events=[Printed(text="later words"), Answered(text="done"), RunEnded()])
        path.write_text("".join([*lines, *rest.lines()]), encoding="utf-8")
        browser.see("later words")
        assert browser.driver.execute_script("return window.kept") == 1  # the page was not loaded anew
    time.sleep(1.5)
    browser.until(lambda: "server is gone" in browser.text("#status"), "the end of the server is not told")
    assert all("ERR_CONNECTION_REFUSED" in said for said in browser.complaints())


def test_what_the_reader_has_done_outlives_what_goes_on(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    events: list[Event] = [RunStarted(run_id="r", question="Q?", engine="e")]
    events += [turn("w/Solver", number=number, text=f"{number} " + "x " * 4000) for number in range(6)]
    trace_file(path, Trace(events=events))

    def here() -> str:
        return browser.driver.execute_script("return document.querySelector('.here')?.id || ''")

    def folds() -> list[bool]:
        return browser.driver.execute_script("return [...document.querySelectorAll('#e3 details')].map(e => e.open)")

    with served(browser, open_site(path)) as server:
        browser.open(server.address)
        browser.until(lambda: browser.count("article.event") == 6, "six replies are shown")
        browser.press(*"jjjj")
        assert here() == "e4"
        browser.driver.execute_script(
            "document.querySelectorAll('#e3 details').forEach(each => each.open = !each.open)"
        )
        changed = folds()
        assert any(changed)
        trace_file(path, Trace(events=[*events, turn("w/Solver", number=6, text="the seventh")]))
        browser.until(lambda: browser.count("article.event") == 7, "the seventh reply is not followed")
        assert (here(), folds()) == ("e4", changed)
        assert browser.driver.execute_script("return document.activeElement.id") == "e4"
        browser.press("j")
        assert here() == "e5"
        # What is being copied stays where it is.
        browser.driver.execute_script("getSelection().selectAllChildren(document.querySelector('#e2 pre'))")
        trace_file(path, Trace(events=[*events, *(turn("w/Solver", number=n, text="more") for n in (6, 7))]))
        time.sleep(2.5)
        assert browser.count("article.event") == 7
        browser.driver.execute_script("getSelection().removeAllRanges()")
        browser.until(lambda: browser.count("article.event") == 8, "nothing is followed any more")


def test_who_goes_to_a_row_that_is_narrowed_away_sees_it(browser: Browser, tmp_path: Path) -> None:
    events = [RunStarted(run_id="r", question="Q?", engine="e"), turn("w/A", text="one"), turn("w/B", text="two")]
    shown_as_file(browser, trace_file(tmp_path / "run.jsonl", Trace(events=[*events, RunEnded()])), tmp_path)
    browser.driver.execute_script(
        "const words = document.querySelector('input[data-filter]'); words.value = 'one';"
        "words.dispatchEvent(new Event('input'))"
    )
    assert browser.count("article.event[hidden]")
    goes = "[...document.querySelectorAll('g.goes')].find(each => each.textContent.includes('B'))"
    browser.driver.execute_script(f"{goes}.dispatchEvent(new MouseEvent('click'))")
    assert browser.count("article.event[hidden]") == 0
    assert "two" in browser.text(".here")


def test_a_design_is_seen_while_it_is_written(browser: Browser) -> None:
    site = WorkSite("What is 1 + 1?")
    with served(browser, site) as server:
        browser.open(server.address)
        browser.see("Nothing has been written yet")
        site.written("from workflow import")
        browser.see("from workflow import")
        site.designed([Designed(by="bank", program="x = 1\n", chosen=True)])
        browser.see("Design 1 of 1 chosen")


@pytest.mark.parametrize("width", [412, 1200])
def test_pages_fit_a_phone(browser: Browser, tmp_path: Path, width: int) -> None:
    folder = training_folder(tmp_path / "run", [report(step) for step in range(12)])
    browser.driver.set_window_size(max(width, 500), 900)
    try:
        browser.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        shown_as_file(browser, folder, tmp_path)
        browser.until(lambda: browser.count("figure svg") > 5, "charts are missing")
        wide = browser.driver.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width + 1
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.driver.set_window_size(1200, 900)


class FailsOnce:
    """A page that cannot be made at first."""

    home = "page"

    def __init__(self) -> None:
        self.fails, self.asked, self.changed = 1, 0, 0

    def page(self, route: str) -> Page:
        self.asked += 1
        if self.asked <= self.fails:
            raise ValueError("not yet")
        return Page(title="made", body=Markup("<p>here it is, {}</p>").format(self.changed))

    def version(self, route: str) -> str:
        return str(self.changed)

    def routes(self) -> Iterator[str]:
        yield self.home

    def close(self) -> None:
        pass


def test_a_page_that_failed_is_tried_again_and_followed(browser: Browser) -> None:
    site = FailsOnce()
    with served(browser, site) as server:
        browser.open(server.address)
        browser.see("here it is, 0")
        site.changed = 1
        browser.see("here it is, 1")
        site.fails, site.asked, site.changed = 10**6, 0, 2
        browser.see("not yet")
        asked = site.asked
        time.sleep(2.5)
        assert site.asked == asked, "what fails is not asked for again and again"
        site.fails, site.changed = 0, 3
        browser.see("here it is, 3")
    browser.driver.get_log("browser")  # it may complain of these failures


def test_going_back_ends_at_the_first_page(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    for number in range(3):
        write_trace(folder / f"{number}.jsonl")
    with served(browser, open_site(folder)) as server:
        browser.open(server.address)
        browser.press("u", "u")
        browser.see("3 traces")
        browser.press("j", Keys.ENTER)
        browser.see("The run answered")
        browser.press("u")
        browser.see("3 traces")
        browser.press("u", "u")
        time.sleep(0.3)
        assert browser.driver.current_url.startswith(server.address)
        browser.open(f"{server.address}#/run/1.jsonl")
        browser.see("The run answered")
        browser.press("u")
        browser.see("3 traces")
    assert browser.complaints() == []


LONG = "Verifier" * 9
WIDER = """
const sticksOut = (each) => each.getBoundingClientRect().right > 391 && !each.closest(".wide, .graph, pre, figure");
const found = [...document.querySelectorAll("main *")].filter(sticksOut).map((each) => each.outerHTML.slice(0, 200));
return [document.documentElement.scrollWidth, found];
"""


@pytest.mark.parametrize("what", ["run", "folder", "training", "evaluation"])
def test_long_names_do_not_widen_a_page_beyond_a_phone(what: str, browser: Browser, tmp_path: Path) -> None:
    program = (
        f'from workflow import AgentNode, Workflow\nworkflow = Workflow("w").add_node(AgentNode("{LONG}", "Do."))\n'
    )
    path = tmp_path / LONG
    if what == "training":
        training_folder(path, [report(step, agents=[LONG]) for step in range(2)])
    elif what == "evaluation":
        folder_of(path, [attempt(f"{LONG}-{number}", task=LONG) for number in range(3)])
    else:
        turns = [turn(LONG, number, number + 1, text=f"\\boxed{{{LONG}}}") for number in range(2)]
        run = made(*turns, Answered(t=3, text=f"\\boxed{{{LONG}}}", from_agent=LONG), program=program, question=LONG)
        path.mkdir()
        file = trace_file(path / f"{LONG}.jsonl", run.trace)
        path = file if what == "run" else path
    phone = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    try:
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        with served(browser, open_site(path)) as server:
            browser.open(server.address)
            time.sleep(0.5)
            assert browser.driver.execute_script(WIDER) == [390, []]
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


READABLE = """
const box = document.querySelector(".graph"), picture = box.querySelector("svg");
const scale = picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
const sizes = [...picture.querySelectorAll("text")].map((each) => parseFloat(getComputedStyle(each).fontSize) * scale);
const ticks = [...document.querySelectorAll(".ticks i")].filter((each) => each.offsetParent);
const places = ticks.map((each) => each.getBoundingClientRect());
const question = picture.querySelector(".node.end").getBoundingClientRect();
const seen = box.getBoundingClientRect();
return {
  least: Math.min(...sizes), page: document.documentElement.scrollWidth,
  wider: box.scrollWidth > box.clientWidth, reached: box.tabIndex,
  overlap: places.some((each, at) => at && each.left < places[at - 1].right),
  ticks: ticks.length, alike: ticks.length - new Set(ticks.map((each) => each.textContent)).size,
  sees_question: question.left >= seen.left && question.right <= seen.right,
};
"""


@pytest.mark.parametrize(("width", "wider", "ticks"), [(360, True, 2), (1200, True, 5)])
def test_a_wide_graph_and_the_time_line_can_be_read_at_any_width(
    width: int, wider: bool, ticks: int, browser: Browser, tmp_path: Path
) -> None:
    turns = [turn(f"vote/Solver number {number}[{number}]", 0.001 * number, 0.026) for number in range(12)]
    phone = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    try:
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
        shown_as_file(browser, trace_file(tmp_path / "run.jsonl", made(*turns).trace), tmp_path)
        browser.until(lambda: browser.count(".graph svg text"), "no graph is drawn")
        told = browser.driver.execute_script(READABLE)
        assert told.pop("least") > 10.9
        assert told.pop("page") <= width
        assert told == {
            "wider": wider,
            "reached": 0 if wider else -1,
            "overlap": False,
            "ticks": ticks,
            "alike": 0,
            "sees_question": True,
        }
        box = browser.driver.find_element(By.CSS_SELECTOR, ".graph")
        before = browser.driver.execute_script("arguments[0].focus(); return arguments[0].scrollLeft", box)
        browser.press(Keys.ARROW_RIGHT)
        browser.until(
            lambda: browser.driver.execute_script("return arguments[0].scrollLeft", box) > before, "no key scrolls"
        )
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_narrow_graph_is_no_stop_for_the_keyboard(browser: Browser, tmp_path: Path) -> None:
    shown_as_file(browser, trace_file(tmp_path / "run.jsonl", made(turn("w/A")).trace), tmp_path)
    browser.until(lambda: browser.count(".graph svg text"), "no graph is drawn")
    assert browser.count(".graph[tabindex]") == 0
