"""Whose state a file holds: the model's contents, the engine's build and slots, its arguments.

llama-server takes the state of another model of the same shape and answers from it (``slots``), so all of these must be
known and equal before a file is restored. What cannot be known makes an engine unsuitable, not a match.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from archonctl.probe.jsonread import as_int, as_str, pick
from archonctl.tiers.slots import SlotClient

SAMPLES = 64
SAMPLE_BYTES = 64 << 10
"""Of each model file so many blocks, spread evenly, are read: a trained or merged model differs in every layer."""
_SPLIT = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")
_FREE = frozenset(
    {"--host", "--port", "--slot-save-path", "--api-key", "--api-key-file", "--alias", "-a", "--timeout", "-to"}
    | {"--threads", "-t", "--threads-batch", "-tb", "--threads-http", "--log-file", "--cache-ram", "-cram"}
    | {"--slot-prompt-similarity", "-sps"}
)
"""Arguments, each with a value, that do not change what a state means."""
_FREE_ALONE = frozenset({"--metrics", "--slots", "--props", "--no-webui", "--no-ui", "--verbose", "-v", "--no-warmup"})


class Unsuitable(StrEnum):
    """Why nothing is moved for this engine; a closed set, so that it may be a label of a metric."""

    ADAPTERS = "adapters"
    """A state does not say with which LoRA adapters it was computed."""
    MODEL_UNKNOWN = "model_unknown"
    ARGUMENTS_UNKNOWN = "arguments_unknown"
    BUILD_UNKNOWN = "build_unknown"
    OTHER_FOLDER = "other_folder"
    """It saves slots somewhere else than the declaration says, or nowhere."""


class UnsuitableError(Exception):
    """The engine's identity cannot be told."""

    def __init__(self, why: Unsuitable) -> None:
        super().__init__(why.value)
        self.why = why


@dataclass(frozen=True, slots=True)
class Boot:
    """One start of an engine: equal as long as it is the same process. ``media_marker`` is random by start."""

    marker: str
    build: str
    model_path: str
    slots: int


async def boot_of(client: SlotClient) -> Boot:
    """What ``GET /props`` says. Raises SlotError, UnsuitableError."""
    props = await client.get("/props")
    slots = as_int(pick(props, "total_slots"))
    boot = Boot(
        as_str(pick(props, "media_marker")),
        as_str(pick(props, "build_info")),
        as_str(pick(props, "model_path")),
        slots or 0,
    )
    if not (boot.marker and boot.build and boot.slots):
        raise UnsuitableError(Unsuitable.BUILD_UNKNOWN)
    return boot


async def fingerprint_of(
    client: SlotClient, boot: Boot, argv: Sequence[str] | None, model_file: Path | None = None
) -> str:
    """32 hexadecimal digits. ``argv`` are the engine's arguments without its own name; ``model_file`` where the engine
    names another path than this process sees. Reads some MiB of the model: call it once a boot.

    Raises SlotError, UnsuitableError.
    """
    if argv is None:
        raise UnsuitableError(Unsuitable.ARGUMENTS_UNKNOWN)
    if await client.get("/lora-adapters") != []:
        raise UnsuitableError(Unsuitable.ADAPTERS)
    meta = pick(await client.get("/v1/models"), "data", 0, "meta")
    try:
        content = await asyncio.to_thread(sample, model_file or Path(boot.model_path))
    except OSError:
        raise UnsuitableError(Unsuitable.MODEL_UNKNOWN) from None
    told = [content, meta, boot.build, boot.slots, telling(argv)]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def telling(argv: Sequence[str]) -> list[str]:
    """The arguments that may change what a state means: all but a few that are known not to."""
    kept, skip = [], False
    for word in argv:
        name = word.partition("=")[0]
        if skip or name in _FREE_ALONE:
            skip = False
        elif name in _FREE:
            skip = "=" not in word
        else:
            kept.append(word)
    return kept


def sample(path: Path) -> str:
    """A digest of size, time and spread blocks of a model file, of all its parts where it is split. Raises OSError."""
    split = _SPLIT.fullmatch(path.name)
    parts = sorted(path.parent.glob(f"{_escaped(split[1])}-*-of-{split[2]}.gguf")) if split else [path]
    state = hashlib.sha256()
    for part in parts or [path]:
        with part.open("rb") as file:
            info = os.fstat(file.fileno())
            state.update(f"{info.st_size} {info.st_mtime_ns}\n".encode())
            for number in range(SAMPLES):
                file.seek(info.st_size * number // SAMPLES)
                state.update(file.read(SAMPLE_BYTES))
    return state.hexdigest()


def _escaped(stem: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", stem)
