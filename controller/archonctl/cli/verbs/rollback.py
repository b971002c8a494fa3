"""``archonctl rollback``."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

from archonctl.cli.endpoint import installed_of, place_of
from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """Go back, verify, present."""
    from archonctl.cli.apply_text import exit_code, result_json, result_text
    from archonctl.cli.asking import confirmation, need_root
    from archonctl.cli.progress import Talker, saying
    from archonctl.service.apply import rollback
    from archonctl.service.apply_rooms import hands, rooms
    from archonctl.service.carry import ApplyOptions
    from archonctl.service.installed import installed_names

    word, to = args.endpoint, args.to
    known = installed_names(Path("/"), place_of(user=args.user))
    if word and not to and word not in known and re.fullmatch(r"[0-9]{1,3}|[0-9a-f]{4,64}", word):
        word, to = None, word  # "rollback 2": the endpoint goes without saying
    installed = installed_of(word, out, user=args.user)
    need_root(user=args.user)
    with Talker(out) as talker, hands(user=args.user) as doing:
        result = rollback(
            installed,
            to,
            ApplyOptions(rollback=not args.no_rollback, depth=args.verify),
            rooms=rooms(saying(talker), user=args.user),
            hands=doing,
            confirm=confirmation(out, yes=args.yes),
            on_event=talker.event,
        )
    if out.json:
        out.value(result_json(result) | {"schema": "archonctl.rollback/1"})
    else:
        out.answer(result_text(result, out))
    return exit_code(result)
