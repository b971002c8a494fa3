"""Simple commands of a token stream: which words belong together, and in which runs they are reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from archonctl.foreign.shell_tokens import REDIRECTS, Token, Tokens

_OPENING = ("if", "while", "until", "for", "select", "case")
_CLOSING = ("fi", "done", "esac")
_SKIPPED = ("then", "else", "elif", "do", "!", "{", "}", "time", "coproc")
_RESERVED = (*_OPENING, *_CLOSING, *_SKIPPED, "function")
_TESTS = ("[", "[[", "test")


@dataclass(frozen=True, slots=True)
class Simple:
    """One simple command: its words (an array assignment carries its elements), and whether only some runs reach it.

    ``loop`` holds the name that a ``for`` or ``select`` sets: its value is another in every round.
    """

    words: tuple[Token, ...]
    conditional: bool
    loop: str = ""


class Grammar:
    """Groups tokens into simple commands; knows just enough of the compound ones to leave their syntax out."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = iter(tokens)
        self._depth = 0
        self._after_test = False
        self._patterns = False
        """Within ``case``: the words up to the next ``)`` are a pattern."""

    def __iter__(self) -> Iterator[Simple]:
        words: list[Token] = []
        for token in self._tokens:
            if self._patterns:
                self._pattern(token)
            elif token.kind == "word":
                words.append(token)
                if token.is_word("[[") and all(word.is_word(*_RESERVED) for word in words[:-1]):
                    words += self._until("]]")
            elif token.text in REDIRECTS:
                if token.glued and words and words[-1].text.isdecimal():
                    words.pop()
                next(self._tokens, None)
            elif token.text == "(" and token.glued and words and words[-1].text.endswith("="):
                words[-1] = replace(words[-1], elements=tuple(self._until(")")))
            elif token.text == "(" and len(words) == 1:
                next(self._tokens, None)  # NAME() begins a function, and its name is no command
                words = []
            else:
                yield from self._simple(words, token.text)
                words = []
        yield from self._simple(words, "\n")

    def _until(self, end: str) -> Iterator[Token]:
        """The words up to ``end``, line ends and operators left out."""
        for token in self._tokens:
            if token.text == end and (token.kind == "operator" or token.is_word(end)):
                return
            if token.kind == "word":
                yield token

    def _pattern(self, token: Token) -> None:
        if token.kind == "operator" and token.text == ")":
            self._patterns = False
        elif token.is_word("esac"):
            self._patterns = False
            self._depth = max(0, self._depth - 1)

    def _simple(self, words: list[Token], end: str) -> Iterator[Simple]:
        loop = ""
        while words and words[0].is_word(*_RESERVED):
            word = words.pop(0).text
            if word in _CLOSING:
                self._depth = max(0, self._depth - 1)
            elif word in _OPENING:
                self._depth += 1
            if word in ("for", "select"):
                loop, words = words[0].text if words else "", []
            elif word == "case":
                self._patterns, words = end != ")", []
            elif word == "function":
                words = words[1:]
        if words or loop:
            yield Simple(tuple(words), self._depth > 0 or self._after_test, loop)
        if end in ("&&", "||"):
            # without words it ends "(( … ))", which is a test too
            tests = not words or words[0].is_word(*_TESTS)
            self._after_test = end == "||" or self._after_test or tests
        elif end in ("\n", ";", "&", ";;", ";&", ";;&"):
            self._after_test = False
        if end in (";;", ";&", ";;&"):
            self._patterns = True
