"""The page as text: stories in, one HTML document out."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby

from jinja2 import Environment, FunctionLoader, StrictUndefined

from archonctl import __version__
from archonctl.observe.entries import Entry
from archonctl.observe.journal_story import JournalStory
from archonctl.observe.report import text
from archonctl.observe.report.charts import CLASSES, Bar, Chart, bars, chart
from archonctl.observe.report.palette import DARK, LIGHT
from archonctl.observe.story import Moment, Story
from archonctl.probe.predictions import find_figure

SHOWN = 40
"""Rows of a table that are open; the rest are folded away below it, and a bound of them left out."""
MOST = 400


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """One release over its life, as far as the record goes."""

    release: str
    first_at: float
    last_at: float
    verdicts: int
    last: str
    contract_tokens: int | None
    low: int | None
    high: int | None
    hits: int
    falsified: int


@dataclass(frozen=True, slots=True)
class Run:
    """One moment, or several alike one after another: ``last`` is the newest of ``count``, since ``first_at``."""

    last: Moment
    count: int
    first_at: float


@dataclass(frozen=True)
class View:
    """A story with its drawings."""

    story: Story
    bars: tuple[Bar, ...]
    chart: Chart | None
    releases: tuple[ReleaseRow, ...]
    moments: tuple[Run, ...]
    later: tuple[Run, ...]
    left_out: int
    counts: Mapping[tuple[str, str], int]


def view(story: Story) -> View:
    """Draw it."""
    plan = story.side.plan if story.side is not None else None
    runs = tuple(_runs(story.moments))
    counts: dict[tuple[str, str], int] = {}
    for each in story.failures:
        counts[each.cls, each.by] = counts.get((each.cls, each.by), 0) + 1
    return View(
        story,
        bars(plan) if plan is not None else (),
        chart(story.record.found),
        _releases(story.record.found),
        runs[:SHOWN],
        runs[SHOWN:MOST],
        sum(each.count for each in runs[MOST:]),
        counts,
    )


def _runs(moments: Sequence[Moment]) -> Iterator[Run]:
    """Verdicts that say the same again and again are one line; the newest first."""

    def alike(each: Moment) -> tuple[object, ...]:
        return (each.teller, each.word, each.text, each.release) if each.teller == "verdict" else (id(each),)

    for _key, group in groupby(moments, key=alike):
        mine = list(group)
        yield Run(mine[0], len(mine), mine[-1].at)


def _releases(found: Sequence[Entry]) -> tuple[ReleaseRow, ...]:
    """The newest first."""
    by_release: dict[str, list[Entry]] = {}
    for each in found:
        if each.release:
            by_release.setdefault(each.release, []).append(each)
    rows = []
    for release, mine in by_release.items():
        tokens = [each.live_tokens for each in mine if each.live_tokens is not None]
        last = next((each for each in reversed(mine) if each.verdict), None)
        promised = [each.contract_tokens for each in mine if each.contract_tokens is not None]
        rows.append(
            ReleaseRow(
                release,
                mine[0].at,
                mine[-1].at,
                sum(each.is_verdict for each in mine),
                last.verdict if last else "",
                promised[-1] if promised else None,
                min(tokens, default=None),
                max(tokens, default=None),
                last.scored("hit") if last else 0,
                last.scored("falsified") if last else 0,
            )
        )
    return tuple(sorted(rows, key=lambda row: row.last_at, reverse=True)[:MOST])


def page(stories: Sequence[Story], journal: JournalStory, now: float, *, title: str = "", linked: bool = False) -> str:
    """The document: one endpoint, or several under an index. ``linked``: an index of pages of their own.

    Holds no lone surrogate, so that it can be written as UTF-8.
    """
    single = len(stories) == 1 and not title
    style = _style()
    return (
        _environment()
        .get_template("page.html")
        .render(
            views=[view(each) for each in stories],
            single=single,
            linked=linked,
            title=title or (stories[0].name if stories else "no endpoint"),
            now=now,
            host=platform.node(),
            version=__version__,
            journal=journal,
            style=style,
            style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        )
    )


@cache
def _style() -> str:
    """The style sheet with the palette put in. No user's word is in it."""
    sheet = _source("style.css")
    for name, palette in (("LIGHT", LIGHT), ("DARK", DARK)):
        words = " ".join(f"--{key.replace('_', '-')}: {colour};" for key, colour in palette.items())
        sheet = sheet.replace(f"/*{name}*/", words)
    return sheet


@cache
def _environment() -> Environment:
    found = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text.visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for each in (text.number, text.percent, text.moment, text.iso, text.ago):
        found.filters[each.__name__] = each
    found.globals["find_figure"] = find_figure
    found.globals["classes"] = CLASSES
    return found


def _source(name: str) -> str:
    return files("archonctl.observe.report").joinpath("templates", name).read_text(encoding="utf-8")
