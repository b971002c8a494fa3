"""``archonctl migrate``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from archonctl.cli.endpoint import endpoint_of
from archonctl.cli.output import Output

EXIT = {"holds": 0, "short": 1, "unknown": 3, None: 3}


def run(args: Namespace, out: Output) -> int:
    """Propose; write where that was asked for."""
    from archonctl.foreign.writing import replace_text, write_new
    from archonctl.migration.propose import propose

    found = propose(endpoint_of(args, out), args.to, Path(args.boots) if args.boots else None)
    written = ""
    if args.out:
        written = str(write_new(Path(args.out), {found.endpoint: found.text})[found.endpoint])
    elif args.write:
        replace_text(Path(found.path), found.text)
        written = found.path
    if out.json:
        from archonctl.migration.as_json import proposal_json

        out.value(proposal_json(found, written))
    else:
        from archonctl.cli.migrate_text import proposal_text

        out.answer(proposal_text(found, out, written))
    return EXIT[found.proposed.verdict]
