"""The facts of a case that a prediction may use: its flags, its card and its model; never what was observed.

Flags that the case states win over those that its log says the engine was asked for.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from archonctl.errors import ModelError
from archonctl.ledger.asked import asked_flags
from archonctl.model.geometry import Geometry
from archonctl.model.inline import describe

_BYTES_A_TOKEN = re.compile(r"([\d,]+) ?(?:B|bytes)(?: ?/ ?| per )tok(?:en)?\b(?! per [kv]\b)", re.IGNORECASE)
_WORKER = re.compile(r"\(Worker_TP(\d{1,3})[_ )]|\(VllmWorker rank=(\d{1,3}) ")
_SHARED = "num_kv_shared_layers"
_FLAG_ALIASES = {
    "tensor_parallel_size": "tp",
    "tp_size": "tp",
    "pipeline_parallel_size": "pp",
    "pp_size": "pp",
    "decode_context_parallel_size": "dcp",
    "dcp_size": "dcp",
    "prefill_context_parallel_size": "pcp",
    "kv_dtype": "kv_cache_dtype",
    "context_length": "context_length",
    "ctx_size": "n_ctx",
    "np": "parallel",
    "n_parallel": "parallel",
    "ctk": "cache_type_k",
    "ctv": "cache_type_v",
    "ub": "n_ubatch",
    "ubatch_size": "n_ubatch",
    "mem_fraction": "mem_fraction_static",
    "max_batched_tokens": "max_num_batched_tokens",
}


@dataclass(frozen=True, slots=True)
class CaseFacts:
    """What a case states. ``geometry`` is None where ``geometry_reason`` says why.

    ``token_bytes`` is a rate a token and rank that the case states in words; 0 where it states none.
    """

    flags: Mapping[str, object]
    geometry: Geometry | None = None
    geometry_source: str = ""
    geometry_reason: str = ""
    unshared: Geometry | None = None
    """The same with rows of its own for every layer, for engines that share none (num_kv_shared_layers)."""
    token_bytes: int = 0
    card: str = ""
    card_gib: float = 0.0
    cards: int = 0
    model: str = ""
    version: str = ""
    """The engine's version as the case states it: free text."""
    config: Mapping[str, object] = field(default_factory=dict)
    """The model's config as the case states it: a config.json, or a few words of one."""
    workers: int = 0
    """Tensor-parallel workers that vLLM's line prefixes name ("(Worker_TP1 pid=...)"); 0 where none is named."""

    def number(self, *names: str) -> int:
        """The first of these flags that is a whole number of at least 0; 0 where none is."""
        for name in names:
            value = self.flags.get(name)
            if isinstance(value, str) and re.fullmatch(r"[\d_,]+", value.strip()):
                value = int(re.sub(r"[_,]", "", value))
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
        return 0

    def fraction(self, name: str) -> float | None:
        """A flag between 0 and 1; None where it is not stated so."""
        value = self.flags.get(name)
        try:
            number = float(value) if isinstance(value, int | float | str) else 0.0
        except ValueError:
            return None
        return number if 0 < number <= 1 else None

    def word(self, name: str) -> str:
        """A flag as a word in lower case; "" where it is absent."""
        value = self.flags.get(name)
        return value.strip().lower() if isinstance(value, str) else ""

    def switch(self, name: str) -> bool | None:
        """A flag that is on or off; None where it is not stated."""
        value = self.flags.get(name)
        if isinstance(value, bool):
            return value
        words = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
        return words.get(str(value).strip().lower()) if value is not None else None


def case_facts(record: Mapping[str, object]) -> CaseFacts:
    """Facts of a case, read leniently. Whatever is of an unexpected type is left out."""
    stated, (logged, named) = _flags(record.get("flags")), asked_flags(record.get("log_lines"))
    flags = {**_flags(dict(logged)), **stated}
    config = record.get("model_config")
    config = config if isinstance(config, dict) else None
    name = record.get("model")
    name = name if isinstance(name, str) and name.strip() else named
    card, gib, count = _card(record.get("gpu"))
    version = record.get("engine_version")
    found = CaseFacts(
        flags,
        config=config or {},
        card=card,
        card_gib=gib,
        cards=count,
        model=name,
        token_bytes=_rate(config),
        version=version if isinstance(version, str) else "",
        workers=_workers(record.get("log_lines")),
    )
    try:
        described = describe(config, name)
        unshared = describe({**config, _SHARED: 0}, name).geometry if config and config.get(_SHARED) else None
    except ModelError as err:
        return replace(found, geometry_reason=err.message)
    return replace(
        found,
        geometry=described.geometry,
        geometry_source=described.source,
        unshared=unshared,
    )


def _workers(lines: object) -> int:
    """A worker of rank N means N + 1 of them; vLLM names workers only where there are several."""
    words = lines if isinstance(lines, list) else []
    ranks = [int(match[1] or match[2]) for line in words if isinstance(line, str) for match in _WORKER.finditer(line)]
    return max(2, max(ranks) + 1) if ranks else 0


def _flags(value: object) -> Mapping[str, object]:
    if isinstance(value, str):
        text = value
        try:
            value = shlex.split(text)
        except ValueError:
            value = text.split()
    if isinstance(value, list):
        value = _pairs([str(word) for word in value])
    if not isinstance(value, dict):
        return {}
    plain = {str(key).lstrip("-").lower().replace("-", "_"): item for key, item in value.items()}
    return {_FLAG_ALIASES.get(key, key): item for key, item in plain.items()}


def _pairs(words: list[str]) -> dict[str, object]:
    """An argument list as flags: ``--a=b``, ``--a b`` and bare switches."""
    found: dict[str, object] = {}
    for at, word in enumerate(words):
        if word.startswith("-") and not re.fullmatch(r"-[\d.]+", word):
            name, _, value = word.partition("=")
            following = words[at + 1] if at + 1 < len(words) else "-"
            found[name] = value or (following if not following.startswith("-") else True)
    return found


def _card(value: object) -> tuple[str, float, int]:
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, dict):
        return "", 0.0, 0
    name, gib, count = value.get("name"), value.get("vram_gib", value.get("memory_gib")), value.get("count")
    size = float(gib) if isinstance(gib, int | float) and not isinstance(gib, bool) and gib > 0 else 0.0
    many = count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0
    return (name if isinstance(name, str) else ""), size, many


def _rate(config: Mapping[str, object] | None) -> int:
    if config is None:
        return 0
    value = config.get("bytes_per_token", config.get("kv_bytes_per_token"))
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    said = config.get("from")
    match = _BYTES_A_TOKEN.search(said) if isinstance(said, str) else None
    return int(match[1].replace(",", "") or 0) if match else 0
