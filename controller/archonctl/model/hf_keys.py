"""Keys of a Hugging Face ``config.json``, read with checks.

What a config's class fills in where a key is missing is data (hf_architectures.toml).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from archonctl.errors import ModelError

MAX_LAYERS = 1024
MAX_FIGURE = 2**31 - 1


@cache
def table() -> dict[str, Any]:
    """What is known of architectures: rows by ``law``, and ``defaults`` by ``model_type``."""
    return tomllib.loads(files("archonctl.model").joinpath("hf_architectures.toml").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class HfKeys:
    """Keys of one config with checked reading."""

    config: Mapping[str, object]
    where: str

    @classmethod
    def of(cls, config: Mapping[str, object], where: str) -> HfKeys:
        """The keys of a config, and of its class where that is known to fill gaps."""
        defaults = table()["defaults"].get(str(config.get("model_type")), {})
        given = {key: value for key, value in config.items() if value is not None or key not in defaults}
        return cls({**defaults, **given}, where)

    @property
    def model_type(self) -> str:
        """``model_type``, or "" where it is absent."""
        return self.word("model_type")

    def invalid(self, message: str) -> ModelError:
        """The error of a figure that is missing or makes no sense."""
        return ModelError("model-geometry-invalid", f"{self.model_type}: {message}", where=self.where)

    def maybe(self, *names: str, limit: int = MAX_FIGURE) -> int:
        """The first of these keys that is there, as a whole number of at least 0; 0 where none is."""
        for name in names:
            value = self.config.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
                raise self.invalid(f"{name} is {str(value)[:40]!r}, not a whole number from 0 to {limit:,}")
            return value
        return 0

    def whole(self, *names: str, limit: int = MAX_FIGURE) -> int:
        """As ``maybe``, but it must be there and more than 0."""
        value = self.maybe(*names, limit=limit)
        if not value:
            raise self.invalid(f"{names[0]} is missing or 0")
        return value

    def most(self, *names: str) -> int:
        """As ``maybe``; of a list with one number a layer the largest."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, list) and value:
                return max(HfKeys({name: each}, self.where).maybe(name) for each in value[:MAX_LAYERS])
            if value is not None:
                return self.maybe(name)
        return 0

    def word(self, name: str) -> str:
        """A string, or "" where it is absent or something else."""
        value = self.config.get(name)
        return value if isinstance(value, str) else ""

    def items(self, name: str) -> Sequence[object] | None:
        """A list, or None where it is absent or something else."""
        value = self.config.get(name)
        return value if isinstance(value, list) else None

    def part(self, name: str) -> HfKeys:
        """A nested object as keys of its own (empty where it is absent)."""
        value = self.config.get(name)
        inner = value if isinstance(value, dict) else {}
        return HfKeys({"model_type": self.model_type, **inner}, self.where)
