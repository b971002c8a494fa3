"""vLLM: tokens from blocks where only blocks are printed, and what the printed tokens mean by version."""

from __future__ import annotations

import math
import re

from archonctl.engines.sighting import Book, Find
from archonctl.memory.interval import GIB, Interval

DEFAULT_BLOCK = {"gpu": 16, "cuda": 16, "rocm": 16, "xpu": 16, "hpu": 128}
"""Tokens a block by device in the versions that print blocks (vLLM engine/arg_utils.py, block_size); not known of
others, whose platforms set their own."""

MEANING_CHANGED = (0, 20, 1)
"""First version in which "KV cache size" is int(concurrency x max_model_len) (vLLM v1/core/kv_cache_utils.py)."""

GROUPS_PRINTED = (0, 30, 0)
"""First version that prints the block sizes of the groups where there are several (same file)."""
_STATEFUL = ("attention_block_size", "padding_layers", "mamba_blocks")
_BLOCKS = (16, 32, 64, 128, 256)


def version_tuple(version: str) -> tuple[int, ...] | None:
    """``"0.20.1rc1.dev16+g7a1eb8a"`` as (0, 20, 0): a pre-release stands before its release. None if unreadable."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?(rc|a|b|\.dev)?", version)
    if not match:
        return None
    major, minor, patch = int(match[1]), int(match[2]), int(match[3] or 0)
    if major == 0 and minor == 1:
        return None  # "0.1.dev20073" is what a source tree without tags calls itself
    if match[4] and patch:
        patch -= 1
    return (major, minor, patch)


def _multiples_of_eight(low: float, high: float) -> list[int]:
    """Those in a range: every platform's block has such a size (Neuron's is max_model_len). Two at most are told."""
    first = max(8, math.ceil(low / 8) * 8)
    return [size for size in (first, first + 8) if size <= high]


def _is_of_one_group(tokens: float, length: float) -> bool:
    """True if int(blocks / blocks of a request x length) gives these tokens for some block size: layers that differ
    hit that by chance in about one case of eight."""
    for size in _BLOCKS:
        each = length / math.ceil(length / size)
        if abs(int(round(tokens / each) * each) - tokens) <= 1:
            return True
    return False


class VllmBook(Book):
    """Default rules (the least rank binds), plus tokens from blocks."""

    def figures(self) -> dict[str, Find]:
        """All figures of the boot."""
        found = super().figures()
        blocks = found.get("gpu_blocks")
        size = self._block_size(found)
        if "kv_tokens" not in found and blocks is not None and size:
            found["kv_tokens"] = Find(Interval.exact(blocks.value.best * size, "log"), blocks.line_no, blocks.text)
        needed, asked_len = found.get("needed_gib"), found.get("max_model_len")
        if needed is not None and asked_len is not None and needed.value.best > 0:
            each = GIB / asked_len.value.best
            ends = (needed.value.low * each, needed.value.best * each, needed.value.high * each)
            found["needed_token_bytes"] = Find(Interval(*ends, "log"), needed.line_no, needed.text)
        concurrency, length = found.get("max_concurrency"), found.get("max_model_len")
        if concurrency is not None and length is not None:
            many, one = concurrency.value, length.value.best
            value = Interval(many.low * one, many.best * one, many.high * one, "log")
            found["concurrent_tokens"] = Find(value, concurrency.line_no, concurrency.text)
        return found

    def _block_size(self, found: dict[str, Find]) -> float | None:
        """Tokens a block: as asked for, as the printed concurrency tells it, or the default of the device."""
        if (asked := found.get("block_size")) is not None:
            return asked.value.best
        blocks, many, length = (found.get(name) for name in ("gpu_blocks", "max_concurrency", "max_model_len"))
        if blocks and many and length and blocks.value.best > 0:
            each = length.value.best / blocks.value.best
            whole = _multiples_of_eight(many.value.low * each, many.value.high * each)
            if len(whole) == 1:
                return whole[0]
        return DEFAULT_BLOCK.get(self.told.get("block_device", "").lower())

    def facts(self) -> dict[str, str]:
        """What was said in words, and what the printed tokens mean where the log tells it."""
        told = super().facts()
        if meaning := self._meaning(told):
            told["kv_tokens_meaning"] = meaning
        if alike := self._alike(told):
            told["layers_alike"] = alike
        return told

    def _alike(self, told: dict[str, str]) -> str:
        """Whether a token costs the same at any length ("yes"), or layers differ and a shorter request costs more a
        token than one of max_model_len ("no": sliding windows, states). "likely" where only the printed tokens speak
        for the first, as they do by chance for the second. Empty where nothing tells."""
        found = self.figures()
        if "kv_groups" in told or any(name in found for name in _STATEFUL):
            return "no"
        tokens, served, length = (found.get(name) for name in ("kv_tokens", "concurrent_tokens", "max_model_len"))
        if tokens is None or served is None or length is None:
            return ""
        version = version_tuple(told.get("engine_version") or told.get("version_hint", ""))
        agrees = served.value.low - 1 <= tokens.value.best <= served.value.high + 1
        if not agrees or (version is not None and version < MEANING_CHANGED):
            return "yes" if agrees else "no"  # blocks // groups x block is what is served with one group only
        if version is not None and version >= GROUPS_PRINTED:
            return "yes"
        blocks = version is None and tokens.value.best % _BLOCKS[0] == 0
        return "likely" if blocks or _is_of_one_group(tokens.value.best, length.value.best) else "no"

    def _meaning(self, told: dict[str, str]) -> str:
        """Tokens that are not concurrency x length are blocks x block size of a hybrid: less than what is served."""
        found = self.figures()
        tokens, served = found.get("kv_tokens"), found.get("concurrent_tokens")
        if tokens is None:
            return ""
        if served is not None and not served.value.low - 1 <= tokens.value.best <= served.value.high + 1:
            return "blocks"
        version = version_tuple(told.get("engine_version") or told.get("version_hint", ""))
        if version is None:
            return ""
        return "concurrency x length" if version >= MEANING_CHANGED else "blocks"


BOOK = VllmBook
