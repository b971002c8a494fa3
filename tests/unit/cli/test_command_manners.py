"""Help, manual, completions, explanations and the last line of defence."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from archonctl import __version__
from archonctl.cli import main as entry
from archonctl.cli.parser import build_parser

VERBS = ("plan", "render", "up", "probe", "stop", "ledger", "inspect", "knobs", "explain", "completion")


def test_the_version_is_printed(run_cli: Any) -> None:
    assert run_cli("--version").stdout == f"archonctl {__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(run_cli: Any, verb: str) -> None:
    done = run_cli(verb, "--help")
    assert done.code == 0
    assert re.search(rf"archonctl {verb}", done.stdout.split("options:")[-1]), done.stdout


def test_the_manual_is_what_the_parser_says(tmp_path: Path, repository: Path) -> None:
    fresh = tmp_path / "archonctl.1"
    subprocess.run([sys.executable, repository / "scripts" / "gen-man", fresh], check=True, timeout=60)
    shipped = repository / "docs" / "man" / "archonctl.1"
    assert fresh.read_text() == shipped.read_text(), "run scripts/gen-man"


def test_the_manual_states_every_exit_code(repository: Path) -> None:
    page = (repository / "docs" / "man" / "archonctl.1").read_text()
    status = page.split(".SH EXIT STATUS")[1].split(".SH")[0]
    assert re.findall(r"^\.B (\S+)", status, re.M) == ["0", "1", "2", "3", "4", "5", "6", "7", "8", "70", "128+N"]


@pytest.mark.parametrize(("shell", "check"), [("bash", ["bash", "-n"]), ("fish", None), ("zsh", None), ("tcsh", None)])
def test_completion_names_every_verb(run_cli: Any, tmp_path: Path, shell: str, check: list[str] | None) -> None:
    done = run_cli("completion", shell)
    assert done.code == 0
    assert all(verb in done.stdout for verb in VERBS)
    if check:
        script = tmp_path / "completion"
        script.write_text(done.stdout)
        subprocess.run([*check, script], check=True, timeout=30)


def test_explain_prints_a_page_and_lists_them_all(run_cli: Any) -> None:
    page = run_cli("explain", "contract-short")
    assert page.code == 0
    assert page.stdout.startswith("# contract-short:")
    listed = json.loads(run_cli("explain", "--json").stdout)["codes"]
    assert listed["contract-short"]


@pytest.mark.parametrize("code", ["contract-shrot", "../../etc/passwd", "", "x" * 300])
def test_explain_of_an_unknown_code_is_a_usage_error(run_cli: Any, code: str) -> None:
    done = run_cli("explain", code)
    assert done.code == 2
    assert "code-unknown" in done.stderr


def test_explain_suggests_what_was_meant(run_cli: Any) -> None:
    assert "did you mean contract-short?" in run_cli("explain", "contract-shrot").stderr


def test_an_unknown_verb_and_option_are_suggested(run_cli: Any) -> None:
    assert "did you mean plan?" in run_cli("paln").stderr
    assert "did you mean --seqs?" in run_cli("plan", "--sqes", "3").stderr


def test_a_fault_of_ours_is_said_without_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def broken(_only: str) -> None:
        raise RuntimeError("the impossible")

    monkeypatch.setattr("archonctl.cli.parser.build_parser", broken)
    monkeypatch.delenv("ARCHON_DEBUG", raising=False)
    assert entry.main(["plan"]) == 70
    assert capsys.readouterr().err.startswith("archonctl: internal-fault: RuntimeError: the impossible")


def test_every_option_has_help() -> None:
    parser = build_parser()
    verbs = next(a for a in parser._actions if a.dest == "verb").choices
    assert isinstance(verbs, dict)
    for name, verb in verbs.items():
        bare = [a.dest for a in verb._actions if not a.help and a.dest not in ("shell",)]
        assert not bare, f"{name}: {bare}"


def test_a_closed_pipe_is_no_error(repository: Path) -> None:
    script = f"set -o pipefail; {shlex.quote(sys.executable)} -m archonctl explain | head -n 1"
    done = subprocess.run(
        ["bash", "-c", script], cwd=repository, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def _shell(repository: Path, redirection: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = f"exec {shlex.quote(sys.executable)} -m archonctl {' '.join(args)} {redirection}"
    return subprocess.run(
        ["bash", "-c", command], cwd=repository, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "args",
    [("plan", "archon"), ("plan", "archon", "--json"), ("plan", "nix", "--json"), ("--help",), ("--version",)],
    ids=" ".join,
)
def test_an_answer_that_a_full_disk_loses_is_no_answer(repository: Path, args: tuple[str, ...]) -> None:
    done = _shell(repository, ">/dev/full", *args)
    assert done.returncode == 5
    assert "archonctl: answer-not-written: stdout takes no more: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&- <&-", "<&- >/dev/null", "2>&- >/dev/null", "2>/dev/full"])
@pytest.mark.parametrize(("endpoint", "code"), [("archon", 0), ("nix", 2)])
def test_closed_and_full_streams_keep_the_exit_code(
    repository: Path, redirection: str, endpoint: str, code: int
) -> None:
    done = _shell(repository, redirection, "plan", endpoint)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_while_modules_load_is_an_interruption(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "_run", interrupted)
    assert entry.main(["plan"]) == 130
    assert capsys.readouterr().err == "archonctl: interrupted\n"
