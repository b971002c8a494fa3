"""Options that several verbs share."""

from __future__ import annotations

import argparse


def endpoint(verb: argparse.ArgumentParser) -> None:
    """ENDPOINT, and the options that override its declaration."""
    verb.add_argument(
        "endpoint",
        nargs="?",
        metavar="ENDPOINT",
        help="name or file; default: $ARCHON_ENDPOINT, else 'archon' or the only one in ./env, else in /etc/archon",
    )
    group = verb.add_argument_group("declaration", "each option wins over ARCHON__* variables, and they over the file")
    group.add_argument("--seqs", metavar="N", help="conversations at once")
    group.add_argument("--len", metavar="N", help="tokens a conversation, prompt and answer (128k is 131,072)")
    group.add_argument("--kv-dtype", metavar="D", help="KV cache dtype, or K/V where the engine can tell them apart")
    group.add_argument("--margin", metavar="SHARE", help="share of the contract's tokens that must remain on top")
    group.add_argument("--engine-version", metavar="V", help="plan for this engine version")
    group.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override any key, e.g. engine.knobs.host-pool-mib=45568 (may be repeated)",
    )


def installed(verb: argparse.ArgumentParser) -> None:
    """ENDPOINT, as it is installed: its declaration need not be there."""
    verb.add_argument(
        "endpoint",
        nargs="?",
        metavar="ENDPOINT",
        help="name of an installed endpoint; default: $ARCHON_ENDPOINT, else 'archon' or the only one",
    )


def whose(verb: argparse.ArgumentParser) -> None:
    """--user: this user's own service manager."""
    verb.add_argument("--user", action="store_true", help="of this user's own service manager (systemctl --user)")


def changing(verb: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """How a running endpoint is changed."""
    group = verb.add_argument_group("change")
    group.add_argument("--yes", "-y", action="store_true", help="do not ask before the running engine is stopped")
    group.add_argument("--no-rollback", action="store_true", help="leave a release that does not hold stopped")
    group.add_argument(
        "--verify",
        choices=("ledger", "admission", "full"),
        default="full",
        help="how deep: the boot log only; full-height requests admitted; held at once until all answered (default)",
    )
    return group


def probing(verb: argparse.ArgumentParser) -> None:
    """How deep a probe goes."""
    group = verb.add_argument_group("probe")
    group.add_argument(
        "--leg",
        choices=("ledger", "admission", "full"),
        default="full",
        help="how deep: the boot log only; full-height requests admitted; held at once until all answered (default)",
    )
    group.add_argument(
        "--deadline", type=positive, metavar="S", help="seconds for each capacity leg (default: derived)"
    )


def more_legs(verb: argparse.ArgumentParser) -> None:
    """Legs that run only if asked for, and how to go about live traffic."""
    group = verb.add_argument_group("more legs", "at depth admission and full; their cost is told before they run")
    group.add_argument(
        "--interference",
        action="store_true",
        help="decode steps alone and while another prompt is read; drafts accepted; the prefix cache, cold and warm",
    )
    group.add_argument(
        "--recall", action="store_true", help="ask back a fact from the beginning of a full-height prompt"
    )
    group.add_argument(
        "--when-idle",
        action="store_true",
        help="wait until nobody uses the engine (an hour at most), and give way the moment that somebody does",
    )


def positive(text: str) -> float:
    """A number above 0, as an option's type."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return value
