"""The line of every key of a TOML text."""

from __future__ import annotations

import tomllib
from typing import Any

import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from archonctl.deployment.checks import walk_leaves
from archonctl.deployment.toml_lines import key_lines, line_of

TEXT = '''\
# [comment]
top = 1  # x = 2
"quoted [key]" = "a # no comment"
dotted . "key" . 'x' = """
[not a table]
k = 1
"""""
[table] # comment
list = [
  1, [2, 3],   # inner
  "]",
  {a = 1, b.c = 2},
]
date = 1979-05-27 07:32:00
raw = \'\'\'
it's "fine"\'\'\'
[[many]]
n = 1
[many.sub]
x = 1
[[many]]
n = 2
[[many.deep]]
y = 3
[ a . b ]
c = {}
'''


def test_every_kind_of_key_has_its_line() -> None:
    lines = key_lines(TEXT)
    assert {loc: lines[loc] for loc in lines if len(loc) == 1} == {
        ("top",): 2,
        ("quoted [key]",): 3,
        ("dotted",): 4,
        ("table",): 8,
        ("many",): 17,
        ("a",): 25,
    }
    assert lines["dotted", "key", "x"] == 4
    assert lines["table", "list", 1, 1] == 10
    assert lines["table", "list", 3, "b", "c"] == 12
    assert lines["table", "date"] == 14
    assert lines["table", "raw"] == 15
    assert lines["many", 0, "sub", "x"] == 20
    assert lines["many", 1, "n"] == 22
    assert lines["many", 1, "deep", 0, "y"] == 24
    assert lines["a", "b", "c"] == 26


def test_a_key_that_is_not_there_gets_the_line_of_its_table() -> None:
    lines = key_lines(TEXT)
    assert line_of(lines, ("many", 1, "missing", 3)) == 21
    assert line_of(lines, ("nowhere",)) is None
    assert line_of(lines, ()) is None


def test_text_that_is_no_toml_gives_what_could_be_followed() -> None:
    assert key_lines('a = 1\nb = "unclosed\n[c\n')[("a",)] == 1
    assert key_lines("= = =") == {}
    assert key_lines("x = " + "[" * 5000)[("x",)] == 1


_KEY = st.text(max_size=5)
_TREE = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEY, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_KEY, _TREE, max_size=4), st.booleans())
def test_every_leaf_of_a_written_document_is_found_on_a_line_that_names_it(
    data: dict[str, Any], multiline: bool
) -> None:
    text = tomli_w.dumps(data, multiline_strings=multiline)
    parsed = tomllib.loads(text)
    lines = key_lines(text)
    written = text.replace("\r\n", "\n").split("\n")
    for loc, _value in walk_leaves(parsed):
        assert loc in lines
        key = next((part for part in reversed(loc) if isinstance(part, str)), "")
        if isinstance(loc[-1], str) and key.isascii() and key.isalnum():
            assert key in written[lines[loc] - 1]
