"""Env files through the real systemd: what the grammar takes arrives as it was meant, and what a reader of ours says
that systemd reads is what systemd reads."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from archonctl.gate.env_lines import env_lines
from archonctl.release.env_file import parse_env, why_unrepresentable, write_env
from support.sdbox.box import Box

pytestmark = pytest.mark.systemd

ALPHABET = " \t\"'\\$%#;=`~!&|<>*?[]{}()@+:,./-_abcXYZ019\u00e9\u00a0\u2028\U0001f600\x01\x7f\r"
HAND = [
    "",
    " ",
    " leading",
    "trailing ",
    "a b",
    '"quoted"',
    "'single'",
    '"a" b',
    'a"b"c',
    '{"a": [1, "b c"], "d": "\\"e\\""}',
    "'{\"a\": 1}'",
    '"{\\"a\\": 1}"',
    "\\n",
    "a\\",
    "a\\ b",
    "$HOME",
    "${X}",
    "$$",
    "%i",
    "%%",
    "100%",
    "# comment",
    "a # b",
    "a;b",
    "~",
    "`id`",
    "$(id)",
    "*",
    "=",
    "==",
    "-v",
    "x" * 4000,
    "\u00e9",
    "\u2028",
    "tab\there",
]
DUMP = "import json, os, sys; json.dump({k: v for k, v in os.environ.items() if k[:1] == 'V'}, sys.stdout)"


def values() -> list[str]:
    """The ones by hand, and 1,500 random ones (the seed is fixed: a failure can be looked at)."""
    chance = random.Random(20)
    drawn = ["".join(chance.choices(ALPHABET, k=chance.randint(0, 12))) for _ in range(1500)]
    return [*HAND, *drawn]


def by_systemd(box: Box, path: str) -> dict[str, str]:
    """The variables that a process of systemd's gets from a file."""
    command = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", "-p", f"EnvironmentFile={path}"]
    found: dict[str, str] = json.loads(box(*command, "/usr/bin/python3", "-S", "-c", DUMP))
    return found


def test_what_the_grammar_takes_arrives_and_all_else_is_refused(box: Box) -> None:
    good = {f"V{n}": value for n, value in enumerate(values()) if not why_unrepresentable("V", value)}
    assert len(good) > 30
    text = write_env(good)
    assert parse_env(text) == good
    box.put("/run/good.env", text)
    assert by_systemd(box, "/run/good.env") == good


def test_our_reading_of_any_env_file_is_the_one_of_systemd(box: Box) -> None:
    """One line a value, as people write them: whatever systemd makes of it, the gate says the same."""
    lines = [f"V{n}={value}\n" for n, value in enumerate(values()) if not set(value) & set("\x01\x7f\r\n")]
    lines = [line for line in lines if len(list(env_lines(line + "W=1\n"))) == 2]  # no open quote takes the next in
    text = "".join(lines)
    box.put("/run/any.env", text)
    seen = by_systemd(box, "/run/any.env")
    ours = {line.name.text: line.value.text for line in env_lines(text)}
    assert {name: (ours[name], seen.get(name)) for name in ours if ours[name] != seen.get(name)} == {}
    assert len(seen) > 1000


def test_a_value_over_several_lines_is_read_as_systemd_does(box: Box, tmp_path: Path) -> None:
    text = "V1=\"a\nb\"\nV2='c\nd'\nV3=e\\\nf\n; V4=no\n# V5=no \\\nV6=no\n"
    text += 'V7 = spaced \n\tV8=tab\nV9\nVA="x""y"\nVB="x" z\n'
    box.put("/run/lines.env", text)
    ours = {line.name.text: line.value.text for line in env_lines(text)}
    assert ours == by_systemd(box, "/run/lines.env")
