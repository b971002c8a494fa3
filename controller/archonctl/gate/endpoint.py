"""One declaration, judged as it would be rendered. No network, no GPU, nothing started."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import KnobValue
from archonctl.engines.base import CommandLine
from archonctl.engines.knobs import ArgvFinding, check_argv
from archonctl.errors import ArchonError
from archonctl.findings import Edit, Finding
from archonctl.gate.artefact import Progress, file_findings
from archonctl.gate.contract import contract_findings
from archonctl.gate.inherited import inherited_findings
from archonctl.gate.installed import installed_findings
from archonctl.gate.mounts import wrong_mounts
from archonctl.gate.values import in_order
from archonctl.gate.where import Declared
from archonctl.release.render import command_of, render_release

_KNOB_CODES = frozenset({"knob-unknown", "knob-retired", "knob-bad-value", "knob-deprecated"})


def check_endpoint(
    loaded: LoadedEndpoint,
    *,
    shown: str = "",
    installed: Path | None = None,
    verify_files: bool = False,
    environ: Mapping[str, str] | None = None,
    root: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Finding, ...]:
    """Everything that is wrong with one endpoint.

    ``shown`` is the declaration's path as the user wrote it. ``installed`` is the root below which the installed
    release and unit are compared with what would be rendered (``/`` on the machine itself; None: not compared).
    ``verify_files`` reads the model file for its digest; ``environ`` is the environment that the engine would
    inherit, ``root`` the root of the configuration files that it reads by itself (None: neither is judged).
    """
    declared = Declared(loaded, shown or str(loaded.copy or loaded.path))
    found = [
        *_knobs(declared),
        *_image(declared),
        *_mounts(declared),
        *contract_findings(declared),
        *file_findings(declared, verify_files, progress),
        *inherited_findings(loaded.endpoint, environ or {}, root),
    ]
    command = _command(declared, found)
    if command is not None:
        found += _rendered(declared, command)
        if installed is not None:
            found += installed_findings(loaded, command, installed)
    return in_order(_once(found))


def _once(found: list[Finding]) -> Iterator[Finding]:
    """The plan and the renderer may raise what was already found at its own place."""
    seen: set[tuple[str, str, int]] = set()
    for one in found:
        key = (one.code, one.place.path, one.place.line)
        if one.code in _KNOB_CODES or one.code == "image-not-pinned":
            if key in seen:
                continue
            seen.add(key)
        yield one


def _command(declared: Declared, found: list[Finding]) -> CommandLine | None:
    """The rendered command line; what the engine's adapter refuses is a finding."""
    try:
        return command_of(declared.loaded)
    except ArchonError as err:
        if err.code == "engine-unsupported":
            return None
        codes = {one.code for one in found if one.severity == "error"}
        if not (err.code in codes and (err.code in _KNOB_CODES or err.code == "image-not-pinned")):
            found.append(Finding(err.code, "error", err.message, declared.of_error(err), err.hint))
        return None


def _rendered(declared: Declared, command: CommandLine) -> list[Finding]:
    """What rendering refuses."""
    out: list[Finding] = []
    try:
        with declared.loaded.placing():
            render_release(declared.loaded, command)
    except ArchonError as err:
        out.append(Finding(err.code, "error", err.message, declared.of_error(err), err.hint))
    return out


def _knobs(declared: Declared) -> Iterator[Finding]:
    """Every declared knob by the table of the declared version."""
    engine = declared.loaded.endpoint.engine
    words, keys = _as_argv(declared.loaded.endpoint.engine.knobs)
    prefix = ["serve", declared.loaded.endpoint.model.path or "model"] if engine.kind == "vllm" else []
    try:
        found = check_argv(engine.kind, engine.version, [*prefix, *words])
    except ArchonError as err:
        if err.code != "engine-unknown":
            yield Finding(err.code, "error", err.message, declared.place("engine.version", True), err.hint)
        return
    for one in found:
        at = one.index - len(prefix)
        if not 0 <= at < len(keys):
            continue
        key = f"engine.knobs.{keys[at]}"
        value = one.code == "knob-bad-value"
        fix = one.fix.replace("--", "", 1) if one.fix.startswith("use --") else one.fix
        yield Finding(one.code, one.severity, one.message, declared.place(key, value), fix, _edit(declared, key, one))


def _as_argv(knobs: Mapping[str, KnobValue]) -> tuple[list[str], list[str]]:
    """The knobs as arguments, and for each argument the key that it came from."""
    words: list[str] = []
    keys: list[str] = []
    for key, value in knobs.items():
        given = [f"--{key}"] if isinstance(value, bool) else [f"--{key}", str(value)]
        words += given
        keys += [key] * len(given)
    return words, keys


def _edit(declared: Declared, key: str, found: ArgvFinding) -> Edit | None:
    if found.replacement is None:
        return None
    if not found.replacement:
        return declared.remove(key)
    name = found.replacement[0]
    return declared.rename(key, name.lstrip("-")) if re.fullmatch(r"--[a-z0-9-]+", name) else None


def _image(declared: Declared) -> Iterator[Finding]:
    image = declared.loaded.endpoint.engine.image
    if image and not re.fullmatch(r"[^\s@]+@sha256:[0-9a-f]{64}", image):
        message = f"image {image[:80]!r} is not pinned: a tag can be pushed again with other contents"
        fix = "use name@sha256:<64 hex digits>"
        yield declared.finding("image-not-pinned", "error", message, "engine.image", fix)


def _mounts(declared: Declared) -> Iterator[Finding]:
    engine = declared.loaded.endpoint.engine
    if not engine.image:
        return
    for wrong in wrong_mounts(engine.kind, engine.version, engine.mounts):
        rule = wrong.rule
        if wrong.index is None:
            message = f"no mount gives the container {rule.target}: {rule.why}"
            fix = f'engine.mounts = ["/var/lib/{engine.kind}/{rule.name}:{rule.target}"]'
            key = "engine.mounts[0]" if engine.mounts else "engine.image"
            yield declared.finding("mount-missing", "error", message, key, fix, value=False)
        else:
            mount = engine.mounts[wrong.index]
            message = f"mount {mount[:80]!r} gives the container {rule.target}: {rule.why}"
            yield declared.finding("mount-forbidden", "error", message, f"engine.mounts[{wrong.index}]", "take it out")
