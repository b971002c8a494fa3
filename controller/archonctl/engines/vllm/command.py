"""The command line of ``vllm serve``: what decides memory is written out, the other knobs are passed on.

No table of vLLM's flags is shipped yet, so a knob that this version does not have is found by vLLM itself
("unrecognized arguments", exit 2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from archonctl.deployment.schema import Endpoint, KnobValue
from archonctl.engines.base import CommandLine
from archonctl.engines.container import Needs, contained
from archonctl.engines.knob_values import spelled
from archonctl.engines.listening import bind
from archonctl.engines.vllm.settings import ALIASES, Settings, settings_of
from archonctl.errors import DeclarationError

UNCHECKED = "flags of vLLM are not yet checked against a table: vLLM itself refuses one that it does not know"
NEEDS = Needs(
    # images differ in their entrypoint: the server's module before 0.11, "vllm serve" later; all have this program
    entrypoint=("vllm",),
    # ranks of one engine talk through shared memory, and a container has 64 MiB of it
    shm="host",
)
"""Source: vLLM docs/deployment/docker.md (--ipc=host or --shm-size), docker/Dockerfile."""
_RENDERED = frozenset(
    {
        "max-model-len", "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization", "kv-cache-dtype",
        "kv-cache-memory-bytes", "num-gpu-blocks-override", "block-size", "tensor-parallel-size",
        "pipeline-parallel-size",
    }
)  # fmt: skip
_RESERVED = {
    "model": "set [model] path",
    "host": "set [service] listen",
    "port": "set [service] listen",
    "uds": "set [service] listen",
    "served-model-name": "set [model] served_name",
    "config": "write its flags under [engine.knobs]: a file of flags would escape the plan",
    "headless": "an endpoint has an HTTP surface",
}


def command_line(endpoint: Endpoint) -> CommandLine:
    """argv and environment for one declaration.

    Raises DeclarationError: ``engine-binary-missing``, ``listen-invalid``, ``knob-reserved``, ``knob-secret``,
    ``knob-bad-value`` and those of ``settings_of``.
    """
    if not endpoint.engine.binary and not endpoint.engine.image:
        raise DeclarationError(
            "engine-binary-missing",
            "neither a binary nor an image of vLLM is declared",
            where="engine.binary",
            hint='set engine.binary = "/path/to/venv/bin/vllm", or engine.image by digest',
        )
    if endpoint.service.api_key_file:
        message = "vLLM takes its API key on the command line or in the environment, not from a file"
        raise DeclarationError(
            "knob-secret", message, where="service.api_key_file", hint="put a proxy that checks the key in front"
        )
    settings = settings_of(endpoint)
    host, port = bind(endpoint)
    argv = ["serve", endpoint.model.path, "--host", host, "--port", str(port)]
    argv += ["--served-model-name", endpoint.model.served_name] if endpoint.model.served_name else []
    argv += _capacity(settings)
    for key, value in sorted(endpoint.engine.knobs.items(), key=lambda item: spelled(item[0])):
        argv += _passed(key, value)
    if endpoint.engine.image:
        return contained(endpoint, NEEDS, argv, (UNCHECKED,))
    return CommandLine((endpoint.engine.binary, *argv), dict(endpoint.engine.env), (UNCHECKED,))


def _capacity(settings: Settings) -> list[str]:
    words = {
        "max-model-len": settings.max_model_len,
        "max-num-seqs": settings.max_num_seqs,
        "max-num-batched-tokens": settings.batched_tokens,
        "gpu-memory-utilization": "" if settings.cpu and settings.cpu_space_gib else f"{settings.utilisation:g}",
        "kv-cache-dtype": settings.kv_dtype,
        "kv-cache-memory-bytes": settings.kv_memory_bytes or "",
        "num-gpu-blocks-override": settings.blocks_override or "",
        "block-size": settings.block_tokens or "",
        "tensor-parallel-size": settings.tp if settings.tp > 1 else "",
        "pipeline-parallel-size": settings.pp if settings.pp > 1 else "",
    }
    return [word for name, value in words.items() if value != "" for word in (f"--{name}", str(value))]


def _passed(key: str, value: KnobValue) -> Iterator[str]:
    """One other knob in canonical form: ``--name value``, or a bare flag for true and ``--no-name`` for false."""
    name = ALIASES.get(spelled(key), spelled(key))
    where = f"engine.knobs.{key}"
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise DeclarationError("knob-bad-value", f"{key[:80]!r} is no name of a flag", where=where)
    if name in _RESERVED:
        raise DeclarationError("knob-reserved", f"--{name} is no knob", where=where, hint=_RESERVED[name])
    if name in ("api-key", "hf-token"):
        raise DeclarationError(
            "knob-secret",
            f"--{name} on a command line can be read by every user of the host",
            where=where,
            hint="keep it in an environment file that only the service reads",
        )
    if name in _RENDERED:
        return
    if isinstance(value, bool):
        positive = name.removeprefix("no-")
        yield f"--{positive}" if value == (positive == name) else f"--no-{positive}"
    else:
        yield f"--{name}"
        yield str(value)
