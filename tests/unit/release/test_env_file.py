"""Env files: what is written is read the same by everyone, everything else is refused."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

import dotenv
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from archonctl.errors import DeclarationError
from archonctl.release.env_file import SHELL_OWNED, parse_env, why_unrepresentable, write_env

NASTY = [
    "",
    "=",
    "==",
    "-v",
    "a=b",
    "%i",
    "https://h:1/p,q@r+s%20",
    " ",
    "a b",
    '"quoted"',
    "'single'",
    "it's",
    "\\",
    "a\\nb",
]
NASTY += [
    "$HOME",
    "${HOME}",
    "`id`",
    "$(id)",
    "~",
    "a:~",
    "#x",
    "a #b",
    "é",
    "\u00a0",
    "\n",
    "a\nB=2",
    "\t",
    "*",
    "{a,b}",
]
NASTY += ['{"a": 1}', "a;b", "x&", "|", "<", ">", "!", "^", "a\r", "\x00", "\x7f", "[x]", "a?"]


def refusal(variables: dict[str, str]) -> DeclarationError | None:
    try:
        write_env(variables)
    except DeclarationError as err:
        return err
    return None


def refused(variables: dict[str, str]) -> bool:
    found = refusal(variables)
    assert found is None or (found.code == "env-value-unrepresentable" and str(found).isprintable())
    return found is not None


def by_bash(path: Path) -> dict[str, str]:
    script = 'set -euo pipefail; set -a; . "$1"; env -0'
    done = subprocess.run(
        ["env", "-i", "bash", "--norc", "-c", script, "_", path], capture_output=True, check=True, timeout=30
    )
    assert done.stderr == b""
    return dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0") if entry)


def by_docker(text: str) -> dict[str, str]:
    """docker's rule (run(1), --env-file): lines of NAME=value, # comments, nothing else has a meaning."""
    lines = [line.lstrip() for line in text.splitlines()]
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


_VALUES = st.sampled_from(NASTY) | st.text(max_size=12) | st.from_regex(r"[A-Za-z0-9_@%+=:,./-]{0,20}", fullmatch=True)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), _VALUES, max_size=5))
@example({f"V{number}": value for number, value in enumerate(NASTY)})
def test_values_are_read_the_same_by_everyone_or_refused(tmp_path: Path, variables: dict[str, str]) -> None:
    good = {name: value for name, value in variables.items() if not why_unrepresentable(name, value)}
    assert refused(variables) == (good != variables)
    text = write_env(good)
    assert parse_env(text) == good
    path = tmp_path / "engine.env"
    path.write_text(text)
    shell = by_bash(path)
    assert {name: shell.get(name) for name in good} == good
    assert by_docker(text) == good
    assert dotenv.dotenv_values(stream=io.StringIO(text)) == good


@pytest.mark.parametrize("value", [v for v in NASTY if not re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]*", v)])
def test_a_value_that_readers_disagree_on_is_refused_with_its_name(value: str) -> None:
    with pytest.raises(
        DeclarationError, match=r"engine\.env\.SETTING: the value holds .* at position [0-9]+"
    ) as caught:
        write_env({"GOOD": "1", "SETTING": value})
    assert caught.value.code == "env-value-unrepresentable"


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=", "é", "A\n", "export A", "\udcff"])
def test_a_name_that_is_no_variable_is_refused(name: str) -> None:
    assert refused({name: "1"})


def test_every_variable_of_a_shell_is_kept_or_refused(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["bash", "--norc", "-c", "compgen -v"], capture_output=True, text=True, check=True, timeout=30
    )
    for name in {*listed.stdout.split(), *SHELL_OWNED, "PATH", "HOME", "LD_PRELOAD", "LC_ALL", "TERM", "ENV", "PS4"}:
        if refused({name: "1"}):
            continue
        path = tmp_path / "engine.env"
        path.write_text(write_env({name: "C" if name == "LC_ALL" else "1"}))
        script = f'set -a; . "$1"; printf %s "${{{name}}}"'
        done = subprocess.run(
            ["/bin/bash", "--norc", "-c", script, "_", path], capture_output=True, text=True, check=False, timeout=30
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "C" if name == "LC_ALL" else "1", ""), name


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("A=1\nB", 2, "not ended"),
        ("A=1\nB\n", 2, "neither NAME=value nor a comment"),
        ("\n\nexport A=1\n", 3, "no variable name"),
        ('A="1"\n', 1, "holds '\"' at position 1"),
        ("A='1'\n", 1, "position 1"),
        ("A=1\r\n", 1, "'\\r' at position 2"),
        ("A= 1\n", 1, "' ' at position 1"),
        (" A=1\n", 1, "no variable name"),
        ("A=1 # why\n", 1, "' ' at position 2"),
        ("A=1\nA=2\n", 2, "a second time"),
        ("A=a\\\nB=2\n", 1, "'\\\\' at position 2"),
        ("# swallows the next line \\\nA=1\n", 1, "neither"),
        ("\ufeffA=1\n", 1, "no variable name"),
        ("A=\x00\n", 1, "position 1"),
        ("A=caf\u00e9\n", 1, "position 4"),
        ("; comment\n", 1, "neither"),
        ("UID=0\n", 1, "a shell sets this variable itself"),
    ],
)
def test_a_line_of_another_grammar_is_refused_with_its_number(text: str, line: int, reason: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_env(text, "engine.env")
    assert caught.value.code == "env-line-invalid"
    assert caught.value.where == f"engine.env:{line}"
    assert reason in caught.value.message


@given(st.text(max_size=60))
def test_no_text_is_a_traceback(text: str) -> None:
    with contextlib.suppress(DeclarationError):
        assert isinstance(parse_env(text), dict)


def test_an_empty_file_has_no_variables() -> None:
    assert parse_env("") == {}
    assert parse_env(write_env({})) == {}
