"""The report as a document: valid, whole in itself, for every eye and ear, and deaf to what an engine wrote."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults
from xml.etree.ElementTree import Element

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from archonctl.errors import HostRefusal
from archonctl.memory.demand import MemoryClass
from archonctl.observe import journal_story
from archonctl.observe.failures import Failure, Line
from archonctl.observe.journal_story import JournalStory, read_story
from archonctl.observe.report import palette
from archonctl.observe.report.app import ReportApp
from archonctl.observe.report.charts import CLASSES, bars, chart
from archonctl.observe.report.make import write_page
from archonctl.observe.report.page import page, view
from archonctl.observe.report.text import visible
from archonctl.observe.story import Story, tell
from archonctl.service.installed import Installed
from archonctl.service.unit import UnitState
from support.recorded import DAY, HOSTILE, NOW, record_week

UP = UnitState("active", "running", "success", os.getpid(), 1, 0, 1, "i", "/x", "/x", 2, "loaded")
QUIET = JournalStory(NOW - 7 * DAY)
FAILURES = (
    Failure(NOW - 60, "archon", "kv_cache", "engine", f"CUDA out of memory {HOSTILE}", "row"),
    Failure(NOW - 50, "", "unknown", "kernel", "Out of memory: Killed process 1 (x)", "row"),
)
LOUD = JournalStory(
    NOW - 7 * DAY,
    FAILURES,
    {"archon": (Line(NOW - 70, "systemd", f"archon@archon.service: Failed {HOSTILE}", "archon"),)},
    "reading was ended after 10 s, at what was written on 2026-05-28 20:00 UTC",
)


def no_unit(_installed: Installed) -> UnitState:
    raise HostRefusal("no-systemd", f"systemd is not process 1 here {HOSTILE}")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An endpoint with a past and hostile words in its boot log."""
    return record_week(tmp_path_factory.mktemp("root"), "archon", DAY, extra=[f"model: {HOSTILE}  arch=x  quant=y"])


@pytest.fixture(scope="module")
def story(installed: Installed) -> Story:
    return tell(installed, lambda _: UP, LOUD)


def empty(tmp_path: Path) -> Story:
    return tell(Installed("nothing", tmp_path), no_unit, JournalStory(NOW, why_not=f"no journal {HOSTILE}"))


def parsed(text: str) -> Element:
    """The document; every departure from the standard is an error."""
    found: Element = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    return found


def tags(root: Element, name: str) -> list[Element]:
    return [each for each in root.iter() if isinstance(each.tag, str) and each.tag.rpartition("}")[2] == name]


def words(element: Element) -> str:
    return " ".join("".join(element.itertext()).split())


Pages = dict[str, str]


