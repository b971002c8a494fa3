"""Kubernetes manifests: every container of a pod template with its command line and environment, each with its place.

Only the nodes of the YAML are read. ``$(NAME)`` is filled from the container's own ``env`` where that has its value,
``$$`` is a dollar. Source: core/v1 Container (command, args, env).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from archonctl.foreign.words import Command, Setting, Word
from archonctl.foreign.yaml_text import reading_yaml

NODE_LIMIT = 20_000
_DEPTH = 32
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True, slots=True)
class PodContainer:
    """One container. ``command`` has the words of ``command`` and ``args`` together; ``own_program`` is True where
    ``command`` is stated, so that the image's own is not run. ``liveness`` is where a livenessProbe stands.
    """

    image: Word | None
    command: Command
    own_program: bool
    liveness: Word | None
    has_startup: bool
    memory_limit: Word | None


def read_manifest(text: str, where: str) -> tuple[PodContainer, ...]:
    """The containers of every document. Raises UsageError ``foreign-file-malformed`` for what is no YAML."""
    with reading_yaml(where):
        roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        return tuple(each for root in roots for each in _Reader().containers(root))


class _Reader:
    """One document; an alias is read where it stands, and no more than ``NODE_LIMIT`` nodes in all."""

    def __init__(self) -> None:
        self._left = NODE_LIMIT

    def containers(self, node: yaml.Node | None, depth: int = 0) -> Iterator[PodContainer]:
        self._left -= 1
        if depth > _DEPTH or self._left < 0:
            return
        if isinstance(node, yaml.SequenceNode):
            for each in node.value:
                yield from self.containers(each, depth + 1)
        for key, value in _items(node):
            if key in ("containers", "initContainers") and isinstance(value, yaml.SequenceNode):
                yield from (_container(each) for each in value.value if isinstance(each, yaml.MappingNode))
            else:
                yield from self.containers(value, depth + 1)


def _container(node: yaml.Node) -> PodContainer:
    parts = dict(_items(node))
    env = tuple(_environment(parts.get("env")))
    known = {each.name: each.value.text for each in env if not each.inherited}
    command = tuple(_filled(word, known) for word in _words(parts.get("command")))
    words = (*command, *(_filled(word, known) for word in _words(parts.get("args"))))
    limits = dict(_items(dict(_items(parts.get("resources"))).get("limits")))
    name, liveness = parts.get("name"), parts.get("livenessProbe")
    label = f"container {name.value}" if isinstance(name, yaml.ScalarNode) else "container"
    return PodContainer(
        _scalar(parts.get("image")),
        Command(words, env, label),
        bool(command),
        Word("livenessProbe", *_place(liveness)) if isinstance(liveness, yaml.MappingNode) else None,
        isinstance(parts.get("startupProbe"), yaml.MappingNode),
        _scalar(limits.get("memory")),
    )


def _items(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node]]:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode):
            yield str(key.value), value


def _words(node: yaml.Node | None) -> Iterator[Word]:
    for each in node.value if isinstance(node, yaml.SequenceNode) else ():
        if (word := _scalar(each)) is not None:
            yield word


def _environment(node: yaml.Node | None) -> Iterator[Setting]:
    for each in node.value if isinstance(node, yaml.SequenceNode) else ():
        parts = dict(_items(each))
        name, value = _scalar(parts.get("name")), _scalar(parts.get("value"))
        if name is not None:
            word = value or Word("", name.line, name.column)
            yield Setting(name.text, word, inherited="valueFrom" in parts)


def _filled(word: Word, env: Mapping[str, str]) -> Word:
    open_names = list[str]()

    def fill(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        if found[1] not in env:
            open_names.append(found[0])
        return env.get(found[1], found[0])

    text = _REFERENCE.sub(fill, word.text)
    return Word(text, word.line, word.column, tuple(open_names))


def _scalar(node: yaml.Node | None) -> Word | None:
    return Word(str(node.value), *_place(node)) if isinstance(node, yaml.ScalarNode) else None


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
