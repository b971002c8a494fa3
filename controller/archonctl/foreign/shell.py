"""The commands of a shell script with the variables that the script itself settles. Nothing is ever run.

Followed: assignments, arrays and ``+=``, ``export``, ``set --``, ``$NAME``, ``${NAME:-literal}``, ``"${ARGS[@]}"``,
line continuations, here-documents, the words of every command. What happens only in some runs (inside ``if``, ``case``
and loops, after a test and ``&&``, after ``||``) is marked conditional. Everything else stays as written and is named
unresolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from archonctl.foreign.shell_grammar import Grammar, Simple
from archonctl.foreign.shell_tokens import Part, Token, Tokens
from archonctl.foreign.words import WORD_LIMIT, Command, Lines, Script, Setting, Unread, Word

FIELD_LIMIT = 4096
"""Words of one command, elements of one array, pieces of one word."""

_DECLARING = ("export", "readonly", "declare", "typeset", "local")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<index>\[[^]]*\])?(?P<more>\+)?=")


@dataclass(frozen=True, slots=True)
class _Span:
    """A run of an expanded word that stands at one place of the source."""

    text: str
    at: int
    splits: bool = False
    """Unquoted text of a variable: blanks in it end a word."""
    unresolved: str = ""
    assumed: str = ""


@dataclass(frozen=True, slots=True)
class _Field:
    """One word after expansion."""

    spans: tuple[_Span, ...]
    conditional: bool = False


def read_script(text: str, line: int = 1, column: int = 1) -> Script:
    """The commands of a script. ``line`` and ``column`` say where the text begins (a command within a unit, say)."""
    tokens = Tokens(text)
    reader = _Reader(Lines(text, line, column))
    for simple in Grammar(tokens):
        reader.take(simple)
    if tokens.broken:
        at, what = tokens.broken
        reader.leave(text[at : at + 40], what, at)
    return reader.script()


def split_words(text: str, line: int = 1, column: int = 1) -> tuple[Word, ...]:
    """The words of one command line in a shell's quoting, none of it expanded beyond that text itself."""
    return tuple(word for command in read_script(text, line, column).commands[:1] for word in command.words)


