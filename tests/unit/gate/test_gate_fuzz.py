"""Any bytes in any kind of file: findings, never a traceback, and in bounded time and memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from archonctl.gate.env_lines import env_lines, readings
from archonctl.gate.fix import fixes
from archonctl.gate.formats import github_text, junit_text, sarif_value
from archonctl.gate.paths import Options, check_paths
from unit.gate.conftest import Judge, codes

NAMES = [
    "x.service",
    "x.container",
    "x.service.d/a.conf",
    "x.env",
    "x.sh",
    "compose.yml",
    "argv.json",
    "x.toml",
]
SCRAPS = [
    "[Service]\n", "[Container]\n", "ExecStart=", "Environment=", "EnvironmentFile=", "Restart=always\n", "Image=",
    "llama-server", "vllm serve m", "docker run ", "python -m sglang.launch_server", "services:\n", "  a:\n",
    "    image: vllm/vllm-openai:v0.9.2\n", "    command: ", "#!/bin/sh\n", "--ctx-size", " 8 ", "\\\n", '"', "'", "$",
    "${A:-b}", "$(", "`", "%", "&a", "*a", "<<", "EOF", "=", ";", "\n", "\t", "\x00", "\udc80", "é", "[", "]", "{", "}",
    "-", "[[boot]]\n",
]  # fmt: skip
QUIET = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def run(path: Path) -> None:
    report = check_paths([path], Options(verify_units=False))
    sarif_value(report)
    junit_text(report)
    github_text(report)
    fixes(report.findings)
    for finding in report.findings:
        assert finding.code
        assert finding.message


@pytest.mark.parametrize("name", NAMES)
@QUIET
@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from(SCRAPS), max_size=25).map(lambda s: "".join(s).encode("utf-8", "surrogateescape"))
)
@example(b"")
@example(b"\xff\xfe\x00")
@example(b"ExecStart")
def test_no_bytes_are_a_traceback(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    run(path)


@QUIET
@given(st.text(max_size=80))
def test_any_env_text_is_read(text: str) -> None:
    for line in env_lines(text):
        readings(line)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.sh", "A=x\n" + "A=$A$A\n" * 60 + "llama-server $A\n"),
        ("x.sh", "llama-server " + "--ctx-size 1 " * 2_000),
        ("x.sh", "(" * 100_000),
        ("x.service", "[Service]\nExecStart=/llama-server " + "a\\\n" * 20_000),
        ("x.service", "[Service]\n" + "Environment=A=%\n" * 20_000),
        (
            "compose.yml",
            "services:\n  a: &a\n    image: vllm/vllm-openai:v1\n" + "".join(f"  b{n}: *a\n" for n in range(1000)),
        ),
        ("compose.yml", "services: " + "[" * 5000),
        (
            "compose.yml",
            "a: &a [x, x]\n"
            + "".join(f"a{n}: &a{n} [*a{n - 1 if n else ''}, *a{n - 1 if n else ''}]\n" for n in range(40))
            + "services: *a39\n",
        ),
        ("argv.json", "[" * 100_000),
        ("argv.json", '["llama-server"' + ', "--ctx-size"' * 2_000 + "]"),
        ("x.env", "A=" + "\\" * 100_000),
        ("x.env", "A='\n" * 10_000),
        ("x.env", "".join(f"LLAMA_ARG_{n}=1\n" for n in range(20_000))),
        ("x.toml", "[contract]\nseqs = 1\n" + "a." * 20_000 + "b = 1\n"),
    ],
    ids=range(14),
)
@pytest.mark.timeout(60)
def test_large_and_hostile_files_are_bounded(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    run(tmp_path / name)


def test_a_file_that_is_too_large_is_said_and_not_read(judge: Judge) -> None:
    assert codes(judge(b"#!/bin/sh\n" * 200_000, "x.sh"), "error") == ["foreign-file-too-large"]


def test_links_pipes_and_unreadable_folders_do_not_stop_a_walk(tmp_path: Path) -> None:
    import os

    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.sh").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.sh")
    (tmp_path / "x.sh").write_text("#!/bin/sh\nexec llama-server -m m\n")
    report = check_paths([tmp_path], Options(verify_units=False))
    assert [Path(name).name for name in report.files] == ["x.sh"]