@pytest.fixture(scope="module")
def pages(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """Every kind of page there is."""
    nothing = empty(tmp_path_factory.mktemp("nothing"))
    hostile = replace(nothing, folder=HOSTILE, unknown=dict.fromkeys(("release", "history", "unit", "gate"), HOSTILE))
    return {
        "one": page([story], LOUD, NOW),
        "nothing": page([nothing], JournalStory(NOW, why_not="no journal is kept"), NOW),
        "hostile": page([hostile], LOUD, NOW),
        "all": page([story, nothing], LOUD, NOW, title="Endpoints"),
        "index": page([story, nothing], LOUD, NOW, title="Endpoints", linked=True),
        "none": page([], QUIET, NOW, title="Endpoints"),
    }


KINDS = ("one", "nothing", "hostile", "all", "index", "none")


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_valid_and_whole_in_itself(pages: Pages, kind: str) -> None:
    root = parsed(pages[kind])
    assert tags(root, "script") + tags(root, "iframe") + tags(root, "object") + tags(root, "form") == []
    for each in root.iter():
        for name, value in each.attrib.items():
            assert not name.startswith("on"), f"{each.tag} has {name}"
            assert name != "style", "inline styles are blocked by the policy"
            if name in ("href", "src", "xlink:href", "action", "data"):
                assert value.startswith(("#", "data:,")) or (kind == "index" and re.fullmatch(r"/[\w.-]+", value)), (
                    value
                )
    sheet = words(tags(root, "style")[0])
    assert "@import" not in sheet
    assert "url(" not in sheet


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_allows_the_pages_own_style_and_nothing_else(pages: Pages, kind: str) -> None:
    root = parsed(pages[kind])
    policy = next(each.attrib["content"] for each in tags(root, "meta") if "http-equiv" in each.attrib)
    style = "".join(tags(root, "style")[0].itertext())
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.split("; ")[:2] == ["default-src 'none'", f"style-src 'sha256-{digest}'"]
    assert "unsafe" not in policy


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_can_be_heard(pages: Pages, kind: str) -> None:
    root = parsed(pages[kind])
    ids = [each.attrib["id"] for each in root.iter() if "id" in each.attrib]
    assert len(ids) == len(set(ids))
    for each in root.iter():
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(each.attrib.get(name, "").split()) <= set(ids)
        if (target := each.attrib.get("href", "")).startswith("#"):
            assert target[1:] in ids
    levels = [int(each.tag[1]) for each in root.iter() if re.fullmatch(r"h[1-6]", str(each.tag))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), "a level of heading is left out"
    assert len(tags(root, "main")) == len(tags(root, "header")) == len(tags(root, "footer")) == 1
    assert root.attrib["lang"] == "en"
    for table in tags(root, "table"):
        assert words(tags(table, "caption")[0])
        assert all(each.attrib["scope"] in ("col", "row") for each in tags(table, "th"))
    for svg in tags(root, "svg"):
        if svg.attrib.get("role") == "img":
            assert words(tags(svg, "title")[0])
            assert "table" in words(tags(svg, "desc")[0]), "a drawing has its figures as a table, too"
    for each in tags(root, "section"):
        assert each.attrib["aria-labelledby"] in ids


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_engine_wrote_is_only_text(pages: Pages, kind: str) -> None:
    text = pages[kind]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    assert "<script" not in text
    assert "<img" not in text
    assert text.count("</style>") == 1
    text.encode("utf-8")
    if kind == "hostile":
        assert "\\x1b[31mred" in text
        assert "\\u202egnp.exe" in text


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(codec=None), max_size=40))
def test_any_text_can_be_shown(text: str) -> None:
    shown = str(visible(text))
    assert visible(shown) == shown
    found = replace(Story("x", "u", "/f"), unknown={"release": text, "unit": text})
    whole = page([found], QUIET, NOW)
    assert " ".join(shown.split()) in words(parsed(whole))


def test_the_figures_of_a_page_name_their_sources(pages: Pages, story: Story) -> None:
    said = words(parsed(pages["one"]))
    assert "612,480" in said
    assert "600,000" in said
    assert "639,137" in said
    assert f"{story.folder}/history.jsonl" in said
    assert "kv: 4.62 GiB of cache a card, 612,480 tokens" in said, "evidence comes with its line"
    assert "archon@archon.service, line 5, cursor s=0123;i=4f" in said
    assert "KV cache ran out" in said
    assert "archon@archon.service: Failed" in said
    assert "does not tell everything: reading was ended after 10 s" in said
    for section in tags(parsed(pages["one"]), "section"):
        text = words(section)
        assert re.search(r"source: |by what the journal shows", text, re.IGNORECASE), text[:80]


def test_what_nobody_knows_is_unknown_and_says_why(pages: Pages) -> None:
    said = words(parsed(pages["nothing"]))
    assert "there is no release" in said
    assert "no evidence" in said
    assert "no journal is kept" in said
    assert "systemd is not process 1 here" in said
    assert "holds" not in words(tags(parsed(pages["nothing"]), "body")[0])
    assert not re.search(r"\b0 tokens", said)


def test_an_index_links_every_endpoint(pages: Pages) -> None:
    for kind, target in (("all", "#e-archon"), ("index", "/archon")):
        root = parsed(pages[kind])
        assert target in [each.attrib.get("href") for each in tags(root, "a")]
    assert "Memory of this machine ran out once" in words(parsed(pages["all"]))
    assert "No endpoint is installed" in words(parsed(pages["none"]))


