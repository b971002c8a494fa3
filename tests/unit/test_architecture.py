"""A room imports rooms above it, never below; nothing below cli/ prints or exits; plan loads no heavy module."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "controller" / "archonctl"

# Each room may import itself and what stands before it; rooms on one line do not see each other.
ORDER = [
    {"errors", "findings", "redact"},
    {"memory"},
    {"deployment", "host", "model"},
    {"engines", "catalogue"},
    {"plan", "runbook"},
    {"fit"},
    {"release", "foreign", "migration"},
    {"gate"},
    {"ledger"},
    {"probe"},
    {"service"},
    {"observe"},
    {"tiers"},
    {"guard"},
    {"fleet"},
    {"doctor"},
    {"cli"},
]
# host/ reads a declared profile and model/ a declared manifest, both as the declaration names and writes them.
EXTRA = {("host", "deployment"), ("model", "deployment")}
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in LEVEL)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST) -> set[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    parts = [name.split(".") for name in names]
    return {p[1] for p in parts if p[0] == "archonctl" and len(p) > 1 and p[1] in LEVEL}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_imports_only_rooms_above_it(path: Path) -> None:
    room = room_of(path)
    for other in imported_rooms(ast.parse(path.read_text(encoding="utf-8"))):
        allowed = other == room or LEVEL[other] < LEVEL[room] or (room, other) in EXTRA
        assert allowed, f"{path.relative_to(PACKAGE)} ({room}) imports {other}"


@pytest.mark.parametrize("path", [p for p in MODULES if room_of(p) != "cli"], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_below_the_command_line_prints_or_exits(path: Path) -> None:
    if "if __name__ ==" in path.read_text(encoding="utf-8"):
        return  # a module that is also a command of its own says so
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"print", "exit", "quit", "sys.exit", "os.abort"}, f"{called} in line {node.lineno}"


def test_every_room_has_a_level() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert rooms <= set(LEVEL)


def test_a_plan_loads_no_heavy_module() -> None:
    script = (
        "import sys; from archonctl.cli.main import main; code = main(['plan', 'env/archon.toml', '--json']);"
        "heavy = {'httpx', 'rich', 'pydantic_settings', 'asyncio', 'subprocess', 'numpy', 'shtab'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PACKAGE.parents[1], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
