"""``llama-fit-params``: llama.cpp's own planner, which loads no weights and answers in some 20 ms.

With ``--fit-print on`` (tools/fit-params, common/fit.cpp ``common_fit_print``) it prints a line a device: name, and MiB
of model, context and compute, each rounded down. It takes the common flags of llama-server, but not those of its slots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from archonctl.deployment.schema import Endpoint
from archonctl.engines.knobs import render
from archonctl.engines.llamacpp import memory
from archonctl.engines.llamacpp.assess import Assessment, assess
from archonctl.engines.oracle import Figure, Question
from archonctl.engines.passed_on import table
from archonctl.host.profile import Host
from archonctl.memory.interval import MIB, Interval
from archonctl.model.geometry import ModelFacts

PROGRAM = "llama-fit-params"
PASSED_ON = frozenset(
    {
        *("swa-full", "override-kv", "rope-scaling", "rope-scale", "rope-freq-scale", "yarn-orig-ctx"),
        *("gpu-layers", "split-mode", "tensor-split", "main-gpu", "device", "override-tensor", "cpu-moe", "n-cpu-moe"),
        *("n-cpu-ffn", "kv-offload", "no-host", "rpc", "load-mode"),
    }
)
"""Knobs that it takes too and that move memory."""

_LINE = re.compile(r"^(?P<device>\S+) (?P<model>\d+) (?P<context>\d+) (?P<compute>\d+) *$", re.MULTILINE)


class FitParams:
    """The oracle of llama-server."""

    name = PROGRAM

    def question(self, endpoint: Endpoint, host: Host, model: ModelFacts | None) -> Question:
        """``llama-fit-params`` beside engine.binary, or engine.oracle, with the flags that decide memory."""
        now = assess(endpoint, host, model)
        binary = endpoint.engine.binary
        program = endpoint.engine.oracle or (str(Path(binary).with_name(PROGRAM)) if binary else "")
        return Question(
            (program, *_flags(now)),
            unaskable=_unaskable(now, model),
            ready=f"it lies beside llama-server in every build of llama.cpp; or set engine.oracle = /path/to/{PROGRAM}",
        )

    def read(self, text: str, endpoint: Endpoint, host: Host, model: ModelFacts | None) -> tuple[Figure, ...]:
        """Context exactly, weights to the MiB, compute within the stated error."""
        now = assess(endpoint, host, model)
        rows = [match.groupdict() for match in _LINE.finditer(text)]
        return tuple(_figures(rows, now, model)) if rows else ()


ORACLE = FitParams()


def _unaskable(now: Assessment, model: ModelFacts | None) -> str:
    if model is None or model.geometry is None or now.kv is None:
        return "the plan knows no geometry to compare with"
    kinds = {layer.attention for layer in model.geometry.layers}
    if now.settings.kv.kv_unified and now.settings.kv.n_seq_max > 1 and kinds & {"sliding", "recurrent"}:
        return f"{PROGRAM} does not know --kv-unified, which decides the cells behind a window and the states"
    return ""


def _flags(now: Assessment) -> Iterator[str]:
    kv, shape = now.settings.kv, now.shape
    context = kv.n_ctx or (shape.n_ctx if shape else 0)  # --ctx-size 0 is resolved by --fit, which is not run here
    slots = 1 if kv.kv_unified else kv.n_seq_max
    yield from ("--model", now.endpoint.model.path, "--ctx-size", str(context), "--parallel", str(slots))
    yield from ("--batch-size", str(kv.n_batch), "--ubatch-size", str(kv.n_ubatch))
    yield from ("--cache-type-k", kv.type_k, "--cache-type-v", kv.type_v)
    yield from ("--flash-attn", "auto" if kv.flash_attn else "off")
    known = table("llamacpp", now.endpoint.engine.version)
    for key, value in now.endpoint.engine.knobs.items():
        found = known.find(key)
        if found and found[0].flag in PASSED_ON:
            yield from render(key, *found, value)
    yield from ("--fit-print", "on")


def _figures(rows: list[dict[str, str]], now: Assessment, model: ModelFacts | None) -> Iterator[Figure]:
    parts = now.spread.parts if now.spread else ()
    if len(rows) == len(parts) > 1:  # the devices in use first, RAM last
        for row, part in zip(rows, (*parts[1:], parts[0]), strict=True):
            of = f" of {row['device']}"
            yield from _row(row, of, part.share.kv, part.share.weights, part.compute)
        return
    whole = {name: str(sum(int(row[name]) for row in rows)) for name in ("model", "context", "compute")}
    weights = memory.weights(model).bytes if model else None
    spread = len(rows) - 1  # each device's figure was rounded down by itself
    compute = now.compute if not spread else None
    yield from _row(whole, "", now.kv.bytes if now.kv else None, weights if not spread else None, compute, spread)


def _row(
    row: dict[str, str], of: str, kv: int | None, weights: int | None, compute: Interval | None, spread: int = 0
) -> Iterator[Figure]:
    yield Figure(f"context{of}", "MiB", int(row["context"]), _floored(kv, spread))
    yield Figure(f"model{of}", "MiB", int(row["model"]), _floored(weights, spread))
    ends = Interval(compute.low // MIB, compute.best / MIB, compute.high / MIB, "assumed") if compute else None
    yield Figure(f"compute{of}", "MiB", int(row["compute"]), ends, exact=False)


def _floored(size: int | None, spread: int) -> Interval | None:
    """Bytes as its MiB, each of ``spread`` more devices having lost up to one."""
    if size is None:
        return None
    mib = size // MIB
    return Interval(max(0, mib - spread), mib, mib)
