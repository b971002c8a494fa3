"""Reading llama-server's flags out of C++, as scripts/harvest-llamacpp-source does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

REPOSITORY = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "scripts"))

from llamacpp_source.cpp import closing, split, tokens  # noqa: E402
from llamacpp_source.seen import seen_in  # noqa: E402

from archonctl.engines.knobs.snapshot import Seen  # noqa: E402

HEADER = """
struct common_params_sampling { float temp = 0.80f; };
struct common_params {
    int32_t n_ctx    = 4096; // context; "quoted" { in a comment
    int32_t n_parallel = 1;
    int32_t n_batch{512};
    float   tensor_split[128] = {0};
    bool    warmup = true;
    enum llama_load_mode load_mode = LLAMA_LOAD_MODE_AUTO;
    struct common_params_sampling sampling;
};
"""
ARG = r"""
#define TEXT "not { a ( token"
static bool is_truthy(const std::string & value) { return value == "on" || value == "1"; }
[[noreturn]] static void arg_removed(const std::string & msg) { throw std::invalid_argument(msg); }
common_params_context common_params_parser_init(common_params & params, llama_example ex) {
    if (ex == LLAMA_EXAMPLE_CLI) {
        params.n_parallel = 9;
    } else if (ex == LLAMA_EXAMPLE_SERVER) {
        params.n_parallel = -1;
    }
    auto add_opt = [&](common_arg arg) { ctx_arg.options.push_back(arg); };
    add_opt(common_arg(
        {"-c", "--ctx-size"}, "N",
        string_format("context (default: %d, "
            "0 = \"own\" one)", params.n_ctx),
        [](common_params & params, int value) { params.n_ctx = value; }
    ).set_env("LLAMA_ARG_CTX_SIZE"));
    /* two
       lines */
    add_opt(common_arg({"-np"}, "N", string_format("slots (default: %d)", params.n_parallel),
        [](common_params & params, int value) {
            if (value < -1 || value > 64) { throw std::invalid_argument("no"); }
        }
    ).set_examples({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg({"--temp"}, "N", string_format("temperature (default: %.2f)", (double) params.sampling.temp),
        [](common_params & params, const std::string & value) { params.sampling.temp = std::stof(value); }
    ).set_sampling());
    add_opt(common_arg({"--warmup"}, {"--no-warmup"},
        string_format("warm up (default: %s)", params.warmup ? "enabled" : "disabled"),
        [](common_params & params, bool value) { params.warmup = value; }));
    add_opt(common_arg({"-fa"}, "[on|auto]", "flash (default: 'auto')",
        [](common_params & params, const std::string & value) {
            if (is_truthy(value)) { } else if (value == "auto") { } else { throw std::invalid_argument("x"); }
        }));
    add_opt(common_arg({"--range"}, "A", "B", "a range",
        [](common_params &, const std::string & a, const std::string & b) { }));
    add_opt(common_arg({"--old"}, "N", "the argument has been removed. use --new",
        [](common_params &, const std::string &) { arg_removed("use --new"); }));
    add_opt(common_arg({"--threads"}, "N", string_format("(default: %d)", std::thread::hardware_concurrency()),
        [](common_params &, int) { }).set_excludes({LLAMA_EXAMPLE_CLI}));
    add_opt(common_arg({"--for-others"}, "nothing", [](common_params &) { }).set_examples({LLAMA_EXAMPLE_CLI}));
    add_opt(common_arg({"--not-here"}, "nothing", [](common_params &) { }).set_excludes({LLAMA_EXAMPLE_SERVER}));
    return ctx_arg;
}
"""


def _seen(arg: str = ARG) -> dict[str, Seen]:
    return {seen.names[0]: seen for seen in seen_in({"common/arg.cpp": arg, "common/common.h": HEADER})}


def test_what_the_server_takes_is_listed_in_the_order_of_its_help() -> None:
    assert list(_seen()) == ["-c", "--warmup", "-fa", "--range", "--old", "--threads", "--temp", "-np"]


def test_names_types_and_variables_are_those_of_the_handlers() -> None:
    seen = _seen()
    assert (seen["-c"].names, seen["-c"].env, seen["-c"].hint) == (("-c", "--ctx-size"), "LLAMA_ARG_CTX_SIZE", "N")
    assert {name: row.type for name, row in seen.items()} == {
        "-c": "int",
        "--warmup": "switch",
        "-fa": "str",
        "--range": "pair",
        "--old": "str",
        "--threads": "int",
        "--temp": "float",
        "-np": "int",
    }
    assert seen["--warmup"].negatives == ("--no-warmup",)


def test_defaults_come_from_the_header_and_from_what_is_set_for_the_server() -> None:
    seen = _seen()
    assert {name: row.default for name, row in seen.items()} == {
        "-c": '4096, 0 = "own" one',
        "--warmup": "enabled",
        "-fa": "auto",
        "--range": "",
        "--old": "",
        "--threads": "",  # only the machine knows
        "--temp": "0.80",
        "-np": "-1",
    }


def test_values_bounds_and_refusals_are_those_of_the_handlers() -> None:
    seen = _seen()
    assert (seen["-fa"].choices, seen["-fa"].words) == (("on", "auto"), ("1",))
    assert (seen["-np"].min, seen["-np"].max) == (-1, 64)
    assert seen["--old"].refused == "the argument has been removed. use --new"


@pytest.mark.parametrize(
    "text", ["", "int x;", "common_params_context common_params_parser_init(int a) { return 1; }", "{ ( ["]
)
def test_a_source_of_another_layout_is_an_error_not_an_empty_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"no |never closed"):
        _seen(text)


@given(st.text())
def test_any_text_is_tokens_or_one_error(text: str) -> None:
    said, found = "", ()
    try:
        found = tokens(text)
    except ValueError as error:
        said = str(error)
    assert said == "" or "no C++ token at line" in said
    assert all(token.text or token.kind == "str" for token in found)


def test_commas_inside_brackets_and_texts_do_not_split() -> None:
    code = tokens('f(a, b), {c, "d, e"}, [x, y] { return 1, 2; }, R"(g, "h)"')
    assert len(list(split(code))) == 4
    assert closing(code, 1) == 5


def test_only_builds_around_a_change_are_written(tmp_path: Path) -> None:
    other = ARG.replace("--range", "--span")
    for build, text in (("b1", ARG), ("b2", ARG), ("b3", ARG), ("b4", other), ("b5", other)):
        (tmp_path / build / "common").mkdir(parents=True)
        (tmp_path / build / "common" / "arg.cpp").write_text(text, encoding="utf-8")
        (tmp_path / build / "common" / "common.h").write_text(HEADER, encoding="utf-8")
    script = REPOSITORY / "scripts" / "harvest-llamacpp-source"
    command = [sys.executable, str(script), "--trees", *sorted(map(str, tmp_path.iterdir()))]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert [json.loads(line)["version"] for line in ran.stdout.splitlines()] == ["b1", "b3", "b4", "b5"]
