"""Reading the shipped catalogue and those of users, merged by the names of models and quants, key by key."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from archonctl.catalogue.build import model_of, problems_of
from archonctl.catalogue.schema import CatalogueFile, ModelRow, QuantRow
from archonctl.catalogue.values import Catalogue
from archonctl.deployment.problems import from_validation, raise_all
from archonctl.deployment.toml_file import TomlFile, read_toml
from archonctl.errors import DeclarationError

WHAT = "catalogue of models"
SYSTEM = Path("/etc/archonctl/models.toml")
SHIPPED = "shipped"
_Row = TypeVar("_Row", bound=BaseModel)


def own_catalogue(environ: Mapping[str, str] = os.environ) -> Path:
    """``$XDG_CONFIG_HOME/archonctl/models.toml``, or the same below ~/.config."""
    base = environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if base.startswith("/") else Path(environ.get("HOME") or "/") / ".config"
    return folder / "archonctl" / "models.toml"


def load_catalogue(extra: Sequence[Path] = (), environ: Mapping[str, str] = os.environ) -> Catalogue:
    """The shipped catalogue; over it /etc/archonctl/models.toml, the user's own, and the files of ``extra``.

    The later says more: a model of the same name is merged key by key, its quants by their names. The first two may be
    absent. Raises DeclarationError with ``file:line`` and every mistake of a file: ``catalogue-duplicate``,
    ``catalogue-incomplete``, ``catalogue-contradicts`` and the codes of ``deployment.toml_file`` and ``.problems``.
    """
    standing = [path for path in (SYSTEM, own_catalogue(environ)) if os.path.lexists(path)]
    if not standing and not extra:
        return _shipped()
    rows = {row.name.lower(): row for row in _shipped_rows()}
    origins = dict.fromkeys(rows, SHIPPED)
    for path in (*standing, *extra):
        file = read_toml(path, WHAT)
        found = rows_of(file)
        raise_all([*_duplicates(file, found)])
        for row in found:
            key = row.name.lower()
            rows[key] = _merged(rows[key], row) if key in rows else row
            origins[key] = file.shown
        places = {row.name.lower(): file.place(("model", i)) for i, row in enumerate(found)}
        raise_all([problem for key, place in places.items() for problem in problems_of(rows[key], place)])
    known = {model.name.lower(): model for model in _shipped().models}
    return Catalogue(
        tuple(known[key] if origins[key] == SHIPPED else model_of(row, origins[key]) for key, row in rows.items())
    )


@cache
def _shipped_rows() -> tuple[ModelRow, ...]:
    text = files("archonctl.catalogue").joinpath("models.toml").read_text("utf-8")
    return CatalogueFile.model_validate(tomllib.loads(text)).model


@cache
def _shipped() -> Catalogue:
    return Catalogue(tuple(model_of(row, SHIPPED) for row in _shipped_rows()))


def rows_of(file: TomlFile) -> tuple[ModelRow, ...]:
    """The rows of a file as they stand there. Raises DeclarationError with every mistake."""
    try:
        return CatalogueFile.model_validate(file.data).model
    except ValidationError as err:
        raise_all(from_validation(err, CatalogueFile, file.place))
        raise


def _duplicates(file: TomlFile, rows: Sequence[ModelRow]) -> Iterator[DeclarationError]:
    for index in _repeated(row.name for row in rows):
        message = f"the model {rows[index].name!r} is there twice"
        yield DeclarationError(
            "catalogue-duplicate", message, where=file.place(("model", index)), hint="make one table of the two"
        )
    for number, row in enumerate(rows):
        for index in _repeated(quant.name for quant in row.quant):
            message = f"{row.name} has the quant {row.quant[index].name!r} twice"
            place = file.place(("model", number, "quant", index))
            yield DeclarationError("catalogue-duplicate", message, where=place, hint="keep one of the two")


def _repeated(names: Iterable[str]) -> Iterator[int]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name.lower() in seen:
            yield index
        seen.add(name.lower())


def _merged(base: ModelRow, over: ModelRow) -> ModelRow:
    update: dict[str, object] = {
        "geometry": _over(base.geometry, over.geometry),
        "parameters": _over(base.parameters, over.parameters),
        "quant": _quants(base.quant, over.quant),
    }
    return base.model_copy(update=_said(over) | update | {"name": base.name})


def _over(base: _Row | None, over: _Row | None) -> _Row | None:
    if base is None or over is None:
        return over or base
    return base.model_copy(update=_said(over))


def _said(row: BaseModel) -> dict[str, object]:
    return {key: value for key in row.model_fields_set if (value := getattr(row, key)) not in (None, ())}


def _quants(base: Sequence[QuantRow], over: Sequence[QuantRow]) -> tuple[QuantRow, ...]:
    """Those of the base in their order, then new ones in theirs."""
    found = {quant.name.lower(): quant for quant in base}
    for quant in over:
        known = found.get(quant.name.lower())
        found[quant.name.lower()] = known.model_copy(update=_said(quant)) if known else quant
    return tuple(found.values())
