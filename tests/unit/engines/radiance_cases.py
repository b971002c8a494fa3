"""What the radiance tests share: the shipped declarations, changed in memory, and the golden figures."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from archonctl.deployment.schema import Boot, Endpoint
from archonctl.engines.base import Forecast
from archonctl.engines.radiance.adapter import ADAPTER
from archonctl.engines.radiance.kv import Era, KvLaw, kv_law
from archonctl.host.profile import Host
from archonctl.model.geometry import ModelFacts
from archonctl.model.manifest import read_manifest
from archonctl.model.rad import RadManifest

REPOSITORY = Path(__file__).parents[3]
ENV = REPOSITORY / "env"


def read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def golden() -> dict[str, Any]:
    return read(REPOSITORY / "tests" / "golden" / "radiance_kv.toml")


@cache
def model() -> ModelFacts:
    return read_manifest(ENV / "models" / "qwen3.8-next-flash.toml")


def manifest() -> RadManifest:
    found = model().rad
    assert found is not None
    return found


def law(kv_dtype: str = "fp8", era: Era = "pair") -> KvLaw:
    return kv_law(manifest(), kv_dtype, era)


def host(**changes: object) -> Host:
    return Host.model_validate({**read(ENV / "hosts" / "archon.toml"), **changes})


def declared(
    name: str = "archon",
    knobs: dict[str, object] | None = None,
    without: tuple[str, ...] = (),
    boots: list[Boot] | None = None,
    **tables: dict[str, object],
) -> Endpoint:
    """A shipped declaration with changes: knobs merged, other tables by name (``contract={"seqs": 4}``)."""
    data = read(ENV / f"{name}.toml")
    for table, changes in tables.items():
        data[table] = {**data[table], **changes}
    merged = {**data["engine"]["knobs"], **(knobs or {})}
    data["engine"]["knobs"] = {key: value for key, value in merged.items() if key not in without}
    endpoint = Endpoint.model_validate(data)
    return endpoint if boots is None else endpoint.model_copy(update={"boot": tuple(boots)})


def boot(**changes: object) -> Boot:
    """The first 1.8.1 boot, with changes."""
    found: Boot = declared().boot[0]
    return found.model_copy(update=changes)


def forecast(endpoint: Endpoint, on: Host | None = None) -> Forecast:
    return ADAPTER.forecast(endpoint, on or host(), model())


def verdict(endpoint: Endpoint, found: Forecast) -> str:
    """The rule of a plan, restated here so that the engine room is tested without the plan room."""
    contract, tokens = endpoint.contract, found.kv_tokens
    limits = (found.seqs_limit or 0) < contract.seqs or (found.seq_len_limit or 0) < contract.len
    if found.problems or limits or (tokens is not None and tokens.best < contract.tokens_with_margin):
        return "short"
    return "holds" if tokens is not None and tokens.low >= contract.tokens else "unknown"


def shown(found: Forecast) -> str:
    """Everything that a forecast says in words, and the methods with their figures."""
    methods = [f"{name}: {value.best:,.0f}" for name, value in found.methods.items()]
    levers = [f"{lever.text} {lever.costs}" for lever in found.levers]
    return "\n".join([*found.notes, *methods, *levers, *(p.message for p in found.problems)])
