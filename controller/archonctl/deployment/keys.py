"""The keys of a schema: which exist, what each expects, and how text for one becomes a value.

Works from the pydantic models alone, so that a new field needs no second table.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from archonctl.deployment.schema import parse_count

Loc = tuple[str | int, ...]
Spot = Literal["table", "map", "list", "value"]

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)

_WORDS = {
    "kv_dtype": "a KV dtype in lower case such as fp8, or K/V such as q8_0/q4_0",
    "sha256": "64 lower-case hex digits",
    "listen": "host:port such as 127.0.0.1:8000",
    "free_gib": 'the printed decimal as text, such as "2.01"',
    "network": "host, or the name of a container network",
    "gpus": "all, none, or indices or UUIDs of cards such as 0,1",
    "shm": "host, or a size such as 16g",
    "public_url": "an address such as https://llm.example:8443, no user, query or fragment",
    "kv_gib": 'the printed decimal as text, such as "4.20"',
}
"""What the patterned text fields want, in words; by the last part of the key."""


@dataclass(frozen=True, slots=True)
class KeyType:
    """What a schema says about one key: its kind, its type and the field that holds it (None inside a map)."""

    spot: Spot
    annotation: Any
    field: FieldInfo | None = None


def bare(annotation: Any) -> Any:
    """The type without ``Annotated`` and without ``| None``."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
            continue
        if get_origin(annotation) in (Union, types.UnionType):
            rest = [arg for arg in get_args(annotation) if arg is not types.NoneType]
            if len(rest) == 1:
                annotation = rest[0]
                continue
        return annotation


def key_type(model: type[BaseModel], loc: Loc) -> KeyType | None:
    """What the schema wants at ``loc``; None if there is no such key."""
    found = KeyType("table", model)
    for part in loc:
        step = _step(found.annotation, part)
        if step is None:
            return None
        found = step
    return found


def _step(annotation: Any, part: str | int) -> KeyType | None:
    annotation = bare(annotation)
    if is_model(annotation):
        field = annotation.model_fields.get(part)
        return None if field is None else KeyType(_spot(field.annotation), field.annotation, field)
    args = get_args(annotation)
    if get_origin(annotation) is dict and isinstance(part, str):
        return KeyType(_spot(args[1]), args[1])
    if get_origin(annotation) in (tuple, list) and isinstance(part, int):
        return KeyType(_spot(args[0]), args[0])
    return None


def _spot(annotation: Any) -> Spot:
    annotation = bare(annotation)
    if is_model(annotation):
        return "table"
    origin = get_origin(annotation)
    return "map" if origin is dict else "list" if origin in (tuple, list) else "value"


def is_model(annotation: Any) -> bool:
    """True for a pydantic model class, that is a table with fixed keys."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def table_keys(model: type[BaseModel], loc: Loc) -> tuple[str, ...]:
    """The names that the table at ``loc`` knows; empty where any name may stand."""
    found = key_type(model, loc)
    annotation: Any = bare(found.annotation) if found else None
    return tuple(annotation.model_fields) if is_model(annotation) else ()


def dotted(loc: Iterable[str | int]) -> str:
    """``("predict", 0, "name")`` as ``predict[0].name``, the way a person would write it."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _PLAIN.fullmatch(part) else f"{part[:60]!a}"
            text += f".{name}" if text else name
    return text


def expected(model: type[BaseModel], loc: Loc) -> str:
    """What belongs at ``loc``, in words: the type with its bounds, or the allowed names."""
    found = key_type(model, loc)
    if found is None:
        return "a key of this table"
    if found.spot != "value":
        inner = "tables" if is_model(bare(next(iter(get_args(bare(found.annotation))), None))) else "texts"
        return {"table": "a table", "map": "a table of names and values", "list": f"an array of {inner}"}[found.spot]
    if loc and str(loc[-1]) in _WORDS:
        return _WORDS[str(loc[-1])]
    annotation = bare(found.annotation)
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(annotation))
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    kinds = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    if len(kinds) > 1:
        return "text, a number, true or false"
    return names.get(kinds[0], "another value") + (_bounds(found) if kinds[0] in (int, float) else "")


def _bounds(found: KeyType) -> str:
    limits: dict[str, Any] = {}
    for part in _metadata(found):
        for name in ("ge", "gt", "le", "lt"):
            if getattr(part, name, None) is not None:
                limits[name] = getattr(part, name)
    low = f"from {limits['ge']:,}" if "ge" in limits else f"above {limits['gt']:,}" if "gt" in limits else ""
    high = f"to {limits['le']:,}" if "le" in limits else f"below {limits['lt']:,}" if "lt" in limits else ""
    both = " " if low.startswith("from") and high.startswith("to") else " and up " if high.startswith("to") else " and "
    return f" {low}{both if low and high else ''}{high}" if low or high else ""


def _metadata(found: KeyType) -> Iterable[Any]:
    if found.field is not None:
        yield from found.field.metadata
    pending = [found.annotation]
    while pending:
        annotation = pending.pop()
        if get_origin(annotation) is Annotated:
            pending.append(get_args(annotation)[0])
            for part in get_args(annotation)[1:]:
                yield from part.metadata if isinstance(part, FieldInfo) else (part,)
        elif get_origin(annotation) in (Union, types.UnionType):
            pending += get_args(annotation)


def from_text(annotation: Any, text: str) -> object:
    """The value that ``text`` (a flag or an environment variable) means for a key of this type.

    Text that does not fit is handed on as it is: the schema then refuses it with what it expected.
    """
    kind = bare(annotation)
    if get_origin(kind) in (Union, types.UnionType):
        return _literal(text)
    if kind is bool:
        return {"true": True, "false": False, "1": True, "0": False}.get(text.strip().lower(), text)
    if kind is int:
        return _number(parse_count(text), int)
    if kind is float:
        return _number(text, float)
    return text


def _number(value: object, kind: type[int] | type[float]) -> object:
    if not isinstance(value, str):
        return value
    try:
        return kind(value)
    except ValueError:
        return value


def _literal(text: str) -> bool | int | float | str:
    """``true``, ``45568`` or ``0.5`` as such; anything else stays text (``auto``, ``007``, ``1e3``)."""
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"[+-]?(0|[1-9][0-9_]{0,39})", text, re.ASCII) and not text.endswith("_"):
        return int(text.replace("_", ""))
    if re.fullmatch(r"[+-]?[0-9]{1,20}\.[0-9]{1,20}", text, re.ASCII):
        return float(text)
    return text
