"""From a declaration file to a checked endpoint: flags > environment > file > defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from archonctl.deployment.checks import contradictions, name_problems, raw_problems, walk_leaves
from archonctl.deployment.keys import dotted
from archonctl.deployment.layers import Layers
from archonctl.deployment.paths import bases, resolve_paths
from archonctl.deployment.problems import Place, from_validation, raise_all
from archonctl.deployment.schema import Endpoint
from archonctl.deployment.toml_file import read_toml
from archonctl.errors import DeclarationError, UsageError


@dataclass(frozen=True)
class LoadedEndpoint:
    """One endpoint and where each of its values came from.

    ``path`` is the declaration (absolute), ``name`` its stem. ``base_dir`` is the folder above the declaration's:
    the root that relative paths fall back to. ``origins`` maps dotted keys to ``flag --seqs``,
    ``environment ARCHON__...``, ``env/tiny.toml:12`` or ``default``. Paths inside ``endpoint`` are absolute (the
    rule is in ``deployment.paths``); ``paths`` has those that are set, by dotted key.
    """

    endpoint: Endpoint
    name: str
    path: Path
    base_dir: Path
    origins: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, Path] = field(default_factory=dict)
    copy: Path | None = None
    """The file that was read, where it is a copy of what lies at ``path``, or is to lie there."""

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Give an error that names a key of the declaration the file and line (flag, variable) that set it.

        Rooms that judge values know keys, not places; an error without any place gets the declaration's path.
        """
        try:
            yield
        except DeclarationError as err:
            origin = self.origins.get(err.where, "")
            if origin and origin != "default":
                err.where = f"{origin}: {err.where}"
            elif not err.where or origin:
                err.where = f"{self.path}: {err.where}" if err.where else str(self.path)
            raise


class _Origins(Mapping[str, str]):
    """The origin of every leaf, worked out when it is first asked for: a plan seldom does."""

    def __init__(self, endpoint: Endpoint, place: Place) -> None:
        self._endpoint = endpoint
        self._place = place

    @cached_property
    def _found(self) -> dict[str, str]:
        leaves = walk_leaves(self._endpoint.model_dump(), keep_empty=True)
        return {dotted(loc): self._place(loc) for loc, _value in leaves}

    def __getitem__(self, key: str) -> str:
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def load_endpoint(
    path: Path,
    flags: Mapping[str, object],
    environ: Mapping[str, str],
    cwd: Path | None = None,
    place: Path | None = None,
) -> LoadedEndpoint:
    """Read, merge and check one declaration.

    ``flags`` maps dotted keys (``contract.seqs``) to values, text included; None means not given. ``environ`` is
    the whole environment. ``place`` is where the declaration lies, or is to lie, if ``path`` is a copy of it: the
    endpoint's name, and what its relative paths mean, come from there. Raises DeclarationError, or InvalidDeclaration
    with every problem of the file.
    """
    here = cwd or Path.cwd()
    file = read_toml(path if cwd is None else cwd / path, "endpoint declaration")
    layers = Layers(file)
    try:
        endpoint = _checked(layers, flags, environ)
    except RecursionError:
        message = "arrays or tables nested too deeply"
        raise DeclarationError("declaration-invalid-toml", message, where=file.shown) from None
    absolute = here / (place or file.path)
    folders = bases(absolute, here, environ)
    resolved, paths = resolve_paths(endpoint, folders)
    origins, copy = _Origins(resolved, layers.origin), here / file.path if place else None
    return LoadedEndpoint(resolved, absolute.stem, absolute, folders.root, origins, paths, copy)


def _checked(layers: Layers, flags: Mapping[str, object], environ: Mapping[str, str]) -> Endpoint:
    problems = [*layers.add_environment(environ), *layers.add_flags(flags)]
    problems += raw_problems(layers.data, layers.place)
    try:
        endpoint = Endpoint.model_validate(layers.data)
    except ValidationError as err:
        raise_all(problems + from_validation(err, Endpoint, layers.place))
        raise
    raise_all(problems + name_problems(endpoint, layers.place) + contradictions(endpoint, layers.place))
    return endpoint


def parse_setting(text: str) -> tuple[str, str]:
    """``engine.knobs.host-pool-mib=45568`` as key and text.

    Raises UsageError ``setting-malformed`` where there is no key or no ``=``.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or any(not part for part in key.strip().split(".")):
        raise UsageError("setting-malformed", f"{text!a} is no setting", hint="KEY=VALUE, such as contract.seqs=3")
    return key.strip(), value
