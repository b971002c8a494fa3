"""Options of ``docker run`` and ``podman run`` that end an engine early or let it loop."""

from __future__ import annotations

from collections.abc import Iterator

from archonctl.engines.knobs.versions import version_key
from archonctl.findings import Finding, Severity
from archonctl.foreign.containers import Container
from archonctl.foreign.launch import Launch
from archonctl.foreign.words import Word
from archonctl.gate.judge import version_of
from archonctl.gate.mounts import wrong_mounts
from archonctl.gate.source import Source
from archonctl.gate.unit.service import STOP_S

_DEFAULT_STOP_S = 10.0
_SERVE_SINCE = version_key("vllm", "0.11.1")
"""From here the entrypoint of vllm/vllm-openai is ``vllm serve`` (vllm-project/vllm#25967)."""
_PARSED_SINCE = version_key("vllm", "0.10.0")


def container_findings(source: Source, launch: Launch) -> Iterator[Finding]:
    """What the container around an engine does to it."""
    container = launch.container
    if container is None:
        return
    if launch.first == "program":
        yield _again(source, launch, container)
    elif launch.first == "model":
        yield from _model(source, launch, container)
    if container.runtime not in ("compose", "kubernetes"):  # their own keys say this
        yield from _stop(source, launch, container)
        yield from _memlock(source, launch, container)
    for limit in container.all("memory"):
        message = f"a memory limit of {limit.text} also counts pinned memory and the page cache of the weights"
        yield Finding("container-memory-limit", "warning", message, source.place(limit), "take the limit out")
    yield from _mounts(source, launch, container)


def _again(source: Source, launch: Launch, container: Container) -> Finding:
    """The image's entrypoint gets the whole command as arguments."""
    words, image = " ".join(word.text for word in container.command[:3]), container.image.text
    message = f"the entrypoint of {image[:80]} starts {launch.kind} already: {words[:80]!r} are its arguments"
    place = source.place(container.command[0] if container.command else container.image)
    fix = "begin with the model or the first option, or set the entrypoint too"
    return Finding("container-entrypoint-twice", "error", message, place, fix)


def _model(source: Source, launch: Launch, container: Container) -> Iterator[Finding]:
    """A model as the first word: the server module that older images start does not serve it."""
    version = version_of(source, launch)
    if launch.kind == "vllm" and version and version_key("vllm", version) < _SERVE_SINCE:
        model = container.command[0]
        message = f"the image of vllm {version} starts its server module, which takes --model: {model.text[:60]!r} is "
        message += "refused" if version_key("vllm", version) < _PARSED_SINCE else "parsed, and the default model served"
        fix = f"write --model {model.text[:60]}"
        yield Finding("model-argument-missing", "error", message, source.place(model), fix)


def _stop(source: Source, launch: Launch, container: Container) -> Iterator[Finding]:
    stop, needed = container.all("stop-timeout"), STOP_S[launch.kind]
    given = float(stop[-1].text) if stop and stop[-1].text.isdigit() else None
    if (given if given is not None else _DEFAULT_STOP_S) < needed and not (stop and given is None):
        shown = f"--stop-timeout {given:g}" if given is not None else "no --stop-timeout, which means 10 s"
        message = f"{shown}, and {launch.kind} may take {needed:g} s to stop: it is killed before its cards are free"
        severity: Severity = "warning" if launch.kind == "radiance" or given is not None else "note"
        place = source.place(stop[-1] if stop else container.image)
        yield Finding("container-stop-timeout", severity, message, place, f"--stop-timeout {needed:g}")


def _memlock(source: Source, launch: Launch, container: Container) -> Iterator[Finding]:
    if launch.kind == "radiance" and not any(word.text.startswith("memlock=") for word in container.all("ulimit")):
        message = "radiance pins its host pool, and the container has no --ulimit memlock=-1:-1"
        yield Finding("unit-memlock", "error", message, source.place(container.image), "--ulimit memlock=-1:-1")


def _mounts(source: Source, launch: Launch, container: Container) -> Iterator[Finding]:
    if any(word.unresolved for word in container.all("volume")) or container.all("mount"):
        return
    volumes: tuple[Word, ...] = container.all("volume")
    for wrong in wrong_mounts(launch.kind, version_of(source, launch), [word.text for word in volumes]):
        rule = wrong.rule
        if wrong.index is None:
            message = f"no mount gives the container {rule.target}: {rule.why}"
            place, fix = source.place(container.image), f"--volume /var/lib/{rule.engine}/{rule.name}:{rule.target}"
            yield Finding("mount-missing", "error", message, place, fix)
        else:
            word = volumes[wrong.index]
            message = f"mount {word.text[:80]!r} gives the container {rule.target}: {rule.why}"
            yield Finding("mount-forbidden", "error", message, source.place(word), "take it out")
