"""From the words on the command line to a loaded endpoint."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from archonctl.cli.output import Output
from archonctl.deployment.find import find_endpoint
from archonctl.deployment.load import LoadedEndpoint, load_endpoint, parse_setting
from archonctl.errors import UsageError

_FLAGS = {
    "seqs": "contract.seqs",
    "len": "contract.len",
    "kv_dtype": "contract.kv_dtype",
    "margin": "contract.margin",
    "engine_version": "engine.version",
}


def endpoint_of(args: Namespace, out: Output) -> LoadedEndpoint:
    """The endpoint that the arguments mean; says on stderr when it was chosen without being named."""
    path, said = find_endpoint(args.endpoint, os.environ, _here())
    if said:
        out.talk(f"archonctl: {said}")
    flags: dict[str, object] = {
        key: getattr(args, name) for name, key in _FLAGS.items() if getattr(args, name) is not None
    }
    flags |= dict(parse_setting(text) for text in args.set)
    return load_endpoint(path, flags, os.environ)


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "no-working-directory", "the current directory is gone", hint="cd to one that is there"
        ) from None
