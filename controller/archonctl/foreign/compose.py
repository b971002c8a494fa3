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
from archonctl.foreign.yaml_text import reading_yaml

_EXPRESSION = re.compile(r"\$\$|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\$[A-Za-z_][A-Za-z0-9_]*")
_MARK = re.compile("[\ue000\ue001]([0-9]+)\ue002")
"""Within a filled text: a variable that stays open (its number), or one whose default follows."""

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
    cleared: bool = False
    """True if ``entrypoint`` is stated as nothing: the command is the whole command line."""


@dataclass(frozen=True, slots=True)
class Compose:
    """A compose file."""

    services: tuple[Service, ...]
    unread: tuple[Unread, ...]


def read_compose(text: str, where: str) -> Compose:
    """Read a compose file. Raises UsageError ``foreign-file-malformed`` for what is no YAML or has no services."""
    with reading_yaml(where):
        root = yaml.compose(text, Loader=yaml.SafeLoader)
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
            cleared=not entry and not self._is_unset(parts.get("entrypoint")),
        )

    @staticmethod
    def _is_unset(node: yaml.Node | None) -> bool:
        return node is None or (isinstance(node, yaml.ScalarNode) and _is_null(node))

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
        filled = _Filled(str(node.value))
        try:
            texts = shlex.split(filled.text)
        except ValueError as err:
            self.unread.append(Unread("command", f"not split into words: {err}", *_place(node)))
            return ()
        at, words = node.start_mark.index, list[Word]()
        for text in texts:
            bare = _MARK.sub(filled.shown, text)
            if text and not bare:  # a default of nothing is no word
                continue
            found = self._text.find(bare, at, node.end_mark.index) if bare else -1
            line, column = self._at(found if found >= 0 else at)
            at = found + len(bare) if found >= 0 else at
            words.append(filled.word(text, line, column))
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
    filled = _Filled(text)
    return filled.word(filled.text, line, column)


class _Filled:
    """A text with its defaults filled in, nested ones too; what nothing fills is marked, and stays one word."""

    def __init__(self, text: str) -> None:
        self._names: list[str] = []
        self.text = self._fill(re.sub("[\ue000-\ue002]", "", text), 0)

    def word(self, text: str, line: int, column: int) -> Word:
        """A piece of the filled text as a word."""
        marks = {kind: [self._names[int(found[1])] for found in _MARK.finditer(text) if found[0][0] == kind]
                 for kind in "\ue000\ue001"}  # fmt: skip
        opened, assumed = (tuple(dict.fromkeys(names)) for names in marks.values())
        return Word(_MARK.sub(self.shown, text), line, column, opened, assumed)

    def shown(self, found: re.Match[str]) -> str:
        """A mark as a reader sees it: the expression itself where it is open, nothing before a default."""
        return self._names[int(found[1])] if found[0][0] == "\ue000" else ""

    def _marked(self, kind: str, name: str) -> str:
        self._names.append(name)
        return f"{kind}{len(self._names) - 1}\ue002"

    def _fill(self, text: str, depth: int) -> str:
        out, at = [], 0
        while found := _EXPRESSION.search(text, at):
            out.append(text[at : found.start()])
            if found[0] == "$$":
                out.append("$")
                at = found.end()
            elif found["name"] is None:
                out.append(self._marked("\ue000", found[0]))
                at = found.end()
            else:
                at = _closing(text, found.end())
                rest = text[found.end() : at - 1]
                default = re.fullmatch(r":?-(.*)", rest, re.DOTALL)
                if default and depth < 8:
                    out += [self._marked("\ue001", found["name"]), self._fill(default[1], depth + 1)]
                else:
                    out.append(self._marked("\ue000", text[found.start() : at]))
        return "".join([*out, text[at:]])


def _closing(text: str, at: int) -> int:
    """Behind the brace that closes an expression whose inside begins at ``at``; the end of the text without one."""
    depth = 1
    while at < len(text):
        if text.startswith("${", at):
            depth += 1
            at += 1
        elif text[at] == "}":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return at + 1
