"""Which files of a release belong to which way of starting it."""

from __future__ import annotations

from archonctl.errors import UsageError
from archonctl.release.values import Release

KUBERNETES = "kubernetes"
"""Its manifests are made from the release and are no part of it (``fleet.kubernetes``)."""

TARGETS = ("systemd", "podman", "docker", "quadlet", KUBERNETES, "all")


def files_of(target: str, release: Release) -> tuple[str, ...]:
    """The files of one target, the one that a person wants to see first.

    Raises UsageError ``render-target-unsupported`` where a binary is declared and a container asked for.
    """
    own = {
        "podman": ("run-podman", "podman.json"),
        "docker": ("run-docker", "docker.json"),
        "quadlet": (f"{release.endpoint}.container",),
    }
    if target not in own:
        others = {file for names in own.values() for file in names} if target == "systemd" else set[str]()
        return tuple(sorted(set(release.files) - others))
    found = tuple(file for file in own[target] if file in release.files)
    if not found:
        raise UsageError(
            "render-target-unsupported",
            f"{release.endpoint} declares a binary, and {target} runs an image",
            hint="set engine.image (by digest) in place of engine.binary, or render for systemd",
        )
    return found
