"""What llama-server took at each build: facts of its history, command lines of public reports, and the real binary."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from archonctl.engines.knobs import Edition, check_argv, check_env, edition, load_table
from archonctl.engines.knobs.harvest import compare, read_help
from archonctl.engines.llamacpp.harvest import parse_help
from support.llamacpp_lines import GOOD, GOOD_ENV, STALE, STALE_ENV


def _at(build: str) -> Edition:
    return edition(load_table("llamacpp"), build)


@pytest.fixture(scope="module")
def help_text(llama_server: Path) -> str:
    return subprocess.run([llama_server, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.engine
def test_the_table_and_the_real_help_list_the_same_flags_the_same_way(help_text: str) -> None:
    ours = {
        knob.names: (knob.negatives, knob.env_key, knob.hint, knob.default or None, knob.takes)
        for knob in _at("b11434").knobs
    }
    theirs = {
        seen.names: (seen.negatives, seen.env or "", seen.hint, seen.default or None)
        for seen in parse_help(help_text)
        if "has been removed" not in (seen.help or "")
    }
    assert {names: row[:4] for names, row in ours.items()} == theirs
    assert all((row[4] == 0) == (not row[2]) for row in ours.values())


@pytest.mark.engine
def test_the_harvest_of_the_real_help_finds_no_difference(help_text: str) -> None:
    found = compare(load_table("llamacpp"), read_help(help_text))
    assert (found.added, found.removed, found.renamed) == ((), (), ())
    # <0|1> in a hint is no list for the parser, which reads any number there
    assert {(row.flag, change.what) for row in found.altered for change in row.changes} <= {("spec-type", "choices")}


@pytest.mark.engine
def test_what_the_real_help_calls_removed_is_refused_by_the_table(help_text: str) -> None:
    removed = {name for seen in parse_help(help_text) if "been removed" in (seen.help or "") for name in seen.names}
    refused = {name for name, found in _at("b11434").options.items() if found.knob.refused}
    assert removed == refused
    assert removed >= {"--draft", "--draft-max", "--draft-min", "--spec-ngram-size-n"}


FORMATS = {
    *("cpu-mask", "cpu-range", "cpu-mask-batch", "cpu-range-batch", "spec-draft-cpu-mask", "spec-draft-cpu-range"),
    *("spec-draft-cpu-mask-batch", "override-tensor", "spec-draft-override-tensor", "override-kv", "logit-bias"),
    *("tensor-split", "fit-target", "lora-scaled", "control-vector-scaled", "control-vector-layer-range"),
    *("json-schema", "json-schema-file", "chat-template-kwargs", "spec-synth-rates"),
    *("device", "spec-draft-device", "mmproj-device", "rpc", "slot-save-path", "media-path"),
}
"""Flags whose values have a format of their own, or name something of the machine: the table does not judge them."""


def _parsed(binary: Path, argv: Sequence[str], folder: Path) -> bool:
    """True if the real parser takes argv: --version ends the program before anything is loaded.

    It runs in an empty ``folder``, where --log-file may leave what it likes.
    """
    command = [str(binary), *argv, "--version"]
    env = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, check=False, timeout=60, env=env, cwd=folder).returncode == 0


def _taken(argv: Sequence[str]) -> bool:
    found = check_argv("llamacpp", "b11434", [*argv, "--version"])
    return not any(one.severity == "error" for one in found)


@pytest.mark.engine
def test_public_command_lines_are_judged_as_the_real_parser_judges_them(llama_server: Path, tmp_path: Path) -> None:
    machine = ("--slot-save-path", "--api-key-file", "--rpc")
    lines = [shlex.split(line) for _, line, *_ in (*STALE, *GOOD)]
    judged = [argv for argv in lines if not set(machine) & set(argv)]
    assert len(judged) > 80
    assert [argv for argv in judged if _parsed(llama_server, argv, tmp_path) != _taken(argv)] == []


@pytest.mark.engine
def test_every_flag_alone_is_judged_as_the_real_parser_judges_it(llama_server: Path, tmp_path: Path) -> None:
    exits = {"help", "version", "cache-list", "list-devices", "completion-bash"}
    differ = set[str]()
    for knob in {id(found.knob): found.knob for found in _at("b11434").options.values()}.values():
        for value in ("1", "abc") if knob.flag not in exits else ():
            argv = [knob.option, value, *(["7"] if knob.takes == 2 else [])]
            differ |= {knob.flag} if _parsed(llama_server, argv, tmp_path) != _taken(argv) else set()
    assert differ <= FORMATS


CAME = [
    # flag, last build without it, first build with it, pull request
    ("--no-webui", "b4296", "b4297", 10751),
    ("--hf-repo-draft", "b4518", "b4519", 11318),
    ("--jinja", "b4523", "b4524", 11016),
    ("--override-tensor", "b5027", "b5028", 11397),
    ("--mmproj", "b5330", "b5331", 12898),
    ("--swa-full", "b5428", "b5429", 13194),
    ("--kv-unified", "b5912", "b5913", 14363),
    ("--cpu-moe", "b6050", "b6051", 14992),
    ("--cache-ram", "b6722", "b6723", 16391),
    ("--models-dir", "b7217", "b7218", 17470),
    ("--fit", "b7406", "b7407", 16653),
    ("--spec-draft-n-max", "b8954", "b8955", 22397),
    ("--ui", "b9173", "b9174", 23064),
    ("--load-mode", "b10104", "b10105", 20834),
]
WENT = [
    # flag, last build with it, first build without it, pull request
    ("--logdir", "b4102", "b4103", 10339),
    ("--penalize-nl", "b4334", "b4335", 10803),
    ("--prompt", "b4440", "b4441", 11136),
    ("--dump-kv-cache", "b5434", "b5435", 13653),
    ("--verbose-prompt", "b8554", "b8555", 21059),
    ("--clear-idle", "b8851", "b8852", 21741),
    ("--ctx-size-draft", "b9108", "b9109", 22838),
    ("--checkpoint-every-n-tokens", "b9309", "b9310", 22929),
    ("--model-vocoder", "b10269", "b10270", 26254),
    ("--mlock", "b10867", "b10878", 28334),
]
DEFAULTS = [
    # flag, build, the default that its help prints
    ("ctx-size", "b7406", "4096, 0 = loaded from model"),
    ("ctx-size", "b7407", "0, 0 = loaded from model"),
    ("parallel", "b7432", "1"),
    ("parallel", "b7433", "-1, -1 = auto"),
    ("flash-attn", "b6324", "disabled"),
    ("flash-attn", "b6325", "auto"),
    ("jinja", "b7169", "disabled"),
    ("jinja", "b7170", "enabled"),
    ("slots", "b6336", "disabled"),
    ("slots", "b6337", "enabled"),
    ("timeout", "b9411", "600"),
    ("timeout", "b9412", "3600"),
    ("spec-draft-n-max", "b9234", "16"),
    ("spec-draft-n-max", "b9235", "3"),
]


@pytest.mark.parametrize(("flag", "before", "since", "pull"), CAME)
def test_a_flag_comes_with_the_build_of_its_pull_request(flag: str, before: str, since: str, pull: int) -> None:
    assert flag not in _at(before).options
    assert _at(since).options[flag].certain


@pytest.mark.parametrize(("flag", "last", "removed", "pull"), WENT)
def test_a_flag_goes_with_the_build_of_its_pull_request(flag: str, last: str, removed: str, pull: int) -> None:
    assert _at(last).options[flag].certain
    assert flag not in _at(removed).options


@pytest.mark.parametrize(("flag", "build", "default"), DEFAULTS)
def test_defaults_are_those_of_the_build(flag: str, build: str, default: str) -> None:
    found = _at(build).find(flag)
    assert found
    knob, key = found[0], _at(build).table.key
    past = [value for version, value in knob.defaults.items() if not version or key(version) <= key(build)]
    assert (past[-1] if past else knob.default) == default


def test_a_build_between_two_lists_that_agree_is_certain_and_between_two_that_differ_is_not() -> None:
    assert all(found.certain for found in _at("b6000").options.values())
    assert not _at("b10870").options["--mlock"].certain


def test_every_flag_that_went_away_has_a_word_about_it() -> None:
    table = load_table("llamacpp")
    now = {name for name, found in _at(table.newest).options.items() if not found.knob.refused}
    gone = {name for knob in table.knobs for name in (*knob.names, *knob.negatives)} - now
    assert {name for name in gone if table.retirement(name) is None} == set()
    variables = {knob.env_key for knob in table.knobs if knob.env_key} - _at(table.newest).variables.keys()
    assert {name for name in variables if table.retirement(name) is None} == set()


@pytest.mark.parametrize(("build", "line", "code", "said", "source"), STALE)
def test_a_stale_command_line_is_refused_with_what_to_do(
    build: str, line: str, code: str, said: str, source: str | int
) -> None:
    found = [one for one in check_argv("llamacpp", build, shlex.split(line)) if one.severity == "error"]
    assert code in [one.code for one in found], source
    assert any(said in one.message + one.fix for one in found if one.code == code), found


@pytest.mark.parametrize(("build", "line", "source"), GOOD)
def test_a_good_command_line_raises_no_alarm(build: str, line: str, source: str | int) -> None:
    assert [one for one in check_argv("llamacpp", build, shlex.split(line)) if one.severity == "error"] == [], source


@pytest.mark.parametrize(("build", "variable", "code", "said", "source"), STALE_ENV)
def test_a_stale_variable_is_refused_with_what_to_do(
    build: str, variable: str, code: str, said: str, source: str | int
) -> None:
    name, _, value = variable.partition("=")
    found = check_env("llamacpp", build, {name: value})
    assert [(one.code, one.severity) for one in found] == [(code, "error")], source
    assert said in found[0].message + found[0].fix


@pytest.mark.parametrize(("build", "variables", "source"), GOOD_ENV)
def test_good_variables_raise_no_alarm(build: str, variables: str, source: str | int) -> None:
    env = dict(pair.split("=", 1) for pair in variables.split())
    assert [one for one in check_env("llamacpp", build, env) if one.severity == "error"] == [], source


@pytest.mark.parametrize("build", ["b4000", "b5000", "b6325", "b7376", "b8955", "b9726", "b10105", "b11434"])
def test_every_flag_of_a_build_alone_is_a_good_command_line_of_it(build: str) -> None:
    values = {"int": "1", "float": "0.5", "list": "a", "str": "a", "path": "a", "pair": "a", "json": "{}"}
    for name, found in _at(build).options.items():
        knob = found.knob
        if knob.refused:
            continue
        word = (*knob.choices, *knob.words, values.get(knob.type, "a"))[0]
        number = max(1, int(knob.min or 0)) if knob.type in ("int", "float") and not knob.choices else None
        argv = [name, *[str(number) if number is not None else word] * int(knob.takes)]
        assert [one for one in check_argv("llamacpp", build, argv) if one.severity == "error"] == [], argv
