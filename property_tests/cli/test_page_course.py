"""The parts of a page that are drawn by its scripts, in a real browser: the timeline, the page map, the violations."""

from __future__ import annotations

import re

import pytest

from property_tests.cli import test_page
from property_tests.cli.conftest import Command
from property_tests.cli.test_page import Open

browser, folder, opener, show = test_page.browser, test_page.folder, test_page.opener, test_page.show


# -- the timeline ------------------------------------------------------------------------------------------------------


def test_the_timeline_zooms_by_buttons_wheel_and_keyboard(show: Open) -> None:
    opened = show("large")
    page = opened.page
    page.locator("#tl-fit").click()
    begin, end = opened.view()
    assert begin == 0 and end > 1e6  # microseconds
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
    page.locator("#tl-fit").click()
    whole = opened.view()
    page.locator("#tl-rows").scroll_into_view_if_needed()
    box = page.locator("#tl-overview").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 500, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 700, middle, steps=4)
    page.mouse.up()
    begin, end = opened.view()
    assert whole[0] + 0.1 * whole[1] < begin < end < 0.9 * whole[1]
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
    page.locator("#tl-fit").click()
    kinds = page.locator("#tl-legend button")
    assert kinds.all_inner_texts() == ["queued", "prefill chunk", "generation", "copy", "claim", "publication", "end"]
    painted = "document.getElementById('tl-canvas').toDataURL()"
    opened.settle()
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


# -- the page map ------------------------------------------------------------------------------------------------------


def counts(kvtwin: Command, at: int) -> dict[str, str]:
    """What the run in ``run`` says of its pools at an iteration, as the page map words it."""
    states = ("free", "held", "published", "reusable", "host")
    pools = kvtwin("pages", "run", "--at", str(at), "--json").json()["pools"]
    return {pool["name"]: ", ".join(f"{name} {pool[name]}" for name in states if pool[name]) for pool in pools}


def test_the_page_map_is_that_of_the_run_at_every_step(show: Open, kvtwin: Command) -> None:
    opened = show("small")
    page, boxes = opened.page, opened.page.locator("#pm-pools .pool")
    kvtwin("run", "x05_repeat", "--build", "target-only", "--out", "run")
    last = int(page.locator("#pm-step").get_attribute("max") or "")
    assert last == 47
    for step in (last, 0, 23, 5):  # on and back
        page.locator("#pm-step").evaluate(
            "(slider, step) => { slider.value = step; slider.dispatchEvent(new Event('input')); }", step
        )
        opened.settle()
        shown = [box.get_attribute("data-counts") for box in boxes.all()]
        assert shown == list(counts(kvtwin, step).values())
        assert f"as step {step} of 47 goes out" in page.locator("#pm-readout").inner_text()


def test_a_tap_on_a_page_frames_those_of_its_request(show: Open) -> None:
    opened = show("small")
    page = opened.page
    page.locator("#pm-step").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    target = page.locator("#pm-pool-0")
    target.locator("canvas").click(position={"x": 5, "y": 5})
    opened.settle()
    assert page.locator("#pm-request").input_value() == "0"
    assert re.search(r"; \d+ of request 0$", target.locator(".counts").inner_text())
    page.locator("#pm-request").fill("1")
    opened.settle()
    assert "of request 1" in page.locator("#pm-pools").inner_text()


def test_a_violation_leads_to_the_pages_at_its_step(show: Open) -> None:
    opened = show("large")
    page = opened.page
    page.locator("#vi-filter").fill("request 2")
    page.locator("#vi-table tbody tr").first.click()
    page.get_by_role("button", name="Pages at step 3").click()
    opened.settle()
    assert "as step 3 of" in page.locator("#pm-readout").inner_text()
    assert page.locator("#pm-request").input_value() == "2"


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
    assert page.locator("#vi-count").inner_text() == "24 of 24"
    page.locator("#vi-filter").fill("request 2")
    assert opened.column("#vi-table", 4) == ["2"]
    row = page.locator("#vi-table tbody tr").first
    row.focus()
    page.keyboard.press("Enter")
    assert row.get_attribute("aria-expanded") == "true"
    under = page.locator("#vi-table tr.open")
    assert "is admitted as owner" in under.inner_text() and "INIT broke" in under.inner_text()
    page.keyboard.press("Enter")
    assert under.count() == 0
