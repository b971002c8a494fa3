"""The endpoint declaration as typed, frozen values. Loading and merging live in ``load.py``.

Plain pydantic on purpose: pydantic-settings is imported only where environment variables must be read.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from archonctl.deployment.cluster import Cluster
from archonctl.deployment.tiers import Tiers

EngineKind = Literal["radiance", "vllm", "sglang", "llamacpp"]
KnobValue = bool | int | float | str

_SUFFIX = {"": 1, "k": 1024, "m": 1024 * 1024}


def parse_count(value: Any) -> Any:
    """Accept ``200000``, ``"200_000"`` and binary suffixes (``"128k"`` is 131,072); leave the rest to pydantic."""
    if isinstance(value, str) and (found := re.fullmatch(r"([0-9][0-9_,]*)([kKmM]?)", value.strip())):
        return int(re.sub("[_,]", "", found[1])) * _SUFFIX[found[2].lower()]
    return value


DEVICE = r"^(/[^\s:,]+(:/[^\s:,]+)?(:[rwm]{1,3})?|[a-z0-9.-]+/[a-z0-9_.-]+=[A-Za-z0-9_.:-]+)$"
"""A device node, ``host[:container][:rwm]``, or a CDI name such as ``nvidia.com/gpu=0``."""

Count = Annotated[int, BeforeValidator(parse_count)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Contract(_Frozen):
    """The promise: ``seqs`` conversations of ``len`` tokens at once, prompt and answer together."""

    seqs: Annotated[int, Field(ge=1, le=65_536)]
    len: Annotated[Count, Field(ge=16, le=100_000_000)]
    kv_dtype: Annotated[str, Field(pattern=r"^[a-z0-9_]+(/[a-z0-9_]+)?$")] = "f16"
    """One dtype, or ``K/V`` where the engine can tell them apart (``q8_0/q4_0``)."""
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the contract's tokens that must remain on top."""

    @property
    def tokens(self) -> int:
        """seqs x len."""
        return self.seqs * self.len

    @property
    def tokens_with_margin(self) -> int:
        """The tokens that a plan must find before it says "holds"."""
        return self.tokens + round(self.tokens * self.margin)


class Engine(_Frozen):
    """Which engine, at which version, and its knobs by flag name without the leading dashes."""

    kind: EngineKind
    version: str = ""
    image: str = ""
    binary: str = ""
    oracle: str = ""
    """The engine's own planner, where it is not beside ``binary``: ``plan --oracle`` asks it."""
    env: dict[str, str] = {}
    knobs: dict[str, KnobValue] = {}
    mounts: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """More folders for a container, ``host:container[:ro]``; the model's own folder is always mounted."""


class Container(_Frozen):
    """How the image is run. What is not stated follows from the engine; a binary has no use for this table."""

    runtime: Literal["podman", "docker"] = "podman"
    """Which of the two the rendered unit runs; the release has the command lines of both."""
    network: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] = "host"
    """``host``, or a container network: then the engine listens on all its addresses and the port is published."""
    gpus: Annotated[str, Field(pattern=r"^(all|none|[A-Za-z0-9-]+(,[A-Za-z0-9-]+)*)?$")] = ""
    """NVIDIA cards: ``all``, or indices or UUIDs with commas."""
    devices: Annotated[tuple[Annotated[str, Field(pattern=DEVICE)], ...], Field(strict=False)] = ()
    """Device nodes in place of the engine's own (``/dev/kfd``, ``/dev/dri/renderD128``), or CDI names."""
    groups: Annotated[tuple[Annotated[int, Field(ge=0, lt=1 << 32)], ...], Field(strict=False)] = ()
    """Supplementary groups by number; default: those of the host profile."""
    shm: Annotated[str, Field(pattern=r"^(host|[1-9][0-9]{0,8}[kmg])?$")] = ""
    """``host`` shares the host's IPC, ``16g`` sizes /dev/shm."""
    entrypoint: str = ""
    """The program inside the image, where it is not the image's own or the engine's usual one."""
    stop_s: Annotated[int, Field(ge=1, le=3600)] | None = None
    """Seconds from SIGTERM to SIGKILL."""
    health: str = ""
    """The health command; ``off`` for none. Default: curl of the engine's own health path."""
    options: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """More words for ``podman run`` and ``docker run``, as they are."""


class ModelRef(_Frozen):
    """The artefact: path, exact identity, and a manifest where the file's own header is not public."""

    path: str
    bytes: Annotated[int, Field(gt=0, le=1 << 50)] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    served_name: str = ""
    manifest: str = ""


class HostRef(_Frozen):
    """A host profile file, or ``detect = true`` for this machine."""

    profile: str = ""
    detect: bool = False


class Service(_Frozen):
    """How the endpoint runs and where it listens (``host:port``)."""

    user: str = ""
    listen: Annotated[str, Field(pattern=r"^(\[[0-9a-fA-F:]+\]|[^:\s]+):[0-9]{1,5}$")] = "127.0.0.1:8000"
    load_timeout_s: Annotated[int, Field(gt=0, le=7 * 86_400)] | None = None
    api_key_file: str = ""
    public_url: Annotated[str, Field(pattern=r"^(https?://[^\s/?#@]+(/[^\s?#]*)?)?$")] = ""
    """Where clients reach it, if not at ``listen``: requests of a probe go there, so that the verdict is theirs."""
    ca_file: str = ""
    """Certificates (PEM) that vouch for ``public_url`` beside the system's."""


class Boot(_Frozen):
    """A boot ledger that was seen, written down as data: the calibration of a plan."""

    engine_version: str
    kv_tokens: Annotated[int, Field(gt=0)]
    kv_gib: Annotated[str, Field(pattern=r"^([0-9]{1,9}(\.[0-9]{1,9})?)?$")] = ""
    """As printed, rounding included ("4.20")."""
    seqs: Annotated[int, Field(ge=1)]
    len: Annotated[int, Field(ge=1)]
    kv_dtype: str
    knobs: dict[str, KnobValue] = {}
    """The knobs that differed from today's declaration."""
    source: str


class Prediction(_Frozen):
    """A figure named before a change and scored after it."""

    name: str
    expect: float
    band: Annotated[float, Field(gt=0, lt=1)] = 0.03


class Endpoint(_Frozen):
    """One declared endpoint."""

    contract: Contract
    engine: Engine
    model: ModelRef
    host: HostRef = HostRef()
    service: Service = Service()
    container: Container = Container()
    kubernetes: Cluster = Cluster()
    tiers: Tiers = Tiers()
    boot: Annotated[tuple[Boot, ...], Field(strict=False)] = ()
    """Not strict about the sequence type only: TOML and JSON have lists, not tuples."""
    predict: Annotated[tuple[Prediction, ...], Field(strict=False)] = ()
