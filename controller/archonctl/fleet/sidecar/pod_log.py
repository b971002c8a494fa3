"""The log of a container of our own pod, by the cluster's API (core/v1: read log of the specified Pod)."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from archonctl.errors import NoEvidence
from archonctl.ledger.reader import LedgerReader
from archonctl.ledger.values import BootLedger

API_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token and the certificates of the API."""
LOG_BYTES = 16 * 1024 * 1024
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class PodLog:
    """One container of one pod. ``api`` is ``https://host:port``; ``folder`` has ``token`` and ``ca.crt``."""

    api: str
    namespace: str
    pod: str
    container: str
    folder: Path = API_DIR

    @classmethod
    def of(cls, container: str, environ: Mapping[str, str], folder: Path = API_DIR) -> PodLog:
        """By the variables that every pod has, and those that the manifest adds. Raises NoEvidence ``not-in-a-pod``."""
        names = ("KUBERNETES_SERVICE_HOST", "POD_NAMESPACE", "POD_NAME")
        if missing := [name for name in names if not environ.get(name)]:
            why = f"{', '.join(missing)} not set: this is no pod that archonctl render made"
            raise NoEvidence("not-in-a-pod", why, hint="give the log with --log FILE")
        host, port = environ[names[0]], environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or "443"
        address = f"[{host}]" if ":" in host else host
        return cls(f"https://{address}:{port}", environ[names[1]], environ[names[2]], container, folder)

    def read(self) -> bytes:
        """Its log from the beginning, at most 16 MiB. Raises NoEvidence ``pod-log-unreadable``."""
        import httpx

        where = f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods/{quote(self.pod, safe='')}/log"
        query = {"container": self.container, "limitBytes": str(LOG_BYTES)}
        try:
            token = (self.folder / "token").read_text(encoding="ascii").strip()
            trusted = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(verify=trusted, timeout=TIMEOUT_S, trust_env=False, headers=headers) as client:
                answer = client.get(self.api + where, params=query)
        except (OSError, ValueError, httpx.HTTPError) as err:
            raise self._unreadable(f"{type(err).__name__}: {err}"[:300]) from None
        if answer.status_code != 200:
            hint = "the pod's account needs the right get on pods/log" if answer.status_code in (401, 403) else ""
            raise self._unreadable(f"HTTP {answer.status_code} {answer.text[:200]!r}", hint)
        return answer.content[:LOG_BYTES]

    def boot(self, engine: str, version: str) -> BootLedger:
        """The boot ledger in it. Raises as ``read``."""
        reader = LedgerReader(engine, version)
        reader.feed_block(self.read())
        return reader.result()

    def _unreadable(self, why: str, hint: str = "") -> NoEvidence:
        return NoEvidence("pod-log-unreadable", why, where=f"log of {self.container} in {self.pod}", hint=hint)
