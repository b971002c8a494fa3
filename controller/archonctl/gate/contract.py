"""The promise against the plan, the bounds that no plan shows, and the pinned-memory floor that somebody declared."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from archonctl.engines import adapter
from archonctl.errors import ArchonError, ModelError
from archonctl.findings import Finding, Severity
from archonctl.gate.where import Declared
from archonctl.host.load import load_host
from archonctl.host.visible import visible_host
from archonctl.memory.interval import MIB
from archonctl.model.rad import RadManifest
from archonctl.plan.judge import judge
from archonctl.plan.load import load_model
from archonctl.plan.scopes import judged_scopes

KNOWN_TABLE_MIB = {"qwen3.8-next-flash": 48_824.0}
"""n-gram tables by the beginning of the model file's name. Source: env/models/qwen3.8-next-flash.toml."""

_FLOOR = re.compile(r"(?:[A-Z0-9]+_)*TTM_(?:[A-Z0-9]+_)*(MIB|GIB|PAGES)|(?:[A-Z0-9]+_)*TTM_FLOOR")
_EXACT_WITHOUT_MANIFEST = 25
"""hidden 2560 in bf16 under the wire's default of 128 KiB. Source: ``radiance.memory.exact_rows``."""


def contract_findings(declared: Declared) -> list[Finding]:
    """Plan the endpoint and say where it falls short. Needs no hardware where a host profile is declared."""
    loaded = declared.loaded
    endpoint = loaded.endpoint
    try:
        with loaded.placing():
            host = visible_host(load_host(loaded), endpoint.engine.env)
            model = load_model(endpoint, network=False)
            forecast = adapter(endpoint.engine.kind).forecast(endpoint, host, model)
    except ModelError as err:
        message = f"the contract was not judged: {err.message} ({err.where})"
        return [Finding("contract-not-judged", "note", message, declared.place("model.path", True), err.hint)]
    except ArchonError as err:
        severity: Severity = "note" if err.code in ("engine-unsupported", "host-unresolved") else "error"
        return [Finding(err.code, severity, err.message, declared.of_error(err), err.hint)]
    found = [declared.finding(p.code, "error", p.message, "engine.knobs", p.hint) for p in forecast.problems]
    verdict, reasons = judge(endpoint.contract, forecast, judged_scopes(forecast, host))
    told = {p.message for p in forecast.problems}
    reasons = tuple(reason for reason in reasons if not any(reason.startswith(text) for text in told))
    lever = forecast.levers[0].text if forecast.levers else ""
    if verdict == "short":
        found += [declared.finding("contract-short", "error", reason, "contract.len", lever) for reason in reasons]
    elif verdict == "unknown":
        found += [declared.finding("contract-not-judged", "note", reason, "contract.len") for reason in reasons]
    found += floor_findings(declared, forecast.host_need.ttm_floor_mib, host.page_bytes)
    if endpoint.engine.kind == "radiance":
        rad = model.rad if model is not None else None
        found += _rows(declared, rad if isinstance(rad, RadManifest) else None)
    return found


def _rows(declared: Declared, manifest: RadManifest | None) -> Iterator[Finding]:
    """Rows of a decode step's all-reduce: the compressed wire is bit-exact up to a bound."""
    from archonctl.engines.radiance.memory import allreduce_rows, exact_rows
    from archonctl.engines.radiance.settings import read_settings

    try:
        settings, _ = read_settings(declared.loaded.endpoint)
    except ArchonError:
        return  # told with the forecast
    depth = settings.depth
    if depth is None and manifest is not None and manifest.speculation is not None:
        depth = manifest.speculation.depth
    if settings.tp < 2 or not settings.lossy_wire or depth is None:
        return
    bound = exact_rows(manifest.hidden, settings.wire_min_kib) if manifest else _EXACT_WITHOUT_MANIFEST
    rows = allreduce_rows(settings.slots, depth)
    if rows > bound:
        message = (
            f"all-reduce of a decode step: {settings.slots:,} x (1 + {depth}) = {rows:,} rows, and the wht6 wire is "
            f"bit-exact up to {bound:,}"
        )
        fix = f"at most {bound // (1 + depth):,} sequences at depth {depth}, or tp-wire bf16"
        yield declared.finding("allreduce-rows", "error", message, "contract.seqs", fix)


def floor_findings(declared: Declared, floor_mib: int | None, page_bytes: int = 4096) -> list[Finding]:
    """A floor or target for the kernel's TTM limit that ``[engine.env]`` states below the computed floor."""
    found = []
    for name, text in declared.loaded.endpoint.engine.env.items():
        stated = stated_floor_mib(name, text, page_bytes)
        if floor_mib is not None and stated is not None and stated < floor_mib:
            message, fix = floor_words(name, stated, floor_mib)
            found.append(declared.finding("ttm-floor-low", "error", message, f"engine.env.{name}", fix))
    return found


def stated_floor_mib(name: str, text: str, page_bytes: int = 4096) -> float | None:
    """The MiB that a variable such as ``TTM_FLOOR_MIB`` states; None for other variables and what is no number."""
    found = _FLOOR.fullmatch(name)
    if not found or not re.fullmatch(r"[0-9]{1,18}", text):
        return None
    return int(text) * {"MIB": 1.0, "GIB": 1024.0, "PAGES": page_bytes / MIB}[found[1] or "MIB"]


def floor_words(name: str, stated_mib: float, floor_mib: int) -> tuple[str, str]:
    """The message and the fix of ``ttm-floor-low``."""
    message = (
        f"{name} states {stated_mib:,.0f} MiB, and the pinned pools need {floor_mib:,} MiB: "
        f"{floor_mib - stated_mib:,.0f} MiB short"
    )
    return message, f"at least {floor_mib:,} MiB ({floor_mib * 256:,} pages of 4 KiB)"


def table_mib_of(model_file: str) -> float | None:
    """The n-gram table of a model file by its name, where it is a known one; without a name the only known one."""
    name = model_file.rpartition("/")[2]
    return next((mib for begin, mib in KNOWN_TABLE_MIB.items() if not name or name.startswith(begin)), None)


def env_floor_mib(values: Mapping[str, str], table_mib: float, ranks: int = 2) -> int | None:
    """The floor by an env file's own keys; None where it states no host pool.

    Ranks x host pool + n-gram table + prefix cache + batched tokens. ``table_mib`` comes from a manifest.
    """
    from archonctl.engines.radiance.memory import ttm_floor_mib

    def whole(name: str, default: int) -> int:
        text = values.get(name, "")
        return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else default

    if not re.fullmatch(r"[0-9]{1,12}", values.get("HOST_POOL_MIB", "")):
        return None
    prefix = whole("PREFIX_CACHE_MIB", whole("PREFIX_CACHE_HOST_MIB", 0))
    return ttm_floor_mib(
        whole("TP", ranks), whole("HOST_POOL_MIB", 0), table_mib, prefix, whole("MAX_BATCHED_TOKENS", 2048)
    )
