"""How a check fails inside this room: one exception, turned into a leg at its edge."""

from __future__ import annotations

from collections.abc import Mapping

from archonctl.probe.values import Leg, LegStatus


class Fault(Exception):
    """A check that was not passed. ``status`` is "fail", or "no evidence" where the engine may be sound.
    ``http_status`` and ``retry_after`` are of the answer that was refused, if one was.

    Never leaves the room: ``probe_endpoint`` turns it into a :class:`~archonctl.probe.values.Leg`.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: LegStatus = "fail",
        expected: str = "",
        actual: str = "",
        evidence: str = "",
        http_status: int = 0,
        retry_after: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status: LegStatus = status
        self.expected = expected
        self.actual = actual
        self.evidence = evidence
        self.http_status = http_status
        self.retry_after = retry_after
        self.observed: Mapping[str, object] = {}

    def leg(self, leg_id: str, *, required: bool = True) -> Leg:
        """The fault as the outcome of one leg."""
        return Leg(
            leg_id,
            self.status,
            self.message,
            code=self.code,
            expected=self.expected,
            actual=self.actual,
            evidence=self.evidence,
            required=required,
            observed=self.observed,
        )


def unseen(code: str, message: str, *, expected: str = "", actual: str = "", evidence: str = "") -> Fault:
    """A fault that says "no evidence": nothing was proven either way."""
    return Fault(code, message, status="no evidence", expected=expected, actual=actual, evidence=evidence)
