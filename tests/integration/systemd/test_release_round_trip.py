"""What a release says is what a process gets: argv and environment through a real systemd."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archonctl.deployment.load import load_endpoint
from archonctl.engines.base import CommandLine
from archonctl.release.env_file import why_unrepresentable
from archonctl.release.render import render_release
from support.sdbox.box import Box

pytestmark = pytest.mark.systemd

Unit = Callable[..., tuple[list[str], dict[str, str]]]
TEXT = '[contract]\nseqs = 1\nlen = 4096\n[engine]\nkind = "llamacpp"\n[model]\npath = "/m"\nbytes = 1\n'
REPORT = 'import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open("/run/report.json", "w"))'
WORDS = [
    "",
    " ",
    "a  b",
    '"',
    "'",
    "it's",
    "\\",
    "\\n",
    "\\x41",
    "$HOME",
    "${X}",
    "$$",
    "%",
    "%i",
    "%%n",
    "\n",
    "\t",
    ";",
    "\\;",
]
WORDS += [
    "#",
    "é",
    "\u2028",
    "\x01",
    "\x7f",
    "~",
    "*",
    "--a=b",
    '{"a": "b c", "d": [1]}',
    "@",
    "-",
    "+",
    "!",
    ":",
    "|",
    "&",
    "x" * 5000,
]
VALUES = ["", "=", "a=b", "-v", "%i", "%%", "https://h:1/p,q@r+s%20", "0", "/a/b:/c", "x" * 5000]


def report(box: Box) -> tuple[list[str], dict[str, str]]:
    """What the started process wrote down, once it has."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        text = box.run("cat", "/run/report.json").stdout
        if text.endswith("]"):
            words, env = json.loads(text)
            return words, env
        time.sleep(0.05)
    pytest.fail(box("journalctl", "-n", "20", "--no-pager"))


@pytest.fixture
def unit(tmp_path: Path, box: Box) -> Iterator[Unit]:
    """``unit(words, env)``: what a process started by the rendered unit was given."""

    def run(words: list[str], env: dict[str, str], home: str = "/run/release") -> tuple[list[str], dict[str, str]]:
        (tmp_path / "round.toml").write_text(TEXT)
        loaded = load_endpoint(tmp_path / "round.toml", {}, {})
        release = render_release(
            loaded, CommandLine(("/usr/bin/python3", "-S", "-c", REPORT, *words), env), home=Path(home)
        )
        for name, file in release.files.items():
            box.put(f"{home}/{name}", file.content.decode())
        box.put(f"/run/systemd/system/{release.unit_name}", release.unit_text)
        box("rm", "-f", "/run/report.json")
        box("systemctl", "daemon-reload")
        box("systemctl", "start", release.unit_name)
        return report(box)

    yield run
    box.run("systemctl", "stop", "archon-round.service")
    box.run("rm", "-f", "/run/systemd/system/archon-round.service")
    box.run("systemctl", "daemon-reload")


def test_every_odd_word_and_value_arrives_as_it_was_meant(unit: Unit) -> None:
    env = {f"V{number}": value for number, value in enumerate(VALUES)}
    words, seen = unit(WORDS, env)
    assert words == WORDS
    assert {name: seen.get(name) for name in env} == env


_WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
_VALUE = st.from_regex(r"[A-Za-z0-9_@%+=:,./-]{0,30}", fullmatch=True)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_WORD, min_size=20, max_size=40), st.lists(_VALUE, min_size=20, max_size=40))
def test_random_words_and_values_arrive_as_they_were_meant(unit: Unit, meant: list[str], values: list[str]) -> None:
    env = {f"V{number}": value for number, value in enumerate(values)}
    words, seen = unit(meant, env)
    assert words == meant
    assert {name: seen.get(name) for name in env} == env


def test_a_release_folder_with_blanks_and_percent_signs_is_found(unit: Unit) -> None:
    assert unit(["x"], {"A": "1"}, home="/run/a b %i é")[1]["A"] == "1"


def test_what_is_refused_would_indeed_have_changed(box: Box) -> None:
    """The refusals are no zeal: systemd itself changes these values."""
    for value in ['"a"', "'a'", "a\\nb"]:
        assert why_unrepresentable("A", value)
        box.put("/run/odd.env", f"A={value}\n")
        got = box("systemd-run", "--quiet", "--pipe", "--wait", "-p", "EnvironmentFile=/run/odd.env", "printenv", "A")
        assert got != value
