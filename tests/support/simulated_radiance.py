"""Start the radiance simulator in a test."""

from __future__ import annotations

import shlex
from pathlib import Path

PROGRAM = Path(__file__).with_name("bin") / "radiance"
MODEL_BYTES = 121_969_901_568


def write_radiance(folder: Path, name: str = "radiance", **simulate: object) -> Path:
    """A program in ``folder`` that is the simulator with these settings, to be declared as engine.binary.

    ``write_radiance(tmp, version="1.8.1", load_s=2)``; the names are those of ``radiance_sim.config``.
    """
    words = [str(PROGRAM)]
    for key, value in simulate.items():
        words += [f"--simulate-{key.replace('_', '-')}", str(value)]
    program = folder / name
    program.write_text(f'#!/bin/sh\n# radiance SIMULATOR\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o755)
    return program


def write_model(path: Path, size: int = MODEL_BYTES) -> Path:
    """A file of the model's exact size with nothing in it: sparse, it takes no room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path
