"""Asks an engine's own planner and sets its figures beside the plan's: a difference is a finding, never averaged."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from archonctl.deployment.load import LoadedEndpoint
from archonctl.engines import adapter
from archonctl.engines.oracle import Figure, Question
from archonctl.errors import HostRefusal, UsageError
from archonctl.findings import Finding
from archonctl.host.load import load_host
from archonctl.plan.load import load_model

_SECONDS = 120
_MOST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Consulted:
    """What was run, what it said beside the plan, and every difference."""

    name: str
    argv: tuple[str, ...]
    figures: tuple[Figure, ...]
    findings: tuple[Finding, ...]

    def as_json(self) -> dict[str, Any]:
        """Under ``oracle`` of ``docs/schemas/plan-1.json``."""
        return {
            "name": self.name,
            "command": list(self.argv),
            "agrees": not self.findings,
            "figures": [_figure(figure) for figure in self.figures],
            "findings": [_finding(finding) for finding in self.findings],
        }


def consult(loaded: LoadedEndpoint, environ: Mapping[str, str]) -> Consulted:
    """Ask the oracle of the endpoint's engine about the declaration.

    Raises UsageError ``oracle-unavailable`` where the engine has none or it cannot be asked this, and HostRefusal
    ``oracle-missing`` or ``oracle-failed``.
    """
    endpoint = loaded.endpoint
    oracle = adapter(endpoint.engine.kind).oracle
    if oracle is None:
        raise UsageError("oracle-unavailable", f"{endpoint.engine.kind} has no planner of its own")
    host, model = load_host(loaded), load_model(endpoint)
    with loaded.placing():
        question = oracle.question(endpoint, host, model)
        if question.unaskable:
            raise UsageError("oracle-unavailable", question.unaskable)
        figures = oracle.read(_answer(question, environ), endpoint, host, model)
    if not figures:
        raise HostRefusal("oracle-failed", f"{question.argv[0]} printed no figures", where=" ".join(question.argv))
    findings = tuple(_differs(oracle.name, figure) for figure in figures if figure.agrees is False)
    return Consulted(oracle.name, question.argv, figures, findings)


def _differs(name: str, figure: Figure) -> Finding:
    planned = figure.planned
    assert planned is not None
    ends = "" if planned.is_exact else f" ({planned.low:,.0f} to {planned.high:,.0f})"
    return Finding(
        "oracle-differs",
        "error" if figure.exact else "warning",
        f"{figure.what}: {name} says {figure.oracle:,.10g} {figure.unit}, the plan {planned.best:,.10g}{ends}",
        fix="believe the engine, and report the case: the law does not cover it",
    )


def _answer(question: Question, environ: Mapping[str, str]) -> str:
    import subprocess

    # A variable of the caller's shell would be a flag that neither the plan nor the server sees.
    kept = {name: value for name, value in environ.items() if not name.startswith(("LLAMA_", "VLLM_"))}
    program = question.argv[0]
    if not program or not os.access(program, os.X_OK):
        raise HostRefusal("oracle-missing", f"{program or 'the planner'} is not there", hint=question.ready)
    try:
        done = subprocess.run(
            question.argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            env={**kept, **question.env},
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as err:
        raise HostRefusal("oracle-failed", f"{program}: {getattr(err, 'strerror', None) or err}") from None
    if done.returncode:
        said = done.stderr[-_MOST_BYTES:].decode("utf-8", "replace").strip().splitlines()
        last = next((line for line in reversed(said) if line.strip()), "nothing")
        raise HostRefusal("oracle-failed", f"{program} ended with {done.returncode} and said: {last[:300]}")
    return done.stdout[:_MOST_BYTES].decode("utf-8", "replace")


def _figure(figure: Figure) -> dict[str, Any]:
    planned = figure.planned
    return {
        "what": figure.what,
        "unit": figure.unit,
        "oracle": figure.oracle,
        "planned": planned.best if planned else None,
        "planned_low": planned.low if planned else None,
        "planned_high": planned.high if planned else None,
        "agrees": figure.agrees,
    }


def _finding(finding: Finding) -> dict[str, str]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "message": finding.message,
        "fix": finding.fix,
    }
