"""A question about a model and a machine, and its answer, as values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from archonctl.findings import Finding
from archonctl.fit.kv_served import KvServed
from archonctl.memory.interval import Interval

if TYPE_CHECKING:
    from archonctl.deployment.schema import Endpoint
    from archonctl.fit.declare import Declared

FitVerdict = Literal["fits", "refused", "unknown"]
RefusalCode = Literal["fit-capability", "fit-size", "fit-unsatisfiable", "fit-no-device", "fit-unknown"]
Split = Literal["one", "tensor", "layer", "experts-in-ram", "ram"]
"""How a model lies: on one card, each tensor or whole layers over several, experts in RAM, or all in RAM."""

DEFAULT_LEN = 8192
"""Tokens of one conversation where nobody says: a moderate chat, never more than the model's own context."""


@dataclass(frozen=True, slots=True)
class Ask:
    """``seqs`` conversations of ``len`` tokens at once (None: 8,192, or the model's context if that is less).

    ``engine`` and ``quants`` narrow the search (empty: all). ``kv_quant`` is the dtype asked of the cache.
    ``weight_only`` also takes kernels that compute an 8-bit or 4-bit type in 16 bits on a card without hardware for it.
    """

    seqs: int = 1
    len: int | None = None
    engine: str = ""
    kv_quant: str = "f16"
    quants: tuple[str, ...] = ()
    prefer: Literal["quality", "speed"] = "quality"
    weight_only: bool = False
    tp: int | None = None
    """Cards to share it over; None: 1, 2, 4 or 8, the fewest that hold it."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens a second, as intervals: of one sequence at its full length, and of a prompt. None: nothing to tell by."""

    decode: Interval | None
    prefill: Interval | None
    read_bytes: int = 0
    """Bytes read for one token: active weights and the cache at the length asked."""
    calibration: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """One quant under one engine that holds the question. Sizes in bytes, of the fullest card; ``est`` their sum.

    ``tp`` counts the cards that share the model. ``plain_bytes`` is (weights + cache) x 1.15 / tp, as people know it.
    ``declared`` is exactly this, which ``archonctl plan`` calls "holds".
    """

    quant: str
    engine: str
    tp: int
    split: Split
    kv: KvServed
    weights_bytes: int
    kv_bytes: int
    est: Interval
    plain_bytes: int
    free_bytes: int
    declared: Declared
    host_bytes: int = 0
    """RAM wanted for what does not lie on a card."""
    expert_layers: int = 0
    """Layers whose experts lie in RAM (llama.cpp --n-cpu-moe)."""
    throughput: Throughput | None = None

    @property
    def endpoint(self) -> Endpoint:
        """The choice as a declaration."""
        return self.declared.endpoint


@dataclass(frozen=True, slots=True)
class WayOut:
    """A change that was tried and fits: options of the command, and what they are called."""

    text: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one quant under one engine is not taken. Bytes are 0 where size was not the question.

    Of many refusals few are read, so ``words`` may be what makes the message.
    """

    code: RefusalCode
    quant: str
    engine: str
    words: str | Callable[[], str]
    kernel: str = ""
    wanted_bytes: int = 0
    """The smallest estimate over all ways to share it out."""
    plain_bytes: int = 0
    free_bytes: int = 0
    declared: Declared | None = None
    """What ``archonctl plan`` calls short or unknown, where size was the question."""

    @property
    def message(self) -> str:
        """Both numbers, or the kernel, in one sentence."""
        return self.words if isinstance(self.words, str) else self.words()

    @property
    def endpoint(self) -> Endpoint | None:
        """The same as a declaration."""
        return self.declared.endpoint if self.declared else None


@dataclass(frozen=True, slots=True)
class FitResult:
    """The answer. ``standing`` is the refusal that stands for all; None where it fits."""

    model: str
    where: str
    seqs: int
    len: int
    verdict: FitVerdict
    chosen: Choice | None
    refusals: tuple[Refusal, ...]
    standing: Refusal | None = None
    warnings: tuple[Finding, ...] = ()
    ways_out: tuple[WayOut, ...] = ()

    @property
    def code(self) -> RefusalCode | None:
        """The code of what stands for all; None where it fits."""
        return self.standing.code if self.standing else None

    @property
    def message(self) -> str:
        """Its message; "" where it fits."""
        return self.standing.message if self.standing else ""
