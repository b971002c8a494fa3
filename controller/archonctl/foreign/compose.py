"""docker-compose files: each service with its command line, environment and what it mounts, every part with its place.

Only the nodes of the YAML are read, never built into objects; an alias stands for the node it names. Source: the
Compose specification (services, interpolation).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from archonctl.errors import UsageError
from archonctl.foreign.words import Command, Setting, Unread, Word

_VARIABLE = re.compile(
    r"\$\$|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::?-(?P<default>[^${}]*))?[^{}]*\}|\$[A-Za-z_][A-Za-z0-9_]*"
)


NODE_LIMIT = 20_000
"""Values that are read of one file: an alias is cheap to write and can stand for any number of them."""


@dataclass(frozen=True, slots=True)
class Service:
    """One service. ``command`` has the words of ``entrypoint`` and ``command`` together; ``others`` every other key.

    ``settings`` has the values of ``others`` as flat words (``volumes``, ``ports``, ``devices``…): a long form of a
    volume or port is one word ``source:target[:ro]``.
    """

    name: str
    image: Word | None
    command: Command
    entrypoint: bool
    """True if ``entrypoint`` is stated: the image's own program is not run."""
    others: dict[str, tuple[Word, ...]]
    line: int


@dataclass(frozen=True, slots=True)
class Compose:
    """A compose file."""

    services: tuple[Service, ...]
    unread: tuple[Unread, ...]


def read_compose(text: str, where: str) -> Compose:
    """Read a compose file. Raises UsageError ``foreign-file-malformed`` for what is no YAML or has no services."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise UsageError(
            "foreign-file-malformed", f"not valid YAML: {err.problem or err.context}", where=place
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as err:
        message = "nested too deeply" if isinstance(err, RecursionError) else str(err).splitlines()[0][:200]
        raise UsageError("foreign-file-malformed", f"not valid YAML: {message}", where=where) from None
    reader = _Reader(text)
    services = [
        (k, node) for key, node in reader.items(root) if key.text == "services" for k, node in reader.items(node)
    ]
    if not services:
        raise UsageError("foreign-file-malformed", "there is no service in it", where=where)
    return Compose(tuple(reader.service(key, node) for key, node in services), tuple(reader.unread))


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._left = NODE_LIMIT
        self.unread: list[Unread] = []

    def service(self, name: Word, node: yaml.Node) -> Service:
        """One service of the file."""
        parts = {key.text: value for key, value in self.items(node)}
        entry = self._command(parts["entrypoint"]) if "entrypoint" in parts else ()
        command = self._command(parts["command"]) if "command" in parts else ()
        known = ("entrypoint", "command", "image", "environment")
        return Service(
            name.text,
            self._scalar(parts["image"]) if isinstance(parts.get("image"), yaml.ScalarNode) else None,
            Command((*entry, *command), tuple(self._environment(parts.get("environment"))), f"service {name.text}"),
            bool(entry),
            {key: tuple(self._flat(value)) for key, value in parts.items() if key not in known},
            name.line,
        )

    def items(self, node: yaml.Node | None, depth: int = 0) -> Iterator[tuple[Word, yaml.Node]]:
        """The pairs of a mapping; ``<<`` merges come first, so that the mapping's own keys win."""
        if not isinstance(node, yaml.MappingNode) or depth > 8 or self._spent():
            return
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == "<<":
                for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    yield from self.items(each, depth + 1)
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                yield self._scalar(key), value

    def _spent(self) -> bool:
        """True, and said once, where aliases of aliases make a file endless."""
        self._left -= 1
        if self._left == 0:
            self.unread.append(Unread("…", f"more than {NODE_LIMIT:,} values, by aliases: the rest is not read"))
        return self._left <= 0

    def _command(self, node: yaml.Node) -> tuple[Word, ...]:
        """A list is taken word by word, a text is split as a shell would."""
        if isinstance(node, yaml.SequenceNode):
            return tuple(self._scalar(each) for each in node.value if isinstance(each, yaml.ScalarNode))
        if not isinstance(node, yaml.ScalarNode) or _is_null(node):
            return ()
        try:
            texts = shlex.split(str(node.value))
        except ValueError as err:
            self.unread.append(Unread("command", f"not split into words: {err}", *_place(node)))
            return ()
        at, words = node.start_mark.index, list[Word]()
        for text in texts:
            found = self._text.find(text, at, node.end_mark.index)
            line, column = _place(node) if found < 0 else self._at(found)
            at = found + len(text) if found >= 0 else at
            words.append(_interpolated(text, line, column))
        return tuple(words)

    def _at(self, offset: int) -> tuple[int, int]:
        return self._text.count("\n", 0, offset) + 1, offset - self._text.rfind("\n", 0, offset)

    def _environment(self, node: yaml.Node | None) -> Iterator[Setting]:
        if isinstance(node, yaml.SequenceNode):
            for each in node.value:
                if isinstance(each, yaml.ScalarNode):
                    name, equals, value = str(each.value).partition("=")
                    yield Setting(name, _interpolated(value, *_place(each)), not equals)
            return
        for key, part in self.items(node):
            null = isinstance(part, yaml.ScalarNode) and _is_null(part)
            yield Setting(key.text, Word("", key.line, key.column) if null else self._scalar(part), null)

    def _flat(self, node: yaml.Node, depth: int = 0) -> Iterator[Word]:
        if self._spent():
            return
        if isinstance(node, yaml.ScalarNode):
            if not _is_null(node):
                yield self._scalar(node)
        elif depth > 8:
            self.unread.append(Unread("…", "nested too deeply for a service", *_place(node)))
        elif isinstance(node, yaml.SequenceNode):
            for each in node.value:
                long = self._long_form(each)
                yield from [long] if long else self._flat(each, depth + 1)
        else:
            for key, value in self.items(node):
                for word in self._flat(value, depth + 1):
                    yield Word(f"{key.text}={word.text}", key.line, key.column, word.unresolved, word.assumed)

    def _long_form(self, node: yaml.Node) -> Word | None:
        """``{source: a, target: b, read_only: true}`` and ``{published: a, target: b}`` in the short form."""
        parts = {key.text: self._scalar(value) for key, value in self.items(node) if isinstance(value, yaml.ScalarNode)}
        outer = parts.get("source") or parts.get("published")
        if outer is None or "target" not in parts:
            return None
        tail = ":ro" if parts.get("read_only", outer).text == "true" else ""
        return Word(f"{outer.text}:{parts['target'].text}{tail}", *_place(node), outer.unresolved, outer.assumed)

    def _scalar(self, node: yaml.Node) -> Word:
        value = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
        return _interpolated(value, *_place(node))


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _is_null(node: yaml.ScalarNode) -> bool:
    return node.tag == "tag:yaml.org,2002:null"


def _interpolated(text: str, line: int, column: int) -> Word:
    open_names: list[str] = []
    assumed: list[str] = []

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        if found["default"] is not None:
            assumed.append(found["name"])
            return found["default"]
        open_names.append(found[0])
        return found[0]

    return Word(_VARIABLE.sub(one, text), line, column, tuple(open_names), tuple(assumed))
