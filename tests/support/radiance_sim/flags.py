"""radiance's command line by version: ``--flag value`` only, the last one wins, numbers by atoi.

Names and checks are those of radiance 1.0.x core/config.cpp; versions from release notes and the change log of the
archon endpoint.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Version = tuple[int, ...]
ALWAYS: Version = (0,)
NEVER: Version = (999,)


class BadCommandLine(Exception):
    """What the parser says before it gives up."""


@dataclass(frozen=True)
class Flag:
    """``kind``: switch, int (atoi), float (atof) or text. ``ok`` refuses a value that the parser validates."""

    kind: str
    since: Version = ALWAYS
    removed: Version = NEVER
    ok: Callable[[str], bool] | None = None
    takes: str = ""


def atoi(text: str) -> int:
    """What C's atoi makes of a text: the leading number, else 0."""
    found = re.match(r"\s*([+-]?\d+)", text)
    return int(found[1]) if found else 0


def atof(text: str) -> float:
    """What C's atof makes of a text."""
    found = re.match(r"\s*([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)", text)
    return float(found[1]) if found else 0.0


def _one_of(*words: str) -> Flag:
    return Flag("text", ok=lambda value: value in words, takes=" or ".join(words))


def _between(low: float, high: float, *, above: bool = False) -> Flag:
    def ok(value: str) -> bool:
        number = atof(value)
        return (number > low if above else number >= low) and number <= high

    return Flag("float", ok=ok, takes=f"{'(' if above else '['}{low:g}, {high:g}]")


SWITCH, INT, FLOAT, TEXT = Flag("switch"), Flag("int"), Flag("float"), Flag("text")
FLAGS: dict[str, Flag] = {
    **dict.fromkeys(("--model", "--radiance-home", "--kernels", "--placement", "--host", "--api-key"), TEXT),
    **dict.fromkeys(("--served-model-name", "--reasoning-effort", "--generation-config"), TEXT),
    **dict.fromkeys(("--override-chat-template", "--chat-template-kwargs", "--reasoning-format"), TEXT),
    **dict.fromkeys(("--tp", "--tp-wire-min-kb", "--max-num-batched-tokens", "--max-num-seqs", "--max-model-len"), INT),
    **dict.fromkeys(("--gpu-headroom-mib", "--gpu-headroom", "--host-pool-mib", "--checkpoint-interval"), INT),
    **dict.fromkeys(("--checkpoint-slots", "--port", "--max-queued-requests", "--retry-after", "--http-threads"), INT),
    **dict.fromkeys(("--read-timeout", "--write-timeout", "--keep-alive-timeout", "--max-body-mib", "--max-n"), INT),
    **dict.fromkeys(("--max-tokens-cap", "--default-max-tokens", "--max-stop-strings", "--max-stop-bytes"), INT),
    **dict.fromkeys(("--mm-max-patches", "--top-k"), INT),
    **dict.fromkeys(("--weights-disk-tier", "--deterministic", "--no-prefix-cache", "--no-cors"), SWITCH),
    **dict.fromkeys(
        ("--debug-selection", "--debug-placement", "--debug-graph", "--debug-accept-reference-kernels"), SWITCH
    ),
    **dict.fromkeys(("--profile-ops", "--live", "-v", "-vv"), SWITCH),
    **dict.fromkeys(("--presence-penalty", "--frequency-penalty", "--repetition-penalty", "--typical-p"), FLOAT),
    **dict.fromkeys(("--dry-multiplier", "--dry-base", "--xtc-probability", "--xtc-threshold", "--video-fps"), FLOAT),
    **dict.fromkeys(("--repeat-last-n", "--dry-allowed-length", "--dry-penalty-last-n", "--image-min-pixels"), INT),
    **dict.fromkeys(("--image-max-pixels", "--video-min-pixels", "--video-max-pixels", "--max-source-pixels"), INT),
    **dict.fromkeys(("--video-min-frames", "--video-max-frames", "--video-max-frame-tokens"), INT),
    "--dry-sequence-breakers": TEXT,
    "--tp-wire": _one_of("exact", "wht6"),
    "--kv-cache-dtype": _one_of("bf16", "fp8"),
    "--checkpoint-policy": _one_of("geometric-backoff", "tip-only", "keep-all"),
    "--num-speculative-tokens": Flag("text", ok=lambda v: v == "auto" or atoi(v) >= 0, takes="auto or a depth >= 0"),
    "--temp": _between(0, 2),
    "--top-p": _between(0, 1, above=True),
    "--min-p": _between(0, 1),
    "--vram-weights-mib": Flag("int", removed=(1, 3, 0)),
    "--vram-kv-mib": Flag("int", removed=(1, 3, 0)),
    "--expert-vs-cache-ratio": Flag("float", removed=(1, 1, 1), ok=lambda v: 0 < atof(v) < 1, takes="(0, 1)"),
    "--prefix-cache-host-mib": Flag("int", removed=(1, 8, 1)),
    "--prefix-cache-disk-mib": Flag("int", removed=(1, 8, 1)),
    "--prefix-cache-dir": Flag("text", removed=(1, 8, 1)),
    "--prefix-cache-mib": Flag("int", since=(1, 8, 1)),
    "--embedding-placement": Flag("text", since=(1, 1, 1)),
    "--ngram-placement": Flag("text", since=(1, 1, 1)),
    "--p2p": Flag("text", since=(1, 2, 0), ok=lambda v: v in ("auto", "on", "off"), takes="auto, on or off"),
    "--busy-prefill-chunk": Flag("text", since=(1, 3, 0)),
    "--prefill-interleave": Flag("int", since=(1, 8, 1)),
}


@dataclass(frozen=True)
class Options:
    """The command line as the engine understands it, defaults included. Sizes in MiB."""

    values: dict[str, str | int | float | bool]

    def number(self, flag: str, default: int = 0) -> int:
        """A number; ``default`` where the flag is absent."""
        value = self.values.get(flag, default)
        return int(value) if isinstance(value, int | float) else atoi(value)

    def text(self, flag: str, default: str = "") -> str:
        """A text; ``default`` where the flag is absent."""
        return str(self.values.get(flag, default))

    @property
    def depth(self) -> int:
        """Draft tokens a step: "auto" is the two of this model's own head."""
        word = self.text("--num-speculative-tokens", "auto")
        return 2 if word == "auto" else atoi(word)


def parse(argv: Sequence[str], version: Version) -> Options:
    """Raises BadCommandLine with the line that the engine logs."""
    values: dict[str, str | int | float | bool] = {}
    words = iter(argv)
    for word in words:
        name = "--gpu-headroom-mib" if word == "--gpu-headroom" else word
        flag = FLAGS.get(name)
        if name == "--draft-model":
            raise BadCommandLine("--draft-model is not implemented: the drafter is merged when a model is converted")
        if flag is None or not flag.since <= version < flag.removed:
            raise BadCommandLine(f"unknown option '{name}'")
        if flag.kind == "switch":
            values[name] = True
            continue
        value = next(words, None)
        if value is None:
            raise BadCommandLine(f"{name} needs an argument")
        if flag.ok is not None and not flag.ok(value):
            raise BadCommandLine(f"{name} takes {flag.takes}, not '{value}'")
        values[name] = {"int": atoi, "float": atof}.get(flag.kind, str)(value)
    if not values.get("--model"):
        raise BadCommandLine("--model is required")
    if Options(values).number("--tp", 1) < 1:
        raise BadCommandLine("--tp must be >= 1")
    if any(isinstance(value, float) and not math.isfinite(value) for value in values.values()):
        raise BadCommandLine("a number is not finite")
    return Options(values)
