"""The host of an endpoint: its declared profile, this machine, or unknown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from archonctl.deployment.checks import raw_problems
from archonctl.deployment.keys import Loc
from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.problems import KeyProblem, Place, bad_value, from_validation, raise_all
from archonctl.deployment.toml_file import read_toml
from archonctl.errors import DeclarationError
from archonctl.host.profile import Host

WHAT = "host profile"


def load_host(loaded: LoadedEndpoint, root: Path = Path("/")) -> Host:
    """The host that the declaration names; with neither profile nor ``detect`` a host of unknowns.

    ``root`` is where ``detect`` reads /proc and /sys. Raises DeclarationError with the codes of ``read_toml`` and
    those of a declaration, each with the file and line of the profile.
    """
    host = loaded.endpoint.host
    if host.profile:
        try:
            return read_profile(Path(host.profile))
        except DeclarationError as err:
            if err.code == "declaration-not-found":
                err.hint = f"host.profile at {loaded.origins.get('host.profile', loaded.path)}"
            raise
    if host.detect:
        from archonctl.host.detect import detect_host

        return detect_host(root)
    return Host(source="assumed", notes=("the host is not declared: memory and cards are unknown",))


def read_profile(path: Path) -> Host:
    """A host profile from its TOML file."""
    file = read_toml(path, WHAT)
    data: dict[str, Any] = {**file.data}
    for key in ("cards", "devices", "notes"):
        if isinstance(data.get(key), list):
            data[key] = tuple(data[key])
    problems, unfilled = raw_problems(data, file.place), _named_cards(data, file.place)
    try:
        host = Host.model_validate(data, strict=True)
    except ValidationError as err:
        seen = from_validation(err, Host, file.place)
        raise_all(problems + unfilled + [each for each in seen if not (unfilled and _is_total(each))])
        raise
    raise_all(problems + unfilled + _contradictions(host, file.place))
    return host


def _named_cards(data: dict[str, Any], place: Place) -> list[DeclarationError]:
    """Cards without figures, or without the words that the catalogue knows; the catalogue is read for them alone."""
    cards = data.get("cards")
    tables = [card for card in cards if isinstance(card, dict)] if isinstance(cards, tuple) else []
    if all("total_mib" in card for card in tables):
        return []
    from archonctl.host.by_name import fill_cards

    data["cards"] = tuple(dict(card) if isinstance(card, dict) else card for card in cards or ())
    notes: list[str] = []
    problems = fill_cards(list(data["cards"]), place, notes)
    if notes and isinstance(data.setdefault("notes", ()), tuple):
        data["notes"] += tuple(notes)
    return problems


def _is_total(problem: DeclarationError) -> bool:
    """The missing ``total_mib`` of a card, which has been told in other words."""
    return isinstance(problem, KeyProblem) and problem.key.endswith(".total_mib")


def _contradictions(host: Host, place: Place) -> list[DeclarationError]:
    problems: list[DeclarationError] = []
    if host.ram_mib is not None and host.available_mib is not None and host.available_mib > host.ram_mib:
        wanted = f"at most ram_mib, {host.ram_mib:,}"
        problems.append(_contradiction(("available_mib",), host.available_mib, wanted, place))
    for index, count in Counter(card.index for card in host.cards).items():
        if count > 1:
            at = [number for number, card in enumerate(host.cards) if card.index == index][1]
            message = f"card index {index} is used {count} times, expected one card an index"
            loc: Loc = ("cards", at, "index")
            problems.append(KeyProblem("declaration-contradiction", f"cards[{at}].index", message, where=place(loc)))
    for number, card in enumerate(host.cards):
        for name, value in (("free_mib", card.free_mib or 0), ("outside_mib", card.outside_mib + card.reserve_mib)):
            if value > card.total_mib:
                wanted = f"at most total_mib, {card.total_mib:,}" + (" with reserve_mib" if name != "free_mib" else "")
                problems.append(_contradiction(("cards", number, name), value, wanted, place))
    return problems


def _contradiction(loc: Loc, value: int, wanted: str, place: Place) -> KeyProblem:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    return bad_value(key, f"{value:,}", wanted, place(loc), "declaration-contradiction")
