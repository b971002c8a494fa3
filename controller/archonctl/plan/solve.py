"""Leave something of a declaration free and get the best value under which the contract holds.

The promise is solved for its maximum, what is paid for its minimum, a choice for the first of its order that will do.
A value is an answer only if the forward law says "holds" of it, and only if it says something else of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import Endpoint, KnobValue
from archonctl.engines.change import Change, Variable
from archonctl.errors import UsageError
from archonctl.host.load import load_host
from archonctl.plan.load import load_model
from archonctl.plan.trial import Trial
from archonctl.plan.values import Plan

GRID = 48
"""Values spread evenly over a range, beside the powers of two and what surrounds the declared value."""
MOST_CHOICES = 64
"""Ranges up to this many values are tried one by one: what divides a model's heads has gaps."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The best value of one variable; ``declared`` is None where nothing was declared.

    ``beyond`` is the next better value, which does not hold, and ``why_not`` its reasons; None where there is none.
    """

    name: str
    variable: Variable
    value: KnobValue
    declared: KnobValue | None
    beyond: KnobValue | None = None
    why_not: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Solution:
    """``answers`` in the order asked, empty if no value holds; ``plan`` is of the changed declaration.

    Without an answer ``plan`` is of the value that is nearest to one by its kind: the smallest promise, the highest
    price.
    """

    asked: tuple[str, ...]
    answers: tuple[Answer, ...]
    change: Change
    plan: Plan


def solve_endpoint(loaded: LoadedEndpoint, names: Sequence[str]) -> Solution:
    """Load what the declaration points to, and solve it. Raises as ``solve`` and ``plan_endpoint``."""
    host, model = load_host(loaded), load_model(loaded.endpoint)
    with loaded.placing():
        return solve(Trial(loaded.name, loaded.endpoint, host, model), names)


def solve(trial: Trial, names: Sequence[str]) -> Solution:
    """The best values of the named variables together, the earlier ones first.

    Raises UsageError ``solve-unknown-name`` or ``solve-too-free``, and DeclarationError of the declaration itself.
    """
    free = _free(trial, names)
    change: dict[str, KnobValue] = {}
    answers: list[Answer] = []
    for number, (name, variable) in enumerate(free.items()):
        rest = list(free.values())[number + 1 :]
        search = _Search(trial, change, rest)
        found = search.best(variable)
        if found is None:
            return Solution(tuple(names), (), {}, _nearest(trial, variable, change))
        change |= assigned(variable, found)
        said = declared(trial.endpoint, variable)
        answers.append(Answer(name, variable, found, said, search.next_better(variable, found)))
    whole = tuple(replace(answer, why_not=_why_not(trial, change, answer)) for answer in answers)
    return Solution(tuple(names), whole, change, trial.plan(change))


def _why_not(trial: Trial, change: Change, answer: Answer) -> tuple[str, ...]:
    return () if answer.beyond is None else trial.why_not({**change, **assigned(answer.variable, answer.beyond)})


def assigned(variable: Variable, value: KnobValue) -> dict[str, KnobValue]:
    """The declaration keys that make a variable this value, those that mirror it included."""
    return dict.fromkeys((variable.key, *variable.mirrors), value)


def declared(endpoint: Endpoint, variable: Variable) -> KnobValue | None:
    """What the declaration says; None where it says nothing."""
    table, _, name = variable.key.rpartition(".")
    if table == "contract":
        value: KnobValue = getattr(endpoint.contract, name)
        return value
    return (endpoint.engine.env if table == "engine.env" else endpoint.engine.knobs).get(name)


def _free(trial: Trial, names: Sequence[str]) -> dict[str, Variable]:
    known = trial.variables()
    for name in names:
        if name not in known:
            raise UsageError(
                "solve-unknown-name",
                f"{trial.endpoint.engine.kind} cannot be solved for {name[:60]!a}",
                hint=f"it can for {', '.join(known)}",
            )
    free = {name: known[name] for name in names}
    promised = [name for name, variable in free.items() if variable.key in ("contract.seqs", "contract.len")]
    if len(promised) > 1:
        raise UsageError(
            "solve-too-free",
            f"{' and '.join(promised)} are both free: more of one is less of the other",
            hint="for the whole frontier: --solve len --sweep seqs=1..8",
        )
    if len(ranges := [name for name, variable in free.items() if name not in promised and _ranged(variable)]) > 1:
        raise UsageError(
            "solve-too-free",
            f"{' and '.join(ranges)} are both free ranges: nothing says which to spend first",
            hint="leave one of them free and sweep the other: --sweep KEY=A..B",
        )
    return dict(sorted(free.items(), key=lambda pair: pair[0] not in promised))


def _ranged(variable: Variable) -> bool:
    return not variable.choices and _steps(variable) >= MOST_CHOICES


def _steps(variable: Variable) -> int:
    return int((variable.high - variable.low) / variable.step)


def _nearest(trial: Trial, variable: Variable, change: Change) -> Plan:
    if variable.choices:
        value: KnobValue = variable.choices[-1]
    else:
        value = _value(variable, 0 if variable.wanted == "most" else _steps(variable))
    near = {**change, **assigned(variable, value)}
    return trial.plan(near if variable.wanted == "most" else change)


def _value(variable: Variable, step: int) -> KnobValue:
    value = variable.low + step * variable.step
    return round(value, 6) if isinstance(variable.step, float) else int(value)


class _Search:
    """The search for one variable, with others still free behind it."""

    def __init__(self, trial: Trial, change: Change, rest: Sequence[Variable]) -> None:
        self._trial, self._change, self._rest = trial, change, rest
        self._worked: dict[str, KnobValue] = {}
        """What held last, by key: it most often holds for the next value too."""

    def holds(self, variable: Variable, value: KnobValue) -> bool:
        """True if the contract can hold with this value and some value of what is still free."""
        return self._any({**self._change, **assigned(variable, value)}, self._rest)

    def _any(self, change: Change, free: Sequence[Variable]) -> bool:
        if not free:
            return self._trial.holds(change)
        variable, last = free[0], self._worked.get(free[0].key)
        candidates = [value for value in _candidates(variable, self._trial.endpoint) if value != last]
        for value in candidates if last is None else (last, *candidates):
            if self._any({**change, **assigned(variable, value)}, free[1:]):
                self._worked[variable.key] = value
                return True
        return False

    def best(self, variable: Variable) -> KnobValue | None:
        """The best value that holds; None if none does."""
        if variable.choices:
            return next((value for value in variable.choices if self.holds(variable, value)), None)
        better = -1 if variable.wanted == "least" else 1
        worse: int | None = None
        for step in sorted(_grid(variable, self._trial.endpoint), reverse=better > 0):
            if self.holds(variable, _value(variable, step)):
                return (
                    _value(variable, self._narrow(variable, step, worse))
                    if worse is not None
                    else _value(variable, step)
                )
            worse = step
        return None

    def _narrow(self, variable: Variable, good: int, bad: int) -> int:
        """The step next to one that does not hold, between one that does and one that does not."""
        while abs(bad - good) > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self.holds(variable, _value(variable, middle)) else (good, middle)
        return good

    def next_better(self, variable: Variable, value: KnobValue) -> KnobValue | None:
        """The value that would be better by one step; None at the end of the range."""
        if variable.choices:
            place = variable.choices.index(value)
            return variable.choices[place - 1] if place else None
        step = round((float(value) - variable.low) / variable.step) + (-1 if variable.wanted == "least" else 1)
        return _value(variable, step) if 0 <= step <= _steps(variable) else None


def _candidates(variable: Variable, endpoint: Endpoint) -> Iterator[KnobValue]:
    if variable.choices:
        yield from variable.choices
    else:
        yield from (_value(variable, step) for step in sorted(_grid(variable, endpoint)))


def _grid(variable: Variable, endpoint: Endpoint) -> set[int]:
    """Steps to try first: all of a short range; else some that are spread evenly, powers of two, and those around what
    is declared."""
    top = _steps(variable)
    if top < MOST_CHOICES:
        return set(range(top + 1))
    found = {round(top * part / GRID) for part in range(GRID + 1)} | {1 << bit for bit in range(top.bit_length())}
    said = declared(endpoint, variable)
    if isinstance(said, (int, float)) and not isinstance(said, bool):
        here = round((said - variable.low) / variable.step)
        found |= {here} | {here + sign * (1 << bit) for bit in range(top.bit_length()) for sign in (-1, 1)}
    return {step for step in found if 0 <= step <= top}
