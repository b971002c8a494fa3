"""The runbook pages that ship with the package: one a code."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from archonctl.errors import UsageError

_SHIPPED = Path(__file__).parent / "_data" / "runbooks"
_CHECKOUT = Path(__file__).parents[2] / "runbooks"


def folder() -> Path:
    """Where the pages lie: in the wheel, or in the checkout that is installed editable."""
    return _SHIPPED if _SHIPPED.is_dir() else _CHECKOUT


def pages() -> dict[str, str]:
    """Code to one-line summary, sorted by code."""
    return {path.stem: _title(path) for path in sorted(folder().glob("*.md"))}


def page(code: str) -> str:
    """The page of one code. Raises UsageError ``code-unknown`` with what was probably meant."""
    wanted = code.strip().lower()
    if re.fullmatch(r"[a-z0-9-]{1,80}", wanted):
        path = folder() / f"{wanted}.md"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    close = difflib.get_close_matches(wanted, pages(), n=1)
    hint = f"did you mean {close[0]}?" if close else "archonctl explain lists the codes"
    raise UsageError("code-unknown", f"no page for {code[:80]!r}", hint=hint)


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").partition(":")[2].strip()
