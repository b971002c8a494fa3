"""What the host verbs know, as JSON-ready values (``archonctl.host/1``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from archonctl.findings import Finding
from archonctl.host.profile import Host
from archonctl.host.ttm import TtmState
from archonctl.host.ttm_persist import Persist

SCHEMA = "archonctl.host/1"


def host_json(action: str, host: Host, path: str = "") -> dict[str, object]:
    """``show`` and ``save``: the host, and for ``save`` where it was written."""
    return {"schema": SCHEMA, "action": action, "host": host.model_dump(mode="json"), "path": path or None}


def ttm_json(
    state: TtmState,
    findings: Sequence[Finding],
    floor_mib: int | None,
    persist: Persist | None,
    *,
    is_written: bool,
) -> dict[str, object]:
    """``ttm``: the limit, what is wrong with it, and the proposal where one was asked for."""
    return {
        "schema": SCHEMA,
        "action": "ttm",
        "module": state.module or None,
        "pages": state.pages,
        "page_bytes": state.page_bytes,
        "limit_mib": state.limit_mib,
        "ram_mib": state.ram_mib,
        "next_boot_pages": state.next_pages,
        "floor_mib": floor_mib,
        "findings": [_finding(finding) for finding in findings],
        "persist": None if persist is None else _persist(persist, is_written=is_written),
    }


def _finding(finding: Finding) -> dict[str, object]:
    place = finding.place
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "path": place.path or None,
        "line": place.line or None,
        "fix": finding.fix or None,
    }


def _persist(persist: Persist, *, is_written: bool) -> dict[str, object]:
    return {
        "target_mib": persist.target_mib,
        "pages": persist.pages,
        "path": persist.path,
        "text": persist.new,
        "diff": persist.diff,
        "written": is_written,
        "boot_loader": asdict(persist.loader)["kind"],
        "kernel_argument_steps": list(persist.loader.steps),
        "steps": list(persist.steps),
    }
