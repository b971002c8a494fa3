"""Manifests as YAML that reads the same everywhere: YAML 1.1 and 1.2 parsers differ in what a plain word is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import yaml

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9./_-]*(?: [A-Za-z0-9./_-]+)*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Plain only where every parser reads a text: ``on``, ``1e3``, ``0o17`` and ``1:30`` are quoted."""
    style = None if _PLAIN.fullmatch(value) and value.lower() not in _WORDS else '"'
    if value.endswith("\n") and value.strip() and not re.search(r"[^\S\n]\n|^\s|[^\n -~]", value):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def documents(manifests: Iterable[Mapping[str, object]]) -> str:
    """The manifests, one document each, keys in the order that they were given."""
    return "---\n".join(yaml.dump(dict(each), Dumper=_Dumper, sort_keys=False, width=4096) for each in manifests)
