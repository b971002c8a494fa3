"""How fast an engine prefills: measured, or seen, or foretold, or declared; never guessed."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from archonctl.deployment.schema import Endpoint
from archonctl.memory.interval import Interval
from archonctl.probe.metrics import each_sample
from archonctl.probe.predictions import prefill_sizes
from archonctl.tiers.measured import Measured


@dataclass(frozen=True, slots=True)
class Prefill:
    """Tokens a second of one request, and where the figure comes from."""

    tokens_per_s: Interval
    source: str

    @property
    def s_per_token(self) -> float:
        """The best estimate, as the policy takes it."""
        return 1 / self.tokens_per_s.best

    def seconds(self, tokens: Interval) -> Interval:
        """How long prefilling so many tokens takes: the fewest at the fastest, to the most at the slowest."""
        speed = self.tokens_per_s
        return Interval(tokens.low / speed.high, tokens.best / speed.best, tokens.high / speed.low)


@functools.cache
def _rows() -> tuple[Mapping[str, str], ...]:
    text = files("archonctl.tiers").joinpath("prefill.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["speed"])


def seen_speed(engine: str, metrics: str) -> float | None:
    """Tokens a second since the engine started, by its own counters; None where they do not say."""
    row = next((each for each in _rows() if each["engine"] == engine), None)
    if row is None:
        return None
    sums = {key: _total(metrics, row[key]) for key in ("tokens", "seconds", "minus") if key in row}
    tokens, seconds, minus = sums["tokens"], sums["seconds"], sums.get("minus", 0.0)
    if tokens is None or seconds is None or minus is None or seconds <= 0 or tokens - minus <= 0:
        return None
    return (tokens - minus) / seconds


def _total(metrics: str, name: str) -> float | None:
    values = each_sample(metrics, frozenset({name}))
    return sum(values) if values else None


def prefill_of(
    endpoint: Endpoint, measured: Measured, seen: float | None, verdict: Mapping[str, object] | None
) -> Prefill | None:
    """The best figure there is: measured by the executor, seen on the engine, by the stored verdict, declared,
    foretold (``prefill_tps_<n>k``, with its band); None where there is none."""
    declared = endpoint.tiers.prefill_tokens_per_s
    exact = (
        (measured.prefill_tokens_per_s, "measured while conversations were moved"),
        (seen, "the running engine's own counters, since it started"),
        (_of_verdict(verdict), "the stored verdict"),
        (declared, "declared ([tiers] prefill_tokens_per_s)"),
    )
    for value, source in exact:
        if value is not None and value > 0:
            return Prefill(Interval.exact(value), source)
    sizes = prefill_sizes(endpoint.predict)
    foretold = [each for each in endpoint.predict if each.name in sizes and each.expect > 0]
    if not foretold:
        return None
    last = max(foretold, key=lambda each: sizes[each.name])
    band = last.band * last.expect
    return Prefill(
        Interval(last.expect - band, last.expect, last.expect + band, "declared"),
        f"prediction {last.name}, +- {last.band:.0%}",
    )


def _of_verdict(value: Mapping[str, object] | None) -> float | None:
    probe = value.get("probe") if value else None
    facts = probe.get("facts") if isinstance(probe, Mapping) else None
    said = facts.get("prefill_tokens_per_s") if isinstance(facts, Mapping) else None
    return float(said) if isinstance(said, (int, float)) and not isinstance(said, bool) and said > 0 else None
