"""The whole record of an endpoint, out of the house and side by side: history --export, compare."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from archonctl.cli.compare_text import compare_json
from archonctl.cli.history_export import COLUMNS, csv_text, jsonl
from archonctl.cli.when import moment
from archonctl.errors import HostRefusal, NoEvidence
from archonctl.observe.compare import compare
from archonctl.observe.entries import entries
from archonctl.observe.journal_story import JournalStory
from archonctl.observe.report.page import page
from archonctl.observe.side import before, side_of
from archonctl.observe.story import tell
from archonctl.service.history import History, Record
from archonctl.service.installed import Installed
from archonctl.service.unit import UnitState
from support.recorded import DAY, HOSTILE, NOW, record_week


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine's root folder with two endpoints and their past."""
    found = tmp_path_factory.mktemp("root")
    record_week(found, "archon", 2 * DAY)
    record_week(found, "other", 3 * DAY, **{"contract.seqs": 2})
    return found


@pytest.fixture
def cli(root: Path, run_cli: Callable[..., Any]) -> Callable[..., Any]:
    """The installed command over that record."""
    environ = {**os.environ, "ARCHON_STATE_DIR": str(root / "var/lib/archon")}
    return lambda *words: run_cli(*words, env=environ)


def schema(repository: Path, name: str) -> Draft202012Validator:
    files = {path.name: json.loads(path.read_text()) for path in (repository / "docs/schemas").glob("*.json")}
    others = Registry().with_resources((key, Resource.from_contents(value)) for key, value in files.items())
    return Draft202012Validator(files[f"{name}-1.json"], registry=others)


def test_an_export_has_every_event_and_verdict_with_what_was_seen(cli: Callable[..., Any], repository: Path) -> None:
    lines = [json.loads(line) for line in cli("history", "archon", "--export", "jsonl").stdout.splitlines()]
    for line in lines:
        schema(repository, "history-entry").validate(line)
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    events = [line for line in lines if line["kind"] == "event"]
    assert [(line["event"], line["live_tokens"]) for line in events] == [
        ("applied", 601_120),
        ("failed", 556_348),
        ("applied", 612_480),
    ]
    assert {score["name"] for line in lines for score in line["predictions"]} == {"prefill_tps_43k", "kv_tokens"}
    table = list(csv.DictReader(io.StringIO(cli("history", "archon", "--export", "csv").stdout)))
    assert tuple(table[0]) == COLUMNS
    assert [row["live_tokens"] for row in table] == [str(line["live_tokens"]) for line in lines]
    assert [row["predictions_falsified"] for row in table if row["event"] == "failed"] == ["1"]


def test_what_is_exported_can_be_limited(cli: Callable[..., Any]) -> None:
    assert len(cli("history", "archon", "--export", "jsonl", "-n", "2").stdout.splitlines()) == 2
    assert cli("history", "archon", "--export", "jsonl", "--since", "2031-01-01").stdout == ""
    assert "expected 7d" in cli("history", "archon", "--since", "yesteryear").stderr
    assert cli("history", "archon", "--export", "csv", "--json").code == 2
    assert moment("7d") == pytest.approx(moment("-168h"), abs=5)


def test_a_cell_is_no_formula_and_what_nobody_knows_is_empty(root: Path) -> None:
    one = entries(Installed("archon", root)).found[0]
    text = csv_text([replace(one, reasons=("=HYPERLINK(1)", 'a "quoted", b'), live_tokens=None)])
    row = next(csv.DictReader(io.StringIO(text)))
    assert row["reasons"] == '\'=HYPERLINK(1) | a "quoted", b'
    assert (row["live_tokens"], row["user"]) == ("", "root")


def test_what_cannot_be_read_is_counted_and_the_rest_is_shown(tmp_path: Path) -> None:
    installed = record_week(tmp_path, "archon", 3 * DAY, extra=[HOSTILE])
    files = sorted((installed.folder / "verdicts").rglob("*.json"))
    whole = len(entries(installed).found)
    files[0].write_bytes(files[0].read_bytes()[:99])
    files[1].write_text('{"verdict": 3}')
    with installed.history_file.open("ab") as history:
        history.write(b'{"half')
    found = entries(installed)
    assert (len(found.found), found.unreadable) == (whole - 2, 3)