def test_a_bar_adds_up_and_every_class_has_its_own_pattern(story: Story, pages: Pages) -> None:
    assert story.side is not None
    assert story.side.plan is not None
    drawn = bars(story.side.plan)
    assert [bar.title for bar in drawn] == ["Card 0", "Card 1", "Host RAM"]
    for bar in drawn:
        assert sum(seg.mib for seg in bar.segments) == pytest.approx(bar.want_mib)
        assert all(a.x + a.width == pytest.approx(b.x, abs=0.01) for a, b in pairwise(bar.segments))
        assert bar.segments[-1].x + bar.segments[-1].width <= 100.01
    patterns = {each.attrib["id"]: len(list(each)) for each in tags(parsed(pages["none"]), "pattern")}
    assert set(patterns) == {f"h-{cls}" for cls in MemoryClass.__args__}  # type: ignore[attr-defined]
    assert sum(not count for count in patterns.values()) == 1, "only one class is without a pattern"
    assert set(CLASSES) == set(MemoryClass.__args__)  # type: ignore[attr-defined]


def test_a_chart_stays_inside_and_holds_a_value_until_the_next(story: Story) -> None:
    drawn = chart(story.record.found)
    assert drawn is not None
    assert all(0 <= point.x <= 100 and 0 < point.y < drawn.height for point in drawn.points)
    assert all(edge.x1 == edge.x2 or edge.y1 == edge.y2 for edge in (*drawn.capacity, *drawn.contract))
    assert 3 <= len(drawn.ticks) <= 8
    assert [name for _x, name in drawn.releases] == list(dict.fromkeys(point.entry.release for point in drawn.points))
    assert chart([]) is None
    assert chart([drawn.points[0].entry]) is not None


def test_verdicts_that_say_the_same_are_one_line(story: Story) -> None:
    runs = view(story).moments
    assert sum(run.count for run in runs) == len(story.moments)
    assert max(run.count for run in runs) > 1
    assert all(run.count == 1 for run in runs if run.last.teller != "verdict")


@pytest.mark.parametrize("theme", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_every_pair_of_colours_that_is_read_has_contrast_enough(theme: dict[str, str]) -> None:
    for ground in ("page", "panel"):
        for name in palette.TEXTS:
            assert palette.contrast(theme[name], theme[ground]) >= 4.5, (name, ground)
        for name in palette.MARKS:
            assert palette.contrast(theme[name], theme[ground]) >= 3, (name, ground)
    for cls in CLASSES:  # a name inside a bar is written in the colour of the page
        assert palette.contrast(theme[cls], theme["page"]) >= 4.5, cls
    assert all(theme[one] != theme[two] for one, two in combinations(CLASSES, 2))
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)


def test_the_journal_is_told_by_endpoint_and_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(_since: str, _engines: object) -> Iterator[Line]:
        for number in range(2000):
            yield Line(NOW + number, "systemd", "archon@a.service: Main process exited, token=abcdefgh", "a")
        yield Line(NOW + 3000, "kernel", "Out of memory: Killed process 7 (llama-server) total-vm:1kB")

    monkeypatch.setattr(journal_story, "read", lines)
    found = read_story(NOW, {})
    assert len(found.unit("a")) == 200
    assert "abcdefgh" not in found.unit("a")[0].text
    assert found.why_not == ""
    late = read_story(NOW, {}, within_s=0.0)
    assert "reading was ended after 0 s" in late.why_not


