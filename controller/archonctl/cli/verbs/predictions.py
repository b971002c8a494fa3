"""``archonctl predictions``."""

from __future__ import annotations

import os
from argparse import Namespace

from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """What was foretold, and how it turned out at every verdict that is kept."""
    from archonctl.cli.endpoint import endpoint_of, state_folder
    from archonctl.cli.predictions_text import exit_of, figures_json, figures_text, scored_text, scores_json
    from archonctl.service.predictions import scores

    if args.figures:
        if out.json:
            out.value(figures_json())
        else:
            out.answer(figures_text())
        return 0
    loaded = endpoint_of(args, out)
    _name, folder = state_folder(loaded.name, out, os.environ)
    found = scores(folder, loaded.endpoint.predict)
    if out.json:
        out.value(scores_json(loaded.name, found, everything=args.all))
    else:
        out.answer(scored_text(loaded.name, found, everything=args.all, out=out))
    return exit_of(found)
