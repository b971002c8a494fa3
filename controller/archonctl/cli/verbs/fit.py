"""``archonctl fit``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.output import Output

if TYPE_CHECKING:
    from archonctl.catalogue.values import Catalogue

EXIT = {"fits": 0, "refused": 1, "unknown": 3}


def run(args: Namespace, out: Output) -> int:
    """Ask, and present the answer."""
    from archonctl.cli.asked_fit import ask_of, host_of
    from archonctl.fit.found import model_named
    from archonctl.fit.ways import fit

    ask, host = ask_of(args), host_of(args)
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
