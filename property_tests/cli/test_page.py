"""The HTML page of a comparison in a real browser: it opens alone, sorts, filters, zooms, fits a phone and paper."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from property_tests.cli.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
EVIL = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the whole module; where there is none, the reason says what to install."""
    if CHROMIUM is None:
        assert not os.environ.get("KVTWIN_NEEDS_BROWSER"), "no chromium on the PATH: apt-get install chromium"
        pytest.skip("no chromium on the PATH: apt-get install chromium (or any other Chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages of two comparisons: a broken build beside a sound one, and 531 requests of an agentic workload."""
    out = tmp_path_factory.mktemp("pages")
    (script,) = entry_points(group="console_scripts", name="kvtwin")
    main = script.load()
    assert main(["compare", "x05_repeat", "--builds", "target-only,unified", "--out", str(out / "small")]) == 0
    assert main(["compare", "agentic", "--builds", "target-only", "--out", str(out / "large")]) == 0
    return out


@dataclass
class Opened:
    """A page in a browser, with everything that it said or asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def view(self) -> tuple[float, float]:
        """The stretch of the run that the timeline shows, in microseconds."""
        self.settle()
        begin, end = (self.page.locator("#tl-stage").get_attribute("data-view") or "").split()
        return float(begin), float(end)

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def column(self, table: str, place: int) -> list[str]:
        """The texts of a column of a table, from the top."""
        return self.page.locator(f"{table} tbody tr > :nth-child({place})").all_inner_texts()


Open = Callable[..., Opened]


@pytest.fixture
def show(browser: Browser, folder: Path) -> Iterator[Open]:
    """``show("small")``: a page, opened on a desk unless told otherwise; it must neither complain nor use a network."""
    contexts, pages = [], []

    def call(name: str, viewport: dict[str, int] = DESK, dark: bool = False) -> Opened:
        context = browser.new_context(
            viewport=viewport,  # type: ignore[arg-type]
            color_scheme="dark" if dark else "light",
            has_touch=viewport is PHONE,
        )
        contexts.append(context)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda message: opened.said.append(message.text))
        opened.page.on("pageerror", lambda error: opened.said.append(str(error)))
        opened.page.on("dialog", lambda dialog: opened.said.append(dialog.message))
        opened.page.on("request", lambda request: opened.asked.append(request.url))
        path = folder / name
        opened.page.goto((path / "report.html" if path.is_dir() else path).as_uri())
        pages.append(opened)
        return opened

    yield call
    for opened in pages:
        assert opened.said == []
        assert [url for url in opened.asked if not url.startswith(("file:", "data:"))] == []
        assert len([url for url in opened.asked if url.startswith("file:")]) == 1
    for context in contexts:
        context.close()


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace(",", "").rstrip("%")) for text in texts if text != "–"]


# -- what a reader meets first -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_opens_alone_and_begins_with_what_came_of_it(show: Open, dark: bool) -> None:
    page = show("small", dark=dark).page
    assert page.title() == "x05_repeat: comparison"
    lead = page.locator("header p.lead").inner_text()
    assert lead.startswith("unified broke no law; target-only broke INIT, as it declares. ")
    assert "prefilled 8,270 tokens" in lead
    assert page.locator("header").bounding_box()["y"] < 30  # type: ignore[index]
    backdrop = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert backdrop == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")


def test_a_forced_acceptance_is_named_with_a_warning(show: Open) -> None:
    page = show("small").page
    assert "Acceptance is forced" in page.locator("header .box").inner_text()
    assert "Acceptance is forced" in page.locator("#figures .note").inner_text()


def test_a_page_has_every_plot_with_axes_and_units(show: Open) -> None:
    page = show("large").page
    headings = page.locator("figure h3").all_inner_texts()
    assert headings == [
        "Reuse by build",
        "Prefilled tokens over the workload",
        "Acceptance length by drafter-window coverage",
        "Occupancy of pool target",
        "Occupancy of pool draft",
        "Time to first token",
        "Time per output token",
        "Step time by batch",
    ]
    words = [" ".join(figure.locator("svg text").all_text_contents()) for figure in page.locator("figure").all()]
    units = ["share of the prompt", "tokens", "tokens per verify step", "pages", "pages"] + ["milliseconds"] * 3
    assert all(unit in text for unit, text in zip(units, words, strict=True))
    assert all(len(re.findall(r"\d", text)) > 6 for text in words)  # ticks


# -- tables ------------------------------------------------------------------------------------------------------------


def test_the_requests_sort_by_a_click_and_by_the_keyboard(show: Open) -> None:
    opened = show("large")
    heading = opened.page.locator("#rq-table thead th", has_text="prefilled")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    place = 1 + heading.evaluate("cell => cell.cellIndex")
    largest = numbers(opened.column("#rq-table", place)[:300])
    assert largest == sorted(largest, reverse=True) and largest[0] == 36_000
    heading.locator("button").focus()
    opened.page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    smallest = numbers(opened.column("#rq-table", place)[:300])
    assert smallest == sorted(smallest) and smallest[0] < largest[-1]


def test_a_table_of_the_page_sorts_by_value_and_not_by_text(show: Open) -> None:
    opened = show("small")
    table = "#lifecycles table"
    before = opened.column(table, 1)
    opened.page.locator(f"{table} th", has_text="hit tokens").locator("button").click()
    hits = numbers(opened.column(table, 5))
    assert hits == sorted(hits, reverse=True) and len(hits) == len(before) == 4
    opened.page.locator(f"{table} th", has_text="build").locator("button").click()
    assert opened.column(table, 1) == sorted(before)


def test_requests_are_filtered_by_number_range_and_session(show: Open) -> None:
    opened = show("large")
    field_, count = opened.page.locator("#rq-filter"), opened.page.locator("#rq-count")
    assert count.inner_text() == "531 of 531"
    field_.fill("3-5, 9")
    assert opened.column("#rq-table", 1) == ["3", "4", "5", "9"]
    field_.fill("c07")
    assert set(opened.column("#rq-table", 2)) == {"c07"}
    field_.fill("nobody")
    assert count.inner_text() == "0 of 531"


def test_a_long_table_shows_its_rows_in_parts(show: Open) -> None:
    page = show("large").page
    rows = page.locator("#rq-table tbody tr")
    assert rows.count() == 301
    page.get_by_role("button", name="Show more (231 are left)").first.click()
    assert rows.count() == 531


# -- the timeline ------------------------------------------------------------------------------------------------------


def test_the_timeline_zooms_by_buttons_wheel_and_keyboard(show: Open) -> None:
    opened = show("large")
    page = opened.page
    page.locator("#tl-fit").click()
    begin, end = opened.view()
    assert begin == 0 and end > 100e6  # microseconds
    page.locator("#tl-in").click()
    closer = opened.view()
    assert closer[1] - closer[0] == pytest.approx((end - begin) / 2, rel=0.01)
    page.locator("#tl-canvas").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -60)
    page.keyboard.up("Control")
    closest = opened.view()
    assert closest[1] - closest[0] < 0.7 * (closer[1] - closer[0])
    page.locator("#tl-rows").focus()
    page.keyboard.press("ArrowRight")
    assert opened.view()[0] > closest[0]
    page.keyboard.press("0")
    assert opened.view() == (begin, end)


def test_the_timeline_moves_under_the_hand_and_its_strip_chooses_a_stretch(show: Open) -> None:
    opened = show("large")
    page = opened.page
    page.locator("#tl-rows").scroll_into_view_if_needed()
    box = page.locator("#tl-overview").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 500, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, middle, steps=4)
    page.mouse.up()
    begin, end = opened.view()
    assert 30e6 < begin < end < 100e6
    rows = page.locator("#tl-canvas").bounding_box()
    assert rows is not None
    page.mouse.move(rows["x"] + 600, rows["y"] + 150)
    page.mouse.down()
    page.mouse.move(rows["x"] + 500, rows["y"] + 150, steps=4)
    page.mouse.up()
    moved = opened.view()
    assert moved[0] > begin and moved[1] - moved[0] == pytest.approx(end - begin, rel=0.01)


def test_the_timeline_shows_the_requests_and_kinds_that_are_asked_for(show: Open) -> None:
    opened = show("large")
    page, stage = opened.page, opened.page.locator("#tl-stage")
    assert stage.get_attribute("data-rows") == "531"
    kinds = page.locator("#tl-legend button")
    assert kinds.all_inner_texts() == ["queued", "prefill chunk", "generation", "copy", "claim", "publication", "end"]
    painted = "document.getElementById('tl-canvas').toDataURL()"
    before = page.evaluate(painted)
    kinds.filter(has_text="generation").click()
    opened.settle()
    assert page.evaluate(painted) != before
    page.locator("#tl-filter").fill("c07")
    opened.settle()
    assert 0 < int(stage.get_attribute("data-rows") or "") < 40


def test_a_tap_on_the_timeline_tells_what_stands_there(show: Open) -> None:
    opened = show("small")
    opened.page.locator("#tl-filter").fill("1")
    opened.settle()
    opened.page.locator("#tl-canvas").click(position={"x": 1000, "y": 32})
    told = opened.page.locator("#tl-readout").inner_text()
    assert told.startswith("request 1, session ") and "verify steps" in told and "iteration" in told


def test_531_requests_are_drawn_while_a_hand_moves(show: Open) -> None:
    """Thirty zooms and scrolls, each drawn before the next one: no eye may see it jerk."""
    opened = show("large")
    opened.page.locator("#tl-height").select_option("5")
    opened.settle()
    each = opened.page.evaluate(
        """async () => {
            const [rows, zoom] = [document.getElementById("tl-rows"), document.getElementById("tl-out")];
            const begin = performance.now();
            for (let turn = 0; turn < 30; turn++) {
                rows.scrollTop = turn * 60;
                if (turn % 3 === 0) zoom.click();
                await new Promise((done) => requestAnimationFrame(done));
            }
            return (performance.now() - begin) / 30;
        }"""
    )
    assert each < 60  # milliseconds, on a machine that tests other things meanwhile


# -- violations --------------------------------------------------------------------------------------------------------


def test_the_first_violation_of_each_law_is_told_as_explain_tells_it(show: Open, kvtwin: Command) -> None:
    page = show("small").page
    kvtwin("run", "x05_repeat", "--build", "target-only", "--out", "broken")
    story = kvtwin("explain", "broken", "1", "--json").json()["story"]
    told = page.locator("#violations details").first
    assert "INIT on target-only" in told.locator("summary").inner_text()
    assert told.locator("pre").first.inner_text().split("\n")[1:] == story
    assert told.locator("pre.broke").inner_text() in kvtwin("explain", "broken", "1").out


def test_violations_are_filtered_and_open_to_their_story(show: Open) -> None:
    opened = show("large")
    page = opened.page
    assert page.locator("#vi-count").inner_text() == "517 of 517"
    page.locator("#vi-filter").fill("request 9")
    assert opened.column("#vi-table", 4) == ["9"]
    row = page.locator("#vi-table tbody tr").first
    row.focus()
    page.keyboard.press("Enter")
    assert row.get_attribute("aria-expanded") == "true"
    under = page.locator("#vi-table tr.open")
    assert "is admitted as owner" in under.inner_text() and "INIT broke" in under.inner_text()
    page.keyboard.press("Enter")
    assert under.count() == 0


# -- where it is read --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["small", "large"])
def test_nothing_is_wider_than_a_phone(show: Open, name: str) -> None:
    opened = show(name, viewport=PHONE)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    sizes = opened.page.evaluate(
        """() => [...document.querySelectorAll("figure svg text")].map((text) => text.getBoundingClientRect().height)"""
    )
    assert min(sizes) > 8  # a line of text, in pixels
    opened.page.locator("#requests").scroll_into_view_if_needed()
    opened.page.touchscreen.tap(180, 300)
    opened.settle()


def test_the_theme_can_be_chosen_and_canvases_follow(show: Open) -> None:
    opened = show("small")
    page = opened.page
    painted = "document.getElementById('tl-canvas').toDataURL()"
    opened.settle()
    light = page.evaluate(painted)
    button = page.locator("#theme")
    button.click()
    button.click()
    assert button.inner_text() == "Theme: dark"
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(20, 23, 27)"
    assert page.evaluate(painted) != light


def test_paper_is_white_and_has_no_controls(show: Open) -> None:
    opened = show("small", dark=True)
    page = opened.page
    dark = page.evaluate("document.getElementById('tl-canvas').toDataURL()")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible() and not page.locator(".tools").first.is_visible()
    assert page.locator("#figures").is_visible() and page.locator("#violations details").first.is_visible()
    opened.settle()
    assert page.evaluate("document.getElementById('tl-canvas').toDataURL()") != dark
    sheets = page.pdf(format="A4")
    assert sheets.startswith(b"%PDF") and 2 <= len(re.findall(rb"/Type\s*/Page\b", sheets)) <= 12


# -- what it is made of ------------------------------------------------------------------------------------------------


def test_names_from_a_scenario_are_text_and_never_markup(
    show: Open, kvtwin: Command, scenario_file: Callable[..., Path], tmp_path: Path
) -> None:
    path = scenario_file(replace=("name: repeat", f"name: {json.dumps(EVIL)}"))
    assert kvtwin("compare", path, "--builds", "target-only,unified", "--out", "evil").code == 0
    opened = show(str(tmp_path / "evil"))
    assert EVIL in opened.column("#rq-table", 2)
    opened.page.locator("#tl-filter").fill("script")
    opened.settle()
    assert opened.page.locator("#tl-stage").get_attribute("data-rows") == "1"
    assert opened.page.locator("script").count() == 3  # one a build, and the page's own


def test_the_same_runs_give_the_same_bytes(kvtwin: Command, folder: Path, tmp_path: Path) -> None:
    kvtwin("compare", "x05_repeat", "--builds", "target-only,unified", "--out", "again")
    again = (tmp_path / "again/report.html").read_bytes()
    assert again == (folder / "small/report.html").read_bytes()
    ids = re.findall(rb' id="([^"]+)"', again)
    assert len(ids) == len(set(ids)) > 30


def test_a_page_of_531_requests_is_small(folder: Path) -> None:
    assert (folder / "large/report.html").stat().st_size < 1.6e6  # four builds: 6 MB
