"""What an engine reads beside its command line: the environment that it inherits, and files of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from archonctl.deployment.schema import Endpoint
from archonctl.engines.knob_values import as_bool
from archonctl.engines.knobs import ArgvFinding, check_argv, check_env
from archonctl.errors import ArchonError
from archonctl.findings import Finding, Place, Severity

PREFIXES = {"llamacpp": ("LLAMA_ARG_", "LLAMA_"), "vllm": ("VLLM_",), "sglang": ("SGLANG_", "SGL_"), "radiance": ()}
"""Variables that an engine reads, by the beginning of their names."""

_SIZE_LIMIT = 1 << 20


def inherited_findings(endpoint: Endpoint, environ: Mapping[str, str], root: Path | None) -> list[Finding]:
    """Variables of ``environ`` and, below ``root``, configuration files that would change this engine."""
    engine = endpoint.engine
    found = list(environment_findings(engine.kind, engine.version, environ))
    if root is not None and engine.kind == "llamacpp":
        for path in config_paths(root, environ):
            found += config_findings(path, engine.version)
    return found


def environment_findings(engine: str, version: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What the inherited environment sets of an engine's own variables: known ones are said, others judged."""
    mine = {name: text for name, text in environ.items() if name.startswith(PREFIXES.get(engine, ()))}
    if not mine:
        return
    try:
        found = check_env(engine, version, mine)
    except ArchonError:
        found = ()
    told = {one.argument for one in found}
    for one in found:
        yield Finding(one.code, one.severity, one.message, Place(f"environment {one.argument}"), one.fix)
    for name in sorted(set(mine) - told):
        message = (
            f"{name} is set in the environment, and {engine} reads it: what starts from here is not what is declared"
        )
        yield Finding("knob-inherited", "warning", message, Place(f"environment {name}"), f"unset {name}")


def config_paths(root: Path, environ: Mapping[str, str]) -> list[Path]:
    """The files that llama-server reads by itself, below ``root``; those that are there.

    Source: llama.cpp b11434 common/arg.cpp, ``common_params_apply_system_config``.
    """
    home = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    paths = [root / "etc/llama.cpp/config.ini"]
    if home.startswith("/"):
        paths.append(root / home.lstrip("/") / "llama.cpp/config.ini")
    return [path for path in paths if path.is_file()]


def config_findings(path: Path, version: str) -> Iterator[Finding]:
    """Each key of a llama-server configuration file: it changes what the declaration says, and may be stale."""
    shown = str(path)
    try:
        with path.open("rb") as file:
            text = file.read(_SIZE_LIMIT).decode("utf-8", "replace")
    except OSError as err:
        message = f"llama-server reads this file, and it cannot be read here: {err.strerror or err}"
        yield Finding("config-unreadable", "warning", message, Place(shown))
        return
    section = "*"
    for number, line in enumerate(text.split("\n"), 1):
        if head := re.fullmatch(r"\s*\[(.+)\]\s*", line):
            section = head[1]
        elif (pair := re.fullmatch(r"(\s*)([A-Za-z][A-Za-z0-9_-]*)\s*=\s*(.*?)\s*", line)) and section in (
            "*",
            "default",
        ):
            yield from _config_key(Place(shown, number, len(pair[1]) + 1), pair[2], pair[3], version)


def _config_key(place: Place, key: str, value: str, version: str) -> Iterator[Finding]:
    """A key is an option without its dashes, or the name of its variable; ``version`` is reserved."""
    if key == "version":
        return
    try:
        found = _config_verdicts(key, value, version)
    except ArchonError:
        found = ()
    for one in found:
        severity: Severity = "warning" if one.code == "knob-unknown" else one.severity  # the engine passes over it
        yield Finding(one.code, severity, one.message, place, one.fix)
    if not found:
        message = f"{key} = {value[:60]} is read by llama-server under every command line of this machine"
        yield Finding("knob-inherited", "warning", message, place, "take it out, and declare the knob")


def _config_verdicts(key: str, value: str, version: str) -> tuple[ArgvFinding, ...]:
    if key.startswith("LLAMA_"):
        return check_env("llamacpp", version, {key: value})
    dashes = "-" if len(key) <= 3 and key not in ("api", "log") else "--"
    words = (f"{dashes}{key}", value)
    found = check_argv("llamacpp", version, words)
    if any(one.code == "knob-takes-no-value" for one in found) and as_bool(value) is not None:
        found = check_argv("llamacpp", version, words[:1])
    return tuple(one for one in found if one.index >= 0)
