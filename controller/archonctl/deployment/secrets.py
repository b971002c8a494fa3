"""What names a secret: variables, flags and URLs whose value belongs into a file that only the service reads."""

from __future__ import annotations

import re

_NAME = re.compile(
    r"(^|[-_])(api[-_]?key|access[-_]?key|secret([-_]?key)?|password|passwd|credentials?"
    r"|((hf|hub|auth|access|api|bearer)[-_])?token)$",
    re.IGNORECASE,
)
_FLAG = re.compile(
    r"^--?((hf|hub|auth|access|api|bearer)-token|([a-z0-9-]+-)?(api-key|secret|password))$", re.IGNORECASE
)
_URL_PASSWORD = re.compile(r"://[^/@\s:]+:[^/@\s]+@")
_VALUE = re.compile(r"(sk|pk|hf|ghp|gho|ghs|glpat|xox[abp]|AKIA|nvapi)[-_]?[A-Za-z0-9_-]{4,}|[A-Za-z0-9+_]{32,}={0,2}")


def is_secret_variable(name: str, value: str) -> bool:
    """True for a variable that holds a secret, by its name, or by a password within a URL."""
    return bool(value and (_NAME.search(name) or _URL_PASSWORD.search(value)))


def is_secret_flag(flag: str) -> bool:
    """True for a flag (with dashes) whose value is a secret."""
    return bool(_FLAG.fullmatch(flag.partition("=")[0]))


def has_url_password(text: str) -> bool:
    """True for a URL with a password in it."""
    return bool(_URL_PASSWORD.search(text))


def looks_secret(text: str) -> bool:
    """True for a text that has the form of a key or token: its usual beginnings, or 32 and more letters and digits."""
    return bool(_VALUE.fullmatch(text) and re.search("[0-9]", text)) or has_url_password(text)
