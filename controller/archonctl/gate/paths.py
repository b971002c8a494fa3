"""Files and folders given on a command line, each judged as what it is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from archonctl.deployment.load import load_endpoint
from archonctl.errors import ArchonError, UsageError
from archonctl.findings import Finding, Place
from archonctl.foreign.files import read_text
from archonctl.foreign.units import read_unit
from archonctl.gate import discover
from archonctl.gate.artefact import Progress
from archonctl.gate.context import Known, beside, rendered_for, said_in
from archonctl.gate.endpoint import check_endpoint
from archonctl.gate.foreign_files import env_files_of, file_findings
from archonctl.gate.inherited import config_findings
from archonctl.gate.source import Source
from archonctl.gate.unit.check import drop_in_findings, unit_findings
from archonctl.gate.unit.check import env_files_of as unit_env_files
from archonctl.gate.unit.unit import UnitFile
from archonctl.gate.unit.verify import verify_findings
from archonctl.gate.values import GateReport, in_order
from archonctl.gate.where import of_error
from archonctl.model.rad import RadManifest
from archonctl.release.load import load_release


@dataclass(frozen=True, slots=True)
class Options:
    """How to judge. ``engine`` and ``engine_version`` are of files that do not say it themselves.

    ``environ`` is the environment that an engine started from here would inherit, ``root`` the root of the
    configuration files that it would read (None: neither is looked at). ``installed`` is the root below which
    the installed release of the endpoint ``installed_name`` is compared.
    """

    engine: str = ""
    engine_version: str = ""
    strict: bool = False
    verify_files: bool = False
    verify_units: bool = True
    installed: Path | None = None
    installed_name: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    root: Path | None = None


def check_paths(paths: Sequence[Path], options: Options | None = None, progress: Progress | None = None) -> GateReport:
    """Judge every file in ``paths``, folders recursively.

    Raises UsageError ``gate-path-missing`` for a path that is not there.
    """
    run = _Run(options or Options(), progress)
    for path in paths:
        if not os.path.lexists(path):
            raise UsageError("gate-path-missing", "no such file or folder", where=os.fspath(path))
        if path.is_dir():
            run.folder(path)
        else:
            run.file(path, named=True)
    return run.report()


class _Run:
    def __init__(self, options: Options, progress: Progress | None) -> None:
        self._options = options
        self._progress = progress
        self._findings: list[Finding] = []
        self._files: dict[str, None] = {}
        self._skipped: dict[str, None] = {}
        self._units: list[Source] = []
        self._drop_ins: dict[str, list[Source]] = {}
        self._env_files: list[tuple[Source, bool]] = []
        self._said_of: dict[str, Known] = {}
        """The engine of an env file, by the file that names it."""
        self._compared = False

    def folder(self, folder: Path) -> None:
        """A folder: what it holds that starts engines, drop-ins with their units."""
        found = [path for path in discover.walk(folder) if path.is_file()]
        for place in dict.fromkeys(path.parent for path in found if path.name == "release.json"):
            if discover.is_release(place):
                self._release(place)
        declared = {path for place in {path.parent for path in found} for path in discover.declared_in(place)}
        for path in found:
            kind = discover.kind_by_name(path)
            if kind is not None or path in declared or (discover.may_hold(path) and path.suffix != ".toml"):
                self.file(path)
            else:
                self._skipped[str(path)] = None

    def _release(self, folder: Path) -> None:
        """A rendered release is whole, or it is none: each file by its digest. What the files say is judged as well."""
        try:
            load_release(folder)
        except ArchonError as err:
            place = Place(os.fspath(folder / Path(err.where).name))
            self._findings.append(Finding(err.code, "error", err.message, place, err.hint))

    def file(self, path: Path, named: bool = False) -> None:
        """One file."""
        shown = os.fspath(path)
        kind = discover.kind_by_name(path)
        if path.suffix == ".toml" and kind is None:
            self._declaration(path, shown)
            return
        try:
            text = read_text(path)
        except ArchonError as err:
            if named or (kind is not None and err.code != "foreign-file-too-large"):
                self._findings += of_error(err, shown)
                self._files[shown] = None
            else:
                self._skipped[shown] = None
            return
        kind = kind or discover.kind_by_content(path, text, named)
        if kind is None:
            self._skipped[shown] = None
            if named:
                message = "this is none of the files that the gate reads"
                self._findings.append(Finding("gate-file-unknown", "warning", message, Place(shown)))
            return
        self._judge(self._source(path, shown, text), kind, named)

    def _judge(self, source: Source, kind: discover.Kind, named: bool) -> None:
        if kind == "config":
            self._take(list(config_findings(source.path, source.version)), source, 1)
        elif kind in ("unit", "drop-in"):
            self._keep_unit(source, kind)
        elif kind == "env":
            self._env_files.append((source, named))
        else:
            found, count = file_findings(source, kind, self._options.environ)
            if kind == "compose":
                self._remember(source, env_files_of(source))
            if count or found or named or kind == "argv":
                self._take(found, source, 1)
            else:
                self._skipped[source.shown] = None

    def _remember(self, source: Source, named: Iterable[tuple[str, Known]]) -> None:
        """An env file lies where it is named, or beside the file that names it."""
        for name, known in named:
            for path in (Path(name), source.path.parent / name, source.path.parent / Path(name).name):
                self._said_of.setdefault(os.path.abspath(path), known)  # noqa: PTH100

    def _judge_env_files(self) -> None:
        """Within a folder only those of an engine: the rest is none of ours."""
        for source, named in self._env_files:
            known = self._said_of.get(os.path.abspath(source.path), Known())  # noqa: PTH100
            mine = known.engine and source.engine in ("", known.engine)
            judged = source.of_version(known.engine, source.version or known.version, known.reader) if mine else source
            found, count = file_findings(judged, "env", table_mib=self._table_mib(source))
            if count or named or mine:
                self._take(found, source, 1)
            else:
                self._skipped[source.shown] = None

    def _take(self, found: list[Finding], source: Source, count: int) -> None:
        if count:
            self._files[source.shown] = None
        self._findings += found

    def _source(self, path: Path, shown: str, text: str) -> Source:
        said = said_in(text)
        known = Known(self._options.engine or said.engine, self._options.engine_version or said.version)
        rendered = rendered_for(path.parent)
        if not known.version and rendered.version and known.engine in ("", rendered.engine):
            known = rendered
        if not known.version and (endpoint := beside(path, known.engine)) is not None:
            known = Known(known.engine or endpoint.engine.kind, endpoint.engine.version)
        return Source(shown, text, path, known.engine, known.version)

    def _table_mib(self, source: Source) -> float | None:
        endpoint = beside(source.path, "radiance")
        if endpoint is None or not endpoint.model.manifest:
            return None
        from archonctl.model.manifest import read_manifest

        try:
            manifest = read_manifest(endpoint.model.manifest)
        except ArchonError:
            return None
        return manifest.rad.host.ngram_table_mib if isinstance(manifest.rad, RadManifest) else None

    def _declaration(self, path: Path, shown: str) -> None:
        self._files[shown] = None
        options = self._options
        try:
            loaded = load_endpoint(path, {}, options.environ)
        except ArchonError as err:
            self._findings += of_error(err, shown)
            return
        self._findings += check_endpoint(
            loaded,
            shown=shown,
            installed=self._root_for(loaded.name),
            verify_files=options.verify_files,
            environ=options.environ,
            root=options.root,
            progress=self._progress,
        )

    def _root_for(self, name: str) -> Path | None:
        """Where the installed release of an endpoint is compared, if it is the one that was asked for."""
        if self._options.installed is None or name != self._options.installed_name:
            return None
        self._compared = True
        return self._options.installed

    def _keep_unit(self, source: Source, kind: discover.Kind) -> None:
        """Units wait for their drop-ins."""
        if kind == "drop-in":
            self._drop_ins.setdefault(os.fspath(source.path.parent), []).append(source)
        else:
            self._units.append(source)

    def _judge_units(self) -> None:
        verified: list[Source] = []
        for source in self._units:
            own = sorted(self._drop_ins.pop(f"{source.path}.d", []), key=lambda one: one.path.name)
            own = [one if one.version else one.of_version(source.engine, source.version) for one in own]
            found, count = unit_findings(source, read_unit(source.text), [(one, read_unit(one.text)) for one in own])
            if not count and not found and not source.path.name.startswith("archon"):
                self._skipped[source.shown] = None
                continue
            verified.append(source)
            parts = [(one, read_unit(one.text)) for one in own]
            self._remember(source, unit_env_files(UnitFile.of(source, read_unit(source.text), parts)))
            self._files |= dict.fromkeys([source.shown, *(one.shown for one in own)])
            self._findings += found
        for drop_ins in self._drop_ins.values():
            for source in drop_ins:
                self._files[source.shown] = None
                self._findings += drop_in_findings(source, read_unit(source.text))
        if self._options.verify_units:
            told = {(one.place.path, one.place.line) for one in self._findings}
            said = verify_findings(verified)
            self._findings += [one for one in said if (one.place.path, one.place.line) not in told]

    def report(self) -> GateReport:
        """Everything."""
        self._judge_units()
        self._judge_env_files()
        if self._options.installed_name and not self._compared:
            message = f"no declaration given is named {self._options.installed_name}: nothing installed was compared"
            self._findings.append(Finding("drift-not-compared", "warning", message))
        skipped = tuple(name for name in self._skipped if name not in self._files)
        return GateReport(in_order(self._findings), tuple(self._files), self._options.strict, skipped)
