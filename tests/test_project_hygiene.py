"""The linters as tests, and rules that no linter knows: every code has its page, and no page outlives its code."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "controller" / "archonctl"
RUNBOOKS = REPOSITORY / "runbooks"
LINT = REPOSITORY / "scripts" / "lint"
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
TEXT = {".py", ".toml", ".md", ".sh", ".bats", ".txt", ".json", ".jsonl", ".service", ".yml", ".cfg", ""}
IGNORED = {"build", "dist", "__pycache__"}
# Written in two halves, so that this file does not find itself.
FORBIDDEN = [
    "/" + "work/",
    "/tmp" + "/dev/",
    "pypi" + ".org",
    "python" + "hosted",
    "debian" + ".org",
    "npm" + "js",
    *(
        name + ".md"
        for name in ("DES" + "IGN", "FA" + "CTS", "ENG" + "INES", "FAU" + "LTS", "SOUR" + "CES", "PE" + "ERS")
    ),
]


def _linters() -> list[str]:
    listed = subprocess.run([LINT, "--list"], capture_output=True, text=True, check=True)
    return listed.stdout.split()


@pytest.mark.parametrize("linter", _linters())
def test_linter_finds_nothing(linter: str) -> None:
    environment = {**os.environ, "ARCHON_VENV": sys.prefix}
    done = subprocess.run(
        [LINT, linter], capture_output=True, text=True, check=False, env=environment, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"\n{done.stdout}{done.stderr}"


def _sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"), str(path))


def _code_positions() -> dict[str, int]:
    """Callables of the package that take a ``code``: name -> its position among the arguments (self not counted)."""
    found: dict[str, int] = {}
    bases: dict[str, list[str]] = {}
    for _, tree in _sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names = [argument.arg for argument in node.args.args if argument.arg not in {"self", "cls"}]
                if "code" in names and node.name != "__init__":
                    found[node.name] = names.index("code")
            elif isinstance(node, ast.ClassDef):
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
                fields = [
                    f.target.id for f in node.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)
                ]
                if "code" in fields:
                    found[node.name] = fields.index("code")
    family = {"ArchonError"}
    while grown := {name for name, parents in bases.items() if family & set(parents)} - family:
        family |= grown
    return found | dict.fromkeys(family, 0)


def _codes_used() -> dict[str, str]:
    """Codes given as literals to anything that takes a code: code -> path:line of one use."""
    positions = _code_positions()
    used: dict[str, str] = {}
    for path, tree in _sources():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            if name in positions and len(node.args) > positions[name]:
                values.append(node.args[positions[name]])
            for literal in (leaf for value in values for leaf in ast.walk(value)):
                if (
                    isinstance(literal, ast.Constant)
                    and isinstance(literal.value, str)
                    and CODE.fullmatch(literal.value)
                ):
                    used[literal.value] = f"{path.relative_to(REPOSITORY)}:{node.lineno}"
    return used


def _toml_strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from _toml_strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _toml_strings(item)


def _all_strings() -> set[str]:
    strings = {
        node.value
        for _, tree in _sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    for path in PACKAGE.rglob("*.toml"):
        strings.update(_toml_strings(tomllib.loads(path.read_text(encoding="utf-8"))))
    rules = (REPOSITORY / "observe/prometheus/archon.rules.yml").read_text(encoding="utf-8")
    return strings | set(re.findall(r"\bcode: ([a-z-]+)", rules))


def _pages() -> set[str]:
    return {page.stem for page in RUNBOOKS.glob("*.md") if page.stem != "README"}


def test_every_code_has_a_runbook_page() -> None:
    used = _codes_used()
    assert used, "no codes found: this test looks at the wrong place"
    missing = {code: place for code, place in used.items() if code not in _pages()}
    assert not missing


def test_every_runbook_page_belongs_to_a_code_in_use() -> None:
    assert not _pages() - _all_strings()


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_runbook_page_opens_with_its_code_and_one_line(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.stem != "README":
        assert re.match(rf"# {re.escape(page.stem)}: \S.*\n", text), text.split("\n", 1)[0]
    assert text.endswith("\n")


def _text_files() -> Iterator[Path]:
    for folder, folders, names in os.walk(REPOSITORY):
        folders[:] = [
            name
            for name in folders
            if name == ".ci" or not (name.startswith(".") or name in IGNORED or ".egg-" in name)
        ]
        for path in (Path(folder, name) for name in names):
            if path.suffix in TEXT and path.stat().st_size < 2_000_000 and not path.is_symlink():
                yield path


def test_the_project_speaks_of_itself_alone() -> None:
    found = []
    for path in _text_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(REPOSITORY)}: {word}" for word in FORBIDDEN if word in text]
    assert not found


def test_scripts_are_executable_and_say_how_they_are_used() -> None:
    for path in [*(REPOSITORY / "scripts").iterdir(), REPOSITORY / ".ci" / "run"]:
        if path.is_dir() or path.name.startswith("lib-"):
            continue
        text = path.read_text(encoding="utf-8")
        assert os.access(path, os.X_OK), path
        assert text.startswith("#!"), path
        head = [line for line in text.splitlines()[1:4] if line.strip("#\"' \t")]
        assert head, f"{path} does not say what it does"


def test_every_test_file_has_a_name_of_its_own() -> None:
    names = [path.name for path in (REPOSITORY / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
