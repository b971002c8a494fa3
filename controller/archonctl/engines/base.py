"""The seams between the general rooms and one engine.

An adapter predicts capacity, lists the command line, and names the HTTP surface. Values only: it starts
nothing, reads no network and prints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from archonctl.deployment.schema import Endpoint
from archonctl.engines.change import Change, Variable
from archonctl.engines.oracle import Oracle
from archonctl.engines.terms import Term
from archonctl.host.profile import Host
from archonctl.memory.demand import HEADROOM, Demand
from archonctl.memory.interval import Interval
from archonctl.model.geometry import ModelFacts


@dataclass(frozen=True, slots=True)
class CardShare:
    """How one card (or the RAM of a CPU-only host) is split. All figures in MiB; None where unknown.

    ``slab_mib`` is weights or expert slab, ``pool_mib`` the KV pool, ``pool_needed_mib`` what the contract
    with its margin needs, ``margin_mib`` = pool - needed.
    """

    index: int
    name: str
    total_mib: float | None
    ceiling_mib: float | None
    slab_mib: float | None
    pool_mib: float | None
    pool_needed_mib: float | None
    margin_mib: float | None
    outside_mib: float | None = None


@dataclass(frozen=True, slots=True)
class Lever:
    """One change that would make a short contract hold, with its price.

    ``set`` maps dotted declaration keys to values, ``costs`` is the price in words. ``slab_lost_mib`` is what one card
    loses of weights or resident experts, ``quality`` what the model's answers risk, ``throughput`` what the change is
    known to do to speed; None and "" where nothing is known.
    """

    text: str
    set: Change
    wins_tokens: int | None = None
    costs: str = ""
    slab_lost_mib: float | None = None
    quality: str = ""
    throughput: str = ""


@dataclass(frozen=True, slots=True)
class Pinned:
    """The terms of the pinned-memory floor: ranks x host pool + table + prefix cache + batched tokens (1:1 in MiB)."""

    ranks: int
    host_pool_mib: int
    table_mib: int
    prefix_mib: int
    batched_tokens: int


@dataclass(frozen=True, slots=True)
class HostNeed:
    """What the host must allow, derived from the declaration. None where the engine asks for nothing."""

    ttm_floor_mib: int | None = None
    ttm_floor_pages: int | None = None
    pinned: Pinned | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that makes the declaration impossible whatever the capacity (a code with both numbers)."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class CardRule:
    """How much of a card may be taken. ``headroom`` is a share that is kept free, 0 where the demands name it all.

    ``ceilings`` are bytes by card index that the engine takes at most by a rule of its own. ``counts_outside`` is True
    if the demands have in them what a host profile calls ``outside_mib``, ``together`` if nobody but the engine knows
    on which of the cards they lie.
    """

    headroom: float = HEADROOM
    ceilings: Mapping[int, int] = field(default_factory=dict)
    counts_outside: bool = False
    together: bool = False
    least_bytes: int = 0
    """The least that a card must have, whatever the demands add up to; 0 where there is no such figure."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """An engine's law applied to one declaration.

    ``kv_tokens`` is the pool in tokens (None: unknown, never 0), ``seqs_limit`` and ``seq_len_limit`` the
    other two ways in which a contract can fail (slots, per-sequence window); None where there is no limit.
    """

    method: str
    kv_tokens: Interval | None
    seqs_limit: int | None
    seq_len_limit: int | None
    cards: tuple[CardShare, ...]
    demands: tuple[Demand, ...]
    levers: tuple[Lever, ...] = ()
    host_need: HostNeed = HostNeed()
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    methods: Mapping[str, Interval] = field(default_factory=dict)
    """Tokens by every method that applies, where methods disagree."""
    card_rule: CardRule = CardRule()
    terms: tuple[Term, ...] = ()
    """The law with its numbers put in; the term ``kv_tokens`` is the best estimate."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container as every runtime is told to start it. ``arguments`` are those of ``entrypoint`` (empty: the image's).

    ``groups`` are numbers, since names differ within images; ``rootless`` means that an ordinary user runs it.
    ``pinned`` engines lock host memory. ``publish`` is ``address:port:port``, empty on the host's network.
    """

    runtime: Literal["podman", "docker"]
    name: str
    image: str
    arguments: tuple[str, ...]
    entrypoint: str = ""
    network: str = "host"
    publish: str = ""
    gpus: str = ""
    devices: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    rootless: bool = False
    pinned: bool = False
    seccomp: str = ""
    shm: str = ""
    mounts: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    stop_s: int = 60
    health: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandLine:
    """argv as a list from end to end, and the environment that goes with it.

    With an image, ``argv`` is the whole command of the runtime and ``container`` the same as a value.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    notes: tuple[str, ...] = ()
    container: ContainerSpec | None = None
    pinned: bool = False
    """True if it locks memory: its memlock limit must allow that."""


@dataclass(frozen=True, slots=True)
class Api:
    """The HTTP surface of an engine, as paths."""

    health: str
    models: str
    tokenize: str
    completions: str
    chat: str
    tokenize_field: str
    """Name of the text field in a tokenize request."""
    checks_model_name: bool
    """True if a request for an unknown model id is refused."""
    over_window_statuses: frozenset[int] = frozenset({400})
    tokenize_extra: Mapping[str, bool | int | str] = field(default_factory=dict)
    """More fields of a tokenize request (llama.cpp counts the BOS token only with ``add_special``)."""
    completion_extra: Mapping[str, bool | int | str] = field(default_factory=dict)
    """More fields of a streamed completion that the probe may send; one that is refused by name is dropped."""
    report: str = ""
    """GET path of machine-readable capacity; empty where the engine has none."""
    report_format: Literal["", "llamacpp-props", "vllm-metrics", "radiance-server-info", "sglang-server-info"] = ""
    busy: str = ""
    """GET path that tells how many requests run now (``/slots``, ``/load`` or Prometheus text)."""
    metrics: str = ""
    """GET path of Prometheus text with preemption or retraction counters."""
    loading_statuses: frozenset[int] = frozenset({503})
    """What ``health`` answers while the engine is still loading; empty where the port is closed until it is ready."""
    id_from_file: bool = True
    """True if the default model id is the path of the model file, or its name."""


class Adapter(Protocol):
    """What every engine folder provides as ``adapter.ADAPTER``."""

    kind: str
    api: Api
    needs_model_header: bool
    """True if ``forecast`` needs the facts of the model file."""

    @property
    def oracle(self) -> Oracle | None:
        """The engine's own planner; None where it has none."""
        ...

    def forecast(self, endpoint: Endpoint, host: Host, model: ModelFacts | None, *, detail: bool = True) -> Forecast:
        """Apply the capacity law. Raises DeclarationError for knobs that contradict each other.

        ``detail`` False leaves out the working and what would mend a short contract: solvers and sweeps ask for
        nothing but the figures, thousands of times.
        """
        ...

    def variables(self, endpoint: Endpoint, host: Host) -> Mapping[str, Variable]:
        """What a plan can be solved for, by name. Raises as ``forecast``."""
        ...

    def command(self, endpoint: Endpoint) -> CommandLine:
        """The command line that keeps the contract. Raises DeclarationError for a knob that cannot be rendered."""
        ...
