"""The table of checks: complete, stable, and the same in code, docs, runbooks and completion."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from archonctl.doctor.run import OF_ENDPOINT, OF_MACHINE
from archonctl.doctor.table import checks, groups

FACTS = {"host", "endpoints", "engines", "runtimes", "systemd"}


def test_every_row_has_a_function_and_every_function_a_row() -> None:
    assert {check.id for check in checks() if check.per == "machine"} == set(OF_MACHINE)
    assert {check.id for check in checks() if check.per == "endpoint"} == set(OF_ENDPOINT)
    assert len({check.id for check in checks()}) == len(checks())


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.id)
def test_a_row_is_whole(check: Any, repository: Path) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", check.id)
    assert len(check.id) <= 17, "the report's column"
    assert check.group in groups()
    assert set(check.needs) <= FACTS
    assert check.per == "machine" or "endpoints" in check.needs
    assert [code for code in check.codes if not (repository / "runbooks" / f"{code}.md").is_file()] == []


def test_every_code_of_the_checks_is_in_the_table(repository: Path) -> None:
    told = {code for check in checks() for code in check.codes}
    folder = repository / "controller/archonctl/doctor/checks"
    source = "".join(path.read_text() for path in folder.glob("*.py"))
    assert set(re.findall(r'(?:failed|warned)\)?\(\s*"([a-z0-9-]+)"', source)) - told == set()


def test_the_page_has_the_table(repository: Path) -> None:
    page = (repository / "docs/doctor.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    wanted = [
        (check.id, check.title, check.looks_at, ", ".join(f"`{code}`" for code in check.codes)) for check in checks()
    ]
    assert [(*row[:3], row[3] if "`" in row[3] else "") for row in rows] == wanted


def test_completion_and_a_typo_name_the_checks(run_cli: Any) -> None:
    script = run_cli("completion", "bash").stdout
    assert all(check.id in script for check in checks())
    done = run_cli("doctor", "--check", "prots")
    assert done.code == 2
    assert "ports" in done.stderr
