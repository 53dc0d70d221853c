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
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from property_tests.cli.conftest import Command

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
AGENTS = """\
summary: the agentic workload, 531 requests, a hundredth of its length
seed: 3
geometry: tiny
limits: {max_batch: 32, max_seq_len: 4096, max_num_tokens: 256}
pools: {target: 4096, draft: 2048}
workload:
  concurrency: 48
  agentic:
    system: 306
    publisher_private: 54
    branch_private: 3
    private: {median: 4, mean: 5, max: 20}
    other: {median: 55, mean: 60, max: 120}
    output: {median: 4, mean: 5, max: 40}
    new_tokens: 12000
acceptance: {coverage: 0.8}
"""
EVIL = "</script><script>alert(1)</script>"
FRESH = """() => {
    for (const field of document.querySelectorAll("input[type=search]")) {
        field.value = "";
        field.dispatchEvent(new Event("input"));
    }
    document.querySelectorAll("#tl-legend [aria-pressed=false]").forEach((button) => button.click());
    scrollTo(0, 0);
}"""  # what a test before has filtered

MADE: list[Path] = []  # the folder of pages, which two modules of tests share


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
    """Pages of two comparisons: a broken build beside a sound one, and 531 requests of agents."""
    if MADE:
        return MADE[0]
    out = tmp_path_factory.mktemp("pages")
    (script,) = entry_points(group="console_scripts", name="kvtwin")
    main = script.load()
    assert main(["compare", "x05_repeat", "--builds", "target-only,unified", "--out", str(out / "small")]) == 0
    (out / "agents.yaml").write_text(AGENTS)
    assert main(["compare", str(out / "agents.yaml"), "--builds", "target-only", "--out", str(out / "large")]) == 0
    MADE.append(out)
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


@pytest.fixture(scope="module")
def opener(browser: Browser, folder: Path) -> Iterator[Open]:
    """As :func:`show`; a page on a light desk stays open for the whole module."""
    kept: dict[str, Opened] = {}

    def call(name: str, viewport: dict[str, int] = DESK, dark: bool = False) -> Opened:
        path = folder / name
        plain = viewport is DESK and not dark and path.parent == folder
        if plain and name in kept:
            kept[name].page.evaluate(FRESH)
            kept[name].settle()
            return kept[name]
        size = ViewportSize(width=viewport["width"], height=viewport["height"])
        scheme: Literal["dark", "light"] = "dark" if dark else "light"
        context = browser.new_context(viewport=size, color_scheme=scheme, has_touch=viewport is PHONE)
        context.set_default_timeout(10_000)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda message: opened.said.append(message.text))
        opened.page.on("pageerror", lambda error: opened.said.append(str(error)))
        opened.page.on("dialog", lambda dialog: opened.said.append(dialog.message))
        opened.page.on("request", lambda request: opened.asked.append(request.url))
        opened.page.goto((path / "report.html").as_uri())
        if plain:
            kept[name] = opened
        return opened

    yield call
    for opened in kept.values():
        opened.page.context.close()


@pytest.fixture
def show(opener: Open) -> Iterator[Open]:
    """``show("small")``: a page, opened on a desk unless told otherwise; it must neither complain nor use a network."""
    pages: list[Opened] = []

    def call(*arguments: Any, **options: Any) -> Opened:
        pages.append(opener(*arguments, **options))
        return pages[-1]

    yield call
    for opened in pages:
        assert opened.said == []
        assert [url for url in opened.asked if not url.startswith(("file:", "data:"))] == []
        assert len([url for url in opened.asked if url.startswith("file:")]) == 1


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
    assert largest == sorted(largest, reverse=True) and largest[0] == 360
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
    assert sorted(opened.column("#rq-table", 1)) == ["3", "4", "5", "9"]
    field_.fill("c07")
    assert set(opened.column("#rq-table", 2)) == {"c07"}
    field_.fill("nobody")
    assert count.inner_text() == "0 of 531"


def test_a_long_table_shows_its_rows_in_parts(show: Open) -> None:
    page = show("large").page
    rows = page.locator("#rq-table tbody tr")
    assert rows.count() == 301  # one of them holds the button
    page.get_by_role("button", name="Show more (231 are left)").first.click()
    assert rows.count() == 531


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
    assert page.evaluate("document.documentElement.scrollWidth") <= DESK["width"]
    assert sheets.startswith(b"%PDF") and 2 <= len(re.findall(rb"/Type\s*/Page\b", sheets)) <= 12


# -- what it is made of ------------------------------------------------------------------------------------------------


def test_names_from_a_scenario_are_text_and_never_markup(
    show: Open, kvtwin: Command, scenario_file: Callable[..., Path], tmp_path: Path
) -> None:
    path = scenario_file(replace=("name: repeat", f"name: {json.dumps(EVIL)}"))
    assert kvtwin("compare", path, "--builds", "unified", "--out", "evil").code == 0
    opened = show(str(tmp_path / "evil"))
    assert EVIL in opened.column("#rq-table", 2)
    opened.page.locator("#tl-filter").fill("script")
    opened.settle()
    assert opened.page.locator("#tl-stage").get_attribute("data-rows") == "1"
    assert opened.page.locator("script").count() == 2  # data of a build, and the page's own


def test_runs_from_folders_have_a_page_with_their_course(show: Open, kvtwin: Command, tmp_path: Path) -> None:
    kvtwin("run", "hello", "--out", "run")
    assert kvtwin("compare", "run", "--out", "read").code == 0
    opened = show(str(tmp_path / "read"))
    assert opened.page.locator("#tl-legend button").count() > 3
    assert opened.page.locator("#pm-pools canvas").count() == 2


def test_the_same_runs_give_the_same_bytes(kvtwin: Command, folder: Path, tmp_path: Path) -> None:
    kvtwin("compare", "x05_repeat", "--builds", "target-only,unified", "--out", "again")
    again = (tmp_path / "again/report.html").read_bytes()
    assert again == (folder / "small/report.html").read_bytes()
    ids = re.findall(rb' id="([^"]+)"', again)
    assert len(ids) == len(set(ids)) > 30


def test_a_page_of_531_requests_is_small(folder: Path) -> None:
    assert (folder / "large/report.html").stat().st_size < 700e3
