"""Units and Quadlets as systemd reads them: continuation, quoting, prefixes, resets; each word with its place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.errors import DeclarationError
from archonctl.foreign.env_file import read_env_file
from archonctl.foreign.units import read_unit
from archonctl.release.env_file import why_unrepresentable, write_env
from archonctl.release.quoting import exec_start


def exec_words(value: str) -> list[str]:
    (found,) = read_unit(f"[Service]\nExecStart={value}\n").commands()
    return list(found.argv)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/bin/a b  c", ["/bin/a", "b", "c"]),
        ("-/bin/a 'b c' \"d e\"", ["/bin/a", "b c", "d e"]),
        ("@/bin/a zero b", ["/bin/a", "b"]),
        ("/bin/a \\x41 \\101 \\t \\s", ["/bin/a", "A", "A", "\t", " "]),
        ("/bin/a x'y z'w", ["/bin/a", "xy zw"]),
        ("/bin/a %% $$HOME", ["/bin/a", "%", "$HOME"]),
        (":/bin/a $HOME", ["/bin/a", "$HOME"]),
        ("/bin/a \\q", ["/bin/a", "\\q"]),
        ("+!!/bin/a", ["/bin/a"]),
    ],
)
def test_a_command_line_is_split_as_systemd_does(value: str, words: list[str]) -> None:
    assert exec_words(value) == words


def test_continued_lines_keep_their_places_and_comments_within_go() -> None:
    text = "[Service]\nExecStart=/bin/a \\\n# no\n  --b \\\n  ; also no\n  c\n"
    (found,) = read_unit(text).commands()
    assert [(word.text, word.line, word.column) for word in found.words] == [
        ("/bin/a", 2, 11),
        ("--b", 4, 3),
        ("c", 6, 3),
    ]


def test_an_empty_assignment_takes_the_earlier_ones_away() -> None:
    unit = read_unit("[Service]\nExecStart=/bin/a\nExecStart=\nExecStart=/bin/b\nUser=x\nUser=\n")
    assert [each.argv for each in unit.commands()] == [("/bin/b",)]
    assert unit.last("Service", "User") is None


def test_specifiers_and_variables_are_named() -> None:
    (found,) = read_unit("[Service]\nExecStart=/bin/a %i ${PORT} $ARGS x%%y\n").commands()
    assert [word.unresolved for word in found.words] == [(), ("%i",), ("${PORT}",), ("$ARGS",), ()]


def test_environment_is_split_into_variables() -> None:
    unit = read_unit('[Service]\nEnvironment="A=b c" D=e\nEnvironment=F=\n')
    assert {each.name: each.value.text for each in unit.environment()} == {"A": "b c", "D": "e", "F": ""}


def test_env_files_are_read_as_systemd_reads_them() -> None:
    found, unread = read_env_file("# c\n; c\nA=b c \nB=\"x y\"\nC='z'\nA=2\nD=a\\\nb\nexport E=1\njunk\n")
    assert {each.name: each.value.text for each in found} == {"A": "2", "B": "x y", "C": "z", "D": "ab"}
    assert [each.line for each in unread] == [9, 10]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_what_this_project_quotes_comes_back(words: list[str]) -> None:
    try:
        value = exec_start(["/bin/x", *words])
    except DeclarationError:
        return
    assert exec_words(value) == ["/bin/x", *words]


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(alphabet="ABC_1", min_size=1, max_size=4), st.text(max_size=8), max_size=4))
def test_env_files_of_this_project_come_back(env: dict[str, str]) -> None:
    env = {name: value for name, value in env.items() if not why_unrepresentable(name, value)}
    found, unread = read_env_file(write_env(env))
    assert not unread
    assert {each.name: each.value.text for each in found} == env


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="[Service]\nExcStar=ab '\"\\;#%$-@\t\r", max_size=80))
def test_any_text_is_read_without_a_fault(text: str) -> None:
    unit = read_unit(f"[Service]\nExecStart={text}")
    unit.commands()
    unit.environment()


def test_only_a_bare_semicolon_separates_commands() -> None:
    unit = read_unit("[Service]\nExecStart=/bin/a ';' \";\" \\; x ; /bin/b\n")
    assert [command.argv for command in unit.commands()] == [("/bin/a", ";", ";", ";", "x"), ("/bin/b",)]