def test_a_figure_that_cannot_be_one_is_unknown(tmp_path: Path) -> None:
    installed = record_week(tmp_path, "archon", 3 * DAY)
    for number, wrong in enumerate(("1e999", "-5", "1" + "0" * 400, "NaN", "true")):
        text = (
            f'{{"verdict": "holds", "at": {wrong}, "contract": {{"seqs": {wrong}, "len": {wrong}}},'
            f' "probe": {{"facts": {{"kv_tokens_logged": {wrong}}}, "predictions": [{{"off": {wrong}}}]}}}}'
        )
        (installed.folder / "verdicts/none").mkdir(exist_ok=True)
        (installed.folder / f"verdicts/none/20260101T00000{number}.000000Z-probe.json").write_text(text)
    found = entries(installed).found
    assert len([each for each in found if each.event == "probe"]) == 5
    assert csv_text(found)
    assert [json.loads(line, parse_constant=pytest.fail) for line in jsonl(found).splitlines()]
    assert all(each.live_tokens is None or 0 <= each.live_tokens < 2**63 for each in found)
    assert page([tell(installed, no_unit, JournalStory(NOW))], JournalStory(NOW), NOW)


def no_unit(_installed: Installed) -> UnitState:
    raise HostRefusal("no-systemd", "systemd is not process 1 here")


def test_two_releases_are_compared_from_their_declaration_to_what_was_seen(root: Path, repository: Path) -> None:
    installed = Installed("archon", root)
    current = installed.current()
    found = compare(side_of(installed, before(installed.history(), current)), side_of(installed, current))
    rows = {(row.section, row.name): row for row in found.changes}
    assert (rows["arguments", "--host-pool-mib"].was, rows["arguments", "--host-pool-mib"].now) == ("44928", "45568")
    assert rows["plan", "verdict"].now == "holds"
    assert rows["plan", "memory of card 0: weights"].delta == -592
    assert rows["ledger", "kv_tokens"].delta == 612_480 - 556_348
    assert (rows["verdict", "word"].was, rows["verdict", "prediction kv_tokens"].now) == ("broken", "hit")
    assert rows["throughput", "prefill prefill_tps_43k"].delta
    assert not [key for key in rows if key[0] in ("contract", "engine", "model", "environment")]
    schema(repository, "compare").validate(compare_json(found, everything=True))


def test_what_one_side_does_not_tell_is_unknown_and_not_zero(root: Path) -> None:
    installed = Installed("archon", root)
    side = side_of(installed, installed.current())
    bare = replace(side, plan=None, no_plan="no model file", verdict=None, no_verdict="none is stored")
    found = compare(side, bare)
    assert all(row.now is None and row.delta is None for row in found.changes)
    assert found.unknown == (f"archon@{side.digest[:8]}: no model file", f"archon@{side.digest[:8]}: none is stored")


def test_the_command_compares_and_says_it_by_its_exit_code(cli: Callable[..., Any], root: Path) -> None:
    releases = Installed("archon", root).digests()
    assert cli("compare", "archon").code == 8
    assert cli("compare", releases[0][:6], releases[1]).code == 8
    assert cli("compare", "archon", "archon").code == 0
    two = cli("compare", "archon", "other")
    assert "seqs" in two.stdout
    assert "\x1b" not in two.stdout
    assert cli("compare", "archon@ffff").code == 2
    assert "release-unknown" in cli("compare", "beefbeef").stderr
    assert cli("compare", "a", "b", "c").code == 2


def test_the_first_release_has_none_before_it() -> None:
    only = History((Record("applied", "a" * 16, 1.0, "holds"), Record("verified", "a" * 16, 2.0, "holds")))
    with pytest.raises(NoEvidence, match="no release before") as caught:
        before(only, "a" * 16)
    assert caught.value.code == "release-before-missing"
    assert before(History((Record("applied", "b" * 16, 1.0), *only.records)), "a" * 16) == "b" * 16
