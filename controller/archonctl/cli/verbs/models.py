"""``archonctl models``."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.output import Output

if TYPE_CHECKING:
    from archonctl.catalogue.values import Catalogue
    from archonctl.host.profile import Host


def run(args: Namespace, out: Output) -> int:
    """List with verdicts, show one, or add one: 0 unless something is wrong with what was said."""
    return {None: _list, "show": _show, "add": _add}[args.action](args, out)


def _catalogue(args: Namespace) -> Catalogue:
    from archonctl.catalogue import load_catalogue

    return load_catalogue([Path(file) for file in getattr(args, "catalogue", None) or ()])


def _list(args: Namespace, out: Output) -> int:
    from archonctl.cli.asked_fit import ask_of
    from archonctl.fit.everything import verdicts

    ask, catalogue, hosts = ask_of(args), _catalogue(args), _hosts(args)
    answers = verdicts(catalogue.models, hosts, ask)
    if out.json:
        from archonctl.cli.models_text import models_json

        out.value(models_json(catalogue, answers, ask))
    else:
        from archonctl.cli.models_text import models_text

        out.answer(models_text(answers, ask, out))
    return 0


def _hosts(args: Namespace) -> list[Host]:
    from archonctl.cli.asked_fit import host_of
    from archonctl.fit.cards import card_host, every_card

    if not args.card:
        return [host_of(args)]
    found: list[Host] = []
    for name in args.card:
        found += every_card(args.ram) if name.lower() == "all" else [card_host(name, args.ram)]
    return found


def _show(args: Namespace, out: Output) -> int:
    model = _catalogue(args).find(args.name)
    if out.json:
        from archonctl.catalogue.as_json import shown_json

        out.value(shown_json(model))
    else:
        from archonctl.cli.models_text import model_text

        out.answer(model_text(model, out))
    return 0


def _add(args: Namespace, out: Output) -> int:
    from archonctl.catalogue.add import look_up
    from archonctl.catalogue.load import load_catalogue, own_catalogue
    from archonctl.catalogue.write import add_entry, entry_text

    path = Path(args.catalogue) if args.catalogue else own_catalogue()
    known = [path] if args.catalogue and path.exists() else []
    entry = look_up(args.address, args.name, load_catalogue(known))
    if not args.only_print:
        add_entry(path, entry)
    if out.json:
        from archonctl.catalogue.as_json import added_json

        out.value(added_json(entry, None if args.only_print else str(path)))
    elif args.only_print:
        out.answer(entry_text(entry).strip("\n"))
    else:
        what = entry.name if entry.is_new else f"{entry.quant} of {entry.name}"
        out.answer(f"{path}: {what} added; archonctl models show {entry.name}")
    return 0
