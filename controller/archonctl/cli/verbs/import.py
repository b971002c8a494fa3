# ruff: noqa: N999  a verb's module has its name
"""``archonctl import``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.output import Output

if TYPE_CHECKING:
    from archonctl.foreign.importing import Imported


def run(args: Namespace, out: Output) -> int:
    """Import; print or write."""
    from archonctl.foreign.importing import import_starts
    from archonctl.foreign.writing import write_new

    found = import_starts(args.source, args.name, args.engine_version)
    written = write_new(Path(args.out), {each.name: each.text for each in found}) if args.out else {}
    if out.json:
        out.value({"schema": "archonctl.import/1", "endpoints": [_value(each, written) for each in found]})
        return 0
    for each in found:
        if each.name in written:
            out.answer(f"{written[each.name]}  written, {len(each.unread)} not understood or left to you")
        else:
            out.answer(each.text.rstrip("\n") + ("\n" if len(found) > 1 else ""))
    return 0


def _value(each: Imported, written: dict[str, Path]) -> dict[str, object]:
    return {
        "name": each.name,
        "source": each.source,
        "path": str(written[each.name]) if each.name in written else None,
        "toml": each.text,
        "declaration": dict(each.data),
        "unread": [
            {"text": one.text, "reason": one.reason, "line": one.line or None, "column": one.column or None}
            for one in each.unread
        ],
    }
