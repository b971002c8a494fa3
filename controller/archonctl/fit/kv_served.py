"""The cache dtype that was asked for, beside the one that is served."""

from __future__ import annotations

from dataclasses import dataclass

_SAME = {"fp16": "f16", "float16": "f16", "auto": "f16", "half": "f16", "bfloat16": "bf16"}
"""Other names of what a contract calls f16 and bf16."""


@dataclass(frozen=True, slots=True)
class KvServed:
    """The dtype asked of the cache and what an engine makes of it; ``dtype`` is that of a contract."""

    asked: str
    dtype: str

    @property
    def substituted(self) -> bool:
        """True if the engine serves another type than the one that was asked for."""
        return _SAME.get(self.asked, self.asked) != self.dtype
