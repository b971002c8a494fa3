"""Values that vLLM refuses behind its argument parser, by release: parsers by name, keys of JSON, pairs of options."""

from __future__ import annotations

import shlex

import pytest

from archonctl.engines.knobs import ArgvFinding, check_argv, load_table
from archonctl.engines.knobs.vllm_values import values

REFUSED = [
    # vLLM 9312, GLM-4.5 58, recipes 27: a parser that the release has not yet, or no more
    ("0.6.3", "--enable-auto-tool-choice --tool-call-parser granite", "0.6.4"),
    ("0.9.1", "--enable-auto-tool-choice --tool-call-parser kimi_k2", "0.10.0"),
    ("0.10.1", "--enable-auto-tool-choice --tool-call-parser glm4_moe", "gone since 0.10.1"),
    ("0.13.0", "--enable-auto-tool-choice --tool-call-parser=glm47", "0.14.0"),
    ("0.24.0", "--enable-auto-tool-choice --tool-call-parser minimax", "gone since 0.24.0"),
    ("0.32.0", "--tool-call-parser nonsense --enable-auto-tool-choice", "no such parser"),
    ("0.13.0", "--reasoning-parser glm47", "0.24.0"),
    ("0.11.1", "--reasoning-parser GptOss", "gone since 0.10.2"),
    ("0.7.2", "--enable-reasoning --reasoning-parser qwen3", "0.9.0"),
    # keys that the configuration has no more
    ("0.32.0", """--kv-transfer-config '{"kv_connector":"A","kv_role":"kv_both","kv_rank":0}'""", "kv_rank is gone"),
    ("0.11.1", """--compilation-config '{"full_cuda_graph": true}'""", "cudagraph_mode"),
    ("0.18.0", """-cc '{"level": 3}'""", "use mode"),
    ("0.18.0", "--compilation-config.level 3", "use mode"),
    ("0.18.0", "-cc.level=3", "use mode"),
    ("0.13.0", "-O.cudagraph_mode=NONE", "-O is gone"),
    ("0.13.0", "--compilation-config.pass_config.enable_fusion true", "fuse_norm_quant"),
    ("0.17.0", """--speculative-config '{"method":"ngram","disable_by_batch_size":8}'""", "disable_by_batch_size"),
    # methods that went away
    ("0.24.0", "--quantization gguf", "gone since 0.24.0"),
    ("0.28.0", "-q bitsandbytes", "gone since 0.28.0"),
    ("0.15.0", "--quantization=auto-round", "use inc"),
    # one of a pair
    ("0.6.0", "--enable-auto-tool-choice", "--tool-call-parser"),
    ("0.32.0", "--enable-auto-tool-choice", "--tool-call-parser"),
    ("0.8.5", "--enable-reasoning", "--reasoning-parser"),
    ("0.11.0", "--enable-log-outputs", "--enable-log-requests"),
    # pairs where JSON is wanted
    ("0.10.0", "--limit-mm-per-prompt image=4", "JSON"),
]
TAKEN = [
    ("0.6.4", "--enable-auto-tool-choice --tool-call-parser granite"),
    ("0.10.0", "--enable-auto-tool-choice --tool-call-parser kimi_k2"),
    ("0.32.0", "--enable-auto-tool-choice --tool-call-parser qwen3_coder --reasoning-parser qwen3"),
    ("0.32.0", "--tool-call-parser nonsense"),
    ("0.32.0", "--enable-auto-tool-choice --tool-call-parser mine --tool-parser-plugin /p.py"),
    ("0.32.0", "--reasoning-parser mine --reasoning-parser-plugin /p.py"),
    ("0.33.0", "--reasoning-parser none"),
    ("0.7.2", "--reasoning-parser anything"),
    ("0.31.0", """--kv-transfer-config '{"kv_connector":"A","kv_role":"kv_both","kv_rank":0}'"""),
    ("0.11.0", """--compilation-config '{"full_cuda_graph": true}'"""),
    ("0.17.1", "--compilation-config.level 3"),
    ("0.11.2", "-O.cudagraph_mode=NONE"),
    ("0.12.0", "-O.cudagraph_mode=NONE"),
    ("0.13.0", "-cc.cudagraph_mode=NONE -O3"),
    ("0.32.0", """--kv-transfer-config '{"kv_connector_extra_config":{"kv_rank":0},"kv_role":"kv_both"}'"""),
    ("0.32.0", "--no-enable-auto-tool-choice"),
    ("0.32.0", "--enable-auto-tool-choice --config c.yaml"),
    ("0.23.0", "--quantization gguf"),
    ("0.32.0", "--quantization of-a-plugin"),
    ("0.11.0", "--enable-log-outputs --enable-log-requests"),
    ("0.9.2", "--limit-mm-per-prompt image=4,video=1"),
    ("0.8.4", "--limit-mm-per-prompt image=4"),
    ("0.10.0", """--limit-mm-per-prompt '{"image":4}'"""),
]


def _errors(version: str, line: str) -> list[ArgvFinding]:
    found = check_argv("vllm", version, ["serve", "m", *shlex.split(line)])
    return [finding for finding in found if finding.severity == "error"]


@pytest.mark.parametrize(("version", "line", "says"), REFUSED)
def test_what_is_refused_behind_the_parser(version: str, line: str, says: str) -> None:
    found = _errors(version, line)
    assert len(found) == 1
    assert says in found[0].message


@pytest.mark.parametrize(("version", "line"), TAKEN)
def test_what_is_taken(version: str, line: str) -> None:
    assert _errors(version, line) == []


@pytest.mark.parametrize(("option", "first"), [("tool-call-parser", "0.6.3"), ("reasoning-parser", "0.8.3")])
def test_every_parser_is_taken_where_it_is_known_and_refused_elsewhere(option: str, first: str) -> None:
    table = load_table("vllm")
    switch = "--enable-auto-tool-choice " if option == "tool-call-parser" else ""
    for row in values().parser:
        for version in table.versions:
            if row.option == option and table.key(version) >= table.key(first):
                early = table.key(version) < table.key("0.9.0") and option == "reasoning-parser"
                line = f"{'--enable-reasoning ' if early else switch}--{option} {row.name}"
                there = row.there(table.key(version))
                assert bool(_errors(version, line)) != there, (version, line)


def test_rows_name_options_of_the_table() -> None:
    known = load_table("vllm").by_option
    rows = (*values().key, *values().word, *values().parser)
    assert {f"--{row.option.partition('.')[0]}" for row in rows} <= known.keys()
    assert {f"--{name}" for need in values().needs for name in (need.option, need.other)} <= known.keys()


def test_words_known_only_at_run_time_are_left_alone() -> None:
    argv = ["serve", "m", "--enable-auto-tool-choice", "--tool-call-parser", "$PARSER"]
    assert check_argv("vllm", "0.32.0", argv, open_words={4: "value"}) == ()
    assert check_argv("vllm", "0.32.0", [*argv[:3], "$MORE"], open_words={3: "words"}) == ()
