"""Shell scripts, held against a real bash; what a file alone does not settle is named and stays as written."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.foreign.shell import FIELD_LIMIT, read_script, split_words
from archonctl.foreign.words import Command


def command(text: str, program: str = "run") -> Command:
    """The one command of a script that runs ``program``."""
    (found,) = [each for each in read_script(text).commands if each.argv[0] == program]
    return found


def bash(text: str) -> list[str]:
    """The words that a real bash gives to ``run``."""
    script = f"run() {{ printf '%s\\0' \"$@\"; }}\n{text}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=True, cwd="/")
    return done.stdout.decode().split("\0")[:-1]


SCRIPTS = [
    "run a 'b c' \"d e\" f\\ g",
    "run --a=b '' \"\" x",
    "run a\\\n  b \\\n  c # comment\n",
    "X=1; run $X \"$X\" '$X' ${X} \"${X}y\" $X$X",
    "X='a b'; run $X \"$X\" p$X",
    "X=' a  b '; run [$X] \"$X\"; true",
    "A=(--one 'two three' \"four\"); A+=(five); run \"${A[@]}\" x",
    'A=(a "b c"); run x"${A[@]}"y',
    "run ${X:-default} ${X-d} \"${X:-a b}\"",
    ": ${X:=5}; run $X",
    "set -- a 'b c'; set -- \"$@\" d; run \"$@\"",
    "run $'a\\tb\\n' $'it\\'s'",
    'run "a\\"b" "\\$x" "\\\\" "a\\b"',
    "run a#b '#c' # d",
    "X=a; X+=b; run $X",
    "export 'Y=a b'; run \"$Y\"",
    "run a >/dev/stdout 2>&1 b",
    "cat >/dev/null <<EOF\nrun hidden\nEOF\nrun seen",
    "cat >/dev/null <<-'E F'\n\trun hidden\n\tE F\nrun seen",
    "if true; then run a; fi",
    "for i in 1; do run a; done",
    "case x in a) run no ;; x) run yes ;; esac",
    "f() { run inner; }; f",
    "[[ -n x && 1 < 2 ]] && run a",
    "[ 1 = 1 ] || run b; run c",
    "(run sub)",
    "true && run a | cat",
    "run a&\nwait",
    "A=(\n  --model x  # the model\n  -c 4096\n)\nrun \"${A[@]}\"",
    'A=(); run "${A[@]}" "${A[@]+"${A[@]}"}" end',
    "unset X; run a$X'b'\"$X\"",
]  # fmt: skip


@pytest.mark.parametrize("text", SCRIPTS)
def test_the_words_are_those_of_a_real_bash(text: str) -> None:
    wanted = bash(text)
    found = [each for each in read_script(text).commands if each.argv[0] == "run"]
    words = [[word.text for word in each.words[1:] if not word.unresolved] for each in found]
    assert wanted in [[*each] for each in words] or wanted == [word for each in words for word in each]


def test_a_command_in_some_runs_only_is_marked() -> None:
    text = "run a\nif x; then run b; fi\n[ x ] && run c\nx && run d\nx || run e\nwhile x; do run f; done\n"
    script = read_script(f"{text}(( X > 0 )) && run h\nrun g\n")
    found = {each.argv[1]: each.conditional for each in script.commands if each.argv[0] == "run"}
    assert found == {"a": False, "b": True, "c": True, "d": False, "e": True, "f": True, "h": True, "g": False}


def test_a_guarded_element_of_an_array_is_marked_and_keeps_its_place() -> None:
    text = 'A=(--one)\nif [[ $X != 0 ]]; then\n  A+=(--two "$X")\nfi\nrun "${A[@]}"\n'
    words = command(text).words
    assert [(word.text, word.line, word.column, word.conditional) for word in words[1:]] == [
        ("--one", 1, 4, False), ("--two", 3, 7, True), ("$X", 3, 13, True),
    ]  # fmt: skip
    assert words[3].unresolved == ("$X",)


@pytest.mark.parametrize(
    "part", ["$(nproc)", "`nproc`", "$((1 + 2))", "*.gguf", "${X%/}", "${#X}", "$1", "{a,b}", "${X:+y}"]
)
def test_what_only_a_shell_can_tell_stays_as_written_and_is_named(part: str) -> None:
    word = command(f"run a {part}").words[2]
    assert word.text == part
    assert word.unresolved


def test_a_default_that_is_taken_is_named() -> None:
    word = command("run ${PORT:-8000}").words[1]
    assert (word.text, word.assumed, word.unresolved) == ("8000", ("PORT",), ())


def test_what_is_brought_in_from_elsewhere_is_named() -> None:
    found = read_script("source /etc/x\n. ./y\neval run z\n")
    assert [each.line for each in found.unread] == [1, 2, 3]


@pytest.mark.parametrize("text", ["run 'a", 'run "a', "run $(a", "run ${a", "cat <<E\nx", "A=(a", "run `a"])
def test_what_is_never_closed_is_named_or_read_to_the_end(text: str) -> None:
    found = read_script(text)
    assert found.unread or found.commands or text.startswith("A=")


def test_doubling_is_bounded() -> None:
    text = "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 60 + "run $A\n"
    assert len(command(text).words[1].text) < 100_000
    text = "A=(x)\n" + 'A+=("${A[@]}")\n' * 40 + 'run "${A[@]}"\n'
    assert len(command(text).words) <= FIELD_LIMIT + 1


def test_a_place_within_another_file_is_carried() -> None:
    words = split_words("a\n b", 7, 20)
    assert [(word.line, word.column) for word in words] == [(7, 20)]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab= \n\t'\"\\$`{}()[]<>|&;#!*?%@:,.-+0\r", max_size=80))
def test_any_text_is_read_without_a_fault(text: str) -> None:
    found = read_script(text)
    lines = text.count("\n") + 1
    for each in found.commands:
        for word in each.words:
            assert 1 <= word.line <= lines


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(alphabet="ab '\"\\$`#;|&*?~%=-\n\t(){}é", max_size=8), min_size=1, max_size=6))
def test_words_in_single_quotes_come_back(words: list[str]) -> None:
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    assert [word.text for word in command(f"run {quoted}").words[1:]] == words
