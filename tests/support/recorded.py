"""Endpoints with a past: releases, a history and kept verdicts as a week of use leaves them, without any engine.

The declaration is env/archon.toml; the boot log is the simulator's words for it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.ledger.reader import LedgerReader
from archonctl.probe.predictions import score_all
from archonctl.probe.stored import evidence
from archonctl.probe.values import Leg, Proof, Verdict, VerdictWord
from archonctl.probe.verdict import verdict_json
from archonctl.release.render import command_of, render_release
from archonctl.release.store import DIGEST_CHARS, store_release, switch_current
from archonctl.service.history import Record, record
from archonctl.service.installed import Installed
from archonctl.service.place import SYSTEM
from archonctl.service.verdict_store import keep

ARCHON = Path(__file__).resolve().parents[2] / "env/archon.toml"
NOW = 1_780_000_000.0
"""Unix time of the last verdict."""
HOUR, DAY = 3600.0, 86_400.0
HOSTILE = "<script>alert(1)</script> \x1b[31mred\x1b[0m \u202egnp.exe </style><img src=x onerror=alert(2)> & \"'`"


@dataclass(frozen=True)
class Step:
    """One release of the past: its host pool, and the tokens that its boot log tells."""

    host_pool_mib: int
    tokens: int
    word: VerdictWord
    event: str = "applied"


PAST = (Step(45_056, 601_120, "holds"), Step(44_928, 556_348, "broken", "failed"), Step(45_568, 612_480, "holds"))


def boot_log(tokens: int, host_pool_mib: int, extra: Iterable[str] = ()) -> list[str]:
    """Lines of a boot; the first card is noted and the second settles."""
    return [
        "model: Qwen3.8-Flash-Next  arch=qwen3_8_next  quant=fp8-iq4r  48 layers  262144 ctx",
        "card total        31.11 GiB",
        "--gpu-headroom-mib   96.00 MiB",
        f"--host-pool-mib   {host_pool_mib:.2f} MiB",
        f"kv: {tokens / 132_463:.2f} GiB of cache a card, {tokens:,} tokens, {tokens / 2e5:.1f} sessions of 200,000",
        "load: one pass over the container, 113.59 GiB read in 62.1 s (1.9 GB/s)",
        "checkpoint slots: 8 of 8 backed (56.00 MiB each), 0 withdrawn",
        *extra,
    ]


def verdict_of(loaded: LoadedEndpoint, step: Step, number: int, extra: Iterable[str] = ()) -> dict[str, object]:
    """What ``archonctl verify`` would have stored."""
    reader = LedgerReader("radiance", "1.8.1")
    lines = boot_log(step.tokens, step.host_pool_mib, extra)
    for line in lines:
        reader.feed(line)
    ledger, rng = reader.result(), random.Random(number)
    contract, kv = loaded.endpoint.contract, lines[4]
    short = step.tokens < contract.tokens
    proof = (Proof("log", f"archon@{loaded.name}.service", kv, line=5, cursor="s=0123;i=4f"),)
    speed = {"prefill_tps_43k": round(3290 * rng.uniform(0.98, 1.02), 1)}
    legs = (
        Leg(
            "ledger",
            "fail" if short else "pass",
            f"the boot log says {step.tokens:,} tokens, the contract needs {contract.tokens:,}: "
            f"{abs(step.tokens - contract.tokens):,} {'short' if short else 'left'}",
            code="contract-short" if short else "",
            expected=f"{contract.tokens:,} tokens",
            actual=f"{step.tokens:,} tokens",
            evidence=kv,
            proof=proof,
            numbers={"kv_tokens": step.tokens, "spare_tokens": step.tokens - contract.tokens},
        ),
        Leg(
            "admission",
            "fail" if short else "pass",
            "3 requests of 200,000 tokens were sent at once: " + ("one was refused" if short else "all were admitted"),
            code="admission-refused" if short else "",
            seconds=4.2,
            proof=(Proof("http", "POST /v1/completions", "", status=400 if short else 200, times=3),),
        ),
        Leg(
            "prefill", "pass", f"43,500 tokens at {speed['prefill_tps_43k']:,} a second", required=False, numbers=speed
        ),
    )
    foretold = score_all(loaded.endpoint.predict, legs, ledger)
    reasons = tuple(f"{leg.id}: {leg.message}" for leg in legs if leg.status == "fail")
    verdict = Verdict(step.word, legs, reasons, {"kv_tokens_logged": step.tokens, "depth": "full"}, foretold)
    return evidence(
        loaded.endpoint,
        loaded.name,
        verdict_json(verdict, loaded.name),
        ledger,
        verdict=step.word,
        reasons=list(reasons),
        by="verify",
        depth="full",
        archonctl="0.1.0",
    )


def declared(name: str, host_pool_mib: int, **more: object) -> LoadedEndpoint:
    """env/archon.toml under another name and host pool."""
    flags = {"engine.knobs.host-pool-mib": host_pool_mib, **more}
    loaded = load_endpoint(ARCHON, flags, {})
    return LoadedEndpoint(loaded.endpoint, name, loaded.path, loaded.base_dir, loaded.origins)


def record_week(
    root: Path, name: str, every_s: float = 6 * HOUR, days: float = 7.0, extra: Iterable[str] = (), **more: object
) -> Installed:
    """A week of one endpoint below ``root``: three releases, the second of which did not hold; verdicts in between."""
    installed = Installed(name, root, SYSTEM)
    began, number = NOW - days * DAY, 0
    starts = (began, began + 0.55 * days * DAY, began + 0.56 * days * DAY)
    old = ""
    for step, start, end in zip(PAST, starts, (*starts[1:], NOW + 1), strict=True):
        loaded = declared(name, step.host_pool_mib, **more)
        release = render_release(loaded, command_of(loaded), home=installed.home)
        store_release(release, installed.releases)
        digest, at = release.digest[:DIGEST_CHARS], start
        switch_current(installed.releases, digest)
        while at < end:
            invocation = f"{name[:8]:0<8}{number:024x}"
            value = verdict_of(loaded, step, number, extra)
            keep(
                installed.folder, digest, "verify", {**value, "at": at, "invocation": invocation, "release": digest}, at
            )
            if at == start:
                facts: dict[str, str | int] = {"kernel": "6.1.0-28-amd64", "boot_id": f"boot-{number // 9}"}
                reasons = tuple(map(str, value["reasons"]))  # type: ignore[arg-type]
                event = Record(step.event, digest, at, step.word, old, reasons, "", invocation, "root", "0.1.0", facts)
                record(installed.history_file, event)
            number, at = number + 1, at + every_s
        old = digest
    return installed


if __name__ == "__main__":
    import sys

    for each in sys.argv[2:]:
        print(record_week(Path(sys.argv[1]), each).folder)
