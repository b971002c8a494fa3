"""The whole command line of vLLM and its environment, judged as the parser of the declared version would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from archonctl.deployment.schema import Endpoint
from archonctl.engines.knobs import ArgvFinding, check_argv, check_env
from archonctl.engines.knobs.versions import version_key
from archonctl.engines.passed_on import Words
from archonctl.engines.vllm.rules import version_of
from archonctl.errors import DeclarationError, UsageError


def flags_version(text: str) -> str:
    """The release that a declared version means: "0.11 nightly" and "July 2025" name one too; else the text itself."""
    try:
        version_key("vllm", text)
    except UsageError:
        found = version_of(text)
        return ".".join(map(str, found)) if found else text
    return text


def judged(endpoint: Endpoint, version: str, arguments: Sequence[Words]) -> Iterator[str]:
    """Notes about what stands behind ``serve MODEL``, and about the environment.

    Raises DeclarationError with the code of the first finding that would keep this version from starting, or that it
    would ignore without a word: ``knob-retired``, ``knob-unknown``, ``knob-bad-value`` and others of ``check_argv``.
    """
    words = ["serve", endpoint.model.path, *(word for part in arguments for word in part.words)]
    places = ["", "", *(part.where for part in arguments for _ in part.words)]
    for finding in check_argv("vllm", version, words):
        yield from _said(finding, places[finding.index] if finding.index >= 0 else "")
    for finding in check_env("vllm", version, endpoint.engine.env):
        yield from _said(finding, f"engine.env.{finding.argument}")


def _said(finding: ArgvFinding, where: str) -> Iterator[str]:
    if finding.severity == "error":
        raise DeclarationError(finding.code, finding.message, where=where, hint=finding.fix)
    if finding.severity == "warning":
        yield f"{where}: {finding.message}" if where else finding.message
