"""What was asked of ``fit`` and ``models``: the question and the machine, from the arguments."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from archonctl.engines.names import engine_name
from archonctl.errors import UsageError
from archonctl.fit.cards import card_host
from archonctl.fit.kernels import ENGINES
from archonctl.fit.values import Ask
from archonctl.host.detect import detect_host
from archonctl.host.load import read_profile
from archonctl.host.profile import Host


def host_of(args: Namespace) -> Host:
    """The card, the profile, or this machine. Raises UsageError ``command-line-invalid``."""
    if args.ram and not args.card:
        raise UsageError("command-line-invalid", "--ram goes with --card", hint="a profile states ram_mib itself")
    if args.card:
        return card_host(args.card, args.ram)
    return read_profile(Path(args.profile)) if args.profile else detect_host()


def ask_of(args: Namespace) -> Ask:
    """The question; what a verb has no option for is left as it is. Raises UsageError."""
    engine = engine_name(args.engine) if args.engine else ""
    if engine and engine not in ENGINES:
        raise UsageError("engine-unknown", f"fit knows no engine {args.engine!r}", hint=f"one of {', '.join(ENGINES)}")
    said = vars(args)
    return Ask(
        seqs=_count(args.seqs, "--seqs", 65_536),
        len=_count(args.len, "--len", 100_000_000, least=16) if args.len else None,
        engine=engine,
        kv_quant=args.kv_quant.lower(),
        quants=tuple(name.strip() for name in (said.get("quant") or "").split(",") if name.strip()),
        prefer=said.get("prefer", "quality"),
        weight_only=said.get("weight_only", False),
        tp=said.get("tp"),
    )


def _count(text: str, option: str, most: int, least: int = 1) -> int:
    from archonctl.deployment.schema import parse_count

    value = parse_count(text)
    if not isinstance(value, int) or not least <= value <= most:
        raise UsageError("command-line-invalid", f"{option} {text[:40]!r} is no number from {least:,} to {most:,}")
    return value
