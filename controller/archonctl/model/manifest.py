"""Reading a declared manifest (see ``rad``): the facts of a model file whose own layout is not public."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from archonctl.deployment.problems import from_validation, raise_all
from archonctl.deployment.toml_file import TomlFile, read_toml
from archonctl.errors import DeclarationError
from archonctl.model.geometry import ModelFacts
from archonctl.model.rad import RadManifest


def read_manifest(path: str | Path) -> ModelFacts:
    """Facts of a model from its manifest: ``format`` "manifest", ``rad`` filled, no geometry and no tensors.

    Raises DeclarationError with ``file:line`` and every mistake at once: the codes of ``deployment.toml_file``
    (not there, empty, too large, no TOML) and of ``deployment.problems`` (an unknown key, a wrong type, a missing
    figure or source), and ``manifest-contradicts`` where the paged groups do not price the same dtypes.
    """
    file = read_toml(Path(path), "model manifest")
    try:
        manifest = RadManifest.model_validate(file.data)
    except ValidationError as err:
        raise_all(from_validation(err, RadManifest, file.place))
        raise
    raise_all(_contradictions(manifest, file))
    reason = "a .rad file's layers are not public; the manifest says what the law needs"
    return ModelFacts(file.shown, "manifest", None, manifest.file.bytes, rad=manifest, geometry_reason=reason)


def _contradictions(manifest: RadManifest, file: TomlFile) -> list[DeclarationError]:
    """All groups must price the same dtypes (superseded ones included), else a sum would leave one of them out."""
    first, problems = manifest.paged.group[0], []
    for number, group in enumerate(manifest.paged.group):
        loc = ("paged", "group", number)
        if set(group.kib_per_page) != set(first.kib_per_page):
            mine, others = _names(group.kib_per_page), _names(first.kib_per_page)
            message = f"group {group.name} prices {mine}, group {first.name} prices {others}"
            problems.append(_contradiction(message, file.place((*loc, "kib_per_page"))))
        if strange := set(group.superseded_kib_per_page) - set(group.kib_per_page):
            message = f"group {group.name} has a superseded figure for {_names(strange)}, which it does not price"
            problems.append(_contradiction(message, file.place((*loc, "superseded_kib_per_page"))))
    return problems


def _contradiction(message: str, where: str) -> DeclarationError:
    return DeclarationError(
        "manifest-contradicts", message, where=where, hint="every paged group needs a figure for every dtype"
    )


def _names(dtypes: Iterable[str]) -> str:
    return " and ".join(sorted(dtypes))
