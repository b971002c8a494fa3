"""How a command line is judged: what is said, where, with which mend, and what is not claimed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.engines.knobs import ArgvFinding, Knob, check_argv, check_env, edition, load_table, table_names
from archonctl.engines.knobs.reading import llama, python, sglang, strict
from archonctl.errors import UsageError

LLAMA = ("llamacpp", "b11434")
RADIANCE = ("radiance", "1.8.1")


def errors(found: tuple[ArgvFinding, ...]) -> list[tuple[str, int]]:
    return [(one.code, one.index) for one in found if one.severity == "error"]


def one(found: tuple[ArgvFinding, ...], code: str) -> ArgvFinding:
    return next(finding for finding in found if finding.code == code)


def test_every_finding_points_at_its_word() -> None:
    argv = ["-m", "x", "-c", "many", "--nonsense", "7", "--port=80", "stray"]
    found = check_argv(*LLAMA, argv)
    assert errors(found) == [("knob-bad-value", 3), ("knob-unknown", 4), ("knob-form", 6), ("argument-stray", 7)]
    assert [argv[finding.index] for finding in found] == [finding.argument for finding in found]


def test_a_safe_mend_is_given_as_words() -> None:
    found = check_argv(*LLAMA, ["-m", "x", "--port=80", "-c 4096", "--metrics", "true"])
    mends = [(finding.index, finding.span, finding.replacement) for finding in found]
    assert mends == [(2, 1, ("--port", "80")), (3, 1, ("-c", "4096")), (4, 2, ("--metrics",))]


@pytest.mark.parametrize(
    ("value", "replacement"), [("false", ("--no-ui",)), ("0", ("--no-ui",)), ("true", ("--ui",)), ("x", ("--ui",))]
)
def test_a_switch_with_a_value_becomes_the_switch_that_was_meant(value: str, replacement: tuple[str, ...]) -> None:
    assert check_argv(*LLAMA, ["-m", "x", "--ui", value])[0].replacement == replacement


def test_a_bare_flag_that_is_off_is_taken_out() -> None:
    assert check_argv(*LLAMA, ["-m", "x", "--metrics", "false"])[0].replacement == ()


def test_the_last_of_two_counts_and_that_is_a_warning() -> None:
    found = check_argv(*LLAMA, ["-m", "x", "-c", "1", "--ctx-size", "2"])
    assert [(finding.code, finding.severity, finding.index) for finding in found] == [("knob-twice", "warning", 4)]


@pytest.mark.parametrize(
    ("written", "meant"), [("\u2013\u2013ctx-size", "--ctx-size"), ("\u2014ctx-size", "--ctx-size")]
)
def test_a_typographic_dash_is_told_from_a_dash(written: str, meant: str) -> None:
    found = check_argv(*LLAMA, ["-m", "x", written, "4096"])
    assert found[0].replacement == (meant,)


def test_quotes_that_arrived_as_part_of_a_value_are_named() -> None:
    found = check_argv(*LLAMA, ["-m", "x", "-ctk", '"q8_0"'])
    assert found[0].replacement == ("q8_0",)
    assert "quotes" in found[0].fix


def test_what_an_unknown_option_takes_with_it_is_not_told_twice() -> None:
    found = check_argv(*RADIANCE, ["--model", "x", "--vram-kv-mib", "5120", "--nonsense", "a", "--tp", "2"])
    assert [finding.index for finding in found] == [2, 4]


def test_words_known_only_at_run_time_are_not_judged() -> None:
    argv = ["-m", "x", "-c", "$N", "$ARGS", "--port"]
    assert errors(check_argv(*LLAMA, argv)) == [("knob-bad-value", 3), ("argument-stray", 4), ("knob-lacks-value", 5)]
    assert check_argv(*LLAMA, argv, open_words={3: "value", 4: "words"}) == ()
    assert errors(check_argv(*RADIANCE, ["$X"], open_words={0: "value"})) == [("model-argument-missing", -1)]
    assert check_argv(*RADIANCE, ["$X"], open_words={0: "words"}) == ()


def test_a_version_newer_than_the_table_is_warned_about_and_not_refused() -> None:
    found = check_argv("radiance", "2.0.0", ["--model", "x", "--brand-new", "1", "--tp", "two"])
    assert errors(found) == []
    assert {finding.severity for finding in found if finding.index >= 0} == {"warning"}
    assert one(found, "knob-not-checked").severity == "note"


def test_a_flag_that_went_long_ago_is_refused_by_newer_versions_too() -> None:
    assert errors(check_argv("radiance", "2.0.0", ["--model", "x", "--vram-kv-mib", "1"])) == [("knob-retired", 2)]


def test_a_version_between_two_lists_that_differ_is_not_refused() -> None:
    assert errors(check_argv("radiance", "1.2.5", ["--model", "x", "--vram-kv-mib", "1"])) == []


def test_without_a_version_only_what_is_wrong_in_every_one_is_refused() -> None:
    argv = ["--model", "x", "--vram-kv-mib", "1", "--prefix-cache-mib", "2", "--nonsense", "3", "--tp", "two"]
    found = check_argv("radiance", "", argv)
    assert errors(found) == [("knob-unknown", 6), ("knob-bad-value", 9)]
    assert one(found, "knob-retired").severity == "warning"


def test_an_unknown_engine_and_version_are_usage_errors() -> None:
    for engine, version, code in (
        ("ollama", "1", "engine-unknown"),
        ("../gate", "1", "engine-unknown"),
        ("llamacpp", "x", "engine-version-invalid"),
    ):
        with pytest.raises(UsageError) as refused:
            check_argv(engine, version, [])
        assert refused.value.code == code


@pytest.mark.parametrize("argv", [[], ["serve"], ["--port", "1"], ["serve", "--served-model-name", "a", "m"]], ids=str)
def test_vllm_without_a_model_would_serve_another_one(argv: list[str]) -> None:
    assert "model-argument-missing" in {code for code, _ in errors(check_argv("vllm", "0.32.0", argv))}


def test_the_module_of_vllm_takes_its_model_as_an_option() -> None:
    argv = ["--model", "m", "--port", "1"]
    assert check_argv("vllm", "0.32.0", argv, module=True) == ()
    assert check_argv("vllm", "0.32.0", ["serve", "$MODEL"], open_words={1: "value"}) == ()


def test_a_stale_flag_that_begins_a_living_one_is_no_abbreviation() -> None:
    found = check_argv("vllm", "0.27.0", ["serve", "m", "--device", "cuda"])
    assert errors(found) == [("knob-retired", 2)]
    assert "--device-ids" in found[0].message


def test_a_command_line_without_end_is_refused_unread() -> None:
    assert errors(check_argv(*LLAMA, ["x"] * 20_000)) == [("knob-not-checked", -1)]


def test_a_variable_that_nobody_reads_is_found_and_others_are_left_alone() -> None:
    found = check_env(
        *LLAMA, {"PATH": "/bin", "LLAMA_ARG_CTX_SISE": "1", "LLAMA_ARG_CTX_SIZE": "x", "LLAMA_ARG_UI": "2"}
    )
    assert [(finding.code, finding.argument) for finding in found] == [
        ("knob-unknown", "LLAMA_ARG_CTX_SISE"),
        ("knob-bad-value", "LLAMA_ARG_CTX_SIZE"),
        ("knob-bad-value", "LLAMA_ARG_UI"),
    ]
    assert "LLAMA_ARG_CTX_SIZE" in found[0].fix
    assert check_env(*LLAMA, {"LLAMA_ARG_CTX_SIZE": "$N"}, open_values={"LLAMA_ARG_CTX_SIZE"}) == ()


def knob(kind: str, **cells: object) -> Knob:
    return Knob(**{"flag": "a", "type": kind, "effect": "e", "source": "s", "names": ("--a",), **cells})  # type: ignore[arg-type]


INT, FLOAT, SIZE = knob("int", min=0), knob("float"), knob("size", words=("auto",))


@pytest.mark.parametrize(
    ("read", "row", "good", "bad"),
    [
        (llama, INT, ["1", " 1", "+1", "0"], ["", "x", "1k", "1.5", "-1", "9" * 12, "0x10"]),
        (llama, FLOAT, ["1", ".5", "1e3", "inf", "-1."], ["", "x", "1.5x", "1,5"]),
        (llama, knob("list", choices=("a", "b")), ["a", "a,b", "b, a"], ["c", "a,c"]),
        (llama, knob("str", choices=("on", "off"), words=("1",)), ["on", "off", "1"], ["", "ON", "2"]),
        (python, INT, ["1", " 1 ", "1_000", "+1"], ["", "x", "1k", "1.0", "-1"]),
        (python, FLOAT, ["1", "1e3", "nan", "1_0"], ["", "x", "1,5"]),
        (python, SIZE, ["1", "1k", "1K", "1.5k", "auto", "AUTO", "2M"], ["", "1.5K", "1kb", "x"]),
        (sglang, SIZE, ["1", "1k", "1.5M", "2Ki"], ["", "1K", "1.5Ki", "1m", "x"]),
        (python, knob("json", words=("3",)), ["{}", "[1]", "3"], ["", "4", '"a"', "{a:1}", "'{}'", "[" * 100_000]),
        (python, knob("bool", nargs="?"), ["true", "False"], ["", "1", "yes"]),
        (python, knob("int", choices=("8", "16")), ["8", "16", " 8"], ["9", "x"]),
        (strict, INT, ["1", "0"], ["", "x", "1k", "1.5", "-1", "12abc", "\u0661"]),
        (strict, knob("float", above=0, max=1), ["0.5", "1", "1e-3"], ["0", "1.1", "nan", "x", "0.5x"]),
    ],
)
def test_values_are_read_as_each_engine_reads_them(read: object, row: Knob, good: list[str], bad: list[str]) -> None:
    assert callable(read)
    assert [text for text in good if read(row, text)] == []
    assert [text for text in bad if not read(row, text)] == []


WORDS = st.one_of(st.text(max_size=12), st.sampled_from(["-c", "--ctx-size", "--model", "serve", "--", "-", "--a=b"]))


@settings(deadline=None)  # the first use of an engine reads its table
@given(
    st.sampled_from(table_names()),
    st.sampled_from(["", "read", "old", "new"]),
    st.lists(WORDS, max_size=8),
    st.dictionaries(st.integers(0, 7), st.sampled_from(["value", "words"]), max_size=2),
    st.booleans(),
)
def test_any_command_line_ends_in_findings(
    engine: str, when: str, argv: list[str], opened: dict[int, str], module: bool
) -> None:
    table = load_table(engine)
    old, new = ("b1", "b99999999") if engine == "llamacpp" else ("0.0.1", "99.0")
    version = {"": "", "read": table.newest, "old": old, "new": new}[when]
    found = check_argv(engine, version, argv, open_words=opened, module=module)  # type: ignore[arg-type]
    assert all(-1 <= finding.index < len(argv) and finding.message for finding in found)
    assert all(finding.argument == argv[finding.index][:200] for finding in found if finding.index >= 0)


@settings(deadline=None)
@given(st.sampled_from(table_names()), st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=4))
def test_any_environment_ends_in_findings(engine: str, env: dict[str, str]) -> None:
    assert all(finding.argument in env for finding in check_env(engine, load_table(engine).newest, env))


def test_a_table_and_what_a_version_takes_are_read_once() -> None:
    table = load_table("llamacpp")
    assert load_table("llamacpp") is table
    assert edition(table, table.newest) is edition(table, table.newest)


@pytest.mark.parametrize(
    ("argv", "fix"),
    [
        (["-m", "x", "--mlock"], 'use --load-mode mmap+mlock ("mlock" beside --no-mmap)'),
        (["-m", "x", "-dio"], "use --load-mode dio"),
        (["-m", "x", "--draft", "4"], "use --spec-draft-n-max (or spec-ngram-mod-n-max)"),
    ],
)
def test_a_fix_is_written_as_a_command_line_writes_it(argv: list[str], fix: str) -> None:
    assert one(check_argv(*LLAMA, argv), "knob-retired").fix == fix


def test_a_fix_of_a_variable_is_a_variable() -> None:
    env = {"LLAMA_ARG_NO_MMAP": "1", "LLAMA_ARG_MODEL_DRAFT": "x"}
    fixes = [finding.fix for finding in check_env(*LLAMA, env)]
    assert fixes == ["use LLAMA_ARG_LOAD_MODE=none", "use LLAMA_ARG_SPEC_DRAFT_MODEL"]


def test_what_is_deprecated_is_said_once_with_what_to_write() -> None:
    found = one(check_argv("vllm", "0.12.0", ["serve", "m", "--disable-log-requests"]), "knob-deprecated")
    assert found.message == "--disable-log-requests is deprecated in vllm 0.12.0"
