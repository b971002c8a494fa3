"""A shell script as tokens: words with their quoting kept apart, operators and line ends. Expands and runs nothing.

Source: POSIX.1-2024 XCU 2.2 "Quoting", 2.3 "Token Recognition", 2.6 "Word Expansions"; bash(1) for ``$'…'``, arrays
and ``[[``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

_OPERATORS = ("<<<", "<<-", "&>>", "&&", "||", ";;&", ";&", ";;", "|&", "<<", ">>", "<&", ">&", "<>", ">|", "&>")
REDIRECTS = ("<<<", "<<-", "&>>", "<<", ">>", "<&", ">&", "<>", ">|", "&>", "<", ">")
_META = " \t\r\n;&|()<>"
_PLAIN = re.compile(r"[^\s;&|()<>'\"\\$`#]+|#")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!-]")
_BRACED = re.compile(
    r"(?P<name>[A-Za-z_][A-Za-z0-9_]*|[@*]|[0-9]+)(?P<all>\[[@*]\])?"
    r"(?:(?P<op>:?[-=?])(?P<word>[^{}]*)|(?P<set>:?\+)\"?\$\{(?P=name)(?P<same>\[[@*]\])?\}\"?)?"
)
_LITERAL_DEFAULT = re.compile(r"\"[^\"$`\\]*\"|'[^']*'|[^\"'$`\\]*")
_GLOB = re.compile(r"[*?]|\[[^\]]+\]|\{[^{}]*(?:,|\.\.)[^{}]*\}")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word, ``raw`` as written.

    ``literal`` means itself; ``variable`` is ``name`` (``ARGS[@]`` for a whole array), with a literal ``default``,
    which ``${NAME:=…}`` also ``assigns``; ``opaque`` is anything that only a shell can tell.
    """

    kind: Literal["literal", "variable", "opaque"]
    raw: str
    at: int
    quoted: bool = False
    name: str = ""
    default: str | None = None
    assigns: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A word (its parts), an operator (``text``) or a line end (``text`` is a line break)."""

    kind: Literal["word", "operator"]
    text: str
    at: int
    parts: tuple[Part, ...] = ()
    glued: bool = False
    """An operator that follows the word before it without a space (``2>``, ``ARGS=(``)."""
    elements: tuple[Token, ...] | None = None
    """The words between the brackets of an array assignment."""

    def is_word(self, *texts: str) -> bool:
        """True for an unquoted literal word that is one of ``texts``: a reserved word, say."""
        return (
            self.kind == "word" and self.text in texts and all(p.kind == "literal" and not p.quoted for p in self.parts)
        )


@dataclass
class Tokens:
    """The tokens of a text. ``broken`` says where a quote or a bracket is never closed (offset and what)."""

    text: str
    at: int = 0
    broken: tuple[int, str] | None = None
    _heredocs: list[tuple[str, bool]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Token]:
        text, end_of_last = self.text, -1
        while (token := self._next(end_of_last)) is not None:
            yield token
            end_of_last = self.at
            if token.kind == "operator" and token.text in ("<<", "<<-"):
                self._note_heredoc(token.text == "<<-")
            if token.text == "\n" and token.kind == "operator":
                self._skip_heredocs()
            if self.at > len(text):
                return

    def _next(self, end_of_last: int) -> Token | None:
        text = self.text
        while self.at < len(text):
            if text.startswith("\\\n", self.at):
                self.at += 2
            elif text[self.at] in " \t\r":
                self.at += 1
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                break
        if self.at >= len(text):
            return None
        start = self.at
        if text[start] not in _META:
            return self._word()
        operator = next((op for op in _OPERATORS if text.startswith(op, start)), text[start])
        self.at += len(operator)
        return Token("operator", operator, start, glued=start == end_of_last)

    def _note_heredoc(self, strips_tabs: bool) -> None:
        found = re.compile(r"[ \t]*(?:'([^'\n]*)'|\"([^\"\n]*)\"|\\?([^\s;&|()<>'\"]+))").match(self.text, self.at)
        if found:
            self._heredocs.append((found[1] or found[2] or found[3] or "", strips_tabs))

    def _skip_heredocs(self) -> None:
        for mark, strips_tabs in self._heredocs:
            lead = r"\t*" if strips_tabs else ""
            found = re.compile(rf"^{lead}{re.escape(mark)}[ \t]*$", re.MULTILINE).search(self.text, self.at)
            if found is None:
                self.broken = self.broken or (self.at, f"the here-document {mark[:40]!a} has no end")
                self.at = len(self.text)
                break
            self.at = min(found.end() + 1, len(self.text))
        self._heredocs.clear()

    def _word(self) -> Token:
        text, start, parts = self.text, self.at, list[Part]()
        while self.at < len(text) and text[self.at] not in _META:
            char = text[self.at]
            if char == "'":
                parts.append(self._single())
            elif char == '"' or text.startswith('$"', self.at):
                parts += self._double()
            elif text.startswith("$'", self.at):
                parts.append(self._ansi())
            elif char in "$`":
                parts.append(self._expansion(quoted=False))
            elif char == "\\":
                if not text.startswith("\\\n", self.at):
                    parts.append(Part("literal", text[self.at + 1 : self.at + 2], self.at, quoted=True))
                self.at += 2
            else:
                found = _PLAIN.match(text, self.at)
                plain = found[0] if found else char
                parts.append(Part("opaque" if _GLOB.search(plain) else "literal", plain, self.at))
                self.at += len(plain)
        self.at = min(self.at, len(text))
        return Token("word", "".join(part.raw for part in parts), start, tuple(parts))

    def _single(self) -> Part:
        end = self._find("'", self.at + 1, "a single quote")
        part = Part("literal", self.text[self.at + 1 : end], self.at + 1, quoted=True)
        self.at = end + 1
        return part

    def _ansi(self) -> Part:
        found = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL).match(self.text, self.at)
        if found is None:
            self.broken = self.broken or (self.at, "a quote is never closed")
            raw, self.at = self.text[self.at :], len(self.text)
            return Part("opaque", raw, self.at, quoted=True)
        at, self.at = self.at, found.end()
        if re.search(r"\\[0-9xuUc]", found[1]):
            return Part("opaque", found[0], at, quoted=True)
        decoded = re.sub(r"\\(.)", lambda escape: _ANSI.get(escape[1], escape[1]), found[1], flags=re.DOTALL)
        return Part("literal", decoded, at, quoted=True)

    def _double(self) -> Iterator[Part]:
        text = self.text
        self.at += 2 if text[self.at] == "$" else 1
        opened, empty = self.at - 1, True
        while self.at < len(text) and text[self.at] != '"':
            char, start = text[self.at], self.at
            if char == "\\" and text[self.at + 1 : self.at + 2] in tuple('$`"\\\n'):
                self.at += 2
                if text[start + 1] != "\n":
                    yield Part("literal", text[start + 1], start, quoted=True)
            elif char in "$`":
                yield self._expansion(quoted=True)
            else:
                found = re.compile(r'\\|[^"\\$`]+').match(text, start)
                run = found[0] if found else char
                self.at += len(run)
                yield Part("literal", run, start, quoted=True)
            empty = False
        if empty:
            yield Part("literal", "", opened, quoted=True)
        if self.at >= len(text):
            self.broken = self.broken or (opened, "a quote is never closed")
        self.at += 1

    def _expansion(self, *, quoted: bool) -> Part:
        text, start = self.text, self.at
        if text[start] == "`":
            self.at = self._find("`", start + 1, "a backquote") + 1
            return Part("opaque", text[start : self.at], start, quoted)
        if text.startswith("$(", start):
            self.at = self._closing(start + 1, "(", ")")
            return Part("opaque", text[start : self.at], start, quoted)
        if text.startswith("${", start):
            self.at = self._closing(start + 1, "{", "}")
            return _braced(text[start : self.at], start, quoted)
        found = _NAME.match(text, start + 1)
        if found is None:
            self.at += 1
            return Part("literal", "$", start, quoted)
        self.at = found.end()
        return Part("variable", f"${found[0]}", start, quoted, name=found[0])

    def _closing(self, at: int, opening: str, closing: str) -> int:
        """The offset after the bracket that closes the one at ``at``; quotes within are skipped."""
        depth = 0
        for found in re.compile(rf"\\.|'[^']*'|[{re.escape(opening + closing)}]", re.DOTALL).finditer(self.text, at):
            depth += (found[0] == opening) - (found[0] == closing)
            if depth == 0:
                return found.end()
        self.broken = self.broken or (at, f"{opening} is never closed")
        return len(self.text)

    def _find(self, mark: str, at: int, what: str) -> int:
        end = self.text.find(mark, at)
        if end < 0:
            self.broken = self.broken or (at - 1, f"{what} is never closed")
            return len(self.text)
        return end


def _braced(raw: str, at: int, quoted: bool) -> Part:
    """``${NAME}``, ``${NAME[@]}``, ``${NAME:-literal}``; what else a brace can do is opaque."""
    found = _BRACED.fullmatch(raw[2:-1])
    if found is None or (found["set"] and bool(found["same"]) != bool(found["all"]) and found["same"] is None):
        return Part("opaque", raw, at, quoted)
    name = found["name"] + ("[@]" if found["all"] or found["same"] else "")
    if not found["op"] or found["op"].endswith("?"):
        return Part("variable", raw, at, quoted, name=name)
    if not _LITERAL_DEFAULT.fullmatch(found["word"]):
        return Part("opaque", raw, at, quoted)
    return Part("variable", raw, at, quoted, name=name, default=found["word"].strip("\"'"), assigns="=" in found["op"])