class _Reader:
    """Follows the script from top to bottom."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._values: dict[str, tuple[_Field, ...]] = {}
        self._arrays: set[str] = set()
        self._exported: dict[str, int] = {}
        self._exports_all = False
        self._commands: list[Command] = []
        self._unread: list[Unread] = []

    def script(self) -> Script:
        exported = [self._setting(name, at) for name, at in self._exported.items() if name in self._values]
        return Script(tuple(self._commands), tuple(exported), tuple(self._unread))

    def leave(self, text: str, reason: str, at: int) -> None:
        """Note what could not be followed."""
        self._unread.append(Unread(text.strip()[:80], reason, *self._lines.at(at)))

    def take(self, simple: Simple) -> None:
        """One simple command."""
        if simple.loop:
            self._values.pop(simple.loop, None)
            return
        words, env = list(simple.words), list[Setting]()
        leading: list[Token] = []
        while words and _assigned(words[0]):
            leading.append(words.pop(0))
        for token in leading:
            if words:
                env.append(self._passed(token, simple.conditional))
            else:
                self._assign(token, simple.conditional)
        if words:
            self._run(words, tuple(env), simple.conditional)

    def _run(self, words: list[Token], env: tuple[Setting, ...], conditional: bool) -> None:
        first = words[0]
        if first.is_word(*_DECLARING):
            self._declare(words, conditional)
        elif first.is_word("unset"):
            for token in words[1:]:
                self._values[token.text] = ()
                self._exported.pop(token.text, None)
        elif first.is_word("set"):
            self._set(words[1:], conditional)
        elif first.is_word("shift"):
            self._values.pop("@", None)
        elif first.is_word("source", ".", "eval"):
            self.leave(
                " ".join(token.text for token in words), f"what {first.text!a} brings in is not followed", first.at
            )
        else:
            fields = self._fields(words)
            if fields:
                found = tuple(self._word(each) for each in fields)
                self._commands.append(Command(found, env, f"line {found[0].line}", conditional))

    def _declare(self, words: list[Token], conditional: bool) -> None:
        options = {char for token in words[1:] if token.text.startswith("-") for char in token.text[1:]}
        for token in words[1:]:
            if _assigned(token, quoted=True):
                self._assign(token, conditional)
            name = token.text.partition("=")[0].rstrip("+")
            if not token.text.startswith("-") and (words[0].text == "export" or "x" in options):
                self._exported.setdefault(name, token.at)

    def _set(self, words: list[Token], conditional: bool) -> None:
        for index, token in enumerate(words):
            if token.is_word("--"):
                self._values["@"] = _marked(self._fields(words[index + 1 :]), conditional)
                self._arrays.add("@")
                return
            if token.is_word("-a") or (token.text.startswith("-") and "a" in token.text[1:]):
                self._exports_all = True

    def _assign(self, token: Token, conditional: bool) -> None:
        found = _assigned(token, quoted=True)
        if not found:
            return
        name, more = found["name"], bool(found["more"])
        self._exported.update({name: token.at} if self._exports_all else {})
        before = self._values.get(name, ()) if more else ()
        unknown = more and name not in self._values
        if token.elements is not None:
            fields = _marked(self._fields(token.elements), conditional)
            self._values[name] = (*before, *fields)[:FIELD_LIMIT]
            self._arrays.add(name)
            return
        spans = tuple(span for each in before[:1] for span in each.spans) + self._value(token, found.end())
        if conditional or found["index"] or unknown:
            spans = (_Span(f"${name}", token.at, unresolved=f"${name}"),)
        self._values[name] = (_Field(_whole(spans, f"${name}", token.at)),)
        self._arrays.discard(name)

    def _passed(self, token: Token, conditional: bool) -> Setting:
        found = _assigned(token)
        name, skip = (found["name"], found.end()) if found else (token.text, 0)
        field = _Field(self._value(token, skip), conditional)
        line, column = self._lines.at(token.at)
        return Setting(name, replace(self._word(field), line=line, column=column))

    def _setting(self, name: str, at: int) -> Setting:
        field = self._values[name][0] if self._values[name] else _Field(())
        line, column = self._lines.at(field.spans[0].at if field.spans else at)
        return Setting(name, replace(self._word(field), line=line, column=column))

    def _value(self, token: Token, skip: int) -> tuple[_Span, ...]:
        """The right-hand side of an assignment: expanded, never split."""
        head, *rest = token.parts
        first = Part(head.kind, head.raw[skip:], head.at + skip, head.quoted)
        spans = [span for part in (first, *rest) for each in self._expand(part) for span in each]
        return tuple(replace(span, splits=False) for span in spans if span.text or span.unresolved)

    def _fields(self, words: Iterable[Token]) -> tuple[_Field, ...]:
        fields: list[_Field] = []
        for token in words:
            fields += self._split(token)
            if len(fields) > FIELD_LIMIT:
                self.leave(token.text, f"more than {FIELD_LIMIT:,} words", token.at)
                return tuple(fields[:FIELD_LIMIT])
        return tuple(fields)

    def _split(self, token: Token) -> list[_Field]:
        """The words that one token becomes: arrays give several, so do blanks in what was not quoted."""
        alone = token.parts[0] if len(token.parts) == 1 else None
        name = alone.name.removesuffix("[@]") if alone and alone.kind == "variable" else ""
        whole = alone and (alone.name.endswith("[@]") or alone.name in ("@", "*"))
        if whole and name in self._values:
            return list(self._values["@" if name == "*" else name])
        fields: list[list[_Span]] = [[]]
        kept = False
        for part in token.parts:
            kept = kept or part.quoted
            for index, spans in enumerate(self._expand(part)):
                if index:
                    fields.append([])
                for span in spans:
                    _add(fields, span)
        for span in fields[0][:1]:  # a word begins where it is written, not behind its quote
            if token.parts[0].kind == "literal" or span.unresolved:
                fields[0][0] = replace(span, at=token.at)
        found = [_Field(_whole(tuple(spans), token.text, token.at)) for spans in fields if spans]
        return found or ([_Field((_Span("", token.at),))] if kept else [])

    def _expand(self, part: Part) -> list[tuple[_Span, ...]]:
        """A part as spans; more than one list where an array stands within a word."""
        if part.kind == "literal":
            return [(_Span(part.raw, part.at),)]
        name = part.name.removesuffix("[@]")
        known = self._values.get(name) if part.kind == "variable" else None
        if known and (part.name.endswith("[@]") or name == "@"):
            return [each.spans for each in known]
        empty = known is not None and not any(span.text for field in known for span in field.spans)
        if empty and part.assigns:  # set by a default of nothing, and given another one here: in some runs, or in all
            self._values[name] = (_Field((_Span(f"${name}", part.at, unresolved=f"${name}"),)),)
            return [(_Span(part.raw, part.at, unresolved=part.raw),)]
        if known is not None:
            spans = known[0].spans if known else ()
            return [tuple(replace(span, splits=not part.quoted) for span in spans)]
        if part.default is not None:
            span = _Span(part.default, part.at, not part.quoted, assumed=name)
            if part.assigns:
                self._values[name] = (_Field((replace(span, splits=False),)),)
            return [(span,)]
        return [(_Span(part.raw, part.at, unresolved=part.raw),)]

    def _word(self, field: _Field) -> Word:
        text = "".join(span.text for span in field.spans)
        line, column = self._lines.at(field.spans[0].at) if field.spans else (0, 0)
        return Word(
            text,
            line,
            column,
            tuple(dict.fromkeys(span.unresolved for span in field.spans if span.unresolved)),
            tuple(dict.fromkeys(span.assumed for span in field.spans if span.assumed)),
            field.conditional,
        )


def _assigned(token: Token, *, quoted: bool = False) -> re.Match[str] | None:
    """``NAME=``; within quotes it is one only where a command such as ``export`` takes it."""
    head = token.parts[0] if token.parts else None
    return _ASSIGNMENT.match(head.raw) if head and head.kind != "variable" and quoted >= head.quoted else None


def _add(fields: list[list[_Span]], span: _Span) -> None:
    """Append a span, cut at its blanks where it splits."""
    if not span.splits:
        fields[-1].append(span)
        return
    if span.text[:1].isspace() and fields[-1]:
        fields.append([])
    for count, found in enumerate(re.finditer(r"\S+", span.text)):
        if count:
            fields.append([])
        fields[-1].append(replace(span, text=found[0], at=span.at + found.start()))
        if count > FIELD_LIMIT:
            return
    if span.text[-1:].isspace():
        fields.append([])


def _whole(spans: tuple[_Span, ...], written: str, at: int) -> tuple[_Span, ...]:
    """The spans, unless they have grown beyond the bound of a word."""
    if len(spans) > FIELD_LIMIT or sum(len(span.text) for span in spans) > WORD_LIMIT:
        return (_Span(written[:80], at, unresolved=written[:80]),)
    return spans


def _marked(fields: tuple[_Field, ...], conditional: bool) -> tuple[_Field, ...]:
    return tuple(replace(each, conditional=True) for each in fields) if conditional else fields
