"""The page of a nightly in a real browser: it says first what is wrong, opens alone, and its tables sort."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Browser

from property_tests.cli import test_page
from property_tests.cli.conftest import Command

browser = test_page.browser
EVIL = "<script>alert(1)</script>"


def test_a_page_says_what_got_worse_and_lists_every_case(kvtwin: Command, tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "mine.yaml").write_text(
        "comparisons: [{scenarios: [smoke/hello], builds: [target-only, unified]}]\ndrill: {faults: [raw-keys]}\n"
    )
    assert kvtwin("nightly", "--suite", "mine.yaml", "--out", "night").code == 0
    path = tmp_path / "night/baseline.json"
    stored = json.loads(path.read_text())
    figures = stored["stages"]["comparisons"]["hello on unified"]["figures"]
    figures["cached_tokens"], figures["prefilled_tokens"] = [99], [7]
    stored["stages"]["drill"][EVIL] = {"made": "", "figures": {}}
    path.write_text(json.dumps(stored))
    answer = kvtwin("nightly", "--suite", "mine.yaml", "--baseline", "night", "--out", "later")
    assert answer.code == 1 and "later/report.html" in answer.out
    folder = tmp_path / "later"
    assert (folder / "comparisons/hello/report.html").is_file()

    said: list[str] = []
    asked: list[str] = []
    page = browser.new_page(viewport={"width": 360, "height": 740})
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((folder / "report.html").as_uri())
    assert page.locator("h1").inner_text() == "mine"
    assert page.locator(".verdict").inner_text() == "Suite mine on sim: not fine."
    (box,) = page.locator(".box.bad").all_inner_texts()
    assert box.startswith("hello on unified: prefilled tokens 7 → ") and "cached tokens 99 → " in box
    kinds = [text.strip() for text in page.locator("#changes tbody tr > :nth-child(6)").all_inner_texts()]
    assert kinds == ["worse", "worse", "gone"]
    assert page.locator("#changes tbody th").last.inner_text() == EVIL
    for order in (["+", "-", ""], ["-", "+", ""]):  # what has no share stays below
        page.locator("#changes th[scope=col]").nth(4).click()
        assert [share[:1] for share in page.locator("#changes tbody tr > :nth-child(5)").all_inner_texts()] == order
    cases = json.loads((folder / "nightly.json").read_text())["cases"]
    assert page.locator("#cases tbody tr").count() == len(cases) > 30
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert said == [] and [url for url in asked if not url.startswith(("file:", "data:"))] == []
    page.close()
