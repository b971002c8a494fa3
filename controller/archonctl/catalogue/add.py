"""An entry for a repository of the hub, by its headers at the commit that its revision is now."""

from __future__ import annotations

import re
from collections.abc import Mapping

from archonctl.catalogue.entry import Entry, entry_of
from archonctl.catalogue.values import Catalogue, CatalogueModel
from archonctl.errors import UsageError
from archonctl.model.remote_address import parse_repository

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def look_up(address: str, name: str, catalogue: Catalogue, environ: Mapping[str, str] | None = None) -> Entry:
    """The entry of ``hf:ORG/NAME[@REVISION][/FILE]``, under ``name`` ("": the repository's own).

    Raises UsageError ``catalogue-name``, and ModelError as ``inspect_remote`` and ``entry_of`` do.
    """
    from archonctl.model.remote import hub_commit, inspect_remote

    repo, revision, file = parse_repository(address)
    wanted = name or re.sub(r"-gguf$", "", repo.rpartition("/")[2].lower())
    if not _NAME.fullmatch(wanted):
        message = f"{wanted[:80]!r} is no name for a model: letters, digits, '.', '_' and '-'"
        raise UsageError("catalogue-name", message, hint="--name NAME")
    commit = hub_commit(repo, revision, environ)
    at = f"@{commit or revision}/{file}" if file else f"@{commit}" if commit else f"@{revision}"
    facts = inspect_remote(f"hf:{repo}{at}", environ)
    return entry_of(facts, repo, file, commit, wanted, _named(catalogue, wanted))


def _named(catalogue: Catalogue, name: str) -> CatalogueModel | None:
    return next((model for model in catalogue.models if model.name.lower() == name.lower()), None)
