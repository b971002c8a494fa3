"""Every setting of the shipped units is known to systemd 247; newer ones are placed only where they are known."""

from __future__ import annotations

import re
from pathlib import Path

from archonctl.release.directives import OLDEST, since
from archonctl.release.sandbox import rows

_SETTING = re.compile(r"^([A-Z][A-Za-z]+)=", re.MULTILINE)


def names(text: str) -> set[str]:
    return set(_SETTING.findall(text))


def test_what_the_units_use_is_in_the_oldest_systemd_that_is_promised(repository: Path) -> None:
    units = [*(repository / "units").glob("archon*.service"), *(repository / "units").glob("*.timer")]
    units += (repository / "units/user").iterdir()
    used = names("\n".join(str(row["line"]) for row in rows()))
    for unit in units:
        used |= names(unit.read_text(encoding="utf-8"))
    unknown = used - set(since())
    assert not unknown, f"look up since when systemd has them: {unknown}"
    assert {name for name in used if since()[name] > OLDEST} == set()


def test_the_delay_that_grows_is_apart(repository: Path) -> None:
    text = (repository / "units/archon-restart-steps.conf").read_text(encoding="utf-8")
    assert names(text) == {name for name, version in since().items() if version > OLDEST}
