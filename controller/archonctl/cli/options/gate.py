"""Options of ``archonctl gate``."""

from __future__ import annotations

import argparse

NOTES = """\
examples:
  archonctl gate env/*.toml
  archonctl gate deploy/ --format github            units, drop-ins, scripts, compose, manifests, env files
  archonctl gate start.sh --engine-version 0.9.2
  archonctl gate env/archon.toml --installed archon what is installed against what is declared
  archonctl gate start.sh --fix                     the safe edits as a diff; --fix --write makes them

Neither GPU nor network is needed, and nothing is started. A file says its engine's version by an image's tag, by
a declaration beside it, or by a comment: # archonctl: engine=vllm version=0.9.2

exit: 0 clean (warnings pass, --strict refuses them too), 4 refused"""

KINDS = ("radiance", "vllm", "sglang", "llamacpp")
FORMATS = ("text", "json", "github", "junit", "sarif")


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    what = (
        "a declaration, env file, argv.json, unit, drop-in, Quadlet, script, compose file, Kubernetes manifest, "
        "rendered release or folder"
    )
    verb.add_argument("path", nargs="*", metavar="PATH", help=what)
    verb.add_argument("--format", choices=FORMATS, default="text", help="default: text; --json is --format json")
    verb.add_argument("--strict", action="store_true", help="refuse warnings too")
    verb.add_argument("--fix", action="store_true", help="show the safe edits (renames, removals) as a diff")
    verb.add_argument("--write", action="store_true", help="with --fix: make them")
    verb.add_argument("--verify-files", action="store_true", help="read model files for their SHA-256 (remembered)")
    group = verb.add_argument_group("what the files do not say")
    group.add_argument("--engine", type=_engine, choices=KINDS, default="", help="engine kind")
    group.add_argument("--engine-version", default="", metavar="V", help="engine version")
    group = verb.add_argument_group("this machine")
    group.add_argument("--installed", metavar="NAME", help="compare the installed release and units of this endpoint")
    group.add_argument("--root", default="/", metavar="DIR", help="root of what is installed (default: /)")
    group.add_argument("--no-environment", action="store_true", help="do not judge the environment of this shell")
    group.add_argument("--no-verify-units", action="store_true", help="do not ask systemd-analyze about units")


def _engine(text: str) -> str:
    from archonctl.engines.names import engine_name

    return engine_name(text)
