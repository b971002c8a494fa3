"""``archonctl apply``."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.endpoint import endpoint_of, overrides, place_of
from archonctl.cli.output import Output
from archonctl.errors import UsageError

if TYPE_CHECKING:
    from archonctl.deployment.load import LoadedEndpoint


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
    loaded = _meant(args, out)
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


def _meant(args: Namespace, out: Output) -> LoadedEndpoint:
    """The declared endpoint; or that of a plan file, if all that the plan stood on is as it was."""
    from archonctl.service.saved_plan import is_plan_name, read_saved_plan, refuse_stale

    if not is_plan_name(args.endpoint):
        return endpoint_of(args, out)
    if changed := overrides(args) + (["--as"] if args.place else []):
        why = f"{changed[0]} would change a plan that was kept to be applied as it is"
        raise UsageError("command-line-invalid", why, hint="archonctl plan ENDPOINT with it, and --out")
    saved = read_saved_plan(Path(args.endpoint).absolute())
    refuse_stale(saved, os.environ, user=args.user)
    return saved.loaded
