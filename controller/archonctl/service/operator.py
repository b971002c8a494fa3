"""Who changes an endpoint, as the lock and the history on the host name them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

VARIABLE = "ARCHON_OPERATOR"
"""Set by whoever acts for somebody else, as ``archonctl fleet`` does over ssh: ``alice@deploy``."""
_LIMIT = 100


def operator(environ: Mapping[str, str]) -> str:
    """``$ARCHON_OPERATOR``, else who used sudo; empty where neither says."""
    return named(environ.get(VARIABLE, "") or environ.get("SUDO_USER", ""))


def operator_or_uid(environ: Mapping[str, str]) -> str:
    """As ``operator``, else the user's number."""
    return operator(environ) or f"uid {os.getuid()}"


def named(text: str) -> str:
    """What of a name is fit for a line that others read: printable ASCII, at most 100 characters."""
    return re.sub(r"[^!-~]+", " ", text).strip()[:_LIMIT]
