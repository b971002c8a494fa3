"""Scripts, compose files, manifests, argv and env files: every engine that they start, every line about one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from archonctl.errors import ArchonError
from archonctl.findings import Finding, Place
from archonctl.foreign.compose import Service, read_compose
from archonctl.foreign.containers import Container, Option
from archonctl.foreign.launch import Launch, in_container, launches
from archonctl.foreign.manifest import PodContainer, read_manifest
from archonctl.foreign.shell import read_script
from archonctl.foreign.words import Command, Setting, Word
from archonctl.gate.container import container_findings
from archonctl.gate.context import Known
from archonctl.gate.contract import env_floor_mib, floor_words, stated_floor_mib, table_mib_of
from archonctl.gate.env_check import env_findings
from archonctl.gate.env_lines import settings
from archonctl.gate.images import engine_version, why_unpinned
from archonctl.gate.inherited import PREFIXES, environment_findings
from archonctl.gate.judge import image_findings, launch_findings, setting_findings, version_of
from archonctl.gate.source import Source
from archonctl.gate.unit.timespan import seconds

_RADIANCE_KEYS = frozenset({"HOST_POOL_MIB", "MAX_SEQS", "MAX_MODEL_LEN", "KV_DTYPE", "MODEL_FILE", "VRAM_KV_MIB"})


def script_findings(source: Source, environ: Mapping[str, str] | None = None) -> tuple[list[Finding], int]:
    """A shell script, and how many engines it starts. ``environ`` is what it would inherit if it were run from here."""
    script = read_script(source.text.replace("\r\n", "\n"))
    found: list[Finding] = []
    count = 0
    for command in script.commands:
        merged = replace(command, env=(*script.exported, *command.env))
        for launch in launches(merged)[0]:
            count += 1
            found += [*launch_findings(source, launch), *container_findings(source, launch)]
            if launch.container is None:
                found += environment_findings(launch.kind, version_of(source, launch), environ or {})
    if count and "\r\n" in source.text:
        message = "the lines end in CR LF: a shell takes the CR for a part of the last word, and finds no interpreter"
        line = source.text[: source.text.index("\r\n")].count("\n") + 1
        found.append(Finding("script-line-ends", "error", message, Place(source.shown, line), "save it with LF"))
    return found, count


def compose_findings(source: Source) -> tuple[list[Finding], int]:
    """A compose file, and how many engines it starts."""
    found: list[Finding] = []
    count = 0
    for service in read_compose(source.text, source.shown).services:
        for launch in service_launches(service):
            count += 1
            found += [*launch_findings(source, launch), *container_findings(source, launch), *_service(source, service)]
    return found, count


def service_launches(service: Service) -> tuple[Launch, ...]:
    """The engine of one compose service."""
    if service.image is None:
        return ()
    options: tuple[Option, ...] = ()
    if service.entrypoint and service.command.words:
        options = (Option("entrypoint", service.command.words[0]),)
    elif service.cleared:
        options = (Option("entrypoint", Word("")),)
    words = service.command.words[1:] if service.entrypoint else service.command.words
    options += tuple(Option("volume", word) for word in service.others.get("volumes", ()))
    options += tuple(Option("memory", word) for word in _memory_limits(service))
    container = Container("compose", service.image, options, words)
    return in_container(container, replace(service.command, words=words))[0]


def _memory_limits(service: Service) -> Iterator[Word]:
    yield from service.others.get("mem_limit", ())
    for word in service.others.get("deploy", ()):
        found = re.fullmatch(r"resources=limits=memory=(.+)", word.text)
        if found:
            yield replace(word, text=found[1])


def _service(source: Source, service: Service) -> Iterator[Finding]:
    """What of a service works against a long load and a slow stop."""
    grace = service.others.get("stop_grace_period")
    if grace and not grace[0].unresolved and (limit := seconds(grace[0].text)) is not None and limit < 10:
        message = f"stop_grace_period is {grace[0].text}: the engine is killed before it has freed its cards"
        yield Finding("container-stop-timeout", "warning", message, source.place(grace[0]), "stop_grace_period: 60s")
    for word in service.others.get("healthcheck", ()):
        name, _, text = word.text.partition("=")
        if name == "start_period" and (limit := seconds(text)) is not None and limit < 120:
            message = f"healthcheck start_period is {text}: a load takes minutes, and the engine counts as unhealthy"
            yield Finding("container-start-period", "note", message, source.place(word), "start_period: 30m")


def manifest_findings(source: Source) -> tuple[list[Finding], int]:
    """A Kubernetes manifest, and how many engines its pods start."""
    found: list[Finding] = []
    count = 0
    for each in read_manifest(source.text, source.shown):
        for launch in pod_launches(each):
            count += 1
            found += [*launch_findings(source, launch), *container_findings(source, launch), *_pod(source, each)]
    return found, count


def pod_launches(container: PodContainer) -> tuple[Launch, ...]:
    """The engine of one container of a pod."""
    words = container.command.words
    if container.image is None:
        return ()
    options: tuple[Option, ...] = ()
    if container.own_program:
        options, words = (Option("entrypoint", words[0]),), words[1:]
    if container.memory_limit is not None:
        options += (Option("memory", container.memory_limit),)
    given = Container("kubernetes", container.image, options, words)
    return in_container(given, replace(container.command, words=words))[0]


def _pod(source: Source, container: PodContainer) -> Iterator[Finding]:
    if container.liveness is not None and not container.has_startup:
        message = "a livenessProbe without a startupProbe counts from the start: the engine is killed while it loads"
        fix = "add a startupProbe with the time of a load, or take the livenessProbe out"
        yield Finding("manifest-liveness-load", "warning", message, source.place(container.liveness), fix)


def argv_file_findings(source: Source) -> tuple[list[Finding], int]:
    """A JSON list of words, as a release keeps its command line."""
    try:
        value = json.loads(source.text)
    except (ValueError, RecursionError) as err:
        line = getattr(err, "lineno", 1)
        return [Finding("argv-file-invalid", "error", f"it is no JSON: {err}"[:200], Place(source.shown, line))], 0
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        message = "it is not a list of words"
        return [Finding("argv-file-invalid", "error", message, Place(source.shown, 1, 1), "a JSON list of texts")], 0
    words, at = [], 0
    for text in value:
        at = max(source.text.find(json.dumps(text), at), source.text.find(json.dumps(text, ensure_ascii=False), at), at)
        line = source.text.count("\n", 0, at) + 1
        words.append(Word(text, line, at - source.text.rfind("\n", 0, at) + 1))
        at += 1
    found: list[Finding] = []
    started = launches(Command(tuple(words)))[0]
    for launch in started:
        found += launch_findings(source, launch)
    return [replace(one, edit=None) for one in found], len(started)


def env_file_findings(source: Source, table_mib: float | None = None) -> tuple[list[Finding], int]:
    """An env file: its grammar, and the variables of the engine that it belongs to.

    ``table_mib`` is the n-gram table of the model, where a declaration beside the file tells it.
    """
    given = settings(source.text)
    found = env_findings(source.shown, source.text)
    if source.reader == "compose":
        found = [one for one in found if one.code not in ("env-readers-differ", "env-export")]
    count = 0
    for engine in engines_of(source, given):
        count += 1
        version = source.version if source.engine in ("", engine) else ""
        values = {one.name: one.value.text for one in given}
        version = version or engine_version(engine, values.get("IMAGE", ""))
        found += setting_findings(source, engine, version, given, edits=True)
        if engine == "radiance":
            found += _radiance(source, given, table_mib)
    return found, count


def engines_of(source: Source, given: tuple[Setting, ...]) -> list[str]:
    """The engines whose variables an env file sets, by their names; else the one that the caller knows."""
    names = {one.name for one in given}
    found = [
        engine for engine, prefixes in PREFIXES.items() if prefixes and any(name.startswith(prefixes) for name in names)
    ]
    if source.engine == "radiance" or len(names & _RADIANCE_KEYS) >= 2:
        found.append("radiance")
    return found or ([source.engine] if source.engine else [])


def _radiance(source: Source, given: tuple[Setting, ...], table_mib: float | None) -> Iterator[Finding]:
    values = {one.name: one.value.text for one in given}
    table = table_mib if table_mib is not None else table_mib_of(values.get("MODEL_FILE", ""))
    floor = env_floor_mib(values, table) if table is not None else None
    for one in given:
        stated = stated_floor_mib(one.name, one.value.text)
        if floor is not None and stated is not None and stated < floor:
            message, fix = floor_words(one.name, stated, floor)
            yield Finding("ttm-floor-low", "error", message, source.of_setting(one, value=True), fix)
        if re.fullmatch(r"(?:[A-Z]+_)?IMAGE", one.name) and why_unpinned(one.value.text):
            place = source.of_setting(one, value=True)
            image = Word(one.value.text, place.line, place.column)
            yield from image_findings(source, image)


def file_findings(
    source: Source, kind: str, environ: Mapping[str, str] | None = None, table_mib: float | None = None
) -> tuple[list[Finding], int]:
    """One file by its kind, and how many engines it starts; what cannot be read as that kind is a finding."""
    try:
        if kind == "script":
            return script_findings(source, environ)
        if kind == "compose":
            return compose_findings(source)
        if kind == "manifest":
            return manifest_findings(source)
        if kind == "argv":
            return argv_file_findings(source)
        return env_file_findings(source, table_mib)
    except ArchonError as err:
        line = re.search(r":([0-9]+)(?::[0-9]+)?$", err.where)
        place = Place(source.shown, int(line[1]) if line else 0)
        return [Finding(err.code, "error", err.message, place, err.hint)], 0


def env_files_of(source: Source) -> Iterator[tuple[str, Known]]:
    """The env files that the services of a compose file name, with the engine and version of each."""
    try:
        services = read_compose(source.text, source.shown).services
    except ArchonError:
        return
    for service in services:
        for launch in service_launches(service):
            for word in service.others.get("env_file", ()):
                if not word.unresolved:
                    known = Known(launch.kind, version_of(source, launch), "compose")
                    yield word.text.removeprefix("path="), known
