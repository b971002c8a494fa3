"""The report in a real browser: at every width, in light and dark, by keyboard, heard, printed, and asking nobody."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from archonctl.observe.failures import Failure, Line
from archonctl.observe.journal_story import JournalStory
from archonctl.observe.report.app import ReportApp
from archonctl.observe.report.make import pages
from archonctl.observe.report.page import page
from archonctl.observe.serve import serving_app
from archonctl.observe.story import tell
from archonctl.service.installed import Installed
from archonctl.service.unit import UnitState
from support.chromium import PROGRAMS, Tab, chromium
from support.recorded import DAY, HOSTILE, NOW, record_week

UP = UnitState("active", "running", "success", 1, 1, 0, 1, "i", "/x", "/x", 2, "loaded")
PARTS = ("memory", "capacity", "evidence", "predictions", "findings", "failures", "timeline")
WIDE = "w" * 200
"""A word without a place to break."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An endpoint with a past, hostile words and words without end."""
    root = tmp_path_factory.mktemp("root")
    return record_week(root, "archon", DAY / 2, extra=[f"model: {HOSTILE} {WIDE}  arch=x  quant=y"])


@pytest.fixture(scope="module")
def file(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its report."""
    site = f"cudaMalloc failed: out of memory {WIDE} {HOSTILE}"
    failures = (Failure(NOW - 60, "archon", "kv_cache", "engine", site, "row"),)
    text = f"archon@archon.service: Failed {WIDE}"
    units = {"archon": tuple(Line(NOW - 70 * number, "systemd", text, "archon") for number in range(60))}
    journal = JournalStory(NOW - 7 * DAY, failures, units, "reading was ended after 10 s")
    path = tmp_path_factory.mktemp("page") / "archon.html"
    path.write_text(page([tell(installed, lambda _: UP, journal)], journal, NOW), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Tab]:
    """One browser for all: a start takes a second or more."""
    import shutil

    if not any(map(shutil.which, PROGRAMS)):
        pytest.skip("no chromium: apt-get install chromium")
    with chromium() as found:
        yield found


@pytest.fixture
def tab(browser: Tab, file: Path) -> Tab:
    """The report, opened on a desktop."""
    browser.size(1200)
    browser.open(file.as_uri())
    return browser


def pixel(png: bytes) -> tuple[int, ...]:
    """The colour of the first pixel of a PNG: whatever the filter of its first row, the first pixel is as it is."""
    data, at = b"", 8
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        data += png[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    return tuple(zlib.decompress(data)[1:4])


def test_it_asks_nobody_and_nothing_is_wrong(tab: Tab, file: Path) -> None:
    requests = [e["params"]["request"]["url"] for e in tab.events if e.get("method") == "Network.requestWillBeSent"]
    assert [url for url in requests if not url.startswith("data:")] == [file.as_uri()]
    assert [e for e in tab.events if e.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown")] == []
    assert tab.value("document.scripts.length") == 0
    assert tab.value("getComputedStyle(document.querySelector('.badge')).borderRadius") == "99px", (
        "the style is in force"
    )


@pytest.mark.parametrize("width", [320, 360, 768, 1200, 2560])
def test_nothing_is_wider_than_the_window(tab: Tab, width: int) -> None:
    tab.size(width)
    assert tab.value("document.documentElement.scrollWidth") <= width
    wide = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.defs, .skip, thead') &&
              e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    assert tab.value(wide) == []


def test_text_is_large_enough_on_a_phone(tab: Tab) -> None:
    tab.size(360)
    sizes = tab.value("""[...document.querySelectorAll('main *')].filter(e => e.childNodes.length && e.offsetParent)
        .map(e => parseFloat(getComputedStyle(e).fontSize))""")
    assert min(sizes) >= 11
    assert tab.value("[...document.querySelectorAll('svg text')].every(e => e.getBoundingClientRect().height >= 12)")


def test_light_and_dark_are_what_the_person_prefers(tab: Tab, tmp_path: Path) -> None:
    tab.size(1200, scheme="light")
    light = pixel(tab.shot(tmp_path / "light.png"))
    tab.size(1200, scheme="dark")
    dark = pixel(tab.shot(tmp_path / "dark.png"))
    assert min(light) > 230
    assert max(dark) < 50


def test_it_can_be_walked_by_keyboard(tab: Tab) -> None:
    where = "(document.activeElement.getAttribute('href') || document.activeElement.tagName)"
    tab.press("Tab")
    assert tab.value(where) == "#content"
    assert tab.value("document.activeElement.getBoundingClientRect().left >= 0"), "the way past the links can be seen"
    assert tab.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    stops = []
    for _ in range(40):
        tab.press("Tab")
        stops.append(tab.value(where))
        if stops[-1] == "BODY":
            break
    assert stops[:7] == [f"#e-{key}" for key in PARTS]
    assert "SUMMARY" in stops
    focusable = tab.value("document.querySelectorAll('a[href], summary, [tabindex=\"0\"]').length")
    assert len([stop for stop in stops if stop != "BODY"]) >= focusable - 1


def test_what_is_drawn_can_be_heard(tab: Tab) -> None:
    nodes = tab.ask("Accessibility.getFullAXTree")["nodes"]
    found = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored")]
    roles = [role for role, _name in found]
    assert {"main", "navigation", "banner", "contentinfo", "table", "columnheader", "rowheader"} <= set(roles)
    drawings = [name for role, name in found if role in ("image", "img") and name]
    assert any(re.match(r"Card 0: memory by class", name) for name in drawings)
    assert any(name.startswith("Contract and capacity in tokens") for name in drawings)
    assert all(name for role, name in found if role in ("heading", "link", "table", "region"))
    regions = [name for role, name in found if role == "region"]
    assert "Memory map" in regions


def test_tables_stay_tables_on_a_phone(tab: Tab) -> None:
    tab.size(360)
    nodes = tab.ask("Accessibility.getFullAXTree")["nodes"]
    roles = [n["role"]["value"] for n in nodes if not n.get("ignored")]
    assert roles.count("table") == tab.value("document.querySelectorAll('table').length")
    assert roles.count("rowheader") >= 10


def test_it_is_printed_on_paper_and_nothing_is_folded_away(tab: Tab) -> None:
    tab.size(1200, scheme="dark", media="print")
    assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.value("getComputedStyle(document.querySelector('nav.toc')).display") == "none"
    assert tab.value("document.querySelector('details:not([open]) li').getBoundingClientRect().height") > 0
    printed = tab.pdf()
    assert printed.startswith(b"%PDF-")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 24


def test_what_an_engine_wrote_stays_text_in_a_browser(tab: Tab) -> None:
    assert tab.value("document.querySelectorAll('img, script, main style').length") == 0
    assert tab.value("document.body.innerText.includes('<script>alert(1)</script>')")
    assert "Page.javascriptDialogOpening" not in [e.get("method") for e in tab.events]


def test_it_is_served_with_an_index_that_leads_to_each_page(browser: Tab, installed: Installed) -> None:
    record_week(installed.root, "other", 3 * DAY)

    def all_of_them() -> list[Installed]:
        return [Installed(name, installed.root) for name in ("archon", "other")]

    make = pages(all_of_them, lambda _: UP, lambda: NOW, lambda: NOW)
    browser.size(1200)
    with serving_app(ReportApp(make, local=True), "127.0.0.1", 0, "--serve") as port:
        browser.open(f"http://127.0.0.1:{port}/")
        assert browser.value("document.title").startswith("Endpoints")
        links = browser.value("[...document.querySelectorAll('tbody a')].map(e => e.href)")
        assert [link.rpartition("/")[2] for link in links] == ["archon", "other"]
        browser.open(links[0])
        assert browser.value("document.querySelector('h1').innerText") == "archon"
        assert [e for e in browser.events if e.get("method") == "Log.entryAdded"] == []
