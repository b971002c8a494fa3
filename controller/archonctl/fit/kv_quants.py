"""What an engine serves where a KV cache of some type is asked for (kv_quants.toml)."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from archonctl.errors import UsageError
from archonctl.findings import Finding
from archonctl.fit.kv_served import KvServed


@cache
def _table() -> dict[tuple[str, str], str]:
    rows = tomllib.loads(files("archonctl.fit").joinpath("kv_quants.toml").read_text("utf-8"))["served"]
    return {(row["engine"], asked): row["as"] for row in rows for asked in row["asked"]}


@cache
def known_quants() -> tuple[str, ...]:
    """Every type that some engine serves, or serves as another."""
    return tuple(sorted({asked for _, asked in _table()}))


def check_asked(asked: str) -> None:
    """Raise UsageError ``kv-quant-unknown`` for a type that no engine serves."""
    if asked not in known_quants():
        raise UsageError(
            "kv-quant-unknown",
            f"no engine serves a KV cache of {asked[:40]!r}",
            hint=f"--kv-quant {', '.join(known_quants())}",
        )


def served(engine: str, asked: str) -> KvServed | None:
    """What the engine makes of it; None where it has nothing like it."""
    dtype = _table().get((engine, asked))
    return None if dtype is None else KvServed(asked, dtype)


def warning(engine: str, kv: KvServed) -> Finding | None:
    """The one warning about a substitution: asked, served and engine; None where the same is served."""
    if not kv.substituted:
        return None
    message = f"KV cache {kv.asked} was asked for; {engine} serves it as {kv.dtype}, and that is what was sized"
    return Finding("fit-kv-substituted", "warning", message, fix=f"--kv-quant {kv.dtype} says so itself")
