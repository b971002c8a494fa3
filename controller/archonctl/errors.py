"""The one family of errors that rooms below ``cli/`` raise.

::

    ArchonError
     +- UsageError           exit 2   what was typed cannot be understood
     +- DeclarationError     exit 2   a declaration, host profile or manifest is wrong
     +- ModelError           exit 2   a model file cannot be read
     +- ContractBroken       exit 1   evidence says that the contract does not hold
     +- NoEvidence           exit 3   nothing was seen, so nothing is claimed
     +- GateRefusal          exit 4   known before the start: it cannot work
     +- HostRefusal          exit 5   the host lacks something (port, memory, limit, binary)

Every error carries a stable ``code`` (kebab-case; ``runbooks/<code>.md`` explains it), one sentence with
both numbers, and, where they are known, the place and what to do. Nothing below ``cli/`` prints or exits.
"""

from __future__ import annotations

from typing import ClassVar


class ArchonError(Exception):
    """Base of every error that a person is meant to read.

    ``where`` is a place such as ``env/tiny.toml:12``; ``hint`` is an instruction ("raise len to ...").
    """

    exit_code: ClassVar[int] = 70
    tail: tuple[str, ...] = ()
    """The last lines of a log, where it is a log that tells the rest."""

    def __init__(self, code: str, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.code}: {place}{self.message}{hint}"

    def as_dict(self) -> dict[str, str]:
        """The error as JSON-ready strings: code, message, where, hint."""
        return {"code": self.code, "message": self.message, "where": self.where, "hint": self.hint}


class UsageError(ArchonError):
    """The command line cannot be understood, or names something that is not there."""

    exit_code = 2


class DeclarationError(ArchonError):
    """An endpoint declaration, host profile or model manifest is invalid."""

    exit_code = 2


class ModelError(ArchonError):
    """A model file is missing, truncated, hostile or of another kind."""

    exit_code = 2


class ContractBroken(ArchonError):
    """Evidence from the running engine says that the contract does not hold."""

    exit_code = 1


class NoEvidence(ArchonError):
    """What would prove or disprove the contract was not seen."""

    exit_code = 3


class GateRefusal(ArchonError):
    """What is declared cannot keep the contract, or cannot start; found before anything was touched."""

    exit_code = 4


class HostRefusal(ArchonError):
    """The host lacks something that the engine needs."""

    exit_code = 5
