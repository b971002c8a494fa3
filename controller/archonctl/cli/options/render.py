"""Options of ``archonctl render``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint
from archonctl.release.targets import TARGETS

NOTES = """\
examples:
  archonctl render tiny --out build/tiny
  archonctl render archon --target quadlet > archon.container
  archonctl render archon --target docker
  archonctl render archon --target kubernetes --out build/archon && kubectl apply -k build/archon

Without --out the files of the target are printed and nothing is written. Every target is part of the same release, or
(kubernetes) made from it: byte-identical, and not even rewritten, when nothing changed."""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
    verb.add_argument("--out", metavar="DIR", help="folder for the rendered files (created)")
    verb.add_argument(
        "--target",
        choices=TARGETS,
        default="all",
        help="what to print or list: the systemd unit, a podman or docker command, a Quadlet (default: all); or a "
        "Kustomize base for a cluster",
    )
    verb.add_argument(
        "--controller-image",
        metavar="IMAGE",
        help="with --target kubernetes: the image with archonctl in it, by digest (kubernetes.controller_image)",
    )
