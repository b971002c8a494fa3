"""Every file of this package and of what it needs, from the Python environment that runs it."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

from archonctl.errors import HostRefusal

EXTRAS = ("systemd",)
"""Copied along where they are installed."""

_SKIPPED = re.compile(
    r"(^|/)(__pycache__|tests?)/|\.pyc$|^\.\./|^bin/|(^|/)(RECORD|INSTALLER|REQUESTED|direct_url\.json)$"
)
_DATA = {
    "runbooks": "*.md",
    "schemas": "*.json",
    "units": "**/*",
    "observe": "**/*",
    "fleet": "**/*",
    "scripts": "ttm-preflight.sh",
}


def package_files() -> dict[str, bytes]:
    """Path below a folder of sys.path to content: archonctl, its data, and its whole chain of requirements.

    Raises HostRefusal ``install-incomplete`` where a requirement is not installed.
    """
    files: dict[str, bytes] = {}
    for name in requirements("archonctl"):
        if name != "archonctl":
            files |= _of_distribution(name)
    return files | _own_files()


def requirements(name: str) -> list[str]:
    """The distributions that ``name`` needs here, itself included, by canonical name."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, None] = {}
    queue = [(name, frozenset(EXTRAS))]
    while queue:
        current, extras = queue.pop()
        if current in found:
            continue
        try:
            needed = metadata.requires(current) or []
        except metadata.PackageNotFoundError:
            if extras == frozenset({"optional"}):
                continue
            hint = f"pip install {current}"
            raise HostRefusal("install-incomplete", f"{current} is needed and not installed", hint=hint) from None
        found[current] = None
        for text in needed:
            requirement = Requirement(text)
            marker = requirement.marker
            plain = marker is None or marker.evaluate({"extra": ""})
            by_extra = marker is not None and any(marker.evaluate({"extra": each}) for each in extras)
            if plain or by_extra:
                asked = frozenset(requirement.extras) if plain else frozenset({"optional"})
                queue.append((canonicalize_name(requirement.name), asked))
    return sorted(found)


def _of_distribution(name: str) -> dict[str, bytes]:
    found = metadata.distribution(name).files or []
    wanted = [file for file in found if not _SKIPPED.search(file.as_posix())]
    return {file.as_posix(): Path(str(file.locate())).read_bytes() for file in wanted}


def _own_files() -> dict[str, bytes]:
    """This package as a wheel lays it out, also from a checkout that is installed editable."""
    package = Path(__file__).parents[1]
    checkout = package.parents[1]
    files = {
        f"archonctl/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    if not (package / "_data").is_dir():
        for name, pattern in _DATA.items():
            folder = checkout / ("docs/schemas" if name == "schemas" else name)
            for path in sorted(folder.glob(pattern)):
                if path.is_file() and "__pycache__" not in path.parts:
                    files[f"archonctl/_data/{name}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    version = metadata.version("archonctl")
    text = f"Metadata-Version: 2.1\nName: archonctl\nVersion: {version}\nRequires-Python: =={_minor()}.*\n"
    files[f"archonctl-{version}.dist-info/METADATA"] = text.encode()
    return files


def _minor() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
