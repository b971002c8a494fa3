"""Values that were stored as JSON, read back as what they were: every field by its declared type. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_back(kind: type[T], value: Mapping[str, object]) -> T:
    """A dataclass from its ``asdict``. Raises ValueError or TypeError for another type of a field, a field that is
    missing and has no default, and one that is not known: it may be of a newer archonctl, and matter."""
    unknown = sorted(set(value) - set(kind.__dataclass_fields__))
    if unknown:
        raise TypeError(f"{kind.__name__} has no {', '.join(unknown)}")
    found: T = _adapter(kind).validate_json(json.dumps(dict(value)), strict=True)
    return found