def test_a_journal_that_cannot_be_read_is_a_reason_and_not_a_good_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_since: str, _engines: object) -> Iterator[Line]:
        raise HostRefusal("journal-unreadable", "no journal is kept on this machine")
        yield

    monkeypatch.setattr(journal_story, "read", refused)
    assert read_story(NOW, {}).why_not == "no journal is kept on this machine"


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "a.html"
    assert write_page(target, "first") == 5
    link = tmp_path / "link.html"
    link.symlink_to(target)
    write_page(link, "second")
    assert (target.read_text(), link.is_symlink()) == ("second", True)
    with pytest.raises(HostRefusal, match="No such file") as caught:
        write_page(tmp_path / "none" / "a.html", "x")
    assert caught.value.code == "report-unwritable"
    with pytest.raises(HostRefusal):
        write_page(tmp_path, "x")
    write_page(Path("/dev/null"), "x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.html", "link.html"]


def asked(app: ReportApp, path: str, **environ: str) -> tuple[str, bytes, dict[str, str]]:
    seen: dict[str, Any] = {"wsgi.input": io.BytesIO(), "HTTP_HOST": "127.0.0.1:9", "PATH_INFO": path, **environ}
    setup_testing_defaults(seen)
    got: list[Any] = []
    body = b"".join(app(seen, lambda status, headers, *_: got.extend((status, dict(headers)))))  # type: ignore[arg-type]
    return got[0][:3], body, got[1]


def test_the_served_report_answers_reads_of_what_there_is_and_nothing_else() -> None:
    made: list[str] = []

    def make(name: str) -> str | None:
        made.append(name)
        return f"page {name}" if name in ("", "archon") else None

    app = ReportApp(make, local=True)
    assert asked(app, "/")[:2] == ("200", b"page ")
    assert asked(app, "/archon")[1] == b"page archon"
    assert asked(app, "/archon")[1] == b"page archon"
    assert made == ["", "archon"], "a page is not made anew for everybody"
    assert asked(app, "/../etc/passwd")[0] == "404"
    assert asked(app, "/archon", REQUEST_METHOD="HEAD")[1] == b""
    assert asked(app, "/", REQUEST_METHOD="POST")[0] == "405"
    for host in ("evil.example", "evil.example:9", "127.0.0.1.evil.example", ""):
        assert asked(app, "/", HTTP_HOST=host)[0] == "421"
    for host in ("localhost:9488", "[::1]:9488", "127.0.0.1"):
        assert asked(app, "/", HTTP_HOST=host)[0] == "200"

    def gone(_name: str) -> str | None:
        raise HostRefusal("release-missing", "there is no release")

    assert asked(ReportApp(gone, local=True), "/")[0] == "503"
    assert asked(ReportApp(make, local=False), "/", HTTP_HOST="gpu.example")[0] == "200"
    assert asked(app, "/")[2]["Content-Security-Policy"] == "frame-ancestors 'none'"


def test_the_command_writes_a_page_and_says_so(
    installed: Installed, run_cli: Callable[..., Any], tmp_path: Path, repository: Path
) -> None:
    environ = {"ARCHON_STATE_DIR": str(installed.root / "var/lib/archon")}
    file = tmp_path / "archon.html"
    value = json.loads(run_cli("report", "archon", "--html", file, "--json", env=environ).stdout)
    Draft202012Validator(json.loads((repository / "docs/schemas/report-1.json").read_text())).validate(value)
    assert value["bytes"] == file.stat().st_size
    root = parsed(file.read_text(encoding="utf-8"))
    assert words(tags(root, "h1")[0]) == "archon"
    assert parsed(run_cli("report", "--all", env=environ).stdout) is not None
    assert run_cli("report", "--all", "archon", env=environ).code == 2
    assert run_cli("report", "nope", env=environ).code == 2
    assert run_cli("report", "archon", "--json", env=environ).code == 2
    assert run_cli("report", "archon", "--html", tmp_path / "no" / "x", env=environ).code == 5


def test_a_story_is_told_without_waiting_for_anybody(installed: Installed) -> None:
    told = tell(installed, no_unit, QUIET)
    assert told.status is None
    assert told.word == "state unknown", "a verdict of the past is none on what may run now"
    assert told.last_verdict is not None
    assert "systemd is not process 1" in told.unknown["drift"]
    assert told.live is not None
    assert told.live.at <= time.time()
