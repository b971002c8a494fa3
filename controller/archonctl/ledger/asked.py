"""What an engine's own log says it was asked for: vLLM's "non-default args" and config, SGLang's "server_args"."""

from __future__ import annotations

import re
from collections.abc import Mapping

_CARRIER = re.compile(
    r"non-default args: \{|Initializing an? (?:V1 )?LLM engine \(v\S+\) with config: "
    r"|server_args=(?:ServerArgs\(|\{)"
)
_NAMES = (
    "tensor_parallel_size|tp_size|pipeline_parallel_size|pp_size|dp_size|decode_context_parallel_size|dcp_size"
    "|prefill_context_parallel_size|max_num_batched_tokens|max_model_len|max_seq_len|kv_cache_dtype|dtype|block_size"
    "|page_size|max_total_tokens|max_mamba_cache_size|mamba_cache_mode|attention_backend|num_gpu_blocks_override"
    "|enable_prefix_caching|enable_dp_attention|gpu_memory_utilization|mem_fraction_static"
    "|disable_hybrid_kv_cache_manager|speculative_algorithm|speculative_config"
)
_ASKED = re.compile(
    rf"(?<![\w.])['\"]?(?P<name>{_NAMES})['\"]?(?:=|: )"
    r"(?P<value>\{[^{}]{0,400}\}|'[^']{0,80}'|\"[^\"]{0,80}\"|[\w.+-]{1,60}(?:\([^()]{0,400}\))?)"
)
_MODEL = re.compile(r"(?<![\w.])['\"]?(?:model|model_path|model_tag)['\"]?(?:=|: )['\"](?P<name>[^'\"]{1,200})['\"]")
_METHOD = re.compile(r"['\"]?method['\"]?(?:=|: )['\"](\w+)['\"]")
_TOKENS = re.compile(r"['\"]?num_(?:spec|speculative)_tokens['\"]?(?:=|: )(\d+)")
_UNSET = ("None", "none", "auto", "")
LINE_CHARS = 20_000


def asked_flags(lines: object) -> tuple[Mapping[str, object], str]:
    """Flags by their own names and the model, from the lines that carry them; the first value of a flag counts."""
    flags: dict[str, object] = {}
    model = ""
    for line in lines if isinstance(lines, list) else []:
        if not isinstance(line, str):
            continue
        carrier = _CARRIER.search(line[:LINE_CHARS])
        if carrier is None:
            continue
        said = line[carrier.end() : carrier.end() + LINE_CHARS]
        for match in _ASKED.finditer(said):
            value = _value(match["name"], match["value"])
            if value not in _UNSET:
                name = "max_model_len" if match["name"] == "max_seq_len" else match["name"]
                flags.setdefault(name, value)
        named = _MODEL.search(said)
        if named and not model and not named["name"].startswith(("/", ".")):
            model = named["name"]
    return flags, model


def _value(name: str, text: str) -> object:
    if name == "speculative_config":
        method, tokens = _METHOD.search(text), _TOKENS.search(text)
        if method is None:
            return ""
        return {"method": method[1], "num_speculative_tokens": int(tokens[1]) if tokens else 0}
    text = text.strip("'\"").removeprefix("torch.")
    if text in ("True", "False"):
        return text == "True"
    return text
