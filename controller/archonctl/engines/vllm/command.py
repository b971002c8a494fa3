"""The command line of ``vllm serve``: what decides memory is written out, the other knobs by their table."""

from __future__ import annotations

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import CommandLine
from archonctl.engines.container import Needs, contained
from archonctl.engines.listening import bind
from archonctl.engines.passed_on import Words, passed_on, table
from archonctl.engines.vllm.flags import flags_version, judged
from archonctl.engines.vllm.settings import ALIASES, Settings, settings_of
from archonctl.errors import DeclarationError

NEEDS = Needs(
    # images differ in their entrypoint: the server's module before 0.11, "vllm serve" later; all have this program
    entrypoint=("vllm",),
    # ranks of one engine talk through shared memory, and a container has 64 MiB of it
    shm="host",
)
"""Source: vLLM docs/deployment/docker.md (--ipc=host or --shm-size), docker/Dockerfile."""
RENDERED = frozenset(
    {
        "max-model-len", "max-num-seqs", "max-num-batched-tokens", "gpu-memory-utilization", "kv-cache-dtype",
        "kv-cache-memory-bytes", "num-gpu-blocks-override", "block-size", "tensor-parallel-size",
        "pipeline-parallel-size",
    }
)  # fmt: skip


def command_line(endpoint: Endpoint) -> CommandLine:
    """argv and environment for one declaration.

    Raises DeclarationError: ``engine-binary-missing``, ``listen-invalid`` and those of ``passed_on``, ``contained``,
    ``judged`` and ``settings_of``.
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
    host, port = bind(endpoint)
    named = ("--served-model-name", endpoint.model.served_name) if endpoint.model.served_name else ()
    notes = list[str]()
    arguments = [Words(("--host", host, "--port", str(port), *named)), *_knobs(endpoint, notes)]
    argv = ["serve", endpoint.model.path, *(word for part in arguments for word in part.words)]
    if endpoint.engine.image:
        return contained(endpoint, NEEDS, argv, notes)
    return CommandLine((endpoint.engine.binary, *argv), dict(endpoint.engine.env), tuple(notes))


def engine_words(endpoint: Endpoint) -> tuple[str, ...]:
    """The flags alone, without program, model and address. Raises as ``check_knobs``."""
    return tuple(word for part in _knobs(endpoint, []) for word in part.words)


def check_knobs(endpoint: Endpoint) -> None:
    """Raise what ``command_line`` would raise for a knob or a variable of the declared version."""
    _knobs(endpoint, [])


def _knobs(endpoint: Endpoint, notes: list[str]) -> list[Words]:
    """What the settings decide, then the other knobs, all of it judged."""
    known = table("vllm", flags_version(endpoint.engine.version))
    words = _capacity(settings_of(endpoint))
    words += passed_on(endpoint, known, RENDERED, ALIASES, notes)
    notes += judged(endpoint, known.version, words)
    return words


def _capacity(settings: Settings) -> list[Words]:
    values = {
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
    return [Words((f"--{name}", str(value)), _place(settings, name)) for name, value in values.items() if value != ""]


def _place(settings: Settings, name: str) -> str:
    """Where the declaration says what a flag gets; empty where it is the engine's default, written out."""
    if settings.declares(name):
        return f"engine.knobs.{settings.keys[name]}"
    return "contract.kv_dtype" if name == "kv-cache-dtype" else ""
