"""``archonctl apply``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from archonctl.cli.endpoint import endpoint_of, place_of
from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """Preview, or change and present; the exit code tells where it ended."""
    from archonctl.cli.apply_text import exit_code, preview_text, result_json, result_text
    from archonctl.cli.asking import confirmation, need_root
    from archonctl.cli.progress import Talker, saying
    from archonctl.service.apply import apply
    from archonctl.service.apply_rooms import hands, looking_hands, rooms
    from archonctl.service.carry import ApplyOptions
    from archonctl.service.installed import Installed

    where = place_of(user=args.user)
    loaded = endpoint_of(args, out)
    options = ApplyOptions(check=args.check, rollback=not args.no_rollback, depth=args.verify)
    if not args.check:
        need_root(user=args.user)
    with Talker(out) as talker, looking_hands(user=args.user) if args.check else hands(user=args.user) as doing:
        result = apply(
            loaded,
            options,
            installed=Installed(loaded.name, Path("/"), where),
            rooms=rooms(saying(talker), user=args.user),
            hands=doing,
            confirm=confirmation(out, yes=args.yes),
            on_event=talker.event,
        )
    if out.json:
        out.value(result_json(result))
    elif result.outcome == "checked" and result.preview:
        out.answer(preview_text(result.preview, out, diff=args.diff))
    else:
        if args.diff and result.preview:
            out.answer(preview_text(result.preview, out, diff=True))
        out.answer(result_text(result, out))
    return exit_code(result)
