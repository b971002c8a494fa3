"""Fixtures that every test may use, and the rule that CI accepts no silent skip."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "pytest_bats_shim", "pytest_required_skips"]

# How long an example takes says how busy the machine is, and nothing of what is tried.
settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[*settings().suppress_health_check, HealthCheck.too_slow]
)
settings.load_profile("untimed")

REPOSITORY = Path(__file__).resolve().parent.parent
CLI = Path(sys.executable).with_name("archonctl")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the source tree."""
    return REPOSITORY


def _engine_binary(name: str, variable: str, beside: Path | None = None) -> Path:
    """Path of an engine binary: the variable, else beside the other one, else .cache/llama; skips if there is none."""
    candidates = [Path(os.environ[variable])] if os.environ.get(variable) else []
    candidates += [beside.with_name(name)] if beside else []
    candidates += [REPOSITORY / ".cache" / "llama" / name]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate.absolute()
    pytest.skip(f"no {name}: run scripts/get-llama-server, or set {variable}")


@pytest.fixture(scope="session")
def llama_server() -> Path:
    """A real llama-server (``ARCHON_TEST_LLAMA_SERVER``, else ``.cache/llama/llama-server``)."""
    return _engine_binary("llama-server", "ARCHON_TEST_LLAMA_SERVER")


@pytest.fixture(scope="session")
def llama_fit_params(llama_server: Path) -> Path:
    """llama.cpp's own memory oracle, of the same build as ``llama_server``."""
    return _engine_binary("llama-fit-params", "ARCHON_TEST_LLAMA_FIT_PARAMS", llama_server.resolve())


TinyGguf = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> TinyGguf:
    """``tiny_gguf(arch, **options)``: path of a small model file, written once a session for each set of options."""
    from support.tiny_gguf import write_tiny_gguf

    folder = tmp_path_factory.mktemp("gguf")
    made: dict[tuple[str, str], Path] = {}

    def make(arch: str, **options: Any) -> Path:
        key = (arch, repr(sorted(options.items())))
        if key not in made:
            path = folder / f"{arch}-{len(made)}.gguf"
            write_tiny_gguf(path, arch, **options)
            made[key] = path
        return made[key]

    return make


@dataclass(frozen=True, slots=True)
class CliResult:
    """What one run of the command answered."""

    code: int
    stdout: str
    stderr: str


RunCli = Callable[..., CliResult]


def _clean_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This environment without what would steer archonctl or its colours, plus ``extra``."""
    steering = ("ARCHON", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "CLICOLOR")
    return {k: v for k, v in os.environ.items() if not k.startswith(steering)} | dict(extra)


@pytest.fixture(scope="session")
def run_cli() -> RunCli:
    """``run_cli(*args, env=..., cwd=..., timeout=200)`` runs the installed command in a process of its own.

    It reads no stdin and cannot hang: after ``timeout`` seconds its process group is killed and the test fails.
    """
    if not CLI.exists():
        pytest.fail(f"{CLI} is not installed: pip install -e '.[test]'")

    def run(
        *args: str | Path, env: Mapping[str, str] | None = None, cwd: Path = REPOSITORY, timeout: float = 200
    ) -> CliResult:
        with subprocess.Popen(
            [CLI, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env=_clean_environment(env or {}),
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException as stop:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                if isinstance(stop, subprocess.TimeoutExpired):
                    pytest.fail(f"archonctl {' '.join(map(str, args))} still ran after {timeout:g} s\n{out}\n{err}")
                raise
            return CliResult(process.returncode, out, err)

    return run


@pytest.fixture
def free_port() -> int:
    """A TCP port that nobody has (``support.ports``)."""
    from support.ports import free

    return free()
