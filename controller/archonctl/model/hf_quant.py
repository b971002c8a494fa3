"""How a checkpoint is quantised, and what the bytes of a packed tensor stand for.

Sources: ``quantization_config`` of config.json as transformers reads it (``utils/quantization_config.py``), and
``hf_quant_config.json`` as NVIDIA's ModelOpt writes it; tensor names as vLLM 0.32.0 loads them
(``model_executor/layers/quantization``).
"""

from __future__ import annotations

from collections.abc import Mapping

from archonctl.model.geometry import Quantization

MODELOPT = "hf_quant_config.json"


def quantization_of(config: Mapping[str, object], modelopt: Mapping[str, object] | None = None) -> Quantization | None:
    """What a config, or ModelOpt's own file beside it, says; None for a checkpoint that is not quantised."""
    said = config.get("quantization_config")
    if isinstance(said, dict) and said:
        return _of_config(said)
    inner = (modelopt or {}).get("quantization")
    return _of_modelopt(inner) if isinstance(inner, dict) else None


def stored_as(name: str, dtype: str, quantization: Quantization | None) -> str:
    """The type that a tensor's bytes stand for: ``INT4`` for eight of them packed into one I32; else its own dtype."""
    if quantization is None or dtype not in ("I32", "U8", "I8"):
        return dtype
    packed = quantization.packed
    if name.endswith((".qweight", ".qzeros", ".weight_packed", "_blocks")):
        return packed or dtype
    is_weight = name.endswith((".weight", "_proj"))  # experts of one tensor have no ".weight" at their end
    return packed if packed and is_weight and dtype in ("U8", "I8") else dtype


def _of_config(said: Mapping[str, object]) -> Quantization:
    method = _word(said, "quant_method") or _word(said, "quant_algo") or "unknown"
    if method.startswith("modelopt"):
        inner = said.get("quantization")
        return _of_modelopt({**said, **inner} if isinstance(inner, dict) else said)
    if method == "compressed-tensors":
        return _of_compressed(said)
    if method == "bitsandbytes":
        is_4bit = said.get("load_in_4bit") is True or said.get("_load_in_4bit") is True
        kind = _word(said, "bnb_4bit_quant_type").upper() or "FP4"
        return Quantization(method, 4 if is_4bit else 8, packed=kind if is_4bit else "INT8")
    if method == "mxfp4":
        return Quantization(method, 4, 32, packed="MXFP4")
    bits = _whole(said, "bits") or _whole(said, "w_bit") or (8 if "fp8" in method else None)
    block = said.get("weight_block_size")
    group = _whole(said, "group_size") or _whole(said, "q_group_size")
    if group is None and isinstance(block, list) and block and isinstance(block[0], int):
        group = block[0]
    packed = f"INT{bits}" if method in ("awq", "gptq", "auto-round", "autoround", "gptqmodel") and bits else ""
    if method == "quark":
        packed, bits = _quark(said)
    return Quantization(method, bits, group, _kv(said), packed)


def _of_modelopt(said: Mapping[str, object]) -> Quantization:
    algorithm = _word(said, "quant_algo").upper()
    group = _whole(said, "group_size")
    if "NVFP4" in algorithm:
        return Quantization("modelopt", 4, group or 16, _kv(said), "NVFP4")
    if "MXFP4" in algorithm:
        return Quantization("modelopt", 4, group or 32, _kv(said), "MXFP4")
    if algorithm.startswith("W4A"):
        return Quantization("modelopt", 4, group, _kv(said), "INT4")
    return Quantization("modelopt", 8 if "8" in algorithm else None, group, _kv(said))


def _of_compressed(said: Mapping[str, object]) -> Quantization:
    """The first group of weights decides; a checkpoint with several is rare and mixes widths of one kind."""
    groups = said.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    weights = weights if isinstance(weights, dict) else {}
    bits, kind, form = _whole(weights, "num_bits"), _word(weights, "type"), _word(said, "format")
    packed = ""
    if "nvfp4" in form:
        packed = "NVFP4"
    elif "mxfp4" in form:
        packed = "MXFP4"
    elif "pack" in form and bits:
        packed = f"INT{bits}"
    elif kind == "int" and bits == 8:
        packed = "INT8"
    scheme = said.get("kv_cache_scheme")
    kv = f"{_word(scheme, 'type')}{_whole(scheme, 'num_bits') or ''}" if isinstance(scheme, dict) else ""
    return Quantization("compressed-tensors", bits, _whole(weights, "group_size"), kv.replace("float8", "fp8"), packed)


def _quark(said: Mapping[str, object]) -> tuple[str, int | None]:
    inner = said.get("global_quant_config")
    weight = inner.get("weight") if isinstance(inner, dict) else None
    dtype = _word(weight, "dtype") if isinstance(weight, dict) else ""
    if dtype == "fp4":
        return "MXFP4", 4
    return "", 8 if "8" in dtype else None


def _kv(said: Mapping[str, object]) -> str:
    """The dtype that the checkpoint asks of the cache, in lower case ("fp8"); "" where it asks for none."""
    return (_word(said, "kv_cache_quant_algo") or _word(said, "kv_cache_quant_method")).lower()


def _word(said: Mapping[str, object], key: str) -> str:
    value = said.get(key)
    return value[:64] if isinstance(value, str) else ""


def _whole(said: Mapping[str, object], key: str) -> int | None:
    value = said.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20 else None
