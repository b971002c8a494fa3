# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a Debian package of archonctl would place."""

from __future__ import annotations

import json
import subprocess
import tarfile


def listing_of(package, name):
    """The JSON file ``name`` within a package; None where it is no package, or holds no such file.

    Read as a stream: a module's own run_command takes minutes for an output of this size.
    """
    command = ["dpkg-deb", "--fsys-tarfile", package]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as files:
                return next(json.load(files.extractfile(each)) for each in files if each.name == f".{name}")
        except (tarfile.TarError, StopIteration, ValueError):
            return None
