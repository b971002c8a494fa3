"""``archonctl fit``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.output import Output
from archonctl.errors import UsageError

if TYPE_CHECKING:
    from archonctl.catalogue.values import Catalogue
    from archonctl.fit.values import Ask
    from archonctl.host.profile import Host

EXIT = {"fits": 0, "refused": 1, "unknown": 3}


def run(args: Namespace, out: Output) -> int:
    """Ask, and present the answer."""
    from archonctl.fit.found import model_named
    from archonctl.fit.ways import fit

    ask, host = _ask(args), _host(args)
    result = fit(model_named(args.model, lambda: _catalogue(args)), host, ask)
    if out.json:
        from archonctl.fit.as_json import fit_json

        out.value(fit_json(result))
    else:
        from archonctl.cli.fit_text import fit_text

        out.answer(fit_text(result, out))
    return EXIT[result.verdict]


def _catalogue(args: Namespace) -> Catalogue:
    from archonctl.catalogue import load_catalogue

    return load_catalogue([Path(file) for file in args.catalogue])


def _host(args: Namespace) -> Host:
    from archonctl.host.detect import detect_host
    from archonctl.host.load import read_profile

    if args.ram and not args.card:
        raise UsageError("command-line-invalid", "--ram goes with --card", hint="a profile states ram_mib itself")
    if args.card:
        from archonctl.fit.cards import card_host

        return card_host(args.card, args.ram)
    return read_profile(Path(args.profile)) if args.profile else detect_host()


def _ask(args: Namespace) -> Ask:
    from archonctl.engines.names import engine_name
    from archonctl.fit.kernels import ENGINES
    from archonctl.fit.values import Ask

    engine = engine_name(args.engine) if args.engine else ""
    if engine and engine not in ENGINES:
        raise UsageError("engine-unknown", f"fit knows no engine {args.engine!r}", hint=f"one of {', '.join(ENGINES)}")
    return Ask(
        seqs=_count(args.seqs, "--seqs", 65_536),
        len=_count(args.len, "--len", 100_000_000, least=16) if args.len else None,
        engine=engine,
        kv_quant=args.kv_quant.lower(),
        quants=tuple(name.strip() for name in (args.quant or "").split(",") if name.strip()),
        prefer=args.prefer,
        weight_only=args.weight_only,
        tp=args.tp,
    )


def _count(text: str, option: str, most: int, least: int = 1) -> int:
    from archonctl.deployment.schema import parse_count

    value = parse_count(text)
    if not isinstance(value, int) or not least <= value <= most:
        raise UsageError("command-line-invalid", f"{option} {text[:40]!r} is no number from {least:,} to {most:,}")
    return value
