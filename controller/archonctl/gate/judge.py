"""A start of an engine against the knob table of its version, each finding at the word that causes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

from archonctl.engines.knobs import ArgvFinding, check_argv, check_env
from archonctl.engines.knobs.verdict import Open
from archonctl.errors import ArchonError
from archonctl.findings import Edit, Finding, Place
from archonctl.foreign.launch import Launch
from archonctl.foreign.words import Setting, Word
from archonctl.gate.images import engine_version, is_known, parse_image, why_unpinned
from archonctl.gate.source import Source

MOST_VARIABLES = 300
"""Far more than any start sets; a file of them is none that starts an engine."""


def launch_findings(source: Source, launch: Launch) -> list[Finding]:
    """What the engine's own parser would say to this start, and whether its image is pinned."""
    version = version_of(source, launch)
    found = argv_findings(source, launch.kind, version, launch.arguments, source.place(launch.program))
    found += setting_findings(source, launch.kind, version, launch.env)
    if launch.container is not None:
        image = launch.container.image
        if not source.version and not (image.unresolved or is_known(launch.kind, image.text)):
            found = [_weakened(one) for one in found]
        found += image_findings(source, image)
    if not version and found:
        message = f"the version of {launch.kind} is not known here: only what every known version refuses is an error"
        fix = "name it: --engine-version, a tag, or a comment '# archonctl: engine-version=...'"
        found.append(Finding("engine-version-unknown", "note", message, source.place(launch.program), fix))
    return found


def _weakened(found: Finding) -> Finding:
    """An image that somebody built may hold a fork with options of its own."""
    if found.severity != "error" or found.code not in ("knob-unknown", "knob-retired"):
        return found
    return replace(found, severity="warning", message=f"{found.message} (this image may hold another build)")


def version_of(source: Source, launch: Launch) -> str:
    """The engine's version: as the caller says, else by the image's tag; empty where neither tells."""
    if source.version and source.engine in ("", launch.kind):
        return source.version
    image = launch.container.image if launch.container is not None else None
    return engine_version(launch.kind, image.text) if image is not None and not image.unresolved else ""


def open_words(words: Sequence[Word]) -> dict[int, Open]:
    """What is only known at run time: a whole word of it behind no option may become any number of words."""
    found: dict[int, Open] = {}
    for number, word in enumerate(words):
        if not word.unresolved:
            continue
        alone = len(word.unresolved) == 1 and word.text == word.unresolved[0]
        before = words[number - 1] if number else None
        is_value = (
            before is not None and not before.unresolved and before.text.startswith("-") and "=" not in before.text
        )
        found[number] = "words" if alone and not is_value else "value"
    return found


def argv_findings(source: Source, engine: str, version: str, words: Sequence[Word], start: Place) -> list[Finding]:
    """An engine's arguments, word by word. A version that is none of the engine's is a warning."""
    try:
        found = check_argv(engine, version, [word.text for word in words], open_words=open_words(words))
    except ArchonError as err:
        return [Finding(err.code, "warning", err.message, start, err.hint)]
    return [_finding(source, words, one, start) for one in found]


def _finding(source: Source, words: Sequence[Word], found: ArgvFinding, start: Place) -> Finding:
    inside = 0 <= found.index < len(words) and words[found.index].line > 0
    place = source.place(words[found.index]) if inside else start
    edit = _edit(source, words[found.index : found.index + found.span], found.replacement) if inside else None
    return Finding(found.code, found.severity, found.message, place, found.fix, edit)


def _edit(source: Source, words: Sequence[Word], replacement: tuple[str, ...] | None) -> Edit | None:
    """The change of one line that puts other words in; None where they stand on several lines, or not literally."""
    if replacement is None or not words or len({word.line for word in words}) != 1:
        return None
    number, old = words[0].line, source.line(words[0].line)
    places = [source.place(word).column - 1 for word in words]
    if any(not old.startswith(word.text, at) for word, at in zip(words, places, strict=True)):
        return None
    start, end = places[0], places[-1] + len(words[-1].text)
    if old[start - 1 : start] in ("'", '"') or old[end : end + 1] in ("'", '"'):
        return None
    if replacement:
        return Edit(source.shown, number, old, old[:start] + " ".join(replacement) + old[end:])
    before, after = old[:start].rstrip(" "), old[end:].lstrip(" ")
    if before.strip() in ("", "-") and after.strip() in ("", "\\"):
        return Edit(source.shown, number, old, None) if before.strip() or after.strip() else None
    return Edit(source.shown, number, old, f"{old[:start]}{after}" if after else before)


def setting_findings(
    source: Source, engine: str, version: str, settings: Iterable[Setting], *, edits: bool = False
) -> list[Finding]:
    """Variables that the engine reads, by its table; ``edits`` for an env file, where a line is one variable."""
    given = {one.name: one for one in settings if not one.inherited}
    over = len(given) - MOST_VARIABLES
    given = dict(islice(given.items(), MOST_VARIABLES))
    opened = {name for name, one in given.items() if one.value.unresolved}
    if not given:
        return []
    try:
        found = check_env(engine, version, {name: one.value.text for name, one in given.items()}, open_values=opened)
    except ArchonError:
        return []  # said with the argv
    out: list[Finding] = []
    if over > 0:
        message = f"{over + MOST_VARIABLES:,} variables, of which the first {MOST_VARIABLES:,} are looked at"
        out.append(Finding("knob-not-checked", "warning", message, Place(source.shown)))
    for one in found:
        setting = given.get(one.argument)
        place = source.of_setting(setting, one.code == "knob-bad-value") if setting else Place(source.shown)
        edit = _rename(source, setting, one.replacement) if setting and edits else None
        out.append(Finding(one.code, one.severity, one.message, place, one.fix, edit))
    return out


def _rename(source: Source, setting: Setting, replacement: tuple[str, ...] | None) -> Edit | None:
    """The change of a line of an env file that renames its variable or removes it; None where it is another line."""
    number, old = setting.value.line, source.line(setting.value.line)
    found = re.fullmatch(rf"(\s*(?:export\s+)?){re.escape(setting.name)}(=[^\s\"'\\]*|=\"[^\"\\]*\"|='[^']*')\s*", old)
    if replacement is None or found is None:
        return None
    return Edit(source.shown, number, old, f"{found[1]}{replacement[0]}{found[2]}" if replacement else None)


def image_findings(source: Source, image: Word) -> list[Finding]:
    """An image that no digest pins. A warning: whoever runs it may pin it elsewhere."""
    if image.unresolved or not image.text or not (why := why_unpinned(image.text)):
        return []
    fix = f"{parse_image(image.text).repository}@sha256:<64 hex digits>"
    message = f"image {image.text[:100]} is not pinned: {why}"
    return [Finding("image-not-pinned", "warning", message, source.place(image), fix)]
