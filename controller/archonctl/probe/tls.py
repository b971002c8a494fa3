"""TLS of the published address: the certificate, how long it lasts, and by which name a bad one fails."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass

import httpx

from archonctl.errors import DeclarationError
from archonctl.probe.faults import Fault
from archonctl.probe.values import Leg, Proof

LEG = "tls"
SOON_S = 14 * 86_400
"""A certificate that ends sooner is said to; most are renewed 30 days before."""
# X509_V_ERR_* of OpenSSL, include/openssl/x509_vfy.h
_EXPIRED, _NOT_YET = {10}, {9}
_UNKNOWN_CA = {2, 18, 19, 20, 21, 27}
_OTHER_NAME = {62, 64}


@dataclass(frozen=True, slots=True)
class Certificate:
    """The certificate of the published address, as it passed the checks. ``ends`` is Unix time in seconds."""

    subject: str
    issuer: str
    ends: float
    protocol: str

    def days_left(self, now: float) -> float:
        """Days until it ends."""
        return (self.ends - now) / 86_400


def tls_context(ca_file: str) -> ssl.SSLContext:
    """The system's certificates, and those of ``ca_file``. Raises DeclarationError ``ca-file-invalid``."""
    context = ssl.create_default_context()
    if ca_file:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ssl.SSLError) as err:
            why = f"service.ca_file cannot be used: {err.strerror or err}"
            raise DeclarationError("ca-file-invalid", why, where=ca_file, hint="PEM certificates are wanted") from None
    return context


def certificate_of(response: httpx.Response) -> Certificate | None:
    """The certificate behind an answer; None without TLS."""
    stream = response.extensions.get("network_stream")
    wrapped = stream.get_extra_info("ssl_object") if stream is not None else None
    found = wrapped.getpeercert() if isinstance(wrapped, ssl.SSLObject | ssl.SSLSocket) else None
    if not found or not isinstance(wrapped, ssl.SSLObject | ssl.SSLSocket):
        return None
    ends = float(ssl.cert_time_to_seconds(str(found["notAfter"])))
    return Certificate(_name(found.get("subject")), _name(found.get("issuer")), ends, wrapped.version() or "")


def _name(rows: object) -> str:
    """The common name of a subject or an issuer, else its organisation."""
    flat = dict(pair for row in rows for pair in row) if isinstance(rows, tuple) else {}
    return str(flat.get("commonName") or flat.get("organizationName") or "")


def tls_fault(err: ssl.SSLError, place: str) -> Fault:
    """The fault for a handshake that failed: by its reason, in words and by code."""
    number = err.verify_code if isinstance(err, ssl.SSLCertVerificationError) else 0
    said = err.verify_message if isinstance(err, ssl.SSLCertVerificationError) else (err.reason or str(err))
    message = f"{place}: {said}"
    if number in _EXPIRED:
        return Fault("tls-expired", message, expected="a certificate that has not ended", actual="expired")
    if number in _NOT_YET:
        return Fault("tls-not-yet-valid", message, expected="a certificate that has begun", actual="not yet valid")
    if number in _UNKNOWN_CA:
        return Fault("tls-unknown-ca", message, expected="a known issuer", actual="an unknown one")
    if number in _OTHER_NAME:
        return Fault("tls-other-name", message, expected="a certificate for this name", actual="for another one")
    return Fault("tls-failed", message, expected="a TLS handshake", actual=str(said))


def judge_certificate(found: Certificate, now: float | None = None) -> Leg:
    """A certificate that passed the checks; one that ends soon is said to, and passes."""
    days = found.days_left(time.time() if now is None else now)
    soon = ": renew it" if days * 86_400 < SOON_S else ""
    text = f"{found.subject} by {found.issuer}, {found.protocol}, {days:.0f} days left{soon}"
    proof = Proof("certificate", found.subject or "certificate", text)
    return Leg(LEG, "pass", text, evidence=text, numbers={"certificate_days_left": round(days, 2)}, proof=(proof,))
