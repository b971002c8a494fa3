"""One declaration, judged as it would be rendered. No network, no GPU, nothing started."""

from __future__ import annotations

from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.findings import Finding


def check_endpoint(
    loaded: LoadedEndpoint, *, installed: Path | None = None, verify_files: bool = False
) -> tuple[Finding, ...]:
    """Everything that is wrong with one endpoint.

    ``installed`` is the root below which the installed release and units are compared with what would be rendered
    (``/`` on the machine itself; None: not compared). ``verify_files`` reads the model file for its digest.
    """
    return ()
