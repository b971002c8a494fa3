"""``archonctl verify``."""

from __future__ import annotations

import os
from argparse import Namespace

from archonctl.cli.output import Output

ALLOWANCE_S = 90.0
"""What systemd is asked for with every sign of progress: longer than any pause between two."""


def run(args: Namespace, out: Output) -> int:
    """Follow the unit's start to a verdict; systemd hears of it too where it is the one that asked."""
    from archonctl.cli.progress import Talker
    from archonctl.service.events import Event
    from archonctl.service.notify import Notifier
    from archonctl.service.place import Place
    from archonctl.service.verify import EXIT, verify_installed

    notifier = Notifier(os.environ)
    with Talker(out) as talker:

        def hear(event: Event) -> None:
            share = "" if event.fraction is None else f" ({event.fraction:.0%})"
            notifier.status(f"{event.phase}: {event.text}{share}", more_s=ALLOWANCE_S)
            talker.event(event)

        found = verify_installed(
            args.name,
            Place.of(os.environ),
            depth=args.leg,
            deadline=args.deadline,
            when_idle=args.when_idle,
            on_event=hear,
        )
    notifier.status(f"{found.word}: {found.capacity}{'; '.join(('', *found.reasons))}")
    if out.json:
        out.value(dict(found.value))
    else:
        out.answer("\n".join([f"{args.name}: {found.word}; {found.capacity}", *(f"  {why}" for why in found.reasons)]))
    return EXIT[found.word]
