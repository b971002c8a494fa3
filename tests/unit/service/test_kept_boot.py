"""A boot log that was rotated away, as an earlier verdict on the same start kept it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from archonctl.ledger.as_json import ledger_json
from archonctl.ledger.values import BootLedger, Reading, Remark
from archonctl.memory.interval import Interval
from archonctl.service.kept_boot import fuller, kept_boot
from archonctl.service.verdict_store import keep

RELEASE, START = "ab" * 8, "cd" * 16
FULL = BootLedger(
    engine="llamacpp",
    engine_version="b1",
    figures={"kv_tokens": Reading(Interval(1024, 1024, 1024, "log"), 7, "n_ctx = 1024")},
    remarks=(Remark("a-code", "info", "at boot", 3),),
    missing=(),
    lines_read=90,
)
EMPTY = replace(FULL, figures={}, remarks=(Remark("b-code", "warn", "since", 1),), lines_read=1)


def stored(folder: Path, ledger: BootLedger | None, invocation: str = START) -> None:
    value = {
        "schema": "archonctl.verify/1",
        "endpoint": "a",
        "verdict": "holds",
        "reasons": [],
        "invocation": invocation,
        "ledger": ledger_json(ledger) if ledger else None,
        "probe": {"legs": [], "facts": {}},
    }
    keep(folder, RELEASE, "verify", value, time.time())


def test_only_what_was_read_of_this_very_start_counts(tmp_path: Path) -> None:
    assert kept_boot(tmp_path, RELEASE, START) is None
    stored(tmp_path, FULL, "another start")
    assert kept_boot(tmp_path, RELEASE, START) is None
    stored(tmp_path, FULL)
    stored(tmp_path, None)  # a later look that had no log
    (tmp_path / "verdicts" / RELEASE / "20991231T000000.000000Z-verify.json").write_text("half a fi")
    found = kept_boot(tmp_path, RELEASE, START)
    assert found is not None
    assert found.figures["kv_tokens"].value.best == 1024
    assert kept_boot(tmp_path, RELEASE, "") is None


def test_it_counts_only_where_the_log_tells_less_and_what_came_since_is_not_lost() -> None:
    assert fuller(FULL, FULL) is None
    assert fuller(EMPTY, None) is None
    found = fuller(EMPTY, FULL)
    assert found is not None
    assert (found.figures, [each.text for each in found.remarks]) == (FULL.figures, ["at boot", "since"])
