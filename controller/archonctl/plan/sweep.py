"""One or more keys of a declaration over many values: a plan, or a solution, at each point of the grid."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import product

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import parse_count
from archonctl.errors import DeclarationError, UsageError
from archonctl.host.load import load_host
from archonctl.host.profile import Host
from archonctl.model.geometry import ModelFacts
from archonctl.plan.load import load_model
from archonctl.plan.solve import Solution, assigned, solve
from archonctl.plan.trial import Trial
from archonctl.plan.values import Plan, PlanVerdict

MOST_POINTS = 10_000
"""A few seconds of plans; what asks for more has most likely a step too small."""

Load = Callable[[Mapping[str, str]], LoadedEndpoint]
"""Loads the declaration with more flags: dotted keys and their text."""

_RANGE = re.compile(r"(?P<low>[^.,:]+(?:\.\d+)?)\.\.(?P<high>[^,:]+?)(?::(?P<times>x)?(?P<step>[^,:]+))?")


@dataclass(frozen=True, slots=True)
class Axis:
    """One key and its values, as a flag would give them. ``name`` is as it was asked for."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One point: ``values`` in the order of the axes; a plan, or the reason why the declaration is refused there."""

    values: tuple[str, ...]
    plan: Plan | None
    solution: Solution | None = None
    refused: DeclarationError | None = None


def parse_axis(text: str) -> Axis:
    """``KEY=A..B[:STEP]``, ``KEY=A..B:xFACTOR`` or ``KEY=a,b,c``.

    Numbers may have a binary suffix (``128k``). Raises UsageError ``sweep-malformed`` or ``sweep-too-many``.
    """
    name, equals, values = text.partition("=")
    name = name.strip()
    if not equals or not name or not values.strip():
        raise _malformed(text)
    found = _RANGE.fullmatch(values.strip())
    if found is None:
        listed = tuple(value.strip() for value in values.split(","))
        if ".." in values or not all(listed):
            raise _malformed(text)
        return Axis(name, listed)
    low, high = _number(found["low"], text), _number(found["high"], text)
    step = _number(found["step"], text) if found["step"] else Decimal(1)
    steps = _multiplied(low, high, step) if found["times"] else _added(low, high, step)
    if high < low or step <= (1 if found["times"] else 0) or (found["times"] and low <= 0):
        raise _malformed(text)
    return Axis(name, tuple(map(_text, steps)))


def _malformed(text: str) -> UsageError:
    return UsageError(
        "sweep-malformed",
        f"{text[:120]!a} is no sweep",
        hint="KEY=A..B, KEY=A..B:STEP, KEY=A..B:xFACTOR or KEY=a,b,c, such as len=32k..200k:8k or kv-dtype=f16,q8_0",
    )


def _number(text: str, whole: str) -> Decimal:
    try:
        number = Decimal(str(parse_count(text.strip())).replace("_", ""))
    except InvalidOperation:
        raise _malformed(whole) from None
    if not number.is_finite():
        raise _malformed(whole)
    return number


def _text(number: Decimal) -> str:
    return format(number.quantize(Decimal(1)) if number == number.to_integral_value() else number.normalize(), "f")


def _added(low: Decimal, high: Decimal, step: Decimal) -> Iterator[Decimal]:
    if step > 0 and (high - low) / step >= MOST_POINTS:
        raise _too_many(int((high - low) / step) + 1)
    while step > 0 and low <= high:
        yield low
        low += step


def _multiplied(low: Decimal, high: Decimal, factor: Decimal) -> Iterator[Decimal]:
    count = 0
    while low > 0 and factor > 1 and low <= high:
        if (count := count + 1) > MOST_POINTS:
            raise _too_many(count)
        yield low
        low *= factor


def _too_many(points: int) -> UsageError:
    message = f"{points:,} points, at most {MOST_POINTS:,} are planned at once"
    return UsageError("sweep-too-many", message, hint="a larger step: KEY=A..B:STEP")


def sweep(axes: Sequence[Axis], load: Load, free: Sequence[str] = ()) -> tuple[Point, ...]:
    """A plan at every point, the last axis fastest; with ``free``, what is solved for there.

    A value that the declaration cannot have is a point that says so; if it is so at every point, that error is raised.
    Raises UsageError ``sweep-too-many``, and DeclarationError or ModelError of the declaration as it stands.
    """
    points = 1
    for axis in axes:
        points *= len(axis.values)
    if points > MOST_POINTS:
        raise _too_many(points)
    inputs = _Inputs(load)
    found = tuple(_point(inputs, axes, values, free) for values in product(*(axis.values for axis in axes)))
    if found and all(point.refused for point in found) and (refused := found[0].refused):
        raise refused
    return found


def best_verdict(points: Sequence[Point]) -> PlanVerdict:
    """The best word of all points; a refused point counts as short."""
    words = {point.plan.verdict for point in points if point.plan}
    return "holds" if "holds" in words else "unknown" if "unknown" in words else "short"


def _point(inputs: _Inputs, axes: Sequence[Axis], values: tuple[str, ...], free: Sequence[str]) -> Point:
    try:
        trial, loaded = inputs.at({axis.name: value for axis, value in zip(axes, values, strict=True)})
        with loaded.placing():
            if not free:
                return Point(values, trial.plan({}))
            solution = solve(trial, free)
            return Point(values, solution.plan, solution)
    except DeclarationError as err:
        return Point(values, None, refused=err)


class _Inputs:
    """The declaration at each point. Host and model are read again only where a key of theirs moves."""

    def __init__(self, load: Load) -> None:
        self._load = load
        first = load({})
        self._host: Host = load_host(first)
        self._model: ModelFacts | None = load_model(first.endpoint)
        with first.placing():
            self._variables = Trial(first.name, first.endpoint, self._host, self._model).variables()

    def at(self, names: Mapping[str, str]) -> tuple[Trial, LoadedEndpoint]:
        """The trial at one point, and the endpoint that it is of."""
        keys = {key: value for name, value in names.items() for key in self._keys(name)}
        loaded = self._load(keys)
        host = load_host(loaded) if any(key.startswith("host.") for key in keys) else self._host
        other = any(key.startswith(("model.", "engine.kind")) for key in keys)
        model = load_model(loaded.endpoint) if other else self._model
        return Trial(loaded.name, loaded.endpoint, host, model), loaded

    def _keys(self, name: str) -> tuple[str, ...]:
        variable = self._variables.get(name)
        return tuple(assigned(variable, "")) if variable else (name,)
